"""`onoff play`: all requests of a file in turn; stopped or killed, it goes on where it was.

How far a file has come is read off the steps of the journal, never off a note that is written after them: whenever it
is killed, no request of the file is made twice. A file that was played to its end is made again with --restart only.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shlex
from collections.abc import Collection
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onoff.apps.cli.notes import SINCE, Progress, progress_from, since_from
from onoff.apps.cli.remembered import (
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
    explained,
    note,
    note_planner,
    remember,
    settings_of,
)
from onoff.errors import Announced, OnoffError, PendingRequest
from onoff.files import make_directory, told

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from onoff.client.client import Client, Message
    from onoff.client.journal import Totals


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
    from onoff.apps import terminal as report

    settings = settings_of(journal, chain, server, urls, lengths)
    items = read_items(file, settings["chain"].names)
    client, delivery = client_of(settings, plans, delay, background, deadline), Delivery(out)
    try:
        with explained(settings, "run the same command again" + (", without --restart" if restart else "")):
            totals, since = asyncio.run(_play(file.absolute(), items, settings, client, out, restart, delivery))
    finally:
        delivery.tell()
        note_planner(client.planner)
    report.print_totals(totals, settings["chain"], settings["lengths"], since)
    delivery.check()


async def _play(
    file: Path,
    items: list[tuple[str, bool]],
    settings: dict[str, Any],
    asked: Client,
    out: Path | None,
    restart: bool,
    delivery: Delivery,
) -> tuple[Totals, int]:
    """The requests of a file; the journal's totals at the end, and the step from which on they were counted."""
    from onoff.apps import terminal as report

    async with asked as client:
        played = Played(client, items, file, restart)
        begun = 0 if restart else played.begun()
        if begun == 0:
            _check_free_to_begin(client, file, items[0][0])
        if out is not None:
            make_directory(out)
        remember(client, settings)
        first = played.begin(client.journal.state.step) if begun == 0 else played.first
        state = client.journal.state
        if begun and state.step + (state.pending is not None) <= first + len(items):  # nothing else was asked for since
            # Finish what is pending; a message that had arrived may not have been written before the end.
            await delivery.take(client.resume())
        left = items[begun:]
        with report.progress("requests")(len(items)) as advance:
            for _ in range(begun):
                advance()
            for i, (source, private) in enumerate(left):
                following = left[i + 1][0] if i + 1 < len(left) else None
                await delivery.take(client.get(source, following, private))
                advance()
        if left or begun == 0:
            _note_made_on(client, first, len(items))
        else:
            note(f"{file} was played to its end: nothing was asked for now. --restart makes its requests again")
        since = since_from(client.journal.recall(SINCE))
        return client.journal.totals(settings["lengths"], since), since


