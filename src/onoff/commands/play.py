"""`onoff play`: all requests of a file in turn; stopped or killed, it goes on where it was."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onoff.commands.settings import (
    SINCE,
    ChainFile,
    Delay,
    JournalFile,
    Lengths,
    Plans,
    Server,
    Urls,
    client_of,
    explained,
    note,
    note_unpublished,
    remember,
    settings_of,
)
from onoff.errors import Announced, OnoffError, PendingRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from onoff.client import Client, Message
    from onoff.journal import Totals


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: onoff play requests.txt --server http://127.0.0.1:8700 --chain chain.json")(play)


def play(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="One request in a line: `on SOURCE` or `off SOURCE`.")],
    journal: JournalFile = None,
    chain: ChainFile = None,
    server: Server = None,
    urls: Urls = None,
    plans: Plans = None,
    lengths: Lengths = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write each message to a file here.")] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin FILE anew; give up a file that was not played to its end.")
    ] = False,
    delay: Delay = 0.05,
) -> None:
    """Make all requests of FILE in turn. Stopped, or killed, it goes on where it was when called again."""
    from onoff import report

    settings = settings_of(journal, chain, server, urls, lengths)
    items = read_items(file, settings["chain"].names)
    with explained(settings, "run the same command again"):
        totals, since = asyncio.run(_play(file.absolute(), items, settings, plans, out, restart, delay))
    report.print_totals(totals, settings["chain"], settings["lengths"], since)


async def _play(
    file: Path,
    items: list[tuple[str, bool]],
    settings: dict[str, Any],
    plans: Path | None,
    out: Path | None,
    restart: bool,
    delay: float,
) -> tuple[Totals, int]:
    """The requests of a file; the journal's totals at the end, and the step from which on they were counted."""
    from onoff import report

    digest = hashlib.sha256(json.dumps(items).encode()).hexdigest()
    async with client_of(settings, plans, delay) as client:
        begun = 0 if restart else _begun(client, file, items, digest)
        if begun == 0:
            _check_free_to_begin(client, file, items[0][0])
            if client.journal.recall(f"played {digest}") is not None:
                note(f"{file} was played to its end before; playing it again")
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        remember(client, settings)
        delivery = Delivery(out)
        if begun:
            # Finish what is pending; a message that had arrived may not have been written before the end.
            await delivery.take(client.resume())
        first = client.journal.state.step - begun
        progress = {"digest": digest, "first": first, "file": str(file), "count": len(items)}
        client.journal.note("play", json.dumps(progress))
        left = items[begun:]
        with report.progress("requests")(len(items)) as advance:
            for _ in range(begun):
                advance()
            for i, (source, private) in enumerate(left):
                following = left[i + 1][0] if i + 1 < len(left) else None
                await delivery.take(client.get(source, following, private))
                advance()
        _note_made_on(client, first)
        client.journal.note(f"played {digest}", "")
        client.journal.note("play", "{}")
        since = int(client.journal.recall(SINCE) or 0)
        return client.journal.totals(settings["lengths"], since), since


class Delivery:
    """Writes messages to the files of a directory, if there is one."""

    def __init__(self, out: Path | None) -> None:
        self._out = out
        self._unpublished: set[str] = set()  # noted once each

    async def take(self, asked: Awaitable[Message | None]) -> None:
        """Wait for a message and write it; that a source has none is worth a note, not the end."""
        from onoff.errors import SourceError

        try:
            message = await asked
        except SourceError as error:
            note(str(error))
            return
        if message is None:
            return
        if message.round == 0 and message.source not in self._unpublished:
            self._unpublished.add(message.source)
            note_unpublished(message.source)
        if self._out is not None:
            (self._out / f"{message.step:06d}").write_bytes(message.body)


def _note_made_on(client: Client, first: int) -> None:
    """Which requests of a file, begun at step `first`, were asked OFF but made ON."""
    made_on = [s for s in client.journal.steps(since=first) if s["private"] and not s["asked_private"]]
    early = sum(step["next"] is not None for step in made_on)
    reasons = [f"{early} at the start of the journal, before one had counted as ON"] if early else []
    reasons += ["the last of the file, since nothing is known to follow it"] if len(made_on) > early else []
    if reasons:
        note(f"asked OFF but made ON: {', and '.join(reasons)}")


def _begun(client: Client, file: Path, items: list[tuple[str, bool]], digest: str) -> int:
    """How many of these requests an earlier run has made or left pending. An unfinished file must not be forgotten."""
    known = json.loads(client.journal.recall("play") or "{}")
    made = [step["request"] for step in client.journal.steps(since=known["first"])] if known else []
    if not made:
        return 0
    if known["digest"] == digest:
        if [client.chain.names[request] for request in made] == [source for source, _ in items[: len(made)]]:
            return len(made)
        raise OnoffError(f"requests that are not in {file} were made since it was left: begin it anew with --restart")
    unfinished = f"{known['file']} was not played to its end"
    if len(made) <= known["count"]:
        unfinished += f" ({known['count'] - len(made)} of {known['count']} requests left)"
    if known["file"] == str(file):
        raise OnoffError(f"{unfinished} and has changed since: begin it anew with --restart")
    raise OnoffError(f"{unfinished}: play it again, or give it up with --restart")


def _check_free_to_begin(client: Client, file: Path, first: str) -> None:
    """A file can begin if nothing is pending, whose message would be lost, and nothing else is announced."""
    state, names = client.journal.state, client.chain.names
    if state.pending is not None:
        wanted = names[state.pending.request]
        raise PendingRequest(
            f"the request for {wanted!r} is pending: `onoff resume` finishes it and writes its message", step=state.step
        )
    if state.announced is not None and names[state.announced] != first:
        wanted = names[state.announced]
        raise Announced(
            f"{wanted!r} was announced as the next request, but {file} begins with {first!r}: "
            f"`onoff get {shlex.quote(wanted)}` makes it, then play the file",
            announced=state.announced,
        )


def read_items(file: Path, names: Collection[str]) -> list[tuple[str, bool]]:
    """The requests in a file; empty lines and lines with # are passed over. Every source must be one of `names`."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise OnoffError(f"{file}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise OnoffError(f"{file}: is not UTF-8") from None
    items = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        word, _, source = line.strip().partition(" ")
        if word not in ("on", "off") or not source.strip():
            raise OnoffError(f"{file}: line {number} is {line!r}: write `on SOURCE` or `off SOURCE`")
        if source.strip() not in names:
            raise OnoffError(f"{file}: line {number}: no source is called {source.strip()!r}")
        items.append((source.strip(), word == "on"))
    if not items:
        raise OnoffError(f"{file}: there are no requests in it")
    return items
