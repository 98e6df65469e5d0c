"""The one HTTP connection of a client: the same headers for every request, and nothing that the client was not told."""

from __future__ import annotations

from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx

from onoff.errors import Unavailable

HEADERS = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "onoff"}


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


async def read(http: httpx.AsyncClient, request: httpx.Request, limit: int) -> tuple[int, bytes]:
    """Status and body, read to its end; a body beyond the limit, or a broken connection, is `Unavailable`."""
    try:
        response = await http.send(request, stream=True)
        try:
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > limit:
                    raise Unavailable(f"{request.url.path}: the body is longer than {limit} bytes")
            return response.status_code, bytes(body)
        finally:
            await response.aclose()
    except httpx.HTTPError as error:
        place = f"{request.url.scheme}://{request.url.netloc.decode('ascii')}"
        raise Unavailable(
            f"{place} did not answer ({type(error).__name__}: {error}): "
            "is it the right address, and is the server running?"
        ) from error