class Played:
    """How far the file that was played last has come, and whether it is this one."""

    def __init__(self, client: Client, items: list[tuple[str, bool]], file: Path, forget: bool) -> None:
        """With `forget` it does not matter what was played before, nor whether that can still be read."""
        self._client, self._items, self._file = client, items, file
        self._digest = _digest(items)
        self._known: Progress | None = None
        try:
            self._known = progress_from(client.journal.recall("play"))
        except OnoffError:
            if not forget:
                raise

    @property
    def first(self) -> int:
        """The step of the first request."""
        assert self._known is not None
        return self._known.first

    def begun(self) -> int:
        """How many requests of this file were made, or are pending. An unfinished other one must not be forgotten."""
        if self._client.journal.recall(f"played {self._digest}") is not None and not self._is_last:
            raise OnoffError(f"{self._file} was played to its end before: --restart makes its requests again")
        known, made = self._known, self._made()
        if known is None or not made:
            return 0
        if self._is_last:
            if made == self._items[: len(made)]:
                return len(made)
            raise OnoffError(
                f"requests that are not in {self._file} were made since it was left: begin it anew with --restart"
            )
        if self._at_its_end(made):
            return 0
        unfinished = f"{known.file} was not played to its end"
        if len(made) < known.count:
            unfinished += f" ({known.count - len(made)} of {known.count} requests left)"
        if known.file == str(self._file):
            raise OnoffError(f"{unfinished} and has changed since: begin it anew with --restart")
        raise OnoffError(f"{unfinished}: play it again, or give it up with --restart")

    def begin(self, step: int) -> int:
        """Note that the next step is the first of this file, and which other one is at its end; that step."""
        if self._known is not None and self._at_its_end(self._made()):
            self._client.journal.note(f"played {self._known.digest}", "")
        self._known = Progress(self._digest, step, str(self._file), len(self._items))
        self._client.journal.note("play", self._known.text())
        return step

    @property
    def _is_last(self) -> bool:
        return self._known is not None and self._known.digest == self._digest

    def _made(self) -> list[tuple[str, bool]]:
        """The requests made since the file was begun, the pending one too, but no more than it has."""
        if self._known is None:
            return []
        names, steps = self._client.chain.names, self._client.journal.steps(since=self._known.first)
        return [(names[s["request"]], bool(s["asked_private"])) for s in islice(steps, self._known.count)]

    def _at_its_end(self, made: list[tuple[str, bool]]) -> bool:
        """Whether all requests of the file that was played last were made and answered."""
        assert self._known is not None
        answered = self._client.journal.state.step >= self._known.first + self._known.count
        return answered and _digest(made) == self._known.digest


def _digest(items: list[tuple[str, bool]]) -> str:
    return hashlib.sha256(json.dumps(items).encode()).hexdigest()


class Delivery:
    """Writes messages to the files of a directory, if there is one.

    What happens here depends on which source was wanted. So nothing is said, and nothing stops the stream, before the
    connection is closed: what there is to say is kept for `tell`.
    """

    def __init__(self, out: Path | None) -> None:
        self._out = out
        self._words: dict[str, None] = {}  # said once each, in this order
        self._unwritten: list[int] = []
        self._reason = ""

    async def take(self, asked: Awaitable[Message | None]) -> None:
        """Wait for a message and write it; that a source has none is worth a note, not the end."""
        from onoff.errors import SourceError
        from onoff.model.chainfile import write_atomically

        try:
            message = await asked
        except SourceError as error:
            self._words[str(error)] = None
            return
        if message is None:
            return
        if message.round == 0:
            self._words[f"{message.source}: nothing has been published yet"] = None
        if self._out is not None:
            try:
                # Unsynced: for a long body the disk takes longer than the client's delay, which would show on the wire.
                write_atomically(self._out / f"{message.step:06d}", message.body, sync=False)
            except OSError as error:
                self._unwritten.append(message.step)
                self._reason = told(error)

    def tell(self) -> None:
        """Say what was found."""
        for words in self._words:
            note(words)
        if self._unwritten:
            steps = ", ".join(map(str, self._unwritten[:5])) + (", ..." if len(self._unwritten) > 5 else "")
            note(f"the messages of {len(self._unwritten)} steps are not in {self._out} (steps {steps}): {self._reason}")

    def check(self) -> None:
        """An error if a message could not be written."""
        if self._unwritten:
            raise OnoffError(
                f"{len(self._unwritten)} messages could not be written and are lost. Their requests were made all the "
                "same, since to stop would have shown what was wanted: ask for them again"
            )


def _note_made_on(client: Client, first: int, count: int) -> None:
    """Which requests of a file, begun at step `first`, were asked OFF but made ON."""
    made = islice(client.journal.steps(since=first), count)
    made_on = [step for step in made if step["private"] and not step["asked_private"]]
    early = sum(step["next"] is not None for step in made_on)
    reasons = [f"{early} at the start of the journal, before one had counted as ON"] if early else []
    reasons += ["the last of the file, since nothing is known to follow it"] if len(made_on) > early else []
    if reasons:
        note(f"asked OFF but made ON: {', and '.join(reasons)}")


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
