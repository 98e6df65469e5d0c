"""`onoff get`, `resume` and `status`: the client for people and scripts."""

from __future__ import annotations

import os
import shlex
from collections.abc import Awaitable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from onoff.apps.cli.fetched import deliver
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
    parse_switch,
)
from onoff.apps.cli.output import note, print_json
from onoff.apps.cli.telling import explained, note_new, note_planner, typed
from onoff.errors import ChainError, JournalError, NothingPending, SourceError

if TYPE_CHECKING:
    from onoff.client.client import Client
    from onoff.client.journalfile import Step
    from onoff.client.message import Message

Received = TypeVar("Received")
Out = Annotated[
    Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write the message there, whole or not at all.")
]


def register(app: typer.Typer) -> None:
    app.command(
        rich_help_panel=READ,
        epilog="Example: onoff get health --urls urls.json --chain habits.json --sensitive health,politics",
    )(get)
    app.command(rich_help_panel=READ, epilog="Example: onoff resume --journal reader.journal")(resume)
    app.command(rich_help_panel=READ, epilog="Example: onoff status --journal reader.journal")(status)


def get(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="What to fetch.")],
    next: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="The request that will follow (promise both); after an OFF request you are bound to it.",
        ),
    ] = None,
    on: Annotated[
        bool,
        typer.Option(
            "--on",
            help="Privacy is ON for this request. That is the default, except in a journal with sensitive sources, "
            "which are hidden all the time.",
        ),
    ] = False,
    off: Annotated[bool, typer.Option("--off", help="Privacy is OFF for this request.")] = False,
    out: Out = None,
    journal: JournalFile = None,
    chain: ChainFile = None,
    server: Server = None,
    urls: Urls = None,
    promise: Promise = None,
    sensitive: Sensitive = None,
    record: Record = None,
    plans: Plans = None,
    cache: Cache = None,
    delay: Delay = 0.05,
    deadline: Deadline = None,
    background: Background = True,
    as_json: AsJson = False,
) -> None:
    """Fetch the latest message of SOURCE and write it to stdout.

    With -v it says on stderr what was asked for, and what that cost.
    """
    import asyncio

    from onoff.client.connect import connect
    from onoff.files import check_file

    private = parse_switch(on, off)
    if out is not None:
        check_file(out)
    client = connect(
        chain, server=server, urls=urls, journal=journal, promise=_promise(promise, next, journal),
        sensitive=parse_sources(sensitive), record=record, plans=plans, cache=cache,
        token=os.environ.get(TOKEN),
        delay=delay, deadline=deadline, background=background, lasting=True, ahead=False,
    )  # fmt: skip
    for name in filter(None, (source, next)):
        _check_source(client, name)  # a slip of the pen leaves no journal behind
    try:
        with explained(client):
            message, row = asyncio.run(_get(source, next, private, client))
    finally:
        note_planner(client)
    announced = next is not None or client.journal.promise == "past"
    deliver(message, row, client.chain.names, announced, client.path, out, as_json)


def _check_source(client: Client, name: str) -> None:
    """Raise an error unless the chain has the source. It says so if only the URLs have it."""
    from onoff.client.transport.web import HttpTransport

    try:
        client.chain.index(name)
    except ChainError:
        if isinstance(client.transport, HttpTransport) and name in client.transport.urls:
            raise ChainError(
                f"{name!r} is among the URLs, but not in the chain: fit a chain to requests for all of the URLs "
                "(`onoff fit`, or first `onoff proxy --learn`) and begin another journal with it, or take the URL out",
                value=name,
            ) from None
        raise


def _promise(given: str | None, next: str | None, journal: Path | None) -> str | None:
    """The promise of a new journal: the given one, or else "both" if the reader knows the next request."""
    from onoff.client.connect import default_journal

    is_new = not (journal or default_journal()).exists()
    return "both" if given is None and next is not None and is_new else given


async def _get(
    source: str, next: str | None, private: bool | None, asked: Client
) -> tuple[Message | SourceError, Step]:
    """The message, or that there is none, and its step, once the connection is closed.

    Whatever depends on the source comes after that. Until then both cases are alike: the step is read in either.
    """
    async with asked as client:
        note_new(client)
        message = await _or_its_error(client.get(source, next, private))
        return message, _last_step(client)


