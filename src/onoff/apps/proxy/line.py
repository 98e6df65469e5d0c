"""The line of requests: one stream, one client, one step after the other in the order of arrival.

A request that has joined the line is made, whoever goes away meanwhile: habits are about the requests that are made,
and a server must not decide which of them are left out. A step that could not be finished stays pending in the journal,
and is finished before the next one is begun, with the same query. Until then who waits is told so, and the requests
stay in the line: their steps are made, in order, when the server answers again. Nothing is skipped because the pending
step wanted the same source: each request that joins is a step of its own.

Where a request had to be turned away, because the line was full or the proxy ended, the next one is made ON. A full set
depends on nothing, and what is asked after it depends on it alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from dataclasses import dataclass

from onoff.client.client import Client, Message
from onoff.client.session import Pending
from onoff.errors import JournalError, OnoffError, SourceError, TransportError
from onoff.files import told

LONGEST = 128  # requests that wait
KEPT = 5  # errors that the page shows
PATIENCE = 5.0  # seconds that a step which is under way has at the end of the proxy
PRIVACY = "privacy"  # the journal's note of the switch
GAP = "turned away"  # the journal's note of requests that were not made

KEPT_FOR = (TransportError, JournalError, OSError)  # what passes: a server that is away, a disk that is full

log = logging.getLogger("onoff.proxy")


class LineFull(OnoffError):
    """So many requests wait that no more are taken. No step was made."""


class LineClosed(OnoffError):
    """The proxy is ending. No step was made."""


class NotBegun(TransportError):
    """An earlier request could not be finished, so this one is not begun yet. The cause says why."""


@dataclass(frozen=True)
class Trouble:
    """Something that went wrong, and when, in seconds since 1970."""

    at: float
    words: str


@dataclass(frozen=True)
class _Wish:
    """A request that waits, with the status of the moment at which it came."""

    source: str
    private: bool
    answer: asyncio.Future[Message]


class Line:
    """Use as `async with Line(client) as line`, with a client that is open and that nothing else uses."""

    def __init__(self, client: Client, longest: int = LONGEST) -> None:
        self.client, self._longest = client, longest
        self.troubles: deque[Trouble] = deque(maxlen=KEPT)
        self._unreachable = False
        noted = client.journal.recall(PRIVACY)
        # A new journal is ON, unless it has sensitive sources, which are hidden anyway.
        self._private = not client.journal.sensitive if noted is None else noted == "on"
        self._waiting: deque[_Wish] = deque()
        self._wake = asyncio.Event()
        self._closed = False
        self._gap = client.journal.recall(GAP) == "yes"  # the request before the next one was not made
        self._worker: asyncio.Task[None] | None = None
        self._current: asyncio.Task[Message] | None = None

    async def __aenter__(self) -> Line:
        self._worker = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Turn those who wait away; finish the step that is under way, or leave it pending if that takes long."""
        self._closed = True
        if self._waiting:
            self._turned_away()
        for wish in self._waiting:
            _fail(wish, LineClosed("the proxy is ending: ask again when it is back"))
        self._waiting.clear()
        if self._current is not None:
            await asyncio.wait({self._current}, timeout=PATIENCE)
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait({self._worker})

    @property
    def private(self) -> bool:
        """Whether the requests that come now are ON. The journal remembers it."""
        return self._private

    def switch(self, private: bool) -> None:
        """Switch privacy ON or OFF for the requests to come."""
        self.client.journal.note(PRIVACY, "on" if private else "off")
        self._private = private

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def join(self, source: str) -> asyncio.Future[Message]:
        """The message of a source, in the future. From here on its step will be made."""
        if self._closed:
            raise LineClosed("the proxy is ending: ask again when it is back")
        if len(self._waiting) >= self._longest:
            self._turned_away()
            raise LineFull(f"{self._longest} requests are waiting: ask again later")
        wish = _Wish(source, self._private or self._gap, asyncio.get_running_loop().create_future())
        self._gap = False
        self._waiting.append(wish)
        self._wake.set()
        return wish.answer

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                wish = self._waiting.popleft()
                before = self.client.journal.state.step, self.client.journal.state.pending
                self._current = asyncio.create_task(self._step(wish))
                try:
                    await asyncio.wait({self._current})
                except asyncio.CancelledError:  # the end: what is under way stays pending
                    self._current.cancel()
                    await asyncio.wait({self._current})
                    _fail(wish, LineClosed("the proxy has ended before the answer came: the request stays pending"))
                    raise
                error = self._current.exception()
                self._note(error)
                if isinstance(error, KEPT_FOR) and self._is_at(before):
                    self._keep(wish, error)
                    break
                _settle(wish, self._current)

    def _keep(self, wish: _Wish, error: BaseException) -> None:
        """Put a request that was not begun back into its place, and tell all who wait."""
        for waiting in (wish, *self._waiting):
            _fail(waiting, error)
        if self._closed:
            self._turned_away()
        else:
            self._waiting.appendleft(wish)

    def _is_at(self, before: tuple[int, Pending | None]) -> bool:
        """Whether the journal stands where it stood: at the same step, with the same query pending, or none."""
        state = self.client.journal.state
        return (state.step, state.pending) == before

    def _turned_away(self) -> None:
        """Note that a request is left out, in the journal too: this may be the last that the process does."""
        self._gap = True
        with contextlib.suppress(OnoffError, OSError):
            self.client.journal.note(GAP, "yes")

    async def _step(self, wish: _Wish) -> Message:
        """Finish what is pending, then make the step."""
        if self.client.journal.state.pending is not None:
            try:
                with contextlib.suppress(SourceError):
                    await self.client.resume()
            except TransportError as error:
                raise NotBegun(str(error)) from error
        # Not `get`: what the origin says instead of a message is an answer, too.
        [message] = [message async for message in self.client.play([(wish.source, wish.private)])]
        if wish.private and self.client.journal.recall(GAP) == "yes":
            self.client.journal.note(GAP, "")  # a full set has closed the gap
        return message

    def _note(self, error: BaseException | None) -> None:
        self._note_servers(error)
        if error is None:
            return
        if isinstance(error, OnoffError):
            words = str(error)
        elif isinstance(error, OSError):
            words = told(error)
        else:
            log.error("a step failed", exc_info=error)
            words = f"an error of the proxy itself ({type(error).__name__}); its log has more"
        self.troubles.append(Trouble(time.time(), words))

    def _note_servers(self, error: BaseException | None) -> None:
        """Log when servers cease to answer and when they answer again: once each, and not what was asked for."""
        failed = isinstance(error, TransportError)
        if failed and not self._unreachable:
            log.warning("a server does not answer: one request is pending and is sent again before the next one")
        elif error is None and self._unreachable:
            log.warning("the servers answer again")
        self._unreachable = failed or (self._unreachable and error is not None)


def _settle(wish: _Wish, made: asyncio.Task[Message]) -> None:
    """Tell who waits, if anybody does."""
    error = made.exception()
    if error is not None:
        _fail(wish, error)
    elif not wish.answer.done():
        wish.answer.set_result(made.result())


def _fail(wish: _Wish, error: BaseException) -> None:
    if not wish.answer.done():
        wish.answer.set_exception(error)
        wish.answer.exception()  # who asked may be gone: then nobody looks
