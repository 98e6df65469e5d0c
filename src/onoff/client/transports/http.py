"""The HTTP/1.1 connections of a client, and the addresses they lead to.

Every request has the same headers, and nothing that the client was not told. What a server sends is bounded in bytes
and in time: a body by its limit, a whole answer by one deadline, which is the same for every query.

One connection leads to each origin. On it requests are made one after the other. A server may send bytes that no
request asked for: a second answer, or more than it announced. Another one may end a connection after an answer, without
a word. From then on each request to such an origin has a connection of its own. Which connection is opened, used again
or closed follows from the requests and from what servers did, never from what was wanted.
"""

from __future__ import annotations

import asyncio
import math
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from reprlib import repr as short
from typing import NamedTuple, cast
from urllib.parse import SplitResult, urlsplit

import h11
import httpx

from onoff.errors import CatalogueError, OnoffError, Unavailable
from onoff.text import plain
from onoff.types import is_number

HEADERS = {"Accept": "*/*", "Accept-Encoding": "identity", "Connection": "keep-alive", "User-Agent": "onoff"}
DEADLINE = 120.0  # seconds for a whole answer, beside what its size adds
ANSWER_LIMIT = 512 * 2**20  # bytes of a whole answer; at its end it is in memory twice, and then on disk
HEAD_LIMIT = 100 * 2**10  # bytes of a status line with its headers
EARLY_ANSWERS = 100  # of the status 1xx before an answer
SETTLE = 1.0  # seconds at most that an answer to nothing may come after all answers to a set
AGENT = re.compile(r"[!-~]([ -~]{0,198}[!-~])?")  # what a User-Agent may be
CONNECTIONS = 32  # that are open at once: beyond, the one that was opened first makes room


class BrokenAnswer(Exception):
    """A server has begun to answer, but what it sent is not a whole answer. `within` makes it `Unavailable`."""


class TooLong(BrokenAnswer):
    """The body is longer than its limit."""


class MixedAnswers(Exception):
    """A server has sent more answers than it was asked for: one of them may have been taken for another."""


class Reply(NamedTuple):
    """A whole answer to one request."""

    status: int
    body: bytes
    headers: httpx.Headers


class Connection(asyncio.Protocol):
    """One connection.

    `requests` were made on it. `heard` says that the last one has been answered, in part at least, and `surplus` that
    bytes came which none of them asked for. `delay` is how many seconds the first answer took to begin.
    """

    delay = 0.0

    def __init__(self, origin: str, silence: float) -> None:
        self._parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)
        self._origin, self._silence, self._loop = origin, silence, asyncio.get_running_loop()
        self._answer: asyncio.Future[Reply] | None = None
        self.requests, self.surplus, self.heard = 0, False, False

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    def close(self) -> None:
        self._transport.abort()

    async def ask(self, request: h11.Request, content: bytes, limit: int) -> Reply:
        """Send a request and return its whole answer. Raises `BrokenAnswer`, and closes the connection, without one."""
        if not self.is_open:
            raise Unavailable(f"{self._origin} ended the connection, or spoke before it was asked")
        self.requests, self.heard, self._early = self.requests + 1, False, 0
        self._asked = self._loop.time()
        self._answer, self._body, self._limit = self._loop.create_future(), bytearray(), limit
        events = (request, h11.Data(data=content), h11.EndOfMessage())
        self._transport.write(b"".join(self._parser.send(event) or b"" for event in events))
        self._wait()
        try:
            return await self._answer
        except BaseException:
            self.close()
            raise
        finally:
            self._timer.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            given_up = self._answer is not None and self._answer.cancelled()
            self.surplus = self.is_open and not given_up
            self.close()
        else:
            self._timer.cancel()
            self._wait()
            if self.requests == 1 and not self.heard:
                self.delay = self._loop.time() - self._asked
            self.heard = True
            self._parse(data)

    def eof_received(self) -> None:
        self._parse(b"")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._break_off()

    def _wait(self) -> None:
        words = f"did not answer: it sent nothing for {self._silence:g} seconds"
        self._timer = self._loop.call_later(self._silence, self._fail, words, Unavailable)

    def _parse(self, data: bytes) -> None:
        """Take what has come; nothing is the end of the connection, which may be the end of the answer."""
        if self._answer is None:
            return
        try:
            self._parser.receive_data(data)
            while not self._answer.done() and not isinstance(event := self._parser.next_event(), type):
                self._take(event)
        except h11.ProtocolError as error:
            if data:
                self._fail(f"sent something that is not HTTP ({plain(str(error))})")
            else:
                self._break_off()

    def _take(self, event: h11.Event) -> None:
        if isinstance(event, h11.Response):
            self._head = event
        elif isinstance(event, h11.Data):
            self._body += event.data
            if len(self._body) > self._limit:
                self._fail(f"sent a body that is longer than {self._limit} bytes", TooLong)
        elif isinstance(event, h11.EndOfMessage):
            self._finish()
        else:  # one of the 1xx answers that come before the answer
            self._early += 1
            if self._early > EARLY_ANSWERS:
                self._fail(f"sent {EARLY_ANSWERS} times that its answer will come")

    def _finish(self) -> None:
        """Hand the answer over. A connection is used again if it ended the answer where the answer said."""
        assert self._answer is not None
        self.surplus = bool(self._parser.trailing_data[0])
        if self.surplus or self._parser.their_state is not h11.DONE:
            self.close()
        else:
            self._parser.start_next_cycle()
        self._answer.set_result(Reply(self._head.status_code, bytes(self._body), httpx.Headers(self._head.headers)))

    def _break_off(self) -> None:
        self._fail("did not answer to the end: it broke the connection off")

    def _fail(self, words: str, kind: type[Exception] = BrokenAnswer) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(kind(f"{self._origin} {words}"))


