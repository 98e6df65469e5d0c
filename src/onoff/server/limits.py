"""Limits on what a stranger can make the server hold: connections, bodies that are too long, answers that are not read.

`Connection` overrides callbacks of uvicorn's protocol class. uvicorn itself bounds only idle connections and unsent
bytes (64 KiB of an answer): a request that never arrives whole, an endless head, or more connections than the process
may have files would hold places and memory for ever.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import cast

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from onoff.errors import OnoffError
from onoff.server.frames import Snapshot
from onoff.server.problems import Problem
from onoff.server.store import START

CONNECTIONS = 4096  # of each process
REQUEST_SECONDS = 10.0  # in which a request must arrive, with its body
HEAD_BYTES = 64 * 1024
_LOG_SECONDS = 60.0
_OTHER_FILES = 128  # that a process needs beside its connections
_LEAST = 64

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

log = logging.getLogger("onoff.server")


class Room:
    """The connections of one process that wait for a request or for the rest of one, the longest waiting first.

    A connection that waits for longer than `seconds` is closed. Beyond `limit` open connections a new one takes the
    place of the one that has waited longest; if none waits, the new one is closed.
    """

    def __init__(self, limit: int, seconds: float) -> None:
        self._limit, self._seconds = limit, seconds
        self.waiting: dict[Connection, asyncio.TimerHandle] = {}  # in the order in which they began to wait
        self._logged = float("-inf")

    def enter(self, connection: Connection) -> None:
        """Take a new connection in, or close it if all places are taken by requests under way."""
        if len(connection.connections) > self._limit:
            self._log_full(connection.loop.time())
            closed = next(iter(self.waiting), connection)
            self.stop_waiting(closed)
            closed.transport.abort()
            if closed is connection:
                return
        self.wait(connection)

    def wait(self, connection: Connection) -> None:
        """Begin to wait for a request, or for the rest of one."""
        self.stop_waiting(connection)
        self.waiting[connection] = connection.loop.call_later(self._seconds, connection.transport.close)

    def stop_waiting(self, connection: Connection) -> None:
        if connection in self.waiting:
            self.waiting.pop(connection).cancel()

    def _log_full(self, now: float) -> None:
        if now - self._logged >= _LOG_SECONDS:
            self._logged = now
            log.warning(
                "%d connections are open, all that this process takes: those that ask for nothing are closed. "
                "Limit connections by address in a proxy.",
                self._limit,
            )


class Connection(HttpToolsProtocol):
    """One connection. `room` is shared by all connections of a server."""

    room: Room
    _unparsed = 0  # bytes since the parser last handed on a head or a part of a body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.room.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.room.stop_waiting(self)
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection of a client that sends no more but waits for its answers. The last one ends it.

        The client may also be gone. The application finds `half_closed` in its scope, with an empty event.
        """
        if self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            return False
        self.cycle.keep_alive, self.cycle.scope["half_closed"] = False, True  # type: ignore[typeddict-unknown-key]
        self.cycle.message_event.set()
        return True

    def shutdown(self) -> None:
        """End the connection, now if it waits for a request or for the rest of one, else after its answer."""
        if self in self.room.waiting:
            self.transport.close()
        super().shutdown()

    def data_received(self, data: bytes) -> None:
        if self._unparsed > HEAD_BYTES:
            self.send_400_response("The head of the request is too long.")
            return
        self._unparsed += len(data)
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self.cycle is None or self.cycle.response_complete:  # else an answer is under way, and takes its time
            self.room.wait(self)

    def on_headers_complete(self) -> None:
        self._unparsed = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.cycle.response_complete:
            self.room.stop_waiting(self)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # `cycle` is the last request that has come. It may have come with others, and be unanswered or not whole yet.
        if self.cycle.response_complete or self.cycle.more_body:
            self.room.wait(self)


def connection_class(limit: int, seconds: float) -> type[Connection]:
    """The class of the connections of one server: at most `limit`, and `seconds` for a request to arrive."""
    return cast("type[Connection]", type("BoundedConnection", (Connection,), {"room": Room(limit, seconds)}))


def connection_limit() -> int:
    """How many connections a process may have open: fewer than the files that it may open.

    Raises the limit of open files if the system allows it. Out of files, a process could accept no connection.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    found = CONNECTIONS if soft == resource.RLIM_INFINITY else min(CONNECTIONS, soft - _OTHER_FILES)
    if found < _LEAST:
        raise OnoffError(
            f"this process may open {soft} files only; a server needs {_LEAST + _OTHER_FILES} or more: ulimit -n"
        )
    return found


async def read_body(receive: Receive, limit: int) -> bytes:
    """The whole body of a request, or a `Problem` if it is longer than `limit`. `Room` ends bodies that are slow."""
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
        more = event.get("more_body", False)
        if not more or size > limit + _PATIENCE_BYTES:
            break
    if size > limit:
        headers = {"Connection": "close"} if more else {}
        raise Problem(413, "body-too-large", f"At most {limit} bytes are needed here.", headers)
    return parts[0] if len(parts) == 1 else b"".join(parts)


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
        await self._sender.send(send, Snapshot(START, (content,)), (content,), self.raw_headers)


def parts(frames: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The frames, joined and cut into parts of `size` bytes or up to twice as many; made as they are needed."""
    part = bytearray()
    for frame in frames:
        for begin in range(0, len(frame), size):
            part += frame[begin : begin + size]
            if len(part) >= size:
                yield bytes(part)
                part.clear()
    if part:
        yield bytes(part)
