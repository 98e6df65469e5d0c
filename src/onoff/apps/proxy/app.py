"""The proxy's application: the guard, then its own paths, then one step for each GET or HEAD of a source."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from datetime import datetime
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qs, unquote_to_bytes

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from onoff.apps.proxy import status_page
from onoff.apps.proxy.guard import is_outside_navigation, refusal
from onoff.apps.proxy.responses import error_response, message_response, text_response
from onoff.client.client import Client
from onoff.client.message import Message
from onoff.client.queue import RequestQueue
from onoff.client.status import account
from onoff.errors import JournalError, OnoffError
from onoff.server.limits import Problem, connection_limit, read_body
from onoff.server.run import reserve, serve_requests, stop_event, url_of

log = logging.getLogger("onoff.proxy")
READ = ("GET", "HEAD")
BODY_LIMIT = 2**10
PAGE, PRIVACY = b"/", b"/onoff/privacy"
OURS = "onoff/"  # paths that begin so are the proxy's own


class Application:
    """A plain ASGI application over a queue of requests: `GET /NAME` is one for the source NAME."""

    def __init__(self, queue: RequestQueue) -> None:
        self._queue, self._token = queue, secrets.token_urlsafe()
        self._names = frozenset(name for name in queue.client.chain.names if name and not name.startswith(OURS))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            response = await self._response(Request(scope, receive))
            await response(scope, receive, send)

    async def _response(self, request: Request) -> Response:
        turned_away = refusal(request.headers)
        if turned_away is not None:
            return text_response(*turned_away)
        response, habits = await self._answer(request), self._queue.client.habits
        assert habits is not None, "a proxy keeps a promise that needs no announcement"
        until = self._queue.client.private_until
        window = "" if until is None else f"; private until {datetime.fromtimestamp(until):%H:%M:%S}"
        response.headers["onoff-privacy"] = f"{self._queue.client.journal.promise}; {habits.brief}{window}; see /"
        return response

    async def _answer(self, request: Request) -> Response:
        try:
            return await self._route(request)
        except Problem as problem:
            return text_response(problem.status, problem.detail, problem.headers)
        except OnoffError as error:
            return error_response(error) if isinstance(error, JournalError) else text_response(400, str(error))
        except Exception as error:
            log.error("a request was not answered", exc_info=error)
            return error_response(error)

    async def _route(self, request: Request) -> Response:
        path = request.scope.get("raw_path") or request.scope["path"].encode()
        if path == PRIVACY:
            return await self._privacy(request)
        if path == PAGE:
            return self._read_only(request) or await self._page()
        return await self._source(request, path)

    async def _source(self, request: Request, path: bytes) -> Response:
        """Make one step, and answer with the source's message. If the program goes away, the step stays."""
        source = unquote_to_bytes(path.removeprefix(b"/")).decode("utf-8", "replace")
        if source not in self._names or request.scope["query_string"]:
            return text_response(404, "there is no such source: / lists them. No step was made")
        wrong = self._read_only(request)
        if wrong is not None:
            return wrong
        if is_outside_navigation(request.headers):
            return Response(status_page.render_link(source), headers=status_page.HEADERS, media_type="text/html")
        try:
            message = await self._wait(self._queue.submit(source), request)
        except Exception as error:
            return error_response(error)
        if message is None:
            return text_response(503, "the program has gone away; its step is made all the same")
        held = request.headers.getlist("if-none-match")
        return await message_response(message, request.method, held, self._queue.expect_repeat)

    async def _wait(self, answer: asyncio.Future[Message], request: Request) -> Message | None:
        """Wait for the answer; None if the program leaves before. The step is made all the same.

        A program that half-closed its connection may be gone, or may wait for its answer.
        """

        async def gone() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        async def may_be_gone() -> None:
            await request.scope["half_closed"].wait()
            self._queue.expect_repeat()

        leaving, closing = asyncio.create_task(gone()), asyncio.create_task(may_be_gone())
        either: set[asyncio.Future[Any]] = {answer, leaving}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else None
        finally:
            self._queue.abandon(answer)
            leaving.cancel()
            closing.cancel()

    async def _page(self) -> Response:
        found = await asyncio.to_thread(account, self._queue.client.path)
        text = status_page.render(self._queue, found, self._names, self._token)
        return Response(text, headers=status_page.HEADERS, media_type="text/html")

    async def _privacy(self, request: Request) -> Response:
        """Switch privacy. A form must bear our page's token; a PUT, which no foreign page can send, need not."""
        headers = status_page.HEADERS
        match request.method:
            case "GET" | "HEAD":
                return Response("on\n" if self._queue.private else "off\n", 200, headers, "text/plain")
            case "PUT":
                self._queue.switch(parse_switch(await read_body(request.receive, BODY_LIMIT)))
                habits = self._queue.client.habits
                now = "ON" if self._queue.private else "OFF"
                about = f"; habits: {habits.brief}" if habits is not None and habits.stage != "known" else ""
                return Response(f"privacy is {now}{about}\n", 200, headers, "text/plain")
            case "POST":
                form = parse_qs((await read_body(request.receive, BODY_LIMIT)).decode("utf-8", "replace"))
                if not secrets.compare_digest(form.get("token", [""])[0].encode(), self._token.encode()):
                    return text_response(403, "use the switch on the proxy's page, or PUT")
                self._queue.switch(parse_switch(form.get("privacy", [""])[0].encode()))
                return RedirectResponse("/", 303, headers)
        return text_response(405, "GET, PUT or POST it", {"allow": "GET, HEAD, PUT, POST"})

    def _read_only(self, request: Request) -> Response | None:
        if request.method in READ:
            return None
        return text_response(405, "this can only be read: GET or HEAD", {"allow": "GET, HEAD"})


def parse_switch(body: bytes) -> bool:
    """Read `on` or `off`."""
    text = body.strip().lower()
    if text not in (b"on", b"off"):
        raise OnoffError("the privacy switch takes on or off")
    return text == b"on"


async def run(
    client: Client,
    host: str,
    port: int,
    *,
    opened: Callable[[RequestQueue], None],
    ready: Callable[[str], None],
) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP. Call `opened` with the queue, and `ready` with the URL.

    All in one process and in the event loop of the client, so that nothing outlives a kill.
    """
    stop, limit = stop_event(), connection_limit()
    with reserve(host, port) as listening:
        async with client:
            queue = RequestQueue(client)
            opened(queue)
            # The queue ends first: uvicorn waits for the requests in it.
            async with serve_requests(Application(queue), listening, limit), queue:
                ready(url_of(listening))
                await stop.wait()


def is_loopback(host: str) -> bool:
    """True if only this machine can reach an address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
