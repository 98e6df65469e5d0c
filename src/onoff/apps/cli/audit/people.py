"""`onoff audit people`: replay real sequences and let a server attack that knows more than the chain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onoff.apps.cli.options import AsJson, Dask, Jobs, parse_lags
from onoff.apps.cli.output import note, print_json, print_table
from onoff.errors import OnoffError

if TYPE_CHECKING:
    from onoff import Chain, Plan
    from onoff.audit.people import Estimate, Leak, PeopleAudit

BITS = {  # the figures in bits that are shown for each promise, with their headings
    "both": {"bits": "bits"},
    "past": {"before": "before it (not promised)", "after": "at and after it", "moved": "belief moved at and after it"},
}
LAGS = 1, 2, 3, 5, 8  # with a plan of their own; each serves up to the next
SHARES = {"right_prior": "by habits alone", "right_before": "before it", "right": "after all queries"}


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: onoff audit people sequences.txt --chain chain.csv --users 5000")(people)


def people(
    sequences: Annotated[Path, typer.Argument(metavar="SEQUENCES", help="One person per line; text, or zipped.")],
    chain: Annotated[
        Path | None, typer.Option(metavar="CHAIN", help="The client's chain; else counted in the training half.")
    ] = None,
    users: Annotated[int, typer.Option(min=2, help="How many people to attack at most.")] = 2000,
    min_length: Annotated[int, typer.Option(min=3, help="Leave shorter sequences out.")] = 6,
    max_length: Annotated[int, typer.Option(min=3, help="Leave longer ones out: they are robots.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the halves, the statuses and the queries.")] = 1,
    promise: Annotated[str, typer.Option(metavar="both|past", help="The client's promise.")] = "both",
    memory: Annotated[
        str, typer.Option(help="With --promise past: how many requests the habits of clients remember, such as 1,2,3.")
    ] = "1",
    orders: Annotated[str, typer.Option(help="How many requests the servers remember, such as 2,3,4.")] = "2",
    share: Annotated[float, typer.Option(min=0.01, max=0.89, help="How many requests are private.")] = 0.2,
    run: Annotated[float, typer.Option(min=1, help="The mean length of runs of private requests.")] = 3.0,
    jobs: Jobs = None,
    dask: Dask = None,
    as_json: AsJson = False,
) -> None:
    """Measure what leaks because people remember more than the chain does: real sequences, random ON and OFF periods.

    Servers of deeper habits attack. They learned from other people: of the half that taught the client too, or of the
    other one. Ctrl-C prints what there is.
    """
    from onoff.apps.parallel import use_workers
    from onoff.apps.terminal import progress
    from onoff.audit.people import audit_people
    from onoff.logs.habits import split_people
    from onoff.logs.read import read_sequences
    from onoff.model.chain import Chain
    from onoff.past import PastState

    if max_length < min_length:
        raise OnoffError(f"--max-length {max_length} is less than --min-length {min_length}: nothing is left")
    if promise not in BITS:
        raise OnoffError(f"there is no promise {promise!r}: choose both or past")
    given = None if chain is None else Chain.load(chain)
    names = () if given is None else given.names
    limits = {"users": users, "min_length": min_length, "max_length": max_length, "seed": seed}
    read = read_sequences(sequences, names)
    parts = split_people(read, given, memory=parse_lags(memory, 1), orders=parse_lags(orders, 1), **limits)
    plans = [] if promise == "past" else _plans(next(iter(parts.clients.values())))
    engine = PastState.start if promise == "past" else None
    with use_workers(jobs, dask):
        found = audit_people(parts, plans, engine, share=share, run=run, seed=seed, progress=progress)
    if found.stopped:
        note(f"stopped after {found.attacked} of {found.wanted} people")
    if as_json:
        print_json(found)
    else:
        _print(found, promise)
    if found.stopped:
        raise KeyboardInterrupt


def _plans(chain: Chain) -> list[Plan]:
    """Make plans with tables."""
    from onoff import plan
    from onoff.apps.terminal import progress

    plans = []
    with progress("plans")(len(LAGS)) as advance:
        for lag in LAGS:
            made = plan(chain, lag)
            plans.append(made if made.kind == "table" else plan(chain, lag, "comb"))
            advance()
    return plans


def _print(found: PeopleAudit, promise: str) -> None:
    """Print what servers learned about hidden requests, how often guesses were right, and the cost."""
    first = found.leaks[0]
    print(f"{found.attacked} people, {first.hidden} private requests; clients learned from {found.training} others")
    _print_figures("bits about a private request", found.leaks, BITS[promise])
    _print_figures("how often the best guess is right, and what it costs", found.leaks, SHARES, messages=True)
    if found.cut:
        print(f"{found.cut} sequences end early, before a source or a step that the chain does not have.")
    print("Below a figure is its 95 % interval. Servers learned from those who taught the clients, or from others.")


def _print_figures(title: str, leaks: Sequence[Leak], figures: dict[str, str], messages: bool = False) -> None:
    """Print a table with these figures as columns: bits, or shares and messages."""
    rows = []
    for leak in leaks:
        cells = [_numbers(leak.figures[name], 100 if messages else 1, 1 if messages else 4) for name in figures]
        cells += [_numbers(leak.figures["messages"], 1, 2)] if messages else []
        rows.append((leak.client, leak.server, *(value for value, _, _ in cells)))
        rows.append(("", "", *(f"{low} to {high}" for _, low, high in cells)))
    headings = [f"{heading}, %" if messages else heading for heading in figures.values()]
    print_table(title, ("client", "server", *headings, *["messages per request"][: int(messages)]), rows)


def _numbers(estimate: Estimate, scale: int, digits: int) -> list[str]:
    return [f"{round(scale * x, digits) + 0.0:.{digits}f}" for x in (estimate.value, estimate.low, estimate.high)]
