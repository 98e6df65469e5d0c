"""Limits on what a stranger can delay or make the server keep: bodies that do not arrive, answers that are not read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from onoff.server.frames import Snapshot
from onoff.server.problems import Problem, log

BODY_SECONDS = 10.0

# A body that is too long is read to its end, up to here, before it is refused: a sender that is cut off while sending
# sees a broken connection instead of the reason.
_PATIENCE_BYTES = 4 * 2**20

# A short answer is sent at once, which is faster. For a long one uvicorn takes the next part only when the connection
# has room for it: an answer that nobody reads holds a few parts, and not its length.
WHOLE = 64 * 1024
PART = 32 * 1024

# An answer may take this long, and a second more for each so many bytes.
SECONDS = 30.0
BYTES_PER_SECOND = 128 * 1024

# Answers under way keep the frames that later rounds have replaced: at most so many times the frames of all sources.
# A round counts by its frames. Counted as one, however few they are, a handful of slow readers would cut off all
# others within seconds wherever messages are published often.
ROUNDS = 8

Headers = Sequence[tuple[bytes, bytes]]
_HEADERS = [(b"content-type", b"application/octet-stream"), (b"cache-control", b"no-store")]


class Deadlines:
    """Cancels tasks that are late, at most `tick` seconds after their deadline.

    One timer serves all tasks. A timer for each (`asyncio.timeout`) costs as much as all the rest of a query.
    """

    def __init__(self, tick: float) -> None:
        self._tick = tick
        self._due: dict[asyncio.Task[object], float] = {}
        self._late: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, seconds: float) -> asyncio.Task[object]:
        """Give the current task this many seconds. It must call `end` whatever happens."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("deadlines are for tasks")
        self._due[task] = time.monotonic() + seconds
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._tick, self._look)
        return task

    def end(self, task: asyncio.Task[object]) -> None:
        """Take the deadline of the current task away."""
        del self._due[task]
        self._late.discard(task)

    def cancelled(self, task: asyncio.Task[object]) -> bool:
        """Whether the `CancelledError` that the task has caught is ours; if so, it is taken back."""
        if task not in self._late:
            return False
        task.uncancel()
        return True

    def cut(self, chosen: Callable[[asyncio.Task[object]], bool]) -> None:
        """Cancel the chosen tasks now."""
        for task in self._due:
            if chosen(task):
                self._cancel(task)

    def _cancel(self, task: asyncio.Task[object]) -> None:
        if task not in self._late:
            self._late.add(task)
            task.cancel()

    def _look(self) -> None:
        """Cancel what is late, and look again while anything is under way."""
        now = time.monotonic()
        self.cut(lambda task: now >= self._due[task])
        self._timer = asyncio.get_running_loop().call_later(self._tick, self._look) if self._due else None


class BodyReader:
    """Reads bodies, and gives up on those that are not complete after `seconds` (or a quarter more)."""

    def __init__(self, seconds: float = BODY_SECONDS) -> None:
        self._seconds, self._deadlines = seconds, Deadlines(seconds / 4)

    async def read(self, receive: Receive, limit: int) -> bytes:
        """The whole body, or a `Problem` if it is longer than `limit` or not complete in time."""
        task = self._deadlines.begin(self._seconds)
        try:
            return await _read(receive, limit)
        except asyncio.CancelledError:
            if not self._deadlines.cancelled(task):
                raise
            detail = f"The body was not complete within {self._seconds:g} seconds."
            raise Problem(408, "slow-body", detail, {"Connection": "close"}) from None
        finally:
            self._deadlines.end(task)


async def _read(receive: Receive, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientDisconnect
        part = event.get("body", b"")
        size += len(part)
        if size <= limit:
            parts.append(part)
        else:
            parts.clear()
        if not event.get("more_body", False):
            break
        if size > limit + _PATIENCE_BYTES:
            raise _too_large(limit, {"Connection": "close"})
    if size > limit:
        raise _too_large(limit, {})
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limit: int, headers: dict[str, str]) -> Problem:
    return Problem(413, "body-too-large", f"At most {limit} bytes are needed here.", headers)


class AnswerSender:
    """Sends answers. An answer is broken off if it is not read in time, or if too much was published since it began.

    What unread answers hold is bounded: a few parts for each connection, and `ROUNDS` times the frames of all sources.
    """

    def __init__(self) -> None:
        self._deadlines = Deadlines(1.0)
        self._sending: dict[asyncio.Task[object], Snapshot] = {}

    async def send(
        self, send: Send, snapshot: Snapshot, frames: Sequence[bytes], headers: Headers | None = None
    ) -> None:
        """Send these frames of a snapshot, with these headers or with those of an answer."""
        size = sum(map(len, frames))
        if headers is None:
            headers = [*_HEADERS, (b"content-length", b"%d" % size)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if size <= WHOLE:
            await send({"type": "http.response.body", "body": b"".join(frames)})
            return
        task = self._deadlines.begin(SECONDS + size / BYTES_PER_SECOND)
        try:
            self._sending[task] = snapshot
            self._cut_the_oldest()
            for part in parts(frames, PART):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except asyncio.CancelledError:
            if not self._deadlines.cancelled(task):
                raise
            # The body ends early, which ends the connection.
            log.info("an answer was not read in time and was broken off")
        finally:
            del self._sending[task]
            self._deadlines.end(task)

    def _cut_the_oldest(self) -> None:
        """Break off the oldest answers while too many frames are kept for their sake alone."""
        times = sorted({snapshot.made for snapshot in self._sending.values()})
        n = len(next(iter(self._sending.values())).frames)
        held, oldest = n, times[-1]
        for newer, older in pairwise(reversed(times)):
            held += min(n, newer - older)
            if held > ROUNDS * n:
                break
            oldest = older
        self._deadlines.cut(lambda task: self._sending[task].made < oldest)


class Document(Response):
    """JSON that is the same for every reader, and long if the sources are many. It is sent as answers are."""

    def __init__(self, sender: AnswerSender, content: bytes) -> None:
        super().__init__(content, headers={"Cache-Control": "no-store"}, media_type="application/json")
        self._sender = sender

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        content = bytes(self.body)
        await self._sender.send(send, Snapshot(0, (content,)), (content,), self.raw_headers)


def parts(frames: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The frames, joined and cut into parts of `size` bytes; made as they are needed."""
    left: list[bytes] = []
    length = 0
    for frame in frames:
        begin = 0
        while length + len(frame) - begin >= size:
            end = begin + size - length
            left.append(frame[begin:end])
            yield b"".join(left)
            left, length, begin = [], 0, end
        left.append(frame[begin:])
        length += len(frame) - begin
    if length:
        yield b"".join(left)
