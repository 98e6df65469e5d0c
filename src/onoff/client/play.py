"""All requests of a file in turn; stopped or killed, it goes on where it was.

The progress of a file follows from the steps of the journal, not from a note that is written after them: whenever the
client is killed, it makes no request of the file twice. Only `restart` plays the last file again from its beginning.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path

from onoff.client.cache import read_messages
from onoff.client.client import Client
from onoff.client.disk import connect_to_read, explain_errors
from onoff.client.journal import Journal
from onoff.client.memory import Progress
from onoff.client.message import Message
from onoff.errors import Announced, ContextError, JournalError, OnoffError, PendingRequest, SourceError
from onoff.files import error_sentence, make_directory, write_atomically
from onoff.model.tree import describe_state
from onoff.types import Bar


async def play_file(
    client: Client, file: Path, items: list[tuple[str, bool]], delivery: Delivery, restart: bool, bar: Bar
) -> str | None:
    """Make the requests of a file (`items`) from where it stopped. Return words for the person, if any."""
    played = Played(client, items, file)
    begun = 0 if restart else played.count_begun()
    _check_possible(client, file, items[begun:])
    if begun == 0:
        _check_free_to_begin(client, file, items[0][0])
    delivery.open(client.journal)
    first = played.begin(client.journal.state.step) if begun == 0 else played.first
    state = client.journal.state
    if begun and state.step + (state.pending is not None) <= first + len(items):  # nothing else was asked for since
        if state.pending is not None:
            with suppress(SourceError):  # it is delivered with the others
                await client.resume()
        delivery.restore(client.chain.names, first)  # they may not have been written before the end
    left = items[begun:]
    with bar(len(items)) as advance:
        for _ in range(begun):
            advance()
        async for message in client.play(left):
            delivery.put(message)
            advance()
    if not left and begun:
        return f"{file} was played to its end: nothing was asked for now. --restart makes its requests again"
    return _name_made_on(client, first, len(items))


class Played:
    """The progress of the file that was played last, and whether it is this one."""

    def __init__(self, client: Client, items: list[tuple[str, bool]], file: Path) -> None:
        self._client, self._items, self._file = client, items, file
        self._digest = hashlib.sha256(json.dumps(items).encode()).hexdigest()
        self._known = client.journal.memory.play

    @property
    def first(self) -> int:
        """The step of the first request."""
        assert self._known is not None
        return self._known.first

    def count_begun(self) -> int:
        """How many requests of this file were made, or are pending. An unfinished other one must not be forgotten."""
        known, state = self._known, self._client.journal.state
        if known is None or state.step + (state.pending is not None) == known.first:
            return 0
        if known.digest == self._digest:
            return self._count_made()
        left = known.requests - (state.step - known.first)
        if left <= 0:
            return 0
        unfinished = f"{known.file} was not played to its end ({left} of {known.requests} requests left)"
        if known.file == str(self._file):
            raise OnoffError(f"{unfinished} and has changed since: begin it anew with --restart")
        raise OnoffError(f"{unfinished}: play it again, or give it up with --restart")

    def begin(self, step: int) -> int:
        """Note the next step as the first of this file, and return it."""
        self._known = Progress(self._digest, step, str(self._file), len(self._items))
        self._client.journal.remember(play=self._known)
        return step

    def _count_made(self) -> int:
        """How many requests of this file were made since it was begun. Raises an error if others were made as well.

        What was erased counts as made for the file. The first may be ON instead of OFF, after a gap.
        """
        names, made = self._client.chain.names, 0
        for step, (source, private) in zip(self._client.journal.steps(since=self.first), self._items, strict=False):
            is_alike = step.asked_private == private or (made == 0 and step.asked_private)
            if step.request is not None and not (is_alike and names[step.request] == source):
                raise OnoffError(
                    f"requests that are not in {self._file} were made since it was left: begin it anew with --restart"
                )
            made += 1
        return made


class Delivery:
    """Writes messages to the files of a directory, if there is one.

    This work depends on which source was wanted. So a thread writes the files, and until the connection is closed the
    client does not wait for it, says nothing and does not stop because of it (`close`). The journal keeps each message
    until its file is written. After a kill the next process writes it.
    """

    def __init__(self, out: Path | None) -> None:
        self._out = out
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="onoff-play")
        self._said: dict[str, None] = {}  # said once each, in this order
        self._unwritten: list[int] = []
        self._reason = ""

    def open(self, journal: Journal) -> None:
        """Make the directory."""
        self._journal = journal
        if self._out is not None:
            make_directory(self._out)
            journal.deliver_all()

    def put(self, message: Message) -> None:
        """Have a message written, or a failure noted."""
        self._writer.submit(self._write, message)

    def restore(self, names: tuple[str, ...], first: int) -> None:
        """Have the messages from step `first` on written that the journal still has, before any other."""
        self._writer.submit(self._restore, names, first)

    def _restore(self, names: tuple[str, ...], first: int) -> None:
        path = self._journal.path
        try:
            with explain_errors(path), closing(connect_to_read(path)) as database:
                for found in read_messages(database, first):
                    self._write(Message.of(names, *found))
        except JournalError as error:
            self._said[str(error)] = None

    def _write(self, message: Message) -> None:
        if message.error is not None:
            self._said[message.error.facts] = None
        elif message.round == 0:
            self._said[f"{message.source}: nothing has been published yet"] = None
        try:
            if self._out is not None and message.error is None:
                write_atomically(self._out / f"{message.step:06d}", message.body, sync=False)
        except OSError as error:
            self._unwritten.append(message.step)
            self._reason = error_sentence(error)
        if self._out is not None:
            self._journal.unwritten = message.step + 1

    def close(self) -> list[str]:
        """Wait until everything is written. Return the words."""
        self._writer.shutdown()
        found = list(self._said)
        if self._unwritten:
            steps = ", ".join(map(str, self._unwritten[:5])) + (", ..." if len(self._unwritten) > 5 else "")
            lost = f"the messages of {len(self._unwritten)} steps are not in {self._out}"
            found.append(f"{lost} (steps {steps}): {self._reason}")
        return found

    def check(self) -> None:
        """Raise the error of a failed write, if any."""
        if self._unwritten:
            raise OnoffError(
                f"{len(self._unwritten)} messages could not be written and are lost. Their requests were made all the "
                "same, since to stop would have shown what was wanted: ask for them again"
            )


def _name_made_on(client: Client, first: int, count: int) -> str | None:
    """Name the requests of a file, begun at step `first`, that were asked OFF but made ON."""
    made_on = [step for step in islice(client.journal.steps(since=first), count) if step.made_private]
    early = sum(step.next is not None or client.journal.promise == "past" for step in made_on)
    reasons = (
        [f"{early} since the first requests of a journal, and those after a lost one or a failed source, always are"]
        if early
        else []
    )
    reasons += ["the last of the file, since nothing is known to follow it"] if len(made_on) > early else []
    return f"asked OFF but made ON: {', and '.join(reasons)}" if reasons else None


def _check_possible(client: Client, file: Path, items: list[tuple[str, bool]]) -> None:
    """Refuse a file with a request that the chain calls impossible at once: to stop there would show it.

    With the promise `past` an ON request may be any. An announced one was checked before.
    """
    chain, state = client.chain, client.journal.state.answered
    reader, announced = state.reader, state.announced
    for source, private in items:
        request = chain.index(source)
        is_free = announced is not None or (private and client.journal.promise == "past")
        if reader is not None and chain.P[reader, request] == 0 and not is_free:
            before = describe_state(chain.states[reader], chain.names)
            words = f"{file}: the chain calls it impossible to ask for {source!r} right after {before}"
            words += ", and nothing was asked: smooth the chain if it can happen"
            raise ContextError(words, last=int(chain.last[reader]), next=request)
        reader, announced = request if reader is None else int(chain.step[reader, request]), None


def _check_free_to_begin(client: Client, file: Path, first: str) -> None:
    """Refuse to begin a file while a step is pending (its message would be lost) or a request announced."""
    state, names = client.journal.state, client.chain.names
    if state.pending is not None:
        wanted = names[state.pending.request]
        raise PendingRequest(
            f"the request for {wanted!r} is pending, and its message would be lost", step=state.step, source=wanted
        )
    if state.announced is not None and names[state.announced] != first:
        wanted = names[state.announced]
        raise Announced(
            f"{wanted!r} was announced as the next request, but {file} begins with {first!r}",
            announced=state.announced,
            source=wanted,
        )


def parse_items(text: str, file: Path, names: Collection[str]) -> list[tuple[str, bool]]:
    """The requests in a text; empty lines and lines with # are passed over. Every source must be one of `names`."""
    items = []
    for number, line in enumerate(text.splitlines(), 1):
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
