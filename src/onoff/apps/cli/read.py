"""`onoff get`, `resume` and `play`: the client for people and scripts.

A message is written after the connection is closed. Until then nothing may depend on which source was wanted.
"""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onoff import errors
from onoff.apps.cli import options
from onoff.apps.cli.output import (
    advise,
    amount,
    command_for,
    detail,
    note,
    note_new,
    note_planner,
    print_json,
    size,
)
from onoff.files import check_file, error_sentence, explain_reading, read_text, write_atomically
from onoff.text import plain_text

if TYPE_CHECKING:
    from onoff.client.client import Client
    from onoff.client.disk import Step
    from onoff.client.message import Message
    from onoff.client.play import Delivery
    from onoff.client.status import Totals

MOST_NAMED = 20  # sources of a set that -v names
STDIN = Path("-")

Out = Annotated[
    Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write the message there, whole or not at all.")
]


def register(app: typer.Typer) -> None:
    app.command(
        rich_help_panel=options.READ,
        epilog="Example: onoff get health --urls urls.json --chain habits.json --sensitive health,politics",
    )(get)
    app.command(rich_help_panel=options.READ, epilog="Example: onoff resume --journal reader.journal")(resume)
    app.command(
        rich_help_panel=options.READ,
        epilog="Example: onoff play requests.txt --server http://127.0.0.1:8700 --chain chain.json",
    )(play)


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
    journal: options.JournalFile = None,
    chain: options.ChainFile = None,
    server: options.Server = None,
    urls: options.Urls = None,
    promise: options.Promise = None,
    relearn: options.Relearn = False,
    sensitive: options.Sensitive = None,
    record: options.Record = None,
    plans: options.Plans = None,
    cache: options.Cache = None,
    fresh: options.Fresh = None,
    keep: options.Keep = None,
    user_agent: options.UserAgent = None,
    delay: options.Delay = 0.05,
    deadline: options.Deadline = None,
    background: options.Background = True,
    as_json: options.AsJson = False,
) -> None:
    """Fetch the latest message of SOURCE and write it to stdout.

    With -v it says on stderr what was asked for, and what that cost.
    """
    import asyncio

    from onoff.client.connect import connect, default_journal

    private = options.parse_switch(on, off)
    if out is not None:
        check_file(out)
    if promise is None and next is not None and not (journal or default_journal()).exists():
        promise = "both"  # who begins a journal with --next knows the next request
    client = connect(
        chain, server=server, urls=urls, journal=journal, promise=promise, sensitive=options.parse_sources(sensitive),
        record=record, plans=plans, cache=cache, fresh=fresh, keep=keep, token=os.environ.get(options.TOKEN),
        delay=delay, relearn=relearn, user_agent=user_agent,
        deadline=deadline, background=background, lasting=True, ahead=False,
    )  # fmt: skip
    for name in filter(None, (source, next)) if client.knows_sources else ():
        client.chain.index(name)  # a slip of the pen leaves no journal behind
    try:
        with advise(client):
            found = asyncio.run(_fetch(client, lambda opened: opened.get(source, next, private)))
    finally:
        note_planner(client)
    try:
        _deliver(*found, client, out, as_json)
    finally:
        del found  # the message is off the memory before the wait: that takes time, too
        client.wait_to_exit()


def resume(
    last: Annotated[
        bool, typer.Option("--last", help="If nothing is pending, write the last message again; no server is asked.")
    ] = False,
    out: Out = None,
    journal: options.JournalFile = None,
    chain: options.ChainFile = None,
    server: options.Server = None,
    urls: options.Urls = None,
    plans: options.Plans = None,
    deadline: options.Deadline = None,
    as_json: options.AsJson = False,
) -> None:
    """Finish the pending request, with the query it already had, and write its message.

    If nothing is pending that is an error: the last message may be the answer to another request. --last writes it.
    """
    import asyncio

    from onoff.client.connect import connect, default_journal
    from onoff.client.status import snapshot

    path = journal or default_journal()
    if not path.exists():  # a slip of the pen makes none
        words = f"{path}: there is no journal, and nothing is pending; the first request makes one"
        raise errors.NothingPending(words, step=0)
    if out is not None:
        check_file(out)
    client = connect(
        chain, server=server, urls=urls, journal=path, plans=plans, token=os.environ.get(options.TOKEN),
        deadline=deadline, background=False, ahead=False,
    )  # fmt: skip
    kept = snapshot(path)
    pending = kept.state.pending is not None
    with advise(client):
        found = asyncio.run(_fetch(client, lambda opened: opened.resume())) if pending else client.last()
    if found is None:
        raise errors.NothingPending("nothing is pending, and no message has arrived yet", step=kept.state.step)
    row = found[1]
    if row is not None and not pending and not last:
        assert row.request is not None, "the newest step is not erased"
        wanted = client.chain.names[row.request]
        error = errors.NothingPending("nothing is pending: ask for what you want", step=kept.state.step, last=wanted)
        again = command_for("onoff resume --last", path)
        error.advice = f"{again} writes the last message again, for {wanted!r} in step {row.step}"
        raise error
    if not pending:
        note("nothing was pending; this is the last message again, and no server was asked")
    try:
        _deliver(*found, client, out, as_json)
    finally:
        del found
        client.wait_to_exit()


