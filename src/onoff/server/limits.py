"""Limits on what a stranger can delay or make the server keep: bodies that do not arrive, answers that are not read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
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


async def read_body(receive: Receive, limit: int, seconds: float = BODY_SECONDS) -> bytes:
    """The whole body of a request, or a `Problem` if it is longer than `limit` or not complete in time."""
    try:
        async with asyncio.timeout(seconds):
            return await _read(receive, limit)
    except TimeoutError:
        detail = f"The body was not complete within {seconds:g} seconds."
        raise Problem(408, "slow-body", detail, {"Connection": "close"}) from None


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
        self._sending: dict[asyncio.Timeout, Snapshot] = {}

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
        timeout = asyncio.timeout(SECONDS + size / BYTES_PER_SECOND)
        try:
            async with timeout:
                self._sending[timeout] = snapshot
                self._cut_the_oldest()
                for part in parts(frames, PART):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
        except TimeoutError:  # the body ends early, which ends the connection
            log.info("an answer was not read in time and was broken off")
        finally:
            del self._sending[timeout]

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
        for timeout, snapshot in self._sending.items():
            if snapshot.made < oldest and not timeout.expired():
                timeout.reschedule(0.0)


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
