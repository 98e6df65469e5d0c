"""The queue of requests: one stream, one client, one step after the other in the order of arrival.

Every submitted request gets its step, even if its program goes away: the chain describes all requests, and a server
must not decide which of them are left out. A step that could not be finished stays pending in the journal, and is
finished with the same query before the next one begins. Until then waiting programs get an error, and their requests
stay in the queue: the steps are made, in order, when the server answers again. The client asks the server again with
the next request, and every `RETRY_SECONDS`: these times follow from what the server did. A request for the source of
the pending step is a step of its own, too.

If a request had to be left out, because the queue was full or the proxy ended or was killed, the next one is made ON:
a full set depends on nothing, and its request is the reader's new state. If habits remember k requests, a new state
takes k full sets, and the client makes all of them (`protocol.begin_past`).

A program that got no message, because a server was slow or away, may ask again for the same source. The chain does not
describe such a repetition, and two sets that both hold the source tell more than they may. So for every program that
got an error, or has gone away, one later request is made ON.

Programs also ask again by themselves after some statuses (wget after 504, `curl --retry` and urllib3 after others):
steps that the origin has caused. So they get 424 instead, after which no program asks again. The header
`Onoff-True-Status` has the true one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from dataclasses import dataclass, replace

from onoff.client.client import Client
from onoff.client.message import Message
from onoff.client.transports import fails
from onoff.errors import ContextError, JournalError, OnoffError, SourceError, TransportError
from onoff.files import error_sentence

LONGEST = 128  # requests that wait
RETRY_SECONDS = 60  # after which what could not be finished is tried again
PATIENCE = 5.0  # seconds that a step which is under way has at the end of the proxy, beside its two delays
FAILED = 424  # in the place of every status after which programs ask again
TRUE_STATUS = "onoff-true-status"
KEPT = "Your request is kept."
NOT_BEGUN = "Your request is kept in the queue, and is made before those that come after it."
AGAIN = f"The servers are asked again, unchanged, in {RETRY_SECONDS} seconds or with the next request."
PASSING = (TransportError, JournalError, OSError)  # a server that is away, a disk that is full
ENDING = "no more requests are taken: the end has come. Ask again later"

log = logging.getLogger("onoff.proxy")


class TurnedAway(OnoffError):
    """A request is refused, and no step is made: too many requests wait, or the proxy is ending."""


class NotBegun(OnoffError):
    """The step of a request could not begin. The request stays in the queue; `__cause__` says why."""


@dataclass(frozen=True)
class _Request:
    """A waiting request, with the status of its arrival. `due`: its step is ON, unless habits are learned."""

    source: str
    private: bool
    due: bool
    answer: asyncio.Future[Message]


class RequestQueue:
    """Use as `async with RequestQueue(client) as queue`, with a client that is open and that nothing else uses.

    `private` says whether requests are ON now; the journal remembers it (`switch`). Of the requests to come
    `full_sets_due` are made ON although the switch is OFF.
    """

    def __init__(self, client: Client, longest: int = LONGEST) -> None:
        self.client, self._longest = client, longest
        self.trouble = ""  # why the last step was not made, or not finished
        self._unreachable = False
        noted = client.journal.memory.privacy
        # A new journal is ON, unless it has sensitive sources, which are hidden anyway, or is learning.
        self.private = not (client.journal.sensitive or self._learns) if noted is None else noted
        self._waiting: deque[_Request] = deque()
        self._wake = asyncio.Event()
        self._closed = False
        self.full_sets_due = max(int(client.take_gap()), client.journal.memory.owed)
        self._worker: asyncio.Task[None] | None = None
        self._current: asyncio.Task[Message | None] | None = None

    async def __aenter__(self) -> RequestQueue:
        self.client.journal.remember(gap=True, privacy=self.private)  # it stays so when the habits are known
        self._worker = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Turn those who wait away; finish the step that is under way, or leave it pending if that takes long."""
        if self._closed:
            return
        self._closed = True
        due = self.full_sets_due
        for request in self._waiting:
            self._fail(request, TurnedAway(ENDING))
        self.full_sets_due = due  # no sets were drawn for those who wait: one ON request is enough for all of them
        self._require_full_set(bool(self._waiting))
        self._waiting.clear()
        if self._current is not None:
            await asyncio.wait({self._current}, timeout=PATIENCE + 2 * self.client.delay)
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait({self._worker})
        self.client.journal.remember(gap=self.full_sets_due > 0, owed=self.full_sets_due)

    @property
    def _learns(self) -> bool:
        """True while habits are learned: queries are full sets, and an ON request would end the learning."""
        habits = self.client.habits
        return habits is not None and habits.stage in ("learning", "complete")

    def switch(self, private: bool) -> None:
        """Switch privacy ON or OFF for the requests to come."""
        self.client.journal.remember(privacy=private)
        self.private = private

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def submit(self, source: str, private: bool | None = None) -> asyncio.Future[Message]:
        """Return the future message of a source. Its step will be made; `abandon` it if nobody waits.

        `private` says whether it is ON; None if the switch decides.
        """
        if self._closed:
            self._require_full_set()
            self.client.journal.remember(gap=True)  # the end may have taken it back
            raise TurnedAway(ENDING)
        if len(self._waiting) >= self._longest:
            self._require_full_set()
            raise TurnedAway(f"{self._longest} requests are waiting: ask again later")
        due = self.full_sets_due > 0
        asked = self.private if private is None else private
        request = _Request(source, asked, due, asyncio.get_running_loop().create_future())
        self.full_sets_due = max(0, self.full_sets_due - 1)
        if self.full_sets_due == 0 and self.client.journal.memory.owed:
            with contextlib.suppress(JournalError):  # then a kill makes full sets due that were paid already
                self.client.journal.remember(owed=0)
        self._waiting.append(request)
        self._wake.set()
        return request.answer

    def abandon(self, answer: asyncio.Future[Message]) -> None:
        """Note that nobody waits for an answer any more. Its step is made, and one later request is ON."""
        if answer.cancel():
            self.expect_repeat()

    def expect_repeat(self) -> None:
        """Make one of the requests to come ON: a program without its message may ask again."""
        self.full_sets_due += 1

    def _fail(self, request: _Request, error: BaseException) -> None:
        """Tell who waits, if anybody does, that there is no message. One of the requests to come is then ON."""
        if not request.answer.done():
            request.answer.set_exception(error)
            request.answer.exception()  # who asked may be gone: then nobody looks
            self.expect_repeat()

    def _settle(self, request: _Request, made: asyncio.Task[Message | None]) -> None:
        """Tell who waits, if anybody does."""
        error = made.exception()
        if error is not None:
            self._fail(request, error)
        elif not request.answer.done():
            message = made.result()
            assert message is not None, "a step has a message"
            request.answer.set_result(message)

    def _require_full_set(self, left_out: bool = True) -> None:
        """Make the next request ON if one before it was left out."""
        self.full_sets_due = max(self.full_sets_due, int(left_out))

    async def _work(self) -> None:
        while True:
            late = self._waiting or self._is_pending
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_SECONDS if late else None):
                    await self._wake.wait()
            self._wake.clear()
            while await self._advance() and self._waiting:
                pass

    @property
    def _is_pending(self) -> bool:
        return self.client.journal.state.pending is not None

    async def _advance(self) -> bool:
        """Finish the pending step and make that of the first waiting request, if any. False if it cannot be yet."""
        request = self._waiting.popleft() if self._waiting else None
        self._current = asyncio.create_task(self._finish() if request is None else self._step(request))
        try:
            await asyncio.wait({self._current})
        except asyncio.CancelledError:  # the end: what is under way stays pending, if it was begun
            self._require_full_set(request is not None)
            self._current.cancel()
            await asyncio.wait({self._current})
            if request is not None:
                words = "the end has come before the answer: the request stays pending"
                self._fail(request, TurnedAway(words))
            raise
        error = self._current.exception()
        self._note(error)
        if isinstance(error, NotBegun):
            self._keep(request, error)
        elif request is not None:
            self._settle(request, self._current)
        return not isinstance(error, NotBegun)

    def _keep(self, request: _Request | None, error: BaseException) -> None:
        """Put a request that was not begun back into its place, and tell all who wait."""
        if request is not None:
            self._waiting.appendleft(request)
        for waiting in self._waiting:
            self._fail(waiting, error)
        if self._closed:
            self._require_full_set(bool(self._waiting))
            self._waiting.clear()

    async def _finish(self) -> Message | None:
        """Finish what is pending. Raises `NotBegun` if that fails: nothing is begun before."""
        if not self._is_pending:
            return None
        try:
            return await self.client.resume()
        except SourceError:
            return None
        except Exception as error:  # whatever it is
            raise NotBegun(_words(error)) from error

    async def _step(self, request: _Request) -> Message:
        """Finish what is pending, then make the step. Raises `NotBegun` if its query is not drawn, but can be later."""
        journal = self.client.journal
        await self._finish()
        ready = journal.state
        try:
            # Not `get`: what the origin says instead of a message is an answer, too.
            message = await self.client.ask(request.source, private=request.private, lost=request.due)
        except Exception as error:
            if journal.state is not ready:
                raise
            if isinstance(error, PASSING):
                raise NotBegun(_words(error)) from error
            self._cover_gap()
            raise
        if journal.state is ready and request.due:
            self._pass_on()
        return message

    def _pass_on(self) -> None:
        """Let another request be ON in place of one that made no step, since the journal knew its failure."""
        for place, waiting in enumerate(self._waiting):
            if not (waiting.private or waiting.due):
                self._waiting[place] = replace(waiting, due=True)
                return
        self.full_sets_due += 1

    def _cover_gap(self) -> None:
        """Make the next request ON if it waits already. A later one will be: its program gets an error."""
        if self._waiting:
            self._waiting[0] = replace(self._waiting[0], due=True)

    def _note(self, error: BaseException | None) -> None:
        """Log when servers cease to answer and when they answer again: once each, and not what was asked for."""
        cause = error.__cause__ if isinstance(error, NotBegun) else error
        self.trouble = "" if error is None else _words(error)
        if cause is not None and not isinstance(cause, OnoffError | OSError):
            log.error("a step failed", exc_info=cause)
        failed = isinstance(cause, TransportError)
        if failed and not self._unreachable:
            log.warning("a server does not answer: one request is pending and is sent again before the next one")
        elif error is None and self._unreachable:
            log.warning("the servers answer again")
        self._unreachable = failed or (self._unreachable and error is not None)


def safe_status(status: int) -> int:
    """A status for a program, after which none asks again by itself."""
    return FAILED if fails(status) else status


def explain(error: Exception) -> str:
    """Explain to a program that its step was not made or finished."""
    words = _words(error)
    if isinstance(error, ContextError):
        return f"{words}; no step was made"
    if isinstance(error, TransportError | NotBegun):
        end = "" if words.endswith((".", "?", "!")) else "."
        return f"{words}{end} {NOT_BEGUN if isinstance(error, NotBegun) else KEPT} {AGAIN}"
    return words


def _words(error: BaseException) -> str:
    if isinstance(error, OSError):
        return error_sentence(error)
    if isinstance(error, TransportError):
        return error.facts  # the queue itself finishes what is pending
    own = f"an error of onoff itself ({type(error).__name__}); its log has more"
    return str(error) if isinstance(error, OnoffError) else own
