"""Limits on what a stranger can make the server hold: connections, bodies that are too long, answers that are not read.

uvicorn itself bounds only idle connections and unsent bytes (64 KiB of an answer): a request that never arrives whole,
an endless head, or more connections than the process may have files would hold places and memory for ever. `Connection`
stands between the socket and uvicorn's protocol, of which it uses the methods of `asyncio.Protocol` alone, and
`through_connections` between uvicorn and the application. A refusal is a `Problem`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from http import HTTPStatus
from socket import SO_ERROR, SOL_SOCKET
from typing import Any, cast

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from onoff.errors import OnoffError, StoreError, WireError
from onoff.files import error_sentence

CONNECTIONS = 4096  # of each process
REQUEST_SECONDS = 10.0  # in which a request must arrive, with its body
END_SECONDS = 0.5  # the same, once the server is to stop
HEAD_BYTES = 64 * 1024
_LOG_SECONDS = 60.0
_OTHER_FILES = 128  # that a process needs beside its connections
_LEAST = 64

# What may arrive of a body before the application has seen any of it: uvicorn pauses at 64 KiB, and chunks of one byte
# are six on the wire.
_UNSEEN_BYTES = 8 * HEAD_BYTES

# A body is read to its end, up to here, before its request is refused: a sender that is cut off while sending sees a
# broken connection instead of the reason.
_PATIENCE_BYTES = 4 * 2**20

# A short answer is sent at once, which is faster. For a long one uvicorn takes the next part only when the connection
# has room for it: an answer that nobody reads holds a few parts, and not its length.
WHOLE = 64 * 1024
PART = 32 * 1024

# An answer may take this long, and a second more for each so many bytes.
SECONDS = 30.0
BYTES_PER_SECOND = 128 * 1024

# Bytes that cannot be read are 400, and values that cannot be meant 422. The catalogue is a conflict of two states.
_STATUS = {"broken-json": 400, "other-catalogue": 409, "message-too-long": 413}

log = logging.getLogger("onoff.server")


class Room:
    """The connections of one process that wait for a request or for the rest of one, the longest waiting first.

    A connection that waits for longer than `seconds` is closed. Beyond `limit` open connections a new one takes the
    place of the one that waits longest; if none waits, the new one is closed.
    """

    def __init__(self, limit: int, seconds: float) -> None:
        self._limit, self._seconds = limit, seconds
        self._open: set[Connection] = set()
        self._waiting: dict[Connection, float] = {}  # until when, in the order in which they began to wait
        self._timer: asyncio.TimerHandle | None = None
        self._logged = float("-inf")

    def enter(self, connection: Connection) -> None:
        """Take a new connection in, or close it if requests under way take all places."""
        self._open.add(connection)
        self.wait(connection)
        if len(self._open) > self._limit:
            self._log_full()
            oldest = next(iter(self._waiting))
            self.leave(oldest)
            oldest.transport.abort()

    def leave(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        self._open.discard(connection)
        self.stop_waiting(connection)

    def wait(self, connection: Connection) -> None:
        """Begin to wait for a request, or for the rest of one."""
        self.stop_waiting(connection)
        if not connection.transport.is_closing():
            loop = asyncio.get_running_loop()
            self._waiting[connection] = loop.time() + self._seconds
            if self._timer is None:  # one for all: a timer for each costs 2 % of queries
                self._timer = loop.call_later(self._seconds, self._close_late)

    def stop_waiting(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)

    def _close_late(self) -> None:
        """Close those that have waited for too long; look again when the next one will have."""
        loop, self._timer = asyncio.get_running_loop(), None
        while self._waiting:
            connection, end = next(iter(self._waiting.items()))
            if end > loop.time():
                self._timer = loop.call_at(end, self._close_late)
                return
            self.stop_waiting(connection)
            connection.transport.close()

    def waits(self, connection: Connection) -> bool:
        return connection in self._waiting

    def end(self) -> None:
        """Let half a request delay the server's end by a moment only."""
        self._seconds = min(self._seconds, END_SECONDS)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in list(self._waiting):
            self.wait(connection)

    def _log_full(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._logged >= _LOG_SECONDS:
            self._logged = now
            log.warning(
                "%d connections are open, all that this process takes: those that ask for nothing are closed. "
                "Limit connections by address in a proxy.",
                self._limit,
            )


_BODY = (b"content-length", b"transfer-encoding")  # headers that announce a body, unless it is of 0 bytes
_connection: ContextVar[Connection] = ContextVar("connection")  # from which the request comes that is answered


class Connection(asyncio.Protocol):
    """One connection: passes its data on to uvicorn's protocol. All connections of a server share one `room`."""

    transport: asyncio.Transport

    def __init__(self, room: Room, **options: Any) -> None:
        self._room, self._inner = room, HttpToolsProtocol(**options)
        self._answering = 0  # requests that the application has
        self._unseen = 0  # bytes since it was last given a request or a part of a body
        self._half_closed = asyncio.Event()
        self._when_cut: list[Callable[[], None]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._inner.connection_made(self.transport)
        self._room.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._room.leave(self)
        self._inner.connection_lost(exc)
        # Where the end was seen before the reset that our bytes met, the socket alone knows of the reset.
        if self._when_cut and (exc or self.transport.get_extra_info("socket").getsockopt(SOL_SOCKET, SO_ERROR)):
            for call in self._when_cut:
                call()

    def data_received(self, data: bytes) -> None:
        if self._unseen > (_UNSEEN_BYTES if self._answering else HEAD_BYTES):  # an endless head or trailer
            self.transport.abort()
            return
        if not (self._unseen or self._answering):  # a request begins
            self._room.wait(self)
        self._unseen += len(data)
        _connection.set(self)  # tasks that are made from here on know it
        self._inner.data_received(data)

    def eof_received(self) -> bool:
        """Keep the connection of a client that sends no more but awaits answers. The last answer ends it.

        The client may also be gone. The application finds the event `half_closed` in its scope.
        """
        self._half_closed.set()
        return self._answering > 0 and not self._room.waits(self)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    async def answer(self, application: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request once all of it has arrived, or as much as the application wants.

        The functions in its scope's `when_cut` are called if the connection breaks before all that was sent is taken.
        """
        self._answering, self._unseen = self._answering + 1, 0
        scope["half_closed"] = self._half_closed
        self._when_cut = scope["when_cut"] = []
        whole = not any(name in _BODY and value != b"0" for name, value in scope["headers"])
        if whole:
            self._room.stop_waiting(self)
        elif not self._room.waits(self):  # it came right behind another one
            self._room.wait(self)

        async def receive_part() -> Message:
            nonlocal whole
            event = await receive()
            self._unseen = 0
            if not (whole or event.get("more_body")):
                whole = True
                self._room.stop_waiting(self)
            return event

        async def send_part(event: Message) -> None:
            surplus = 0
            while not whole and surplus <= _PATIENCE_BYTES:
                surplus += len((await receive_part()).get("body", b""))
            if not whole and event["type"] == "http.response.start":  # uvicorn then ends the connection
                event = {**event, "headers": [*event.get("headers", ()), (b"connection", b"close")]}
            await send(event)

        try:
            await application(scope, receive_part, send_part)
        finally:
            asyncio.get_running_loop().call_soon(self._rest)  # a request that has come already begins before

    def _rest(self) -> None:
        """Wait for the next request, or close the connection if there will be none."""
        self._answering -= 1
        if not self._answering:
            self._room.wait(self)
            if self._half_closed.is_set():
                self.transport.close()


def through_connections(application: ASGIApp) -> ASGIApp:
    """Wrap the application to note requests at connections."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await _connection.get().answer(application, scope, receive, send)
        else:
            await application(scope, receive, send)

    return answer


def connection_limit() -> int:
    """Choose how many connections a process may have open: fewer than its limit of open files.

    Raises that limit if the system allows it. Without free files, a process could accept no connection.
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
    """Read a request's body; raise a `Problem` if it is longer than `limit`. `Room` ends slow bodies."""
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(event.get("body", b""))
        size, more = size + len(parts[-1]), event.get("more_body", False)
        if size > limit:
            raise Problem(413, "body-too-large", f"At most {limit} bytes are needed here.")
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def send_answer(send: Send, frames: Sequence[bytes], kind: bytes, keep: bytes) -> None:
    """Send these frames, joined, in this media type, with this Cache-Control.

    An answer that is not read in time is cut off. Until then it keeps its frames, even those that later
    rounds replaced.
    """
    size = sum(map(len, frames))
    headers = [(b"content-type", kind), (b"cache-control", keep), (b"content-length", b"%d" % size)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if size <= WHOLE:
        await send({"type": "http.response.body", "body": b"".join(frames)})
        return
    try:
        async with asyncio.timeout(SECONDS + size / BYTES_PER_SECOND):
            for part in parts(frames, PART):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
    except TimeoutError:  # the body ends early, which ends the connection
        log.info("an answer was not read in time and was broken off")


def parts(frames: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Join the frames and cut parts of `size` bytes or up to twice as many, as they are needed."""
    part = bytearray()
    for frame in frames:
        for begin in range(0, len(frame), size):
            part += frame[begin : begin + size]
            if len(part) >= size:
                yield bytes(part)
                part.clear()
    if part:
        yield bytes(part)


# Every refusal is a problem document (RFC 9457): a fixed type, a status, and a sentence that says what to do


class Problem(Exception):
    """A refusal on purpose. `reason` names its kind, in the document's type and in the metrics."""

    def __init__(self, status: int, reason: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.reason, self.detail, self.headers = status, reason, detail, dict(headers or {})

    def response(self) -> Response:
        """Make the document."""
        document = {
            "type": f"urn:onoff:problem:{self.reason}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        # ASCII only: a detail may quote what the sender wrote, also half a surrogate pair.
        body = json.dumps(document).encode("ascii")
        headers = {"Cache-Control": "no-store", **self.headers}
        return Response(body, self.status, headers, media_type="application/problem+json")


def unavailable(error: StoreError | OSError, reason: str = "store-unavailable") -> Problem:
    """503: the same request may succeed in a moment. The cause is for the operator's log, not for strangers."""
    log.warning("%s: %s", reason, error_sentence(error) if isinstance(error, OSError) else error)
    detail = "The messages cannot be reached or kept at the moment; try again in a while."
    return Problem(503, reason, detail, {"Retry-After": "1"})


def problem_of(error: Exception) -> Problem:
    """Choose the problem to report to a request's sender. Our own mistakes are logged."""
    match error:
        case Problem():
            return error
        case WireError():
            return Problem(_STATUS.get(error.reason, 422), error.reason, str(error))
        case HTTPException(status_code=404):
            return Problem(404, "no-such-path", "There is nothing at this path.")
        case HTTPException(status_code=405):
            return Problem(405, "wrong-method", "This path does not take this method.", error.headers)
        case ClientDisconnect():
            return Problem(400, "sender-gone", "The body ended early.")  # counted; nobody reads it
        case _:
            log.error("a request was not answered", exc_info=error)
            return Problem(500, "internal-error", "The server made a mistake; its log has the details.")
