"""The application behind the page: the state as server-sent events, clicks as POST. All on loopback."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onoff.apps.page.session import DemoSession
from onoff.apps.page.state import Page
from onoff.apps.proxy.guard import refusal
from onoff.errors import OnoffError
from onoff.server.limits import read_body
from onoff.server.problems import Problem

STATIC = Path(__file__).parent / "static"
BODY_LIMIT = 2**12
Act = Callable[[Request], Awaitable[None]]  # what a click does


HEADERS = {  # nothing from elsewhere is loaded, nobody else shows this page, and nothing is kept
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class Guarded:
    """The page, for this machine and for itself alone: see `onoff.apps.proxy.guard`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [(key, value) for key, value in message["headers"] if key != b"cache-control"]
                message["headers"] = kept + [(key.encode(), value.encode()) for key, value in HEADERS.items()]
            await send(message)

        turned_away = refusal(Headers(scope=scope)) if scope["type"] == "http" else None
        if turned_away is None:
            await self._app(scope, receive, with_headers)
        else:
            status, words = turned_away
            await refused(words, status)(scope, receive, send)


def refused(words: str, status: int = 400) -> Response:
    """An answer that says in words what was wrong."""
    return JSONResponse({"error": words}, status)


def create_app(page: Page) -> ASGIApp:
    """The application for a page."""

    async def events(_: Request) -> Response:
        return StreamingResponse(page.events(), media_type="text/event-stream")

    def world(request: Request) -> DemoSession:
        return page.everyday if request.url.path.startswith("/everyday/") else page.announced

    async def ask(request: Request) -> None:
        wish = await _json(request, source=str, private=bool)
        world(request).ask(wish["source"], wish["private"])

    async def switch(request: Request) -> None:
        world(request).switch((await _json(request, private=bool))["private"])

    async def play(request: Request) -> None:
        world(request).play((await _json(request, on=bool))["on"])

    async def server(request: Request) -> None:
        await world(request).run_server((await _json(request, on=bool))["on"])

    async def lock(request: Request) -> None:
        wish = await _json(request, source=str, on=bool)
        await page.lock(wish["source"], wish["on"])

    async def now(_: Request) -> None:
        page.announced.make_now()

    async def announce(_: Request) -> None:
        await page.announce()

    each: dict[str, Act] = {"ask": ask, "switch": switch, "play": play, "server": server}
    clicks = {f"{mode}/{name}": act for mode in ("everyday", "announced") for name, act in each.items()}
    clicks |= {"everyday/lock": lock, "announced/now": now, "announced/start": announce}
    app = Starlette(
        routes=[
            Route("/", lambda _: FileResponse(STATIC / "index.html")),
            Route("/events", events),
            *(Route(f"/{name}", _answering(page, act), methods=["POST"]) for name, act in clicks.items()),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
    )
    return Guarded(app)


def _answering(page: Page, act: Act) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that says in words what was wrong, or from which state on the click shows."""

    async def endpoint(request: Request) -> Response:
        try:
            await act(request)
        except OnoffError as error:
            return refused(str(error))
        except Problem as problem:
            return refused(problem.detail, problem.status)
        return JSONResponse({"serial": page.serial})

    return endpoint


async def _json(request: Request, **kinds: type) -> dict[str, Any]:
    """The body, with exactly these fields of these types."""
    try:
        data = json.loads(await read_body(request.receive, BODY_LIMIT))
        return {name: _exactly(kind, data[name]) for name, kind in kinds.items()}
    except (ValueError, TypeError, KeyError, RecursionError):
        raise OnoffError(f"the request must be JSON with {', '.join(kinds)}") from None


def _exactly(kind: type, value: object) -> object:
    if type(value) is not kind:
        raise TypeError
    return value
