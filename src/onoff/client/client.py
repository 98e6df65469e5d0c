"""The client: what a caller asks for, through the protocol, the journal and a transport, in that order.

ready (public things) -> draw and on disk (promise, journal) -> what is held read -> at a point of the clock -> on the
wire (transport) -> checked -> the whole answer and the end of the step on disk -> the next step prepared -> the caller

From the last byte of an answer to the end of its step all members of the answer are treated alike. Only then does the
client look up which one was wanted, and what follows leaves at a point of the clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from onoff import errors
from onoff.client import protocol
from onoff.client.clock import SendClock, now
from onoff.client.disk import Step
from onoff.client.habits import HabitsStatus, check_learning
from onoff.client.journal import Journal
from onoff.client.message import Message
from onoff.client.promises import Both, Drawing, Now, Past
from onoff.client.protocol import Pending, check_call, look_one_ahead, places_on_wire
from onoff.client.status import has_pending, last_end, private_until
from onoff.client.transports import Answer
from onoff.client.transports.http import within
from onoff.durations import parse_fresh
from onoff.model.chain import Chain, UnknownChain, check_chain
from onoff.plans.planner import Planner

if TYPE_CHECKING:
    from onoff.client.connect import Settings

Result = TypeVar("Result")
log = logging.getLogger("onoff.client")

NOT_OPEN = (
    "the client is not open in this process: use it in `async with connect(...)` or `with connect_sync(...)`, once"
)
DELAY = 0.05  # seconds between two points of the clock: longer than any draw and its commit
EXIT = 10  # delays: a program ends a multiple of so many after its client was closed


class Client:
    """Fetches the latest message of one of the sources of a chain. `onoff.connect` makes one from `Settings`.

    A query is sent at most `attempts` times, always with the same bytes. Everything leaves at points of a clock that
    are `delay` seconds apart. The clock starts where the last step ended, or when the client was opened. A call
    counts as made at the next point. Its query leaves at a later point, once it is drawn. The connection is closed at a
    point as well.

    Several tasks may ask at once. The client makes their requests one after the other, in the order of the calls. If a
    request stays pending, those behind it raise `PendingRequest`, and nothing is drawn for them. If the client is
    closed meanwhile, the current request stays pending, and those behind it are turned away.
    """

    def __init__(self, settings: Settings) -> None:
        """The settings are complete: see `Settings.complete`."""
        self._settings, self.delay = settings, settings.delay
        assert isinstance(settings.journal, Path)
        self.path = settings.journal
        self._chain: Chain | None = None if settings.chain is None else check_chain(settings.chain)
        self.transport = settings.open_transport()
        if self._chain is None and settings.names is not None:
            self._chain = UnknownChain(settings.names)
        self.planner: Planner | None = None
        if settings.promise == "both" and not isinstance(settings.plans, str | PathLike | None):
            self.planner = settings.plans
            if self.planner.store.chain != self._chain:
                raise errors.ChainError("the planner is for another chain than the client")
        self._ends_planner = self.planner is None and not settings.lasting
        self._opened: Journal | None = None
        self._drawing: Drawing | None = None
        self._on_wire: list[int] = []  # the place of each source at the server, once that was asked
        self._gap = False  # whether a request before the next one may have been lost
        self._clock = SendClock()
        self._turn = asyncio.Lock()  # first come, first served
        self._asking: asyncio.Task[object] | None = None  # whose turn it is
        self._stage = "new"  # then "open", then "closed"
        self._closed_at = 0.0

    async def __aenter__(self) -> Self:
        """Fetch the list of sources and open the journal; both must fit the chain."""
        if self._stage != "new":
            raise errors.SessionError("a client is opened once: make another one")
        self._stage = "closed"
        settings = self._settings
        try:
            if settings.promise == "both" and isinstance(settings.plans, str | PathLike | None):
                self.planner = Planner(self.chain, settings.plans, background=settings.background)
            if not self.knows_sources or private_until(self.path, self.chain.n) is None:
                await self._connect()
            if settings.relearn or (settings.chain is None and settings.promise == "past"):
                check_learning(self.chain.n)
            assert isinstance(settings.cache, int)
            catalogue = self.transport.fingerprint if self._on_wire else None
            self._opened = Journal(
                self.path, self.chain.fingerprint, catalogue, settings.first_ever,
                promise=settings.promise, sensitive=settings.sensitive, cache=settings.cache,  # type: ignore[arg-type]
                names=self.chain.names if settings.chain is None else (), depth=self.chain.depth,
                fresh=None if settings.fresh is None else parse_fresh(settings.fresh),
            )  # fmt: skip
            if settings.relearn:
                self._opened.relearn(self.chain)
                self._opened.remember(privacy=None)  # a proxy that was left ON would end the learning at once
            self.transport.notes = self._opened.notes
            self._gap = self._opened.memory.gap
            self._drawing = self._promise(self._opened)
            settings.remember(self._opened)
            self._opened.erase()
            self._drawing.look_ahead()
        except BaseException:
            await self._close()
            raise
        self._clock.restart(self._opened.ended)
        self._stage = "open"
        return self

    async def _connect(self) -> None:
        """Learn what the server offers. In a private window that waits: it would tell that somebody reads."""
        try:
            self._clock.restart(last_end(self.path))
            await self._clock.next_point(self.delay)
            await self._retry(self.transport.connect)
        except errors.TransportError as error:
            known = None if self._chain is None else self._chain.fingerprint
            error.pending = has_pending(self.path, known)
            raise
        if self._settings.chain is None:
            self._chain = UnknownChain(self.transport.names)
        if self._opened is not None:
            self._opened.check_is_for(self.chain.fingerprint, self.transport.fingerprint)
        self._on_wire = places_on_wire(self.chain, self.transport.names)

    async def __aexit__(self, *_: object) -> None:
        self._stage = "closed"
        try:
            if self._asking is not None and self._asking is not asyncio.current_task():
                self._asking.cancel()  # of another task, which nobody waits for: its request stays pending
            async with self._turn:  # who waits in line is turned away
                pass
            # At a point, or the end would show what the caller did with the last message. The journal, which moves its
            # log into its file, comes after: what takes long and varies would carry little things across points.
            await self._clock.next_point(self.delay)
        finally:
            await self._close()

    def _promise(self, journal: Journal) -> Drawing:
        """How queries are drawn with this journal."""
        settings = self._settings
        if journal.promise != "both":
            record = None if settings.record is None else Path(settings.record)
            return Past(self.chain, journal, settings.randbelow, settings.ahead, record)
        assert self.planner is not None
        return Both(self.chain, journal, self.planner, settings.randbelow)

    async def _close(self) -> None:
        """Close everything, first the connection, which the server sees."""
        try:
            await self.transport.close()
        finally:
            if self._drawing is not None:
                self._drawing.close()
            if self._opened is not None:
                self._opened.close()
            if self.planner is not None and self._ends_planner:
                self.planner.close()
            self._closed_at = time.monotonic()

    @property
    def journal(self) -> Journal:
        if self._opened is None:
            raise errors.SessionError(NOT_OPEN)
        return self._opened

    @property
    def knows_sources(self) -> bool:
        """True if the names of the sources are known before a server tells them (with a chain, or URLs)."""
        return self._chain is not None

    @property
    def chain(self) -> Chain:
        """The chain that the journal was made with; a uniform one with the names if it was made without."""
        if self._chain is None:
            raise errors.SessionError("a client without a chain knows its sources once it is open")
        return self._chain

    @property
    def habits(self) -> HabitsStatus | None:
        """The present state of the habits; None for the promise "both", whose chain never changes."""
        if self._drawing is None:
            raise errors.SessionError(NOT_OPEN)
        return None if self._drawing.habits is None else HabitsStatus.of(self._drawing.habits)

    @property
    def private_until(self) -> float | None:
        """Until when every copy is fresh, in seconds since 1970: requests are no steps, and nobody sees them."""
        if self._drawing is None or not self._drawing.spares or self.journal.state.is_asking:
            return None
        fresh = self.journal.fresh(time.time())
        return self.journal.fresh_until() if len(fresh) == self.chain.n else None

    def take_gap(self) -> bool:
        """True if an earlier request may have been lost. The caller must then make the next one ON. Clears the flag."""
        gap, self._gap = self._gap, False
        return gap

    async def get(self, source: str, next: str | None = None, private: bool | None = None) -> Message:
        """Fetch the latest message of `source`. `private` says if the request is ON, `next` names the next source.

        Without `private` the request is ON; but OFF while habits are learned, and in a journal with sensitive sources.
        `next` is for the promise "both" alone: an OFF request binds you to it, and without it the request is made ON,
        as the first requests of a journal are. Raises `SourceError` if the server has no message for the source. The
        step is then finished. For five minutes after a failed member all requests are made ON. If people ask
        again after such a failure, the next call for the same source raises the same error, without a step.
        """
        return (await self.ask(source, next, private)).unwrap()

    async def resume(self, last: bool = False) -> Message:
        """Finish the pending request, with the query that it already had, and return its message.

        Raises `NothingPending` if no request is pending: the last message may not be the one you wait for. With `last`
        the client then returns the last message, if there is one, from the disk.
        """
        async with self._in_turn():
            called = now()
            pending = self.journal.state.pending
            if pending is not None:
                held = self.journal.read_held()
                await self._clock.after_call(called, self.delay)
                return (await self._complete(pending, called, held, again=True)).unwrap()
            found = self.last()
            if found is None or not last:
                source = None if found is None else found[0].source
                words = "nothing is pending: ask for what you want"
                raise errors.NothingPending(words, step=self.journal.state.step, last=source)
            return found[0].unwrap()

    def last(self) -> tuple[Message, Step] | None:
        """Read the last message and its step from the disk; None if none has arrived. The client may be closed.

        A failure is a message with its `error` set.
        """
        journal = self._opened or Journal(self.path, self.chain.fingerprint, None)
        try:
            found = next(journal.messages(journal.state.step - 1), None)
            if found is None:
                return None
            step, member, body = found
            return Message.of(self.chain.names, step, member, body, journal.age(member.source)), step
        finally:
            if self._opened is None:
                journal.close()

    async def play(self, items: Iterable[tuple[str, bool]]) -> AsyncIterator[Message]:
        """Ask for each (source, private) in turn, and yield its message.

        For the promise "both" each request announces the next item, and the last one is made ON.

        A source without a message yields a message with its `error` set, and the stream goes on: to stop there would
        tell the server which source was wanted. Every item is a step, even for a source that has just failed, since it
        was decided on before. If you leave early, the next item stays announced: go on with it.
        """
        for request in look_one_ahead(items, self.journal.promise):
            yield await self.ask(*request, decided=True)

    async def ask(
        self,
        source: str,
        next: str | None = None,
        private: bool | None = None,
        decided: bool = False,
        lost: bool = False,
    ) -> Message:
        """As `get`, but return a failure as a message with its `error` set.

        `lost`: a request before this one may be missing, or this one may repeat it. Its step is then ON; if the known
        habits remember k requests, k steps are.

        Draws the query, puts it on disk, and completes the step. If the last step wanted this source, which failed less
        than five minutes ago, that failure is the answer, without a step, unless the request was `decided` on or
        announced before. Every other request is a step, made ON for five minutes after a failed member.
        """
        check_call(source, next, private)
        async with self._in_turn() as drawing:
            if self.private_until is not None and not decided:
                return self._read_copy(source)
            at = time.time()
            moment = Now(at, self.journal.fresh(at) if drawing.spares else ())
            if not self._on_wire and len(moment.spared) < self.chain.n:
                await self._connect()
            gap = lost or self._gap
            status = drawing.status(None if private is None else bool(private), gap)
            failing = self.journal.failing
            await drawing.ready(status or failing)
            called = now()  # after the wait for public things: the draw has a whole delay from here on
            again = failing and not decided and self.journal.state.announced is None
            failed = self.journal.failure(self.chain.index(source)) if again else None
            if failed is not None:
                return Message.of_failure(self.chain.names, *failed)
            pending = drawing.begin(moment, source, next, status, gap, failing)
            if self.take_gap():
                log.warning("a proxy was killed or did not answer a program: the first requests after that are made ON")
                with contextlib.suppress(errors.JournalError):  # then the next one is ON, too
                    self.journal.remember(gap=False)
            held = self.journal.read_held()
            if pending.query:  # else everything is fresh: the step is silent
                await self._clock.after_call(called, self.delay)
            return await self._complete(pending, called, held)

    def _read_copy(self, source: str) -> Message:
        """A message that is held, for a request that is no step."""
        member, age, body = self.journal.read_copy(self.chain.index(source))
        return Message.of_copy(self.chain.names, self.journal.state.step - 1, member, body, age)

    @contextlib.asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[Drawing]:
        """Wait until the calls before this one have ended. Raises `SessionError` unless the client is open then."""
        if self._stage == "new":
            raise errors.SessionError(NOT_OPEN)
        async with self._turn:
            if self._stage != "open" or self._drawing is None:
                raise errors.SessionError("the client is closed: make another one, with the same journal")
            self._asking = asyncio.current_task()
            try:
                yield self._drawing
            finally:
                self._asking = None

    async def _complete(
        self, pending: Pending, called: float, held: Mapping[int, bytes], again: bool = False
    ) -> Message:
        """Send the pending query until it is answered whole, and put the answer and the end of the step on disk.

        The journal counts every repeated sending (a retry, or `again`) before it leaves. `called` is the time of the
        call. `held` has the bodies whose versions the query names.
        """
        journal, drawing = self.journal, self._drawing
        assert drawing is not None, "the client is open"
        drawing.look_ahead()
        named = sorted(zip(pending.query, pending.held, strict=True), key=lambda each: self._on_wire[each[0]])
        query = tuple(source for source, _ in named)
        on_wire, versions = tuple(self._on_wire[source] for source in query), tuple(version for _, version in named)
        sendings = int(again)

        async def send() -> Answer:
            nonlocal sendings
            if sendings:
                journal.count_sending()
            sendings += 1
            return await self.transport.fetch(journal.stream, journal.state.sent, on_wire, versions)

        answer = Answer((), 0, journal.notes)
        try:
            if query:
                answer = await self._clock.end_at_point(self._retry(send), called, self.delay)
        except errors.TransportError as error:  # a journal that is stale cannot finish it
            error.pending = None if isinstance(error, errors.StaleStep) else True
            raise
        journal.finish(protocol.finish(journal.state), query, answer)
        if query:
            await drawing.hold()
            self._clock.restart()  # only from here on may anything depend on which member was wanted
        found = journal.latest()
        assert found is not None, "a step was finished"
        step, member = found
        if pending.request in pending.spared:
            member, age, body = journal.read_copy(pending.request)
            return Message.of(self.chain.names, step, member, body, age)
        wanted = answer.contents[query.index(pending.request)]
        body = wanted.body if member.step == step.step else held[pending.request]
        return Message.of(self.chain.names, step, member, body)

    def wait_to_exit(self) -> None:
        """Wait, in a program that ends now, until its end says nothing about its last message.

        The program works on that message, and the next program may ask at once. So it ends at a multiple of `EXIT`
        delays after the client was closed: until then all bodies of the answer were treated alike, and took their time.
        """
        if self._opened is not None and self._opened.ended is not None and self.delay > 0:
            time.sleep(-(time.monotonic() - self._closed_at) % (EXIT * self.delay))

    async def _retry(self, ask: Callable[[], Awaitable[Result]]) -> Result:
        """Call until it works, and return the result. Pauses depend on the attempt only.

        A given deadline is for all attempts together: it is the time that a person waits. Rounds of requests to web
        servers keep to it by themselves.
        """
        async with within(None if self._settings.urls else self._settings.deadline):
            for attempt in range(1, self._settings.attempts + 1):
                try:
                    return await ask()
                except errors.Unavailable:
                    if attempt == self._settings.attempts:
                        raise
                    await asyncio.sleep(self._settings.backoff * 2 ** (attempt - 1))
        raise AssertionError("at least one attempt is made")
