"""Who may use the page: this machine alone, and only the page itself."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {  # nothing from elsewhere is loaded, nobody else shows this page, and nothing is kept
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class Guarded:
    """Refuses requests that name another host, whose name was made to point here, or that come from another page.

    Links from other pages are allowed. Browsers name the origin of a POST. For a picture or a script they say only that
    the GET comes from another page.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._hosts = {f"{host}:{port}" for host in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [(key, value) for key, value in message["headers"] if key != b"cache-control"]
                message["headers"] = kept + [(key.encode(), value.encode()) for key, value in HEADERS.items()]
            await send(message)

        request = Request(scope)
        origin = request.headers.get("origin")
        if request.headers.get("host") not in self._hosts:
            await refused("this page is for this machine only: open it at 127.0.0.1", 421)(scope, receive, send)
        elif (origin is not None and origin.removeprefix("http://") not in self._hosts) or _from_elsewhere(request):
            await refused("another page may not use this one", 403)(scope, receive, send)
        else:
            await self._app(scope, receive, with_headers)


def _from_elsewhere(request: Request) -> bool:
    """Whether a browser says that another page wants this, other than by a link to the page itself."""
    link = request.url.path == "/" and request.headers.get("sec-fetch-mode") == "navigate"
    return request.headers.get("sec-fetch-site") in ("cross-site", "same-site") and not link


def refused(words: str, status: int = 400) -> Response:
    """An answer that says in words what was wrong."""
    return JSONResponse({"error": words}, status)
