"""`onoff play`: all requests of a file in turn; stopped or killed, it goes on where it was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onoff.apps.cli.options import (
    TOKEN,
    Background,
    Cache,
    ChainFile,
    Deadline,
    Delay,
    JournalFile,
    Lengths,
    Plans,
    Promise,
    Record,
    Sensitive,
    Server,
    Urls,
    parse_sources,
)
from onoff.apps.cli.telling import explained, note, note_new, note_planner

if TYPE_CHECKING:
    from onoff.client.client import Client
    from onoff.client.playing import Delivery
    from onoff.client.stored import Totals


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: onoff play requests.txt --server http://127.0.0.1:8700 --chain chain.json")(play)


def play(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="One request in a line: `on SOURCE` or `off SOURCE`.")],
    journal: JournalFile = None,
    chain: ChainFile = None,
    server: Server = None,
    urls: Urls = None,
    promise: Promise = None,
    sensitive: Sensitive = None,
    record: Record = None,
    plans: Plans = None,
    lengths: Lengths = None,
    cache: Cache = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write each message to a file here.")] = None,
    restart: Annotated[
        bool,
        typer.Option("--restart", help="Make the requests of FILE again; give up a file that is not at its end."),
    ] = False,
    delay: Delay = 0.05,
    deadline: Deadline = None,
    background: Background = True,
) -> None:
    """Make all requests of FILE in turn. Stopped, or killed, it goes on where it was when called again.

    A file that was played to its end is not played again unless --restart says so.
    """
    import asyncio
    import os

    from onoff.apps import terminal
    from onoff.client.connecting import connect
    from onoff.client.playing import Delivery, read_items

    client = connect(
        chain, server=server, urls=urls, journal=journal, promise=promise, sensitive=parse_sources(sensitive),
        record=record, plans=plans, lengths=lengths, cache=cache,
        token=os.environ.get(TOKEN), delay=delay, deadline=deadline,
        background=background, lasting=True,
    )  # fmt: skip
    items, delivery = read_items(file, client.chain.names), Delivery(out)
    try:
        with explained(client, "run the same command again" + (", without --restart" if restart else "")):
            totals, since, words = asyncio.run(_play(client, file.absolute(), items, delivery, restart))
    finally:
        for found in delivery.words():
            note(found)
        note_planner(client)
    if words is not None:
        note(words)
    terminal.print_totals(totals, client.chain, client.lengths, since, client.journal.promise)
    delivery.check()


async def _play(
    asked: Client, file: Path, items: list[tuple[str, bool]], delivery: Delivery, restart: bool
) -> tuple[Totals, int, str | None]:
    """The journal's totals at the end, the step from which on they were counted, and what there is to say."""
    from onoff.apps import terminal
    from onoff.client.playing import play_file
    from onoff.client.settings import SINCE, since_from

    async with asked as client:
        words = await play_file(client, file, items, delivery, restart, terminal.progress("requests"))
        note_new(client)
        since = since_from(client.journal.recall(SINCE))
        return client.journal.totals(client.lengths, since), since, words
