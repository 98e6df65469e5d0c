"""`onoff audit real`: replay real sequences and let a server attack that knows more than the chain."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onoff.apps.cli.options import parse_lags
from onoff.errors import OnoffError
from onoff.schemes import AUTO, listed, tables

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from onoff.audit.real.replay import Case, Estimate, Leak, Rules
    from onoff.audit.real.secondorder import SecondOrder
    from onoff.model.chain import Chain

TABLES_BYTES = 2**29
MOST_SOURCES = 60  # the server's beliefs are tables of n^3 numbers, its work is n^4 for every request
CLIENTS = ("onoff", "naive")
SERVERS = ("second order", "the chain")


@dataclass(frozen=True)
class People:
    """The sequences as indices of names, and what had to be cut off."""

    names: tuple[str, ...]
    paths: list[NDArray[np.intp]]
    unknown: int
    impossible: int


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: onoff audit real sequences.txt --chain chain.csv --users 5000")(real)


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
    seed: Annotated[int, typer.Option(min=0, help="Of the halves, the statuses and the queries.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """How much leaks because people are not Markov: real sequences, random ON and OFF periods, a stronger server.

    The server knows habits of the second order, from other people than those it attacks. Ctrl-C prints what it has.
    """
    import numpy as np

    from onoff.apps.terminal import progress
    from onoff.audit.real import replay as audit
    from onoff.audit.real.secondorder import SecondOrder, counted
    from onoff.model.chain import Chain

    wanted = parse_lags(lags)
    if wanted[0] != 1:
        raise OnoffError(f"--lags {lags}: a plan for lag 1 is needed, and none for lag 0")
    given = None if chain is None else Chain.load(chain)
    people = read_people(sequences, given, min_length, max_length)
    training, attacked = audit.halves(people.paths, np.random.default_rng(seed))
    attacked = attacked[:users]
    used = given or Chain.from_counts(counted(training, len(people.names), 2), people.names)
    fitted = SecondOrder.fit(training, used.P > 0)
    servers = dict(zip(SERVERS, (fitted, SecondOrder.of_chain(used, fitted.start)), strict=True))
    clients = _clients(used, wanted, scheme)
    scores: list[dict[audit.Case, audit.Score]] = []
    stopped = False
    try:
        with progress("people attacked")(len(attacked)) as advance:
            for score in audit.replay(attacked, clients, servers, switch, seed):
                scores.append(score)
                advance()
    except KeyboardInterrupt:
        stopped = True
        print(f"stopped after {len(scores)} of {len(attacked)} people", file=sys.stderr)
        if not scores:
            raise
    found = audit.leaks(scores, seed)
    code = {name: _code_length(server, attacked[: len(scores)]) for name, server in servers.items()}
    if as_json:
        print(json.dumps(_as_dict(people, len(training), code, found), indent=2))
    else:
        _print(people, len(training), code, found)
    if stopped:
        raise KeyboardInterrupt


def read_people(file: Path, chain: Chain | None, min_length: int, max_length: int) -> People:
    """The sequences of a fitting length. One with a source or step that the chain does not have ends before it."""
    import numpy as np

    from onoff.logs.sequences import read

    if max_length < min_length:
        raise OnoffError(f"--max-length {max_length} is less than --min-length {min_length}: nothing is left")
    index = {} if chain is None else {name: i for i, name in enumerate(chain.names)}
    paths, unknown, impossible = [], 0, 0
    for words in read(file, () if chain is None else chain.names):
        if not min_length <= len(words) <= max_length:
            continue
        if chain is None:
            path = [index.setdefault(word, len(index)) for word in words]
        else:
            path = [index.get(word, -1) for word in words]
            cut = next((t for t, x in enumerate(path) if x < 0), len(path))
            unknown += cut < len(path)
            path = path[:cut]
            allowed = chain.P[path[:-1], path[1:]] > 0
            if not allowed.all():
                impossible += 1
                path = path[: int(np.argmin(allowed)) + 1]
        if len(path) >= min_length:
            paths.append(np.array(path, dtype=np.intp))
    if len(paths) < 4:
        raise OnoffError(
            f"{file}: {len(paths)} sequences of {min_length} to {max_length} requests are left, after {unknown} were "
            f"cut at sources and {impossible} at steps that the chain does not have; give more sequences, other limits "
            "or another chain"
        )
    if len(index) > MOST_SOURCES:
        raise OnoffError(
            f"{len(index)} sources: the attack keeps n^3 numbers and takes up to {MOST_SOURCES}; merge some"
        )
    return People(tuple(index), paths, unknown, impossible)


def _clients(chain: Chain, lags: Sequence[int], scheme: str) -> list[Rules]:
    """Ours with its plans, and the naive one. Every lag has a model of its own, which keeps that lag's encoders."""
    from functools import lru_cache

    from onoff.apps.terminal import plan_progress
    from onoff.audit.models import Model, Naive, Planned
    from onoff.audit.real.replay import Rules
    from onoff.audit.setting import required
    from onoff.plans.making import plan
    from onoff.plans.table import TablePlan

    plans: list[TablePlan] = []
    with plan_progress(lags) as shown:
        for lag in lags:
            made = plan(chain, lag, scheme)
            if not isinstance(made, TablePlan):
                raise OnoffError(f"the scheme {scheme!r} has no table to attack: choose {listed(AUTO, *tables())}")
            shown.done(lag, made)
            plans.append(made)
    table = 16 * chain.n**2 * (chain.n + max(len(made.sets) for made in plans))  # bytes of the encoders of one lag

    @lru_cache(maxsize=max(4, TABLES_BYTES // table))
    def at(lag: int) -> Model:
        return Planned(required(plans, max(lag, 1)))

    return [Rules(CLIENTS[0], chain.n, at), Rules(CLIENTS[1], chain.n, lambda lag: Naive(chain.n))]


def _code_length(server: SecondOrder, paths: Sequence[NDArray[np.intp]]) -> float:
    """Bits that the server needs to know the next request of the people attacked, had it seen all before."""
    return float(sum(map(server.code_length, paths)) / sum(len(path) - 1 for path in paths))


def _as_dict(people: People, training: int, code: dict[str, float], found: Sequence[Leak]) -> dict[str, Any]:
    return {
        "sources": len(people.names),
        "training": training,
        "cut_unknown": people.unknown,
        "cut_impossible": people.impossible,
        "bits_to_predict_a_request": code,
        "leaks": [asdict(leak) | {"case": leak.case._asdict()} for leak in found],
    }


def _print(people: People, training: int, code: dict[str, float], found: Sequence[Leak]) -> None:
    from onoff.apps.terminal import print_table
    from onoff.audit.real.replay import REAL

    rows = []
    for leak in found:
        client = leak.case.client if leak.case.people == REAL else f"{leak.case.client}, people as modelled"
        bits = [_cell(estimate) for estimate in (leak.bits, leak.divergence, leak.together)]
        shares = [_cell(estimate, 100, 1, " %") for estimate in (leak.right, leak.right_before)]
        rows.append((client, leak.case.server, *bits, *shares))
    headings = ("client", "server's model", "bits per private request", "belief moved, bits", "together, per request")
    first = found[0]
    title = f"{first.people} people, {first.private} private requests; the server learned from {training} others"
    print_table(title, (*headings, "guessed right", "before"), rows)
    better = code[SERVERS[1]] - code[SERVERS[0]]
    print(
        f"With all requests before it at hand, the second order predicts a request by {better:.3f} bits better than "
        "the chain."
    )
    for count, what in ((people.unknown, "a source"), (people.impossible, "a step")):
        if count:
            print(f"{count} sequences end before {what} that the chain does not have.")
    print(_in_words({leak.case: leak for leak in found}))


def _in_words(found: dict[Case, Leak]) -> str:
    from onoff.audit.real.replay import REAL, Case

    ours, naive = (found[Case(client, SERVERS[0], REAL)] for client in CLIENTS)
    return (
        f"A server that knows habits of the second order learns {_interval(ours.bits)} bits about a private request "
        f"from our queries, and {_interval(naive.bits)} bits from those of a client that asks openly while OFF. Its "
        f"guesses are right more often than without queries by {_interval(ours.guesses_won, 100, 1)} and by "
        f"{_interval(naive.guesses_won, 100, 1)} percentage points. (In brackets: 95 % intervals.)"
    )


def _numbers(estimate: Estimate, scale: int, digits: int) -> list[str]:
    return [f"{round(scale * x, digits) + 0.0:.{digits}f}" for x in (estimate.value, estimate.low, estimate.high)]


def _interval(estimate: Estimate, scale: int = 1, digits: int = 4) -> str:
    value, low, high = _numbers(estimate, scale, digits)
    return f"{value} [{low}, {high}]"


def _cell(estimate: Estimate, scale: int = 1, digits: int = 4, unit: str = "") -> str:
    value, low, high = _numbers(estimate, scale, digits)
    return f"{value}{unit}\n{low} to {high}"
