"""The application behind the page: the state as server-sent events, clicks as POST, curves as GET. All on loopback."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onoff.apps.figures import Curve, rates_over_alpha, rates_over_lag
from onoff.apps.page.world import World
from onoff.apps.terminal import Rate, rates
from onoff.errors import ChainError, OnoffError
from onoff.model.chain import Chain
from onoff.types import quiet

STATIC = Path(__file__).parent / "static"
UPLOAD_LIMIT = 2**20
BODY_LIMIT = 2**12
COST_LAGS = range(1, 9)
COST_SECONDS = 5.0  # for each lag
LARGEST_FIGURE = 12  # sources of the symmetric chain
HEADERS = {  # nothing from elsewhere is loaded, nobody else shows this page, and nothing is kept
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class Page:
    """The world that is shown, and who is looking at it."""

    def __init__(self) -> None:
        self.title, self.busy = "", ""
        self.serial = 0  # of the state: the page must know an older one that arrives late
        self.costs: list[Rate] = []
        self._listeners: set[asyncio.Event] = set()
        self._closing = False
        self._turn = asyncio.Lock()  # one chain after the other
        self._loading: asyncio.Task[None] | None = None
        self._world: World | None = None

    @property
    def world(self) -> World:
        assert self._world is not None, "load a chain first"
        return self._world

    async def load(self, chain: Chain, title: str) -> None:
        """Show another chain: a new server, a new client. If that fails, the old ones stay."""
        async with self._turn:
            if self._closing:
                raise OnoffError("the page is ending: no other chain is loaded")
            self._loading = asyncio.create_task(self._load(chain, title))
            try:
                await self._loading
            except asyncio.CancelledError:
                if self._closing:  # it is the loading that was cancelled, not who waits for it
                    raise OnoffError("the page has ended before the chain was loaded") from None
                raise

    async def _load(self, chain: Chain, title: str) -> None:
        self.busy = f"Planning for {title} and starting a server …"
        self.changed()
        try:
            world = await World(chain, self.changed).__aenter__()
            old, self._world = self._world, world
            self.title, self.costs = title, []
        finally:
            self.busy = ""
            self.changed()
        if old is not None:
            await old.__aexit__(None, None, None)
        self._costing = asyncio.create_task(self._cost(chain))

    async def _cost(self, chain: Chain) -> None:
        """The costs, lag by lag, until another chain is shown or the page ends."""
        for lag in COST_LAGS:
            [row] = await asyncio.to_thread(rates, chain, [lag], quiet, COST_SECONDS)
            if self._closing or self.world.chain is not chain:
                return
            if self.costs and self.costs[-1].optimum < row.optimum:  # time was short: a plan serves larger lags, too
                bound, best = row.optimum / (1 + row.gap), self.costs[-1].optimum
                row = replace(row, optimum=best, gap=best / bound - 1)
            self.costs = [*self.costs, row]
            self.changed()

    async def close(self) -> None:
        """End all streams, what is being loaded, then the world."""
        self._closing = True
        self.changed()
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait({self._loading})
        if self._world is not None:
            await self._world.__aexit__(None, None, None)

    def changed(self) -> None:
        self.serial += 1
        for listener in self._listeners:
            listener.set()

    def state(self) -> dict[str, Any]:
        return {
            **self.world.state(),
            "serial": self.serial,
            "title": self.title,
            "busy": self.busy,
            "costs": [asdict(rate) for rate in self.costs],
        }

    async def events(self) -> AsyncIterator[str]:
        """The state now, and again whenever it has changed."""
        news = asyncio.Event()
        self._listeners.add(news)
        try:
            yield "retry: 500\n\n"
            while not self._closing:
                news.clear()
                yield f"data: {json.dumps(self.state())}\n\n"
                await news.wait()
        finally:
            self._listeners.discard(news)


def create_app(page: Page, port: int) -> ASGIApp:
    """The application for a page that is served on this port."""

    async def events(_: Request) -> Response:
        return StreamingResponse(page.events(), media_type="text/event-stream")

    async def ask(request: Request) -> None:
        wish = await _json(request, source=str, private=bool)
        page.world.ask(wish["source"], wish["private"])

    async def switch(request: Request) -> None:
        page.world.switch((await _json(request, private=bool))["private"])

    async def now(_: Request) -> None:
        page.world.make_now()

    async def play(request: Request) -> None:
        page.world.play((await _json(request, on=bool))["on"])

    async def server(request: Request) -> None:
        await page.world.run_server((await _json(request, on=bool))["on"])

    async def chain(request: Request) -> None:
        name = request.query_params.get("name", "")
        await page.load(_parsed(name, await _body(request, UPLOAD_LIMIT)), name)

    async def symmetric(request: Request) -> None:
        n, alpha = _numbers(await _json(request, n=int, alpha=float))
        await page.load(Chain.symmetric(n, alpha), f"the symmetric chain, n = {n}, α = {alpha:g}")

    async def figure(request: Request) -> Response:
        try:
            n, alpha = _numbers({"n": int(request.query_params["n"]), "alpha": float(request.query_params["alpha"])})
        except (KeyError, ValueError) as error:
            return _refused(f"n and alpha are needed as numbers ({error})")
        over_alpha, over_lag = await asyncio.to_thread(lambda: (_over_alpha(n), _over_lag(n, alpha)))
        return JSONResponse({"alpha": [asdict(c) for c in over_alpha], "lag": [asdict(c) for c in over_lag]})

    clicks = {"ask": ask, "switch": switch, "now": now, "play": play, "server": server}
    loads = {"chain": chain, "symmetric": symmetric}
    app = Starlette(
        routes=[
            Route("/", lambda _: FileResponse(STATIC / "index.html")),
            Route("/events", events),
            Route("/figure", figure),
            *(Route(f"/{name}", _answering(page, act), methods=["POST"]) for name, act in {**clicks, **loads}.items()),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
    )
    return Guarded(app, port)


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
            await _refused("this page is for this machine only: open it at 127.0.0.1", 421)(scope, receive, send)
        elif (origin is not None and origin.removeprefix("http://") not in self._hosts) or _from_elsewhere(request):
            await _refused("another page may not use this one", 403)(scope, receive, send)
        else:
            await self._app(scope, receive, with_headers)


def _from_elsewhere(request: Request) -> bool:
    """Whether a browser says that another page wants this, other than by a link to the page itself."""
    link = request.url.path == "/" and request.headers.get("sec-fetch-mode") == "navigate"
    return request.headers.get("sec-fetch-site") in ("cross-site", "same-site") and not link


def _answering(page: Page, act: Callable[[Request], Awaitable[None]]) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that says in words what was wrong, or from which state on the click shows."""

    async def endpoint(request: Request) -> Response:
        try:
            await act(request)
        except OnoffError as error:
            return _refused(str(error))
        return JSONResponse({"serial": page.serial})

    return endpoint


