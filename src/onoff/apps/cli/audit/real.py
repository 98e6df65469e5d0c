"""`onoff audit real`: replay real sequences and let a server attack that knows more than the chain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onoff.apps.cli.options import AsJson, parse_lags
from onoff.apps.cli.printing import print_json
from onoff.apps.cli.shape import AUDIT
from onoff.apps.tone import aside
from onoff.errors import OnoffError
from onoff.schemes import AUTO, listed, tables

if TYPE_CHECKING:
    from onoff.audit.real import RealAudit, RealPast, Split
    from onoff.audit.real.replay import Case, Estimate, Leak
    from onoff.model.chain import Chain
    from onoff.plans.base import Plan


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=AUDIT, epilog="Example: onoff audit real sequences.txt --chain chain.csv --users 5000")(
        real
    )


def real(
    sequences: Annotated[Path, typer.Argument(metavar="SEQUENCES", help="One person per line; text, or zipped.")],
    chain: Annotated[
        Path | None, typer.Option(metavar="CHAIN", help="The client's chain; else counted in the training half.")
    ] = None,
    users: Annotated[int, typer.Option(min=2, help="How many people to attack at most.")] = 2000,
    min_length: Annotated[int, typer.Option(min=3, help="Leave shorter sequences out.")] = 6,
    max_length: Annotated[int, typer.Option(min=3, help="Leave longer ones out: they are robots.")] = 200,
    switch: Annotated[float, typer.Option(min=0.0, max=1.0, help="Probability of switching before a step.")] = 0.3,
    lags: Annotated[str, typer.Option(help="Lags with a plan of their own; each serves up to the next.")] = "1,2,3,5,8",
    scheme: Annotated[str, typer.Option(help=f"{listed(AUTO, *tables())}.")] = AUTO,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the halves, the statuses and the queries.")] = 1,
    promise: Annotated[
        str, typer.Option(metavar="both|past", help="past: the everyday mode, beside the announced one.")
    ] = "both",
    sensitive: Annotated[
        str | None, typer.Option(metavar="A,B", help="With --promise past: sources that are always hidden.")
    ] = None,
    share: Annotated[
        float, typer.Option(min=0.01, max=0.9, help="With --promise past: how many requests are private.")
    ] = 0.2,
    run: Annotated[
        float, typer.Option(min=1, help="With --promise past: the mean length of runs of private requests.")
    ] = 3.0,
    as_json: AsJson = False,
) -> None:
    """Measure what leaks because people are not Markov: real sequences, random ON and OFF periods, a stronger server.

    The server knows habits of the second order, from other people than those it attacks. Ctrl-C prints what it has.
    """
    from onoff.apps.terminal import progress
    from onoff.audit.real import audit_real, people, split
    from onoff.logs.read import read_sequences
    from onoff.model.chain import Chain

    wanted = parse_lags(lags)
    if wanted[0] != 1:
        raise OnoffError(f"--lags {lags}: a plan for lag 1 is needed, and none for lag 0")
    if max_length < min_length:
        raise OnoffError(f"--max-length {max_length} is less than --min-length {min_length}: nothing is left")
    given = None if chain is None else Chain.load(chain)
    names = () if given is None else given.names
    if promise not in ("both", "past"):
        raise OnoffError(f"there is no promise {promise!r}: choose both or past")
    if sensitive is not None and promise == "both":
        raise OnoffError("--sensitive is for the everyday mode: add --promise past")
    parts = split(people(read_sequences(sequences, names), given, min_length, max_length), given, users, seed)
    if promise == "past":
        plans = [] if sensitive is not None else _plans(parts.chain, wanted, scheme)
        _past(parts, plans, sensitive, share, run, seed, as_json)
        return
    found = audit_real(parts, _plans(parts.chain, wanted, scheme), switch=switch, seed=seed, progress=progress)
    _present(found, lambda: _as_dict(parts, found), lambda: _print(parts, found), as_json)


def _present(
    found: RealAudit | RealPast, data: Callable[[], dict[str, Any]], show: Callable[[], None], as_json: bool
) -> None:
    """Print what was found, as `data` or by `show`. If Ctrl-C stopped it, say so, and go on with stopping."""
    if found.stopped:
        aside(f"stopped after {found.attacked} of {found.wanted} people")
    if as_json:
        print_json(data())
    else:
        show()
    if found.stopped:
        raise KeyboardInterrupt


def _past(
    parts: Split, plans: Sequence[Plan], sensitive: str | None, share: float, run: float, seed: int, as_json: bool
) -> None:
    """The everyday mode on real people."""
    from onoff.apps.cli.audit.showpast import past_as_dict, print_past
    from onoff.apps.terminal import progress
    from onoff.audit.real import audit_real_past
    from onoff.everyday import Everyday

    hidden = [] if sensitive is None else [parts.chain.index(name.strip()) for name in sensitive.split(",")]
    found = audit_real_past(
        parts, Everyday.start, sensitive=hidden, plans=plans, share=share, length=run, seed=seed, progress=progress
    )
    _present(found, lambda: past_as_dict(found, parts), lambda: print_past(found, parts), as_json)


def _plans(chain: Chain, lags: Sequence[int], scheme: str) -> list[Plan]:
    """One plan with a table for each lag."""
    from onoff.apps.planprogress import plan_progress
    from onoff.audit.models import has_table
    from onoff.plans.making import plan

    plans: list[Plan] = []
    with plan_progress(lags) as shown:
        for lag in lags:
            made = plan(chain, lag, scheme)
            if not has_table(made):
                raise OnoffError(f"the scheme {scheme!r} has no table to attack: choose {listed(AUTO, *tables())}")
            shown.done(lag, made)
            plans.append(made)
    return plans


def _as_dict(parts: Split, found: RealAudit) -> dict[str, Any]:
    return {
        "sources": parts.chain.n,
        "training": parts.training,
        "cut_unknown": parts.unknown,
        "cut_impossible": parts.impossible,
        "bits_to_predict_a_request": found.bits_to_predict,
        "leaks": [asdict(leak) | {"case": leak.case._asdict()} for leak in found.leaks],
    }


def _print(parts: Split, found: RealAudit) -> None:
    from onoff.apps.terminal import print_table
    from onoff.audit.real.people import SERVERS
    from onoff.audit.real.replay import REAL

    rows = []
    for leak in found.leaks:
        client = leak.case.client if leak.case.people == REAL else f"{leak.case.client}, people as modelled"
        bits = [cell(estimate) for estimate in (leak.bits, leak.divergence, leak.together)]
        shares = [cell(estimate, 100, 1, " %") for estimate in (leak.right, leak.right_before)]
        rows.append((client, leak.case.server, *bits, *shares))
    headings = ("client", "server's model", "bits per private request", "belief moved, bits", "together, per request")
    first = found.leaks[0]
    title = f"{first.people} people, {first.private} private requests; the server learned from {parts.training} others"
    print_table(title, (*headings, "guessed right", "before"), rows)
    better = found.bits_to_predict[SERVERS[1]] - found.bits_to_predict[SERVERS[0]]
    print(
        f"With all requests before it at hand, the second order predicts a request by {better:.3f} bits better than "
        "the chain."
    )
    for count, what in ((parts.unknown, "a source"), (parts.impossible, "a step")):
        if count:
            print(f"{count} sequences end before {what} that the chain does not have.")
    print(_in_words({leak.case: leak for leak in found.leaks}))


def _in_words(found: dict[Case, Leak]) -> str:
    from onoff.audit.real.auditing import CLIENTS
    from onoff.audit.real.people import SERVERS
    from onoff.audit.real.replay import REAL, Case

    ours, naive = (found[Case(client, SERVERS[0], REAL)] for client in CLIENTS)
    return (
        f"A server that knows habits of the second order learns {interval(ours.bits)} bits about a private request "
        f"from our queries, and {interval(naive.bits)} bits from those of a client that asks openly while OFF. Its "
        f"guesses are right more often than without queries by {interval(ours.guesses_won, 100, 1)} and by "
        f"{interval(naive.guesses_won, 100, 1)} percentage points. (In brackets: 95 % intervals.)"
    )


def _numbers(estimate: Estimate, scale: int, digits: int) -> list[str]:
    return [f"{round(scale * x, digits) + 0.0:.{digits}f}" for x in (estimate.value, estimate.low, estimate.high)]


def interval(estimate: Estimate, scale: int = 1, digits: int = 4) -> str:
    value, low, high = _numbers(estimate, scale, digits)
    return f"{value} [{low}, {high}]"


def cell(estimate: Estimate, scale: int = 1, digits: int = 4, unit: str = "") -> str:
    value, low, high = _numbers(estimate, scale, digits)
    return f"{value}{unit}\n{low} to {high}"
