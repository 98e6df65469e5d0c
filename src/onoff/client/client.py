"""The client: what a caller asks for, through the session, the journal and a transport, in that order.

ready (public things) -> draw and on disk (promise, journal) -> at a point of the grid -> on the wire (transport)
-> checked -> the whole answer and the end of the step on disk -> the next step prepared -> the caller

From the last byte of an answer to the end of its step everything is done for all members alike. Only then is it looked
at which one was wanted, and what follows leaves on the grid.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self, TypeVar

from onoff.client import session
from onoff.client.checking import (
    check_flags,
    check_item,
    check_parts,
    check_request,
    check_seconds,
    iterated,
    nothing_pending,
    places_on_wire,
)
from onoff.client.grid import Grid, now
from onoff.client.held import CACHE, cache_size
from onoff.client.journal import Journal
from onoff.client.learning import LEAVE, Learned, Learning, check_learning, learned, unknown_habits
from onoff.client.message import Message, delivered, member_of, message_of
from onoff.client.promises import Both, Drawing, Past, checked_promise
from onoff.client.session import Pending
from onoff.client.snapshot import has_pending
from onoff.client.stored import StepRow
from onoff.client.transport import Answer, Transport
from onoff.errors import (
    ChainError,
    JournalError,
    NotOpen,
    OnoffError,
    PendingRequest,
    PlanError,
    StaleStep,
    TransportError,
    Unavailable,
)
from onoff.files import path_of
from onoff.model.chain import Chain, checked_chain
from onoff.plans.lengths import Weighing
from onoff.plans.planner import Planner
from onoff.types import RandBelow, is_whole

if TYPE_CHECKING:
    from onoff.client.settings import Settings

Result = TypeVar("Result")
log = logging.getLogger("onoff.client")

GAP = "gap"  # the journal's note that a request may be left out: a proxy makes it, and takes it back at an orderly end
OPEN = "the client is not open: use it in `async with connect(...) as client`"
DELAY = 0.05  # seconds between two points of the grid: longer than any draw and its commit


class Client:
    """Fetches the latest message of one of the sources of a chain. Use as `async with Client(...) as client`.

    A query is sent at most `attempts` times, always with the same bytes. The pauses in between double, beginning with
    `backoff` seconds. Everything leaves at points of a grid in time that are `delay` seconds apart. The grid starts
    where the step before ended, or when the client was opened. A call counts as made at the next point. Its query
    leaves at a later point, once it is drawn. The connection is closed at a point as well.

    The journal decides which promise is kept. A new one is made for `promise` and the `sensitive` sources. Without a
    promise it is made for "both" if there is a planner, which that needs, and else for "past". With `record` the laws
    of OFF steps of "past" are noted in a file for auditors. `ahead` says whether the next one is prepared while an
    answer is on its way.

    With `weighing` the laws of "past" are cheap in bytes rather than in messages.

    Members of answers, wanted or not, are held on disk in at most `cache` bytes (0 switches that off). A query asks for
    what is held only if it is newer.

    `connect` makes one from files and addresses, and says which errors a caller must be ready for. A planner may
    be given as a function that makes it, which is called when the client is opened. `settings` are what the journal is
    to remember. With `ends_planner` the planner is closed with the client.

    Without a chain it learns (`onoff.client.learning`): every request asks for everything, and the journal notes it.

    Several tasks may ask at once. Their requests are made one after the other, in the order of the calls. If one of
    them stays pending, those behind it get a `PendingRequest`, and nothing is drawn for them. If the client is closed
    meanwhile, the request that is under way stays pending, and those behind it are turned away.

    With `first_ever` a new journal is the first of this reader at these sources, ever: then its first request counts as
    ON already. Otherwise the second does, since the first may repeat a request whose query went out before.
    """

    def __init__(
        self,
        chain: Chain | None,
        transport: Transport,
        journal: str | Path,
        planner: Planner | Callable[[], Planner] | None = None,
        *,
        delay: float = DELAY,
        attempts: int = 5,
        backoff: float = 0.2,
        first_ever: bool = False,
        promise: str | None = None,
        sensitive: Sequence[int | str] = (),
        record: str | Path | None = None,
        ahead: bool = True,
        cache: int = CACHE,
        weighing: Weighing | None = None,
        randbelow: RandBelow = secrets.randbelow,
        settings: Settings | None = None,
        ends_planner: bool = False,
    ) -> None:
        if chain is not None:
            checked_chain(chain)
        check_parts(transport, planner, weighing)
        if planner is not None and not callable(planner) and planner.store.chain != chain:
            raise ChainError("the planner is for another chain than the client")
        check_seconds(delay=delay, backoff=backoff)
        check_flags(first_ever=first_ever, ahead=ahead, ends_planner=ends_planner)
        if not is_whole(attempts, 1):
            raise OnoffError(f"attempts is {attempts!r}: a whole number from 1 on is needed")
        self._chain, self.learns, self.transport = chain, chain is None, transport
        self.planner = None if callable(planner) else planner
        self._make_planner = planner if callable(planner) else None
        if chain is None and (promise == "both" or sensitive or planner is not None):
            raise OnoffError(LEAVE)
        self._promise, self._sensitive = (None, ()) if chain is None else checked_promise(chain, promise, sensitive)
        if self._promise is None and (planner is None or self._sensitive):
            self._promise = "past"
        self._record, self._ahead = None if record is None else path_of(record, "the record"), ahead
        self.delay, self.attempts, self.backoff = delay, attempts, backoff
        self.path, self._first_ever, self._randbelow = path_of(journal, "the journal"), first_ever, randbelow
        self._cache, self._weighing = cache_size(cache), weighing
        self._settings, self._ends_planner = settings, ends_planner
        self._opened: Journal | None = None
        self._drawing: Drawing | None = None
        self._gap = False  # whether a request before the next one may be left out
        self._grid = Grid()
        self._turn = asyncio.Lock()  # first come, first served
        self._asking: asyncio.Task[object] | None = None  # whose turn it is
        self._stage = "new"  # then "open", then "closed"

    async def __aenter__(self) -> Self:
        """Learn what the server offers and open the journal; both must fit the chain."""
        if self._stage != "new":
            raise NotOpen("a client is opened once: make another one")
        self._stage = "closed"
        try:
            if self._make_planner is not None:
                self.planner = self._make_planner()
            try:
                await self._retried(self.transport.connect)
            except TransportError as error:
                known = None if self._chain is None else self._chain.fingerprint
                error.pending = has_pending(self.path, known)
                raise
            if self._chain is None:
                self._chain = unknown_habits(self.transport.names)
            self._on_wire = places_on_wire(self.chain, self.transport.names)
            self._opened = Journal(
                self.path, self.chain.fingerprint, self.transport.fingerprint, self._first_ever,
                promise=self._promise, sensitive=self._sensitive, cache=self._cache,
            )  # fmt: skip
            check_learning(self._opened, self.learns, self.chain.names)
            self._gap = self._opened.recall(GAP) == "yes"
            self._drawing = self._kept_promise(self._opened)
            if self._settings is not None:
                self._settings.note(self._opened)
            self._drawing.look_ahead()
        except BaseException:
            await self._closed()
            raise
        self._grid.restart()
        self._stage = "open"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stage = "closed"
        try:
            if self._asking is not None and self._asking is not asyncio.current_task():
                self._asking.cancel()  # of another task, which nobody waits for: its request stays pending
            async with self._turn:  # who waits in line is turned away
                pass
            # At a point, or the end would show what the caller did with the last message. The journal, which moves its
            # log into its file, comes after: what takes long and varies would carry little things across points.
            await self._grid.next_point(self.delay)
        finally:
            await self._closed()

    def __enter__(self) -> NoReturn:
        raise NotOpen("use this client in `async with`, or take connect_sync(...), whose client works in `with`")

    def __exit__(self, *_: object) -> None:
        """Do nothing: it was not entered."""

    def _kept_promise(self, journal: Journal) -> Drawing:
        """How queries are drawn with this journal."""
        if self.learns:
            return Learning(self.chain, journal)
        if journal.promise == "past":
            return Past(self.chain, journal, self._randbelow, self._ahead, self._record, self._weighing)
        if self.planner is None:
            raise PlanError(f"{journal.path}: was made for the promise 'both', which needs a planner")
        return Both(self.chain, journal, self.planner, self._randbelow)

    async def _closed(self) -> None:
        """Let everything go: first the connection, which the server sees."""
        try:
            await self.transport.close()
        finally:
            if self._drawing is not None:
                self._drawing.close()
            if self._opened is not None:
                self._opened.close()
            if self._ends_planner and self.planner is not None:
                self.planner.close()

    @property
    def journal(self) -> Journal:
        if self._opened is None:
            raise NotOpen(OPEN)
        return self._opened

    @property
    def chain(self) -> Chain:
        """The habits. While learning, a chain that has the names of the sources and nothing else to say."""
        if self._chain is None:
            raise NotOpen("a client that learns knows its sources once it is open")
        return self._chain

    @property
    def learned(self) -> Learned | None:
        """What was noted so far, if this client learns."""
        return learned(self.journal) if self.learns else None

    @property
    def lengths(self) -> tuple[float, ...] | None:
        """The lengths of messages that plans are made with."""
        if self._weighing is not None:
            return self._weighing.lengths
        return None if self.planner is None else self.planner.store.lengths

    def take_gap(self) -> bool:
        """Whether the next request must be ON, because one before it may be left out. Who asks sees to it."""
        gap, self._gap = self._gap, False
        return gap

    async def get(self, source: str, next: str | None = None, private: bool | None = None) -> Message:
        """The latest message of `source`. `private` says whether privacy is ON, `next` what will be asked for after it.

        If it is not said, the request is ON; in a journal with sensitive sources it is OFF, since these are hidden
        whether it is ON or OFF. `next` is for the promise "both" alone: after an OFF query one is bound to it, and
        without it the request is made ON. So is one at the start of a journal. Raises `SourceError` if a web server has
        no message for the source. The step is then finished like any other.
        """
        return delivered(await self._ask(source, next, private))

    async def resume(self, last: bool = False) -> Message:
        """Finish the pending request, with the query that it already had, and return its message.

        Raises `NothingPending` if there is none: then the last message is perhaps not the one that you wait for. With
        `last` that one is returned, from the disk, if one has arrived. No server is asked.
        """
        check_flags(last=last)
        async with self._in_turn():
            called = now()
            pending = self.journal.state.pending
            if pending is not None:
                await self._grid.after_call(called, self.delay)
                return delivered(await self._complete(pending, called, again=True))
            found = self._last(self.journal)
            if found is None or not last:
                raise nothing_pending(self.journal.state.step, None if found is None else found[0])
            return delivered(found[0])

    def again(self) -> tuple[Message, StepRow] | None:
        """The last message, from the disk, with its step; None if none has arrived. For a client that is not open.

        No server is asked. Raises `PendingRequest` if a request is pending: open the client, and `resume` finishes it.
        """
        journal = Journal(self.path, self.chain.fingerprint, None, cache=self._cache)
        try:
            if journal.state.pending is not None:
                raise PendingRequest(
                    "a request is pending: `onoff resume` (Client.resume) finishes it", step=journal.state.step
                )
            return self._last(journal)
        finally:
            journal.close()

    def _last(self, journal: Journal) -> tuple[Message, StepRow] | None:
        """The wanted message of the last finished step, with its `error` set if it is none."""
        stored = journal.latest()
        if stored is None:
            return None
        made = next(journal.steps(since=stored.step))
        return message_of(self.chain.names, stored, made.query, made.private, made.made_private), made

    async def play(self, items: Iterable[tuple[str, bool]]) -> AsyncIterator[Message]:
        """Ask for each (source, private) in turn.

        For the promise "both" the next one is found by looking one ahead, and the last is made ON.

        For a source without a message, a message with its `error` set is yielded, and the stream goes on: to stop there
        would tell the server which source was wanted. If you leave early, the next request stays announced: go on with
        the rest of the items.
        """
        upcoming = iterated(items)
        current = next(upcoming, None)
        while current is not None:
            check_item(current)
            following = next(upcoming, None)
            if following is not None:
                check_item(following)
            announced = following[0] if following is not None and self.journal.promise == "both" else None
            yield await self._ask(current[0], announced, current[1])
            current = following

    async def _ask(self, source: str, next: str | None, private: bool | None) -> Message:
        """Draw the query, put it on disk, and complete the step."""
        check_request(source, next, private)
        async with self._in_turn() as drawing:
            status = drawing.status(None if private is None else bool(private)) or self._gap
            await drawing.ready(status)
            called = now()  # after the wait for public things: the draw has a whole delay from here on
            pending = drawing.begin(source, next, status)
            if self.take_gap():
                log.warning("a proxy was killed or did not answer a program: the first request after that is made ON")
                with contextlib.suppress(JournalError):  # then the next one is ON, too
                    self.journal.note(GAP, "")
            await self._grid.after_call(called, self.delay)
            return await self._complete(pending, called)

    @contextlib.asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[Drawing]:
        """Wait until the calls before this one have ended. Raises `NotOpen` unless the client is open then."""
        if self._stage == "new":
            raise NotOpen(OPEN)
        async with self._turn:
            if self._stage != "open" or self._drawing is None:
                raise NotOpen("the client is closed: make another one, with the same journal")
            self._asking = asyncio.current_task()
            try:
                yield self._drawing
            finally:
                self._asking = None

    async def _complete(self, pending: Pending, called: float, again: bool = False) -> Message:
        """Send the pending query until it is answered whole, and put the answer and the end of the step on disk.

        If it may have been sent `again`, or is, the journal counts that first. `called` is when the call was made.
        """
        query = sorted(pending.query, key=lambda source: self._on_wire[source])
        on_wire = tuple(self._on_wire[source] for source in query)
        journal, drawing = self.journal, self._drawing
        assert drawing is not None, "the client is open"
        drawing.look_ahead()
        step, versions = journal.state.step, dict(zip(pending.query, pending.held, strict=True))
        named = tuple(versions[source] for source in query)
        held = journal.held(pending)  # all of it is checked before anything leaves, and not only what is wanted
        sendings = int(again)

        async def send() -> Answer:
            nonlocal sendings
            if sendings:
                journal.sending_again()
            sendings += 1
            return await self.transport.fetch(journal.stream, step, on_wire, named)

        try:
            answer = await self._grid.ended_at_a_point(self._retried(send), called, self.delay)
        except TransportError as error:  # a journal that is stale cannot finish it
            error.pending = None if isinstance(error, StaleStep) else True
            raise
        members = [
            member_of(step, source, content, held.get(source))
            for source, content in zip(query, answer.contents, strict=True)
        ]
        journal.finish(session.finish(journal.state), members, answer.size)
        await drawing.hold()
        self._grid.restart()  # only from here on may anything depend on which member was wanted
        wanted = members[query.index(pending.request)]
        return message_of(
            self.chain.names, wanted, pending.query, pending.private, pending.private and not pending.asked_private
        )

    async def _retried(self, ask: Callable[[], Awaitable[Result]]) -> Result:
        """Call until it works, and return the result. Pauses depend on the attempt only."""
        for attempt in range(1, self.attempts + 1):
            try:
                return await ask()
            except Unavailable:
                if attempt == self.attempts:
                    raise
                await asyncio.sleep(self.backoff * 2 ** (attempt - 1))
        raise AssertionError("at least one attempt is made")