def _refused(words: str, status: int = 400) -> Response:
    return JSONResponse({"error": words}, status)


async def _body(request: Request, limit: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise OnoffError(f"that is more than {limit // 1024} kB: too large for this page")
    return bytes(body)


async def _json(request: Request, **kinds: type) -> dict[str, Any]:
    """The body, with exactly these fields of these types."""
    try:
        data = json.loads(await _body(request, BODY_LIMIT))
        return {name: kind(data[name]) if kind is float else _exactly(kind, data[name]) for name, kind in kinds.items()}
    except (ValueError, TypeError, KeyError, RecursionError):
        raise OnoffError(f"the request must be JSON with {', '.join(kinds)}") from None


def _exactly(kind: type, value: object) -> object:
    if type(value) is not kind:
        raise TypeError
    return value


def _numbers(given: dict[str, Any]) -> tuple[int, float]:
    if not 2 <= given["n"] <= LARGEST_FIGURE:
        raise ChainError(f"n is {given['n']}: from 2 to {LARGEST_FIGURE} here")
    Chain.symmetric(given["n"], given["alpha"])  # checks alpha
    return given["n"], given["alpha"]


def _parsed(name: str, data: bytes) -> Chain:
    """The chain in an uploaded file; errors name the file as the user knows it."""
    with tempfile.TemporaryDirectory(prefix="onoff-page-") as directory:
        file = Path(directory) / f"chain{Path(name).suffix.lower()}"
        try:
            file.write_bytes(data)
            return Chain.load(file)
        except (ChainError, ValueError, OSError) as error:
            raise ChainError(str(error).replace(str(file), name)) from None


@lru_cache(maxsize=LARGEST_FIGURE)
def _over_alpha(n: int) -> list[Curve]:
    return rates_over_alpha(n)


@lru_cache(maxsize=100)
def _over_lag(n: int, alpha: float) -> list[Curve]:
    return rates_over_lag((alpha,), n)
