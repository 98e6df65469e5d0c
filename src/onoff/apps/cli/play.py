"""`onoff play`: all requests of a file in turn; stopped or killed, it goes on where it was."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onoff.apps.cli.fetched import tell_step
from onoff.apps.cli.options import (
    READ,
    TOKEN,
    AsJson,
    Background,
    Cache,
    ChainFile,
    Deadline,
    Delay,
    JournalFile,
    Plans,
    Promise,
    Record,
    Sensitive,
    Server,
    Urls,
    parse_sources,
)
from onoff.apps.cli.output import note, print_json
from onoff.apps.cli.telling import explained, note_new, note_planner
from onoff.errors import OnoffError

if TYPE_CHECKING:
    from onoff.client.client import Client
    from onoff.client.journalfile import Step, Totals
    from onoff.client.play import Delivery

STDIN = Path("-")


def register(app: typer.Typer) -> None:
    app.command(
        rich_help_panel=READ,
        epilog="Example: onoff play requests.txt --server http://127.0.0.1:8700 --chain chain.json",
    )(play)


def play(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="One request in a line: `on SOURCE` or `off SOURCE`; - for stdin.")
    ],
    journal: JournalFile = None,
    chain: ChainFile = None,
    server: Server = None,
    urls: Urls = None,
    promise: Promise = None,
    sensitive: Sensitive = None,
    record: Record = None,
    plans: Plans = None,
    cache: Cache = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write each message to a file here.")] = None,
    restart: Annotated[
        bool,
        typer.Option("--restart", help="Make the requests of FILE again; give up a file that is not at its end."),
    ] = False,
    delay: Delay = 0.05,
    deadline: Deadline = None,
    background: Background = True,
    as_json: AsJson = False,
) -> None:
    """Make all requests of FILE in turn. Stopped, or killed, it goes on where it was when called again.

    A file that was played to its end is not played again unless --restart says so.
    """
    import asyncio
    import os

    from onoff.apps.cli.showstatus import print_totals
    from onoff.client.connect import connect
    from onoff.client.play import Delivery, parse_items, read_items

    given = None if file != STDIN else _standard_input()
    client = connect(
        chain, server=server, urls=urls, journal=journal, promise=promise, sensitive=parse_sources(sensitive),
        record=record, plans=plans, cache=cache,
        token=os.environ.get(TOKEN), delay=delay, deadline=deadline,
        background=background, lasting=True,
    )  # fmt: skip
    names, where = client.chain.names, file.absolute() if given is None else Path("stdin")
    items = read_items(file, names) if given is None else parse_items(given, where, names)
    delivery = Delivery(out)
    try:
        with explained(client, "run the same command again" + (", without --restart" if restart else "")):
            played, steps = asyncio.run(_play(client, where, items, delivery, restart))
    finally:
        for found in delivery.words():
            note(found)
        note_planner(client)
    for row in steps:
        tell_step(row, names)
    if played.note is not None:
        note(played.note)
    if as_json:
        print_json(played)
    else:
        print_totals(played.totals, client.chain, client.journal.promise)
    delivery.check()


@dataclass(frozen=True)
class Played:
    """What `onoff play --json` prints: how many requests FILE has, how many were made now, and what there is to say.

    The totals are those of the journal.
    """

    file: Path
    requests: int
    made: int
    note: str | None
    totals: Totals


def _standard_input() -> str:
    """All of standard input."""
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise OnoffError(f"standard input: byte {error.start} is not UTF-8") from None


async def _play(
    asked: Client, file: Path, items: list[tuple[str, bool]], delivery: Delivery, restart: bool
) -> tuple[Played, list[Step]]:
    """What was played, and the steps that were made for it now."""
    from onoff.apps.progress import progress
    from onoff.client.play import play_file

    async with asked as client:
        before = client.journal.state.step
        words = await play_file(client, file, items, delivery, restart, progress("requests"))
        note_new(client)
        steps = [row for row in client.journal.steps(since=before) if row.bytes is not None]
        return Played(file, len(items), len(steps), words, client.journal.totals()), steps
