"""The application behind the page: the state as server-sent events, clicks as POST. All on loopback.

uvicorn runs it inside our own event loop, so that Ctrl-C ends streams, clients and servers in order.
"""

from __future__ import annotations

import asyncio
import json
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onoff.apps.page.state import Page
from onoff.apps.proxy.guard import refusal
from onoff.errors import OnoffError
from onoff.model.chain import Chain
from onoff.server.limits import Problem, read_body
from onoff.server.run import reserve, serve_requests, stop_event, url_of

HOST = "127.0.0.1"  # and nothing else: the page shows what nobody else may see
STATIC = Path(__file__).parent / "static"
BODY_LIMIT = 2**12
CLICKS: dict[str, dict[str, type]] = {  # methods of the page and of its sessions, with their arguments
    "ask": {"source": str, "private": bool},
    "switch": {"private": bool},
    "make_now": {},
    "lock": {"source": str, "on": bool},
    "open_both": {},
}
HEADERS = {  # nothing from elsewhere is loaded, nobody else shows this page, and nothing is kept
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class GuardedApp:
    """An application for this machine and for itself alone: see `onoff.apps.proxy.guard`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [(key, value) for key, value in message["headers"] if key != b"cache-control"]
                message["headers"] = kept + [(key.encode(), value.encode()) for key, value in HEADERS.items()]
            await send(message)

        found = refusal(Headers(scope=scope)) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, with_headers)
        else:
            status, words = found
            await JSONResponse({"error": words}, status)(scope, receive, send)


def create_app(page: Page) -> ASGIApp:
    """Make the application for a page."""

    async def events(_: Request) -> Response:
        return StreamingResponse(page.events(), media_type="text/event-stream")

    async def click(request: Request) -> Response:
        """Say in words what was wrong, or from which state on the click shows."""
        promise, name = request.path_params["promise"], request.path_params["name"]
        try:
            method = getattr(page if name in ("lock", "open_both") else page.session(promise), name, None)
            if name not in CLICKS or method is None:
                return JSONResponse({"error": f"there is no {name} here"}, 404)
            done = method(**await _json(request, CLICKS[name]))
            if done is not None:
                await done
        except OnoffError as error:
            return JSONResponse({"error": str(error)}, 400)
        except Problem as problem:
            return JSONResponse({"error": problem.detail}, problem.status)
        return JSONResponse({"serial": page.serial})

    app = Starlette(
        routes=[
            Route("/", lambda _: FileResponse(STATIC / "index.html")),
            Route("/events", events),
            Route("/{promise}/{name}", click, methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
    )
    return GuardedApp(app)


async def _json(request: Request, kinds: dict[str, type]) -> dict[str, Any]:
    """Read the body: JSON with these fields of exactly these types."""
    try:
        data = json.loads(await read_body(request.receive, BODY_LIMIT))
        found = {name: data[name] for name in kinds}
    except (ValueError, TypeError, KeyError, RecursionError):
        found = {}
    if {name: type(value) for name, value in found.items()} != kinds:
        raise OnoffError(f"the request must be JSON with {', '.join(kinds)}")
    return found


async def run(chain: Chain, title: str, port: int, show: bool, ready: Callable[[str], None]) -> None:
    """Serve the page until SIGINT, SIGTERM or SIGHUP; tell `ready` its address, and open a browser if `show`."""
    stop, page = stop_event(), Page(chain, title)
    with reserve(HOST, port) as listening:
        url = f"{url_of(listening)}/"
        loading, stopping = asyncio.create_task(page.start()), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                return
            await loading
            async with serve_requests(create_app(page), listening):
                ready(url)
                if show:
                    await asyncio.to_thread(webbrowser.open, url)
                await stopping
                await page.close()  # the streams must end first: uvicorn waits for them
        finally:
            for task in (loading, stopping):
                task.cancel()
            await asyncio.gather(loading, stopping, return_exceptions=True)
            await page.close()
