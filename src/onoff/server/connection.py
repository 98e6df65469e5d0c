"""uvicorn's HTTP connection, with bounds on what a stranger can hold: idle connections, slow requests, endless heads.

uvicorn bounds the rest: it reads a body only as fast as the application takes it, and lets the application wait while
64 KiB of an answer are unsent.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from onoff.errors import OnoffError

CONNECTIONS = 4096  # of each process
REQUEST_SECONDS = 10.0  # in which a request must arrive, with its body
HEAD_BYTES = 64 * 1024

_TICK = 1.0
_LOG_SECONDS = 60.0
_OTHER_FILES = 128  # that a process needs beside its connections
_LEAST = 64

log = logging.getLogger("onoff.server")


class Room:
    """The connections of one process that wait for a request or for the rest of one, the longest waiting first.

    A connection that waits for longer than `seconds` is closed. Beyond `limit` open connections a new one takes the
    place of the one that has waited longest; if none waits, the new one is closed.
    """

    def __init__(self, limit: int, seconds: float) -> None:
        self._limit, self._seconds = limit, seconds
        self._waiting: dict[Connection, float] = {}  # in the order in which they began to wait
        self._timer: asyncio.TimerHandle | None = None
        self._logged = float("-inf")

    def enter(self, connection: Connection) -> None:
        """Take a new connection in, or close it if all places are taken by requests under way."""
        if len(connection.connections) > self._limit:
            self._log_full(connection.loop.time())
            closed = next(iter(self._waiting), connection)
            self._waiting.pop(closed, None)
            closed.transport.abort()
            if closed is connection:
                return
        self.wait(connection)

    def wait(self, connection: Connection) -> None:
        """Begin to wait for a request, or for the rest of one."""
        self._waiting.pop(connection, None)
        self._waiting[connection] = connection.loop.time()
        if self._timer is None:
            self._timer = connection.loop.call_later(_TICK, self._close_late, connection.loop)

    def stop_waiting(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)

    def _close_late(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the connections that have waited for too long, and look again while any waits."""
        while self._waiting:
            connection, since = next(iter(self._waiting.items()))
            if loop.time() - since < self._seconds:
                break
            del self._waiting[connection]
            connection.transport.close()
        self._timer = loop.call_later(_TICK, self._close_late, loop) if self._waiting else None

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
