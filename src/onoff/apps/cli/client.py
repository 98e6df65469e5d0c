"""`onoff get`, `resume`, `status` and `measure`: the client for people and scripts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onoff.apps.cli.notes import SINCE, chain_from, lengths_from, since_from
from onoff.apps.cli.remembered import (
    RESUME,
    Background,
    ChainFile,
    Deadline,
    Delay,
    JournalFile,
    Lengths,
    Plans,
    Server,
    Urls,
    client_of,
    default_journal,
    explained,
    note,
    note_planner,
    remember,
    settings_of,
    show,
)
from onoff.errors import OnoffError

if TYPE_CHECKING:
    from onoff.client.client import Client, Message


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example: onoff get politics --next sports --off --server http://127.0.0.1:8700 --chain chain.json"
    )(get)
    app.command(epilog="Example: onoff resume --journal reader.journal")(resume)
    app.command(epilog="Example: onoff status --journal reader.journal")(status)
    app.command(epilog="Example: onoff measure urls.json --out lengths.json")(measure)


def get(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="What to fetch.")],
    next: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="The request that will follow; after an OFF request you are bound to it."),
    ] = None,
    private: Annotated[bool, typer.Option("--on/--off", help="Whether privacy is ON for this request.")] = True,
    journal: JournalFile = None,
    chain: ChainFile = None,
    server: Server = None,
    urls: Urls = None,
    plans: Plans = None,
    lengths: Lengths = None,
    delay: Delay = 0.05,
    deadline: Deadline = None,
    background: Background = True,
) -> None:
    """Fetch the latest message of SOURCE and write it to stdout."""
    settings = settings_of(journal, chain, server, urls, lengths)
    for name in filter(None, (source, next)):
        settings["chain"].index(name)  # a slip of the pen leaves no journal behind
    client = client_of(settings, plans, delay, background, deadline)
    try:
        with explained(settings, RESUME):
            message = asyncio.run(_get(source, next, private, settings, client))
    finally:
        note_planner(client.planner)
    _tell(message, announced=next is not None)
    _write(message)


async def _get(source: str, next: str | None, private: bool, settings: dict[str, Any], asked: Client) -> Message:
    """The message, once the connection is closed: whatever depends on the source comes after that."""
    async with asked as client:
        remember(client, settings)
        return await client.get(source, next, private)


def resume(
    journal: JournalFile = None,
    chain: ChainFile = None,
    server: Server = None,
    urls: Urls = None,
    plans: Plans = None,
    deadline: Deadline = None,
) -> None:
    """Finish a pending request, with the query it already had; write its message, or the last one again."""
    from onoff.client.client import DELAY

    path = journal or default_journal()
    if not path.exists():  # a slip of the pen makes none
        raise OnoffError(f"{path}: there is no journal, and nothing is pending; the first request makes one")
    settings = settings_of(journal, chain, server, urls, None)

    async def finish() -> tuple[Message | None, bool, bool]:
        async with client_of(settings, plans, DELAY, background=False, deadline=deadline) as client:
            pending = client.journal.state.pending
            message = await client.resume()
            made = next(client.journal.steps(since=client.journal.state.step - 1), None)
            return message, pending is not None, made is not None and made["next"] is not None

    with explained(settings, RESUME):
        message, pending, announced = asyncio.run(finish())
    if message is None:
        raise OnoffError("nothing is pending, and no message has arrived yet")
    if not pending:
        note("nothing was pending; this is the last message again")
    _tell(message, announced)
    _write(message)


def _write(message: Message) -> None:
    """Write the message, if there is one: a script must not take nothing for an empty message."""
    if message.round == 0:
        raise OnoffError(f"{message.source}: nothing has been published yet; the request is finished")
    show(message.body)


def _tell(message: Message, announced: bool) -> None:
    """What is worth knowing about a message that has arrived; `announced` says that the next request was known."""
    if message.made_private:
        without = "no --next was given, and the query must hide the next request"
        early = "it is at the start of the journal, before one had counted as ON"
        note(f"this request was made ON: {early if announced else without}")


def status(
    journal: Annotated[Path | None, typer.Option("--journal", metavar="FILE", help="The client's state.")] = None,
    plans: Plans = None,
    chain: Annotated[Path | None, typer.Option(metavar="FILE", help="For a journal that was made in Python.")] = None,
) -> None:
    """The lag, what is pending, what the next request costs, and what rounding has added up to."""
    from onoff.apps import terminal as report
    from onoff.client.journal import snapshot
    from onoff.logs.following import follows
    from onoff.logs.requests import of_journal
    from onoff.model.chain import Chain
    from onoff.plans.planner import Planner

    path = journal or default_journal()
    notes = snapshot(path).notes
    if chain is None and "chain" not in notes:
        raise OnoffError(f"{path}: no command has noted its chain here yet (`onoff get` or `play` does): give --chain")
    known = Chain.load(chain) if chain is not None else chain_from(notes["chain"])
    lengths, since = lengths_from(notes), since_from(notes.get(SINCE))
    found = snapshot(path, lengths, since)
    if known.fingerprint != found.chain:
        raise OnoffError(f"{path} is the journal of another chain than {chain}")
    used = None
    if found.state.answered.last is not None:
        used = Planner(known, plans, lengths, background=False).best(found.state.answered.lag + 1)
    report.print_status(found, known, used, lengths, since)
    print(follows(known, of_journal(path, known).indices).words())


def measure(
    urls: Annotated[Path, typer.Argument(metavar="URLS", help="JSON {name: URL} at one web server.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="JSON {name: bytes}, for `onoff plan --lengths`.")],
    deadline: Deadline = None,
) -> None:
    """Fetch every URL once and write down how long each body is, to plan with real lengths."""
    from onoff.client.transport.web import HttpTransport
    from onoff.files import check_file
    from onoff.model.chainfile import write_atomically

    async def fetch() -> dict[str, int]:
        transport = HttpTransport.load(urls, deadline)
        try:
            return await transport.measure()
        finally:
            await transport.close()

    check_file(out)
    lengths = asyncio.run(fetch())
    write_atomically(out, json.dumps(lengths, indent=2).encode() + b"\n")
    print(f"{len(lengths)} sources, {sum(lengths.values())} bytes in all")
