"""The HTTP connections of a client: the same headers for every request, and nothing that the client was not told.

What a server sends is bounded in bytes and in time, whatever it sends: a body to its limit, a whole answer to one
deadline, which is the same for every query.
"""

from __future__ import annotations

import asyncio
import math
import re
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx

from onoff.errors import OnoffError, Unavailable
from onoff.foreign import plain
from onoff.types import is_number, is_whole

HEADERS = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "onoff"}
DEADLINE = 120.0  # seconds for a whole answer, beside what its size adds
ANSWER_LIMIT = 512 * 2**20  # bytes of a whole answer; at its end it is in memory twice, and then on disk
CONNECTIONS = 64  # that are open at once: beyond, the one that was opened first makes room


def open_connections(
    origins: Sequence[str], timeout: float, headers: dict[str, str] | None = None, secure: bool | None = None
) -> httpx.AsyncClient:
    """HTTP/1.1 over one connection to each origin, without cookies, redirects, compression, or the environment.

    Paths are relative to the first origin. Requests are made one after the other. So there is never a second connection
    to an origin, and which one is opened, used again or closed follows from the requests and from what servers did.
    `secure` says whether https may be asked for; by default that is so if an origin needs it.
    """
    most = min(len(origins), CONNECTIONS)
    return httpx.AsyncClient(
        base_url=origins[0],
        headers={**HEADERS, **(headers or {})},
        timeout=checked_timeout(timeout),
        limits=httpx.Limits(max_connections=most, max_keepalive_connections=most),
        follow_redirects=False,
        event_hooks={"response": [_stay]},
        trust_env=False,
        # Over plain HTTP no certificates are loaded, which would take 30 ms: this context trusts none.
        verify=(any(map(_is_secure, origins)) if secure is None else secure) or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
    )


def _is_secure(origin: str) -> bool:
    return origin.startswith("https:")


async def _stay(response: httpx.Response) -> None:
    """Hide where a redirect leads: httpx reads it even if it does not follow, and one it cannot read is an error.

    Only who makes a file of URLs looks at it (`onoff.client.feeds`).
    """
    response.extensions["location"] = response.headers.pop("location", None)


def checked_deadline(seconds: float) -> float:
    """A deadline that ends every answer. Raises `OnoffError` if it is not a positive number."""
    if not (is_number(seconds) and math.isfinite(seconds) and seconds > 0):
        raise OnoffError(f"a deadline is a number of seconds above 0, not {seconds!r}")
    return seconds


def checked_timeout(seconds: float) -> float:
    """Seconds for one read. Raises `OnoffError` if it is not a positive number."""
    if not (is_number(seconds) and math.isfinite(seconds) and seconds > 0):
        raise OnoffError(f"a timeout is a number of seconds above 0, not {seconds!r}")
    return seconds


def checked_limit(most: int) -> int:
    """How many bytes may come. Raises `OnoffError` if it is not a whole number."""
    if not is_whole(most, 1):
        raise OnoffError(f"a limit is a whole number of bytes above 0, not {most!r}")
    return most


@asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Raise `Unavailable` unless everything inside ends in time. No other timeout notices bytes that trickle in."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Unavailable(
            f"the answer was not whole after {seconds:g} seconds: the server or the line is slow (--deadline)"
        ) from None


class Connections:
    """One connection to each of some origins (`open_connections`), on which requests are made one after the other.

    If a request is cancelled, by a deadline or by the caller, all connections are closed and the next request opens
    new ones. httpcore does not always notice that a cancelled request is over, and then lets no other one begin.
    """

    def __init__(self, origins: Sequence[str], timeout: float, headers: dict[str, str] | None = None) -> None:
        self._open = partial(open_connections, origins, timeout, headers)
        self._http = self._open()

    async def read(
        self,
        method: str,
        url: str,
        limit: int,
        problem_limit: int | None = None,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, bytes, httpx.Headers]:
        """The status, the whole body and the headers of an answer.

        Raises `Unavailable` if the body exceeds the limit or the connection breaks. `problem_limit`, if there is one,
        is the limit for a body that comes with another status than 200.
        """
        request = self._http.build_request(method, url, content=content, headers=headers)
        try:
            return await _read(self._http, request, limit, problem_limit)
        except httpx.HTTPError as error:
            place = f"{request.url.scheme}://{request.url.netloc.decode('ascii')}"
            raise Unavailable(f"{place} {_what_happened(error)}") from error
        except asyncio.CancelledError:
            cancelled, self._http = self._http, self._open()
            await cancelled.aclose()
            raise

    async def close(self) -> None:
        await self._http.aclose()


async def _read(
    http: httpx.AsyncClient, request: httpx.Request, limit: int, problem_limit: int | None
) -> tuple[int, bytes, httpx.Headers]:
    response = await http.send(request, stream=True)
    try:
        most = limit if response.status_code == 200 or problem_limit is None else problem_limit
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > most:
                raise Unavailable(f"{request.url.path}: the body is longer than {most} bytes")
        return response.status_code, bytes(body), response.headers
    finally:
        await response.aclose()


def _what_happened(error: httpx.HTTPError) -> str:
    """What a server did instead of answering, with what can be done about it.

    What came is called broken HTTP, except where httpx means that the connection ended, before the answer or within it.
    """
    words = re.sub(r"\[Errno -?[0-9]+\] ", "", plain(str(error)))  # a number of the system tells nobody anything
    reason = f"({type(error).__name__}: {words})"
    ended = "disconnected" in str(error) or "closed connection" in str(error)
    if isinstance(error, httpx.RemoteProtocolError) and not ended:
        return f"sent something that is not HTTP {reason}: is it the address of a web server?"
    return f"did not answer {reason}: is it the right address, and is the server running?"
