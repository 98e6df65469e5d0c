"""A web server for tests that keeps every byte it gets and answers as badly as it is told to.

with RecordingServer(respond) as server:        # respond: Request -> Reply, called in the server's thread
    ...                                         # clients of server.url
    connections = server.recording()            # one list of raw requests for each connection, in order
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from onoff.wire import Catalogue, Frame, Unchanged
from waiting import within

_STREAM = re.compile(rb'"stream":"([0-9a-f]{32})"')


@dataclass(frozen=True)
class Request:
    """One request as it came, with the clock's time at its first and last byte."""

    raw: bytes
    number: int
    begun: float
    ended: float

    @property
    def method(self) -> str:
        return self.raw.split(b" ", 1)[0].decode()

    @property
    def path(self) -> str:
        return self.raw.split(b" ", 2)[1].decode()

    @property
    def headers(self) -> list[tuple[str, str]]:
        lines = self.raw.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
        return [tuple(line.split(": ", 1)) for line in lines]

    @property
    def body(self) -> bytes:
        return self.raw.partition(b"\r\n\r\n")[2]


@dataclass
class Reply:
    """What is written: bytes, and pauses in seconds. `written` tells how much of it has been."""

    parts: Sequence[bytes | float]
    close: bool = False
    written: int = field(default=0, init=False)

    @property
    def complete(self) -> bool:
        return self.written == len(self.parts)


def reply(body: bytes, status: int = 200, headers: Sequence[str] = (), length: int | None = None) -> Reply:
    """A whole answer; another `length` than the body's is a lie."""
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body) if length is None else length}", *headers]
    return Reply(["\r\n".join([*lines, "", ""]).encode(), body], close=length is not None)


class RecordingServer:
    """Speaks HTTP/1.1 with kept-alive connections, in a thread of its own."""

    def __init__(self, respond: Callable[[Request], Reply]) -> None:
        self.respond = respond
        self.reset()
        self._open = 0
        self._writers: weakref.WeakSet[asyncio.StreamWriter] = weakref.WeakSet()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> RecordingServer:
        self._thread.start()
        assert self._ready.wait(120)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(30)
        assert not self._thread.is_alive()

    def reset(self) -> None:
        """Forget everything; connections that are still open are told from the new ones."""
        self.requests: list[Request] = []
        self.connections: list[list[bytes]] = []

    def recording(self) -> list[list[bytes]]:
        """What came over each connection, once all clients have closed theirs. A broken-off request is there too.

        Streams, which are drawn at random, are numbered in their order: what else differs between journals shows.
        """
        self.wait_closed()
        numbers: dict[bytes, int] = {}

        def numbered(found: re.Match[bytes]) -> bytes:
            return b'"stream":"%032d"' % numbers.setdefault(found[1], len(numbers))

        return [[_STREAM.sub(numbered, raw) for raw in requests] for requests in self.connections]

    def wait_closed(self) -> None:
        within(120, lambda: not self._open, 0.002)  # or a client keeps its connection

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._ready.set()
        await self._end.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in self._writers:  # what nobody reads would keep its socket open
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        self._writers.add(writer)
        mine: list[bytes] = []
        self.connections.append(mine)
        try:
            while (request := await self._read(reader, mine)) is not None:
                answer = self.respond(request)
                for part in answer.parts:
                    answer.written += 1  # before it leaves: who has it finds it counted
                    if isinstance(part, bytes):
                        writer.write(part)
                        await writer.drain()
                    else:
                        await self._pause(part, reader)
                if answer.close:
                    return
        except (asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()
            self._open -= 1

    async def _pause(self, seconds: float, reader: asyncio.StreamReader) -> None:
        """Wait, but not for a client that has gone."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if reader.at_eof() or reader.exception() is not None:
                raise ConnectionError("the client has gone")
            await asyncio.sleep(min(left, 0.02))

    async def _read(self, reader: asyncio.StreamReader, mine: list[bytes]) -> Request | None:
        raw = b""
        try:
            raw = await reader.readexactly(1)
            begun = time.monotonic()
            raw += await reader.readuntil(b"\r\n\r\n")
            for line in raw.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    raw += await reader.readexactly(int(line.partition(b":")[2]))
        except asyncio.IncompleteReadError as error:
            if raw + error.partial:
                mine.append(raw + error.partial)
            return None
        mine.append(raw)
        request = Request(raw, len(self.requests), begun, time.monotonic())
        self.requests.append(request)
        return request


class Origin:
    """Honest answers of a web server: a body for each path /NAME."""

    def __init__(self, bodies: dict[str, bytes]) -> None:
        self.bodies = bodies

    def __call__(self, request: Request) -> Reply:
        return reply(self.bodies[request.path.removeprefix("/")])

    def urls(self, server: RecordingServer) -> dict[str, str]:
        return {name: f"{server.url}/{name}" for name in self.bodies}


class VersionedOrigin(Origin):
    """A web server that says of each body which version it is, and sends it only if it is newer than the reader's.

    `dated` has it speak of dates, else of entity tags.
    """

    LATEST = "Last-Modified: Sat, 03 Oct 2026 08:00:00 GMT"
    SENT = "Date: Sat, 03 Oct 2026 08:00:01 GMT"

    def __init__(self, bodies: dict[str, bytes], dated: bool = False) -> None:
        super().__init__(bodies)
        self.dated = dated

    def __call__(self, request: Request) -> Reply:
        body = self.bodies[request.path.removeprefix("/")]
        tag = f'"{crc32(body):08x}"'
        version = [self.LATEST, self.SENT] if self.dated else [f"ETag: {tag}"]
        asked = {name.lower(): value for name, value in request.headers}
        if asked.get("if-none-match") == tag or asked.get("if-modified-since") == self.LATEST.partition(": ")[2]:
            return Reply([("\r\n".join(["HTTP/1.1 304 Not Modified", *version, "", ""])).encode()])
        return reply(body, headers=["Content-Type: text/plain", *version])


class OnoffOrigin:
    """Honest answers of an onoff server: the catalogue, and a frame for each source of a query."""

    def __init__(self, bodies: dict[str, bytes], length: int = 64) -> None:
        self.bodies, self.catalogue = bodies, Catalogue(tuple(bodies), length)
        self.rounds: dict[str, int] = {}  # 1 where none is said

    def __call__(self, request: Request) -> Reply:
        if request.path == "/v1/catalogue":
            return reply(self.catalogue.document)
        return reply(b"".join(self.frames(request)))

    def frames(self, request: Request) -> list[bytes]:
        """The frames of an honest answer to a query."""
        query = json.loads(request.body)
        return [self.frame(source, held) for source, held in zip(query["sources"], query["held"], strict=True)]

    def frame(self, source: int, held: int) -> bytes:
        """The frame of a source for a client that holds this round: a whole one, unless it is the latest."""
        name = self.catalogue.names[source]
        number = self.rounds.get(name, 1)
        whole = Frame(source, number, self.bodies[name]).encode(self.catalogue.length)
        return Unchanged.of(whole).encode() if held and held == number else whole