class Connections:
    """The connections of one client: at most one to each origin. `headers` go with every request.

    A server has `timeout` seconds to accept a connection, and may be silent for as long.
    """

    def __init__(self, timeout: float, headers: Mapping[str, str] | None = None) -> None:
        self._timeout, self._headers = check_seconds(timeout, "timeout"), {**HEADERS, **(headers or {})}
        self._open: dict[str, Connection] = {}  # by origin, in the order in which they were opened
        self._careless: set[str] = set()  # origins whose connections are used once

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """Loading the certificates takes 30 ms: they are loaded with the first https origin."""
        return httpx.create_ssl_context(trust_env=False)

    async def read(
        self,
        method: str,
        url: str,
        limit: int,
        content: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Make a request and return its whole answer, with a body of at most `limit` bytes.

        Raises `Unavailable` if the server cannot be reached or is silent, `BrokenAnswer` if what it sends is not an
        answer, `TooLong` if its body exceeds the limit, and `MixedAnswers` as `check` does.
        """
        await self.check()
        parts, origin = httpx.URL(url), origin_of(url)
        fields = {"Host": parts.netloc.decode("ascii"), **self._headers, **(headers or {})}
        if content:
            fields["Content-Length"] = str(len(content))
        request = h11.Request(method=method, target=parts.raw_path, headers=list(fields.items()))
        connection = self._open.get(origin) or await self._connect(parts, origin)
        try:
            reply = await connection.ask(request, content, limit)
        except BrokenAnswer:
            if not connection.heard and connection.requests > 1:
                self._careless.add(origin)
            raise
        if origin in self._careless:
            connection.close()
        return reply

    async def check(self) -> None:
        """Forget connections that have ended, and close those on which bytes wait that nobody asked for.

        Raises `MixedAnswers` if such a connection has carried several requests: one of them may have got the answer to
        another. Their answers must not be used. The next attempt has a connection for each request.
        """
        await _look()
        mixed = []
        for origin, connection in list(self._open.items()):
            if connection.surplus:
                self._careless.add(origin)
                mixed += [origin] * (connection.requests > 1)
            if not connection.is_open:
                del self._open[origin]
        if mixed:
            raise MixedAnswers(f"{mixed[0]} sent more answers than it was asked for")

    async def settle(self) -> None:
        """Check once more when answers have had time to come: the last one comes late if another was taken for it."""
        delays = [connection.delay for connection in self._open.values() if connection.requests > 1]
        await asyncio.sleep(min(SETTLE, max(delays, default=0.0)))
        await self.check()

    async def _connect(self, url: httpx.URL, origin: str) -> Connection:
        while len(self._open) >= CONNECTIONS:
            self._open.pop(next(iter(self._open))).close()
        secure, host = url.scheme == "https", url.raw_host.decode("ascii")
        loop, tls = asyncio.get_running_loop(), self._tls if secure else None
        port = url.port or (443 if secure else 80)
        try:
            async with asyncio.timeout(self._timeout):
                _, connection = await loop.create_connection(
                    lambda: Connection(origin, self._timeout), host, port, ssl=tls
                )
        except OSError as error:  # a TimeoutError is one, too
            words = re.sub(r"\[Errno -?[0-9]+\] ", "", plain(str(error))) or f"no answer in {self._timeout:g} seconds"
            where = "is it the right address, and is the server running?"
            raise Unavailable(f"{origin} did not answer ({words}): {where}") from error
        self._open[origin] = connection
        await _look()
        return connection

    async def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()
        await _look()  # a socket is closed by the event loop, which nobody may run after this


async def _look() -> None:
    """Let the event loop look at its sockets, and then hand over what it found there."""
    for _ in range(2):
        await asyncio.sleep(0)


@asynccontextmanager
async def within(seconds: float | None) -> AsyncIterator[None]:
    """Raise `Unavailable` unless everything inside ends in time (None: whenever it ends)."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except (BrokenAnswer, MixedAnswers) as error:
        raise Unavailable(str(error)) from None
    except TimeoutError:
        raise Unavailable(
            f"the answer was not whole after {seconds:g} seconds: the server or the line is slow (--deadline)"
        ) from None


def check_seconds(seconds: float, what: str = "deadline") -> float:
    """A time that ends. Raises `OnoffError` if it is not a positive number."""
    if not (is_number(seconds) and math.isfinite(seconds) and seconds > 0):
        raise OnoffError(f"a {what} is a number of seconds above 0, not {seconds!r}")
    return seconds


def check_server(url: str) -> str:
    """The address of an onoff server without a slash at its end. Raises `CatalogueError` if it is not an address."""
    parts = check_url(url, "http://HOST:PORT is needed")
    if parts.query or parts.fragment:
        raise CatalogueError(f"{mask(url)} is not the address of a server: http://HOST:PORT is needed")
    return url.rstrip("/")


def check_url(url: str, needed: str = "http(s)://host/path is needed") -> SplitResult:
    """The parts of a URL that can be asked for; `needed` says what it should look like."""
    if not isinstance(url, str):
        raise CatalogueError(f"{short(url)} is not an address: {needed}")
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable() and " " not in url
        host = httpx.URL(url).raw_host.removesuffix(b".")  # looks closer, at the letters of the host
        if parts.port == 0:  # looks closer, at the number
            raise ValueError("no server has the port 0")
        if fits and not all(0 < len(part) < 64 for part in host.split(b".")):
            raise ValueError("between the dots of a host's name are 1 to 63 letters")
    except (ValueError, httpx.InvalidURL, UnicodeError) as error:
        raise CatalogueError(f"{mask(url)} is not an address ({plain(str(error))}): {needed}") from None
    if not fits:
        raise CatalogueError(f"{mask(url)} is not an address: {needed}")
    if parts.username is not None:
        raise CatalogueError(f"{mask(url)} has a name or password in it, which would be sent: {needed}")
    return parts


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL in one canonical form: small letters, and no port that the scheme implies."""
    scheme, rest = url.split(":", 1)
    parts = httpx.URL(f"{scheme.lower()}:{rest}")  # httpx knows the ports of schemes in small letters only
    return f"{parts.scheme}://{parts.netloc.decode('ascii')}"


def request_of(url: str) -> str:
    """What is asked for: two URLs with the same one are the same, however they are written."""
    return origin_of(url) + httpx.URL(url).raw_path.decode("ascii")


def check_token(token: str) -> str:
    """A token that fits into a header; the error does not repeat it."""
    if isinstance(token, str) and not token:
        raise CatalogueError("the reader's token is empty: set ONOFF_TOKEN to a token, or unset it if none is needed")
    if not isinstance(token, str) or not re.fullmatch(r"[A-Za-z0-9._~+/-]+=*", token):
        raise CatalogueError("the reader's token has a character that no token has: was all of ONOFF_TOKEN copied?")
    return token


def check_agent(text: str | None) -> dict[str, str]:
    """The header that says who asks; none is added to `HEADERS` for None."""
    if text is None:
        return {}
    if not isinstance(text, str) or not AGENT.fullmatch(text):
        raise OnoffError(f"the User-Agent is {plain(str(text), 60)!r}: 1 to 200 plain characters are needed")
    return {"User-Agent": text}


def mask(url: str) -> str:
    """The address for an error, without what may be a password in it."""
    return repr(plain(re.sub(r"//[^/]*@", "//...@", url), 100))