async def _fetch(
    client: Client, request: Callable[[Client], Awaitable[Message]]
) -> tuple[Message | errors.SourceError, Step | None]:
    """Make a request, and read its step from the journal, if it was one, whether there is a message or not.

    Until the connection is closed nothing depends on which of the two it is.
    """
    async with client:
        note_new(client)
        before = client.journal.state.step
        message: Message | errors.SourceError
        try:
            message = await request(client)
        except errors.SourceError as error:
            message = error
        row = next(client.journal.steps(since=before), None)
        if row is None and isinstance(message, errors.SourceError):  # a failure that the journal knew
            raise message
        if client.private_until is not None:
            from onoff.client.status import window_words

            detail(window_words(client.private_until))
        return message, row


def play(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="One request in a line: `on SOURCE` or `off SOURCE`; - for stdin.")
    ],
    journal: options.JournalFile = None,
    chain: options.ChainFile = None,
    server: options.Server = None,
    urls: options.Urls = None,
    promise: options.Promise = None,
    relearn: options.Relearn = False,
    sensitive: options.Sensitive = None,
    record: options.Record = None,
    plans: options.Plans = None,
    cache: options.Cache = None,
    keep: options.Keep = None,
    user_agent: options.UserAgent = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write each message to a file here.")] = None,
    restart: Annotated[
        bool,
        typer.Option("--restart", help="Make the requests of FILE again; give up a file that is not at its end."),
    ] = False,
    delay: options.Delay = 0.05,
    deadline: options.Deadline = None,
    background: options.Background = True,
    as_json: options.AsJson = False,
) -> None:
    """Make all requests of FILE in turn. Stopped, or killed, it goes on where it was when called again.

    The file that was played last is not played again from its beginning unless --restart says so.
    """
    import asyncio

    from onoff.apps.cli.status import print_totals
    from onoff.client.connect import connect
    from onoff.client.play import Delivery, parse_items

    where = file.absolute() if file != STDIN else Path("stdin")
    with explain_reading(where):
        text = read_text(file) if file != STDIN else sys.stdin.buffer.read().decode()
    client = connect(
        chain, server=server, urls=urls, journal=journal, promise=promise, sensitive=options.parse_sources(sensitive),
        record=record, plans=plans, cache=cache, keep=keep, token=os.environ.get(options.TOKEN), delay=delay,
        relearn=relearn, user_agent=user_agent,
        deadline=deadline, background=background, lasting=True,
    )  # fmt: skip
    if not client.knows_sources:
        raise errors.OnoffError(
            "the sources are not known yet: make the first request with `onoff get`, or give --chain"
        )
    names = client.chain.names
    items = parse_items(text, where, names)
    delivery = Delivery(out)
    try:
        with advise(client, "run the same command again" + (", without --restart" if restart else "")):
            result, steps = asyncio.run(_play(client, where, items, delivery, restart))
    finally:
        for found in delivery.close():
            note(found)
        note_planner(client)
        client.wait_to_exit()
    for row in steps:
        log_step(row, names)
    if result.note is not None:
        note(result.note)
    if as_json:
        print_json(result)
    else:
        print_totals(result.totals, client.chain, client.journal.promise)
    delivery.check()


@dataclass(frozen=True)
class PlayResult:
    """Result of `onoff play --json`: the number of requests in FILE, how many were made now, and a note.

    The totals are those of the journal.
    """

    file: Path
    requests: int
    made: int
    note: str | None
    totals: Totals


