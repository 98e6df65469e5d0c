"""`onoff get`, `resume`, `status` and `measure`: the client for people and scripts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onoff.apps.cli.options import (
    TOKEN,
    Background,
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
from onoff.apps.cli.telling import RESUME, explained, note, note_new, note_planner, show
from onoff.errors import OnoffError

if TYPE_CHECKING:
    from onoff.client.client import Client, Message


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: onoff get health --urls urls.json --chain habits.json --sensitive health,politics")(
        get
    )
    app.command(epilog="Example: onoff resume --journal reader.journal")(resume)
    app.command(epilog="Example: onoff status --journal reader.journal")(status)
    app.command(epilog="Example: onoff measure urls.json --out lengths.json")(measure)


def get(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="What to fetch.")],
    next: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="The request that will follow (promise both); after an OFF request you are bound to it.",
        ),
    ] = None,
    private: Annotated[
        bool | None,
        typer.Option(
            "--on/--off",
            help="Whether privacy is ON for this request. By default ON; OFF in a journal with sensitive sources, "
            "which are hidden all the time.",
        ),
    ] = None,
    journal: JournalFile = None,
    chain: ChainFile = None,
    server: Server = None,
    urls: Urls = None,
    promise: Promise = None,
    sensitive: Sensitive = None,
    record: Record = None,
    plans: Plans = None,
    lengths: Lengths = None,
    delay: Delay = 0.05,
    deadline: Deadline = None,
    background: Background = True,
) -> None:
    """Fetch the latest message of SOURCE and write it to stdout."""
    import asyncio

    from onoff.client.connecting import connect

    client = connect(
        chain, server=server, urls=urls, journal=journal, promise=_promise(promise, next, journal),
        sensitive=parse_sources(sensitive), record=record, plans=plans, lengths=lengths, token=os.environ.get(TOKEN),
        delay=delay, deadline=deadline, background=background, lasting=True, ahead=False,
    )  # fmt: skip
    for name in filter(None, (source, next)):
        client.chain.index(name)  # a slip of the pen leaves no journal behind
    try:
        with explained(client, RESUME):
            message = asyncio.run(_get(source, next, private, client))
    finally:
        note_planner(client)
    _tell(message, announced=next is not None or client.journal.promise == "past")
    _write(message)


def _promise(given: str | None, next: str | None, journal: Path | None) -> str | None:
    """The promise of a new journal: the given one, or else "both" if the reader knows the next request."""
    from onoff.client.settings import default_journal

    is_new = not (journal or default_journal()).exists()
    return "both" if given is None and next is not None and is_new else given


async def _get(source: str, next: str | None, private: bool | None, asked: Client) -> Message:
    """The message, once the connection is closed: whatever depends on the source comes after that."""
    async with asked as client:
        note_new(client)
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
    import asyncio

    from onoff.client.connecting import connect
    from onoff.client.settings import default_journal

    path = journal or default_journal()
    if not path.exists():  # a slip of the pen makes none
        raise OnoffError(f"{path}: there is no journal, and nothing is pending; the first request makes one")
    client = connect(
        chain, server=server, urls=urls, journal=path, plans=plans, token=os.environ.get(TOKEN),
        deadline=deadline, background=False, ahead=False,
    )  # fmt: skip
    with explained(client, RESUME):
        message, pending, announced = asyncio.run(_resume(client))
    if message is None:
        raise OnoffError("nothing is pending, and no message has arrived yet")
    if not pending:
        note("nothing was pending; this is the last message again")
    _tell(message, announced)
    _write(message)


async def _resume(asked: Client) -> tuple[Message | None, bool, bool]:
    """The message, whether its request was pending, and whether a next one was known."""
    async with asked as client:
        pending = client.journal.state.pending
        message = await client.resume()
        made = next(client.journal.steps(since=client.journal.state.step - 1), None)
        known = made is not None and (made.next is not None or client.journal.promise == "past")
        return message, pending is not None, known


def _write(message: Message) -> None:
    """Write the message, if there is one: a script must not take nothing for an empty message."""
    if message.round == 0:
        raise OnoffError(f"{message.source}: nothing has been published yet; the request is finished")
    show(message.body)


def _tell(message: Message, announced: bool) -> None:
    """Say what is worth knowing about a message that has arrived.

    `announced`: the next request was known, or not needed.
    """
    if message.made_private:
        without = "no --next was given, and the query must hide the next request"
        early = "the first two requests of a journal always are"
        note(f"this request was made ON: {early if announced else without}")


def status(
    journal: Annotated[Path | None, typer.Option("--journal", metavar="FILE", help="The client's state.")] = None,
    plans: Plans = None,
    chain: Annotated[Path | None, typer.Option(metavar="FILE", help="For a journal that was made in Python.")] = None,
) -> None:
    """Show the promise, the lag, what is pending, what the next request costs, and what rounding has added up to."""
    from onoff.apps import terminal
    from onoff.client.learning import NOTE, Learned
    from onoff.client.settings import default_journal
    from onoff.client.snapshot import snapshot
    from onoff.client.standing import standing
    from onoff.logs.following import follows
    from onoff.logs.journals import noted
    from onoff.logs.requests import of_journal

    path = journal or default_journal()
    if chain is None and NOTE in snapshot(path).notes:
        kept = noted(path)
        print(Learned(len(kept.names or ()), len(kept.requests), kept.private.count(False)).words())
        return
    found = standing(path, chain, plans)
    terminal.print_status(found)
    print(follows(found.chain, of_journal(path, found.chain).indices).words())


def measure(
    urls: Annotated[Path, typer.Argument(metavar="URLS", help="JSON {name: URL}.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="JSON {name: bytes}, for `onoff plan --lengths`.")],
    deadline: Deadline = None,
) -> None:
    """Fetch every URL once and write down how long each body is, to plan with real lengths."""
    import asyncio

    from onoff.client.transport.web import HttpTransport
    from onoff.files import check_file, write_atomically

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