async def _or_its_error(asked: Awaitable[Received]) -> Received | SourceError:
    try:
        return await asked
    except SourceError as error:
        return error


def _last_step(client: Client) -> Step:
    """The step that was finished last, as the journal has it."""
    [row] = islice(client.journal.steps(since=client.journal.state.step - 1), 1)
    return row


def resume(
    last: Annotated[
        bool, typer.Option("--last", help="If nothing is pending, write the last message again; no server is asked.")
    ] = False,
    out: Out = None,
    journal: JournalFile = None,
    chain: ChainFile = None,
    server: Server = None,
    urls: Urls = None,
    plans: Plans = None,
    deadline: Deadline = None,
    as_json: AsJson = False,
) -> None:
    """Finish the pending request, with the query it already had, and write its message.

    If nothing is pending that is an error: the last message may be the answer to another request. --last writes it.
    """
    import asyncio

    from onoff.client.connect import connect, default_journal
    from onoff.client.journalfile import snapshot
    from onoff.files import check_file

    path = journal or default_journal()
    if not path.exists():  # a slip of the pen makes none
        words = f"{path}: there is no journal, and nothing is pending; the first request makes one"
        raise NothingPending(words, step=0)
    if out is not None:
        check_file(out)
    client = connect(
        chain, server=server, urls=urls, journal=path, plans=plans, token=os.environ.get(TOKEN),
        deadline=deadline, background=False, ahead=False,
    )  # fmt: skip
    kept = snapshot(path)
    with explained(client):
        found = client.again() if kept.state.pending is None else asyncio.run(_resume(client))
    if found is None:
        raise NothingPending("nothing is pending, and no message has arrived yet", step=kept.state.step)
    message, row = found
    if kept.state.pending is None:
        if not last:
            wanted = client.chain.names[row.request]
            error = NothingPending("nothing is pending: ask for what you want", step=kept.state.step, last=wanted)
            again = typed("onoff resume --last", path)
            error.advice = f"{again} writes the last message again, for {wanted!r} in step {row.step}"
            raise error
        note("nothing was pending; this is the last message again, and no server was asked")
    announced = row.next is not None or kept.promise == "past"
    deliver(message, row, client.chain.names, announced, client.path, out, as_json)


async def _resume(asked: Client) -> tuple[Message | SourceError, Step]:
    """The message of the pending request, or that there is none, with its step."""
    async with asked as client:
        message = await _or_its_error(client.resume())
        return message, _last_step(client)


def status(
    journal: Annotated[Path | None, typer.Option("--journal", metavar="FILE", help="The client's state.")] = None,
    plans: Plans = None,
    chain: Annotated[Path | None, typer.Option(metavar="FILE", help="For a journal that was made in Python.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the promise, the lag, what is pending, what the next request costs, and what rounding has added up to."""
    from onoff.apps.cli.showstatus import print_status, status_data
    from onoff.client.connect import default_journal
    from onoff.client.journalfile import snapshot
    from onoff.client.learning import Learned
    from onoff.client.status import status as status_of
    from onoff.logs.following import follows
    from onoff.logs.journals import noted
    from onoff.logs.requests import of_journal

    path = journal or default_journal()
    if journal is None:
        _name_journals_of_proxies(path)
    if chain is None and snapshot(path).memory.learning is not None:
        kept = noted(path)
        learned = Learned.of(len(kept.names or ()), kept.private)
        if as_json:
            print_json(learned)
        else:
            print(learned.words(path))
        return
    found = status_of(path, chain, plans)
    following = follows(found.chain, of_journal(path, found.chain).indices)
    if as_json:
        print_json(status_data(found, following))
    else:
        print_status(found, following, journal)


def _name_journals_of_proxies(default: Path) -> None:
    """Raise an error that names the journals of `onoff proxy` beside the default one, if only they are there."""
    found = [file for file in map(default.with_name, ("proxy", "learning")) if file.exists()]
    if found and not default.exists():
        commands = " or ".join(f"`onoff status --journal {shlex.quote(str(file))}`" for file in found)
        raise JournalError(f"{default}: there is no journal; the first request makes one. Of the proxy: {commands}")