async def _play(
    client: Client, file: Path, items: list[tuple[str, bool]], delivery: Delivery, restart: bool
) -> tuple[PlayResult, list[Step]]:
    """Make the requests, and read their steps from the journal."""
    from onoff.apps.terminal import progress
    from onoff.client.play import play_file
    from onoff.client.status import Totals

    async with client:
        before = client.journal.state.step
        words = await play_file(client, file, items, delivery, restart, progress("requests"))
        note_new(client)
        steps = [row for row in client.journal.steps(since=before) if row.bytes is not None]
        return PlayResult(file, len(items), len(steps), words, Totals.of(client.journal.steps())), steps


def _deliver(
    message: Message | errors.SourceError, row: Step | None, client: Client, out: Path | None, as_json: bool
) -> None:
    """Write the message where it was wanted, and add notes about it.

    Raises `SourceError` if there is none, or nothing was published yet: a script must not take nothing for an empty
    message. If the message cannot be written, the error says how to get it without another request.
    """
    from onoff.client.status import snapshot

    # `client` itself may never have been open.
    kept = snapshot(client.path) if row is not None and row.made_private else None
    if row is not None and kept is not None and kept.public["habits"]["stage"] == "known":
        without = "no --next was given, and the query must hide the next request"
        early = "the first requests of a journal, and those after a lost request or a failed source, always are"
        note(f"this request was made ON: {without if kept.promise == 'both' and row.next is None else early}")
    if row is not None:
        log_step(row, client.chain.names)
    if isinstance(message, errors.SourceError):
        raise message
    if message.error is not None:
        raise message.error
    if message.round == 0:
        words = f"{message.source}: nothing has been published yet; the request is finished and counts as made"
        raise errors.SourceError(words, status=204, body=b"")
    try:
        if out is not None:
            write_atomically(out, message.body, sync=False)  # it is on disk already: the journal has it
        if as_json:
            print_json(message_data(message, row, out))
        elif out is None:
            _print_body(message.body)
        sys.stdout.flush()
    except BrokenPipeError:
        raise  # who reads has enough
    except OSError as error:
        again = command_for("onoff resume --last", client.path)
        words = f"{error_sentence(error)}. The request was made and is finished: {again} writes its message again"
        raise errors.OnoffError(words) from error


def message_data(message: Message, row: Step | None, file: Path | None) -> dict[str, object]:
    """Data of `onoff get --json`: the message, and what its step took.

    `body` is text if `encoding` is "utf-8", and else base64; both are None if the message was written to `file`.
    `query` is the set that was asked for, `cost` its expected cost by the law, `bytes` all that arrived: nothing, and
    null, for a request that was no step. `age` is for how many seconds the client has held the message.
    """
    encoding, body = None, None
    if file is None:
        try:
            encoding, body = "utf-8", message.body.decode()
        except UnicodeDecodeError:
            encoding, body = "base64", base64.b64encode(message.body).decode()
    about = {name: value for name, value in vars(message).items() if name not in ("error", "body")}
    took = {name: getattr(row, name, None) for name in ("lag", "plan", "cost", "bytes", "attempts")}
    return {**about, **took, "length": len(message.body), "encoding": encoding, "body": body, "file": file}


def _print_body(body: bytes) -> None:
    """Write a message to stdout as it came. On a terminal, characters that could steer it are replaced."""
    if sys.stdout.isatty():
        print(plain_text(body))
    else:
        sys.stdout.buffer.write(body)


def log_step(row: Step, names: Sequence[str]) -> None:
    """Say with -v what was asked for in a step, and what it took."""
    from onoff.types import PlanName

    shown = ", ".join(names[x] for x in row.query[:MOST_NAMED]) + (", ..." if len(row.query) > MOST_NAMED else "")
    status = "ON" if row.private else f"OFF, {amount(row.lag, 'step')} after ON"
    detail(f"step {row.step} ({status}): asked for {amount(len(row.query), 'source')}: {shown}")
    took = "" if row.bytes is None else f"; {size(row.bytes)} received"
    tried = "" if row.attempts == 1 else f" in {row.attempts} attempts"
    made = PlanName.parse(row.plan)
    cost = f"about {row.cost:.3g}" if made and not made.digest else f"{row.cost:.3f}"  # without a table: estimated
    detail(f"expected cost {cost} ({row.plan}){took}{tried}")
