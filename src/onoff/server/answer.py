"""Sending the frames of an answer: in parts, as fast as they are read, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from onoff.server.board import Snapshot
from onoff.server.deadlines import Deadlines
from onoff.server.problems import log

# A short answer is sent at once, which is faster. For a long one Granian takes the next part only when the connection
# has room for it: an answer that nobody reads holds about ten parts, and not its length.
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
