"""The one HTTP connection of a client: the same headers for every request, and nothing that the client was not told.

What a server sends is bounded in bytes and in time, whatever it sends: a body to its limit, a whole answer to one
deadline, which is the same for every query.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx

from onoff.errors import Unavailable

HEADERS = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "onoff"}
DEADLINE = 120.0  # seconds for a whole answer, beside what its size adds
ANSWER_LIMIT = 512 * 2**20  # bytes of a whole answer; at its end it is in memory twice, and then on disk


def open_connection(origin: str, timeout: float, headers: dict[str, str] | None = None) -> httpx.AsyncClient:
    """HTTP/1.1 over one connection, without cookies, redirects, compression, or settings from the environment."""
    return httpx.AsyncClient(
        base_url=origin,
        headers={**HEADERS, **(headers or {})},
        timeout=timeout,
        limits=httpx.Limits(max_connections=1, max_keepalive_connections=1),
        follow_redirects=False,
        event_hooks={"response": [_stay]},
        trust_env=False,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
    )


async def _stay(response: httpx.Response) -> None:
    """Forget where a redirect leads: httpx reads it even if it does not follow, and one it cannot read is an error."""
    response.headers.pop("location", None)


@asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Everything inside ends in time, or is `Unavailable`: bytes that trickle in end no other timeout."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Unavailable(
            f"the answer was not whole after {seconds:g} seconds: the server or the line is slow"
        ) from None


async def read(
    http: httpx.AsyncClient, request: httpx.Request, limit: int, problem_limit: int | None = None
) -> tuple[int, bytes]:
    """Status and body, read to its end; a body beyond the limit, or a broken connection, is `Unavailable`.

    `problem_limit`, if there is one, is the limit for a body that comes with another status than 200.
    """
    try:
        response = await http.send(request, stream=True)
        try:
            most = limit if response.status_code == 200 or problem_limit is None else problem_limit
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > most:
                    raise Unavailable(f"{request.url.path}: the body is longer than {most} bytes")
            return response.status_code, bytes(body)
        finally:
            await response.aclose()
    except httpx.HTTPError as error:
        place = f"{request.url.scheme}://{request.url.netloc.decode('ascii')}"
        raise Unavailable(
            f"{place} did not answer ({type(error).__name__}: {error}): "
            "is it the right address, and is the server running?"
        ) from error
