"""The application: the door, then the proxy's own paths, then one step for each GET or HEAD of a source."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from onoff.apps.proxy import counting, page
from onoff.apps.proxy.door import is_led_here, refusal
from onoff.apps.proxy.facts import Reporter
from onoff.apps.proxy.line import Line
from onoff.apps.proxy.naming import Naming
from onoff.apps.proxy.replies import answered, failed, said
from onoff.client.message import Message
from onoff.errors import JournalError, OnoffError

READ = ("GET", "HEAD")
BODY_LIMIT = 2**10
PAGE, PRIVACY, METRICS = b"/", b"/onoff/privacy", b"/onoff/metrics"


class Application:
    """A plain ASGI application over a line of requests."""

    def __init__(self, line: Line, urls: Mapping[str, str] | None = None, metrics: bool = False) -> None:
        self._line, self._naming = line, Naming(line.client.chain.names, urls)
        self._reporter, self._token = Reporter(line), secrets.token_urlsafe()
        self._counts, self._metrics = counting.Counts(line), metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        response = await self._response(request)
        self._counts.answers.labels(response.status_code).inc()
        await response(scope, receive, send)

    async def _response(self, request: Request) -> Response:
        turned_away = refusal(request.headers)
        try:
            return await self._let_in(request) if turned_away is None else said(*turned_away)
        except OnoffError as error:
            return failed(error) if isinstance(error, JournalError) else said(400, str(error))

    async def _let_in(self, request: Request) -> Response:
        path = request.scope.get("raw_path") or request.scope["path"].encode()
        if path == PRIVACY:
            return await self._privacy(request)
        if path == METRICS and self._metrics:
            return self._read_only(request) or Response(
                self._counts.text(), headers={"content-type": counting.CONTENT_TYPE, "cache-control": "no-store"}
            )
        if path == PAGE:
            return self._read_only(request) or await self._page()
        return await self._source(request, path)

    async def _source(self, request: Request, path: bytes) -> Response:
        """One step, and the message of the source. Who goes away does not undo it: the line makes it all the same."""
        source = self._naming.source(path, request.scope["query_string"])
        if source is None:
            return said(404, "there is no such source: / lists them. No step was made")
        wrong = self._read_only(request)
        if wrong is not None:
            return wrong
        if is_led_here(request.headers):
            return Response(
                page.asked_again(self._naming.path(source) or "/", source), headers=page.HEADERS, media_type="text/html"
            )
        try:
            message = await self._while_there(self._line.join(source), request)
        except Exception as error:
            return failed(error)
        if message is None:
            return said(503, "the program has gone away; its step is made all the same")
        return await answered(message, request.method, request.headers.getlist("if-none-match"))

    async def _while_there(self, answer: asyncio.Future[Message], request: Request) -> Message | None:
        """The answer; None if the program goes away before it. The step is made all the same."""

        async def gone() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        leaving = asyncio.create_task(gone())
        either: set[asyncio.Future[Any]] = {answer, leaving}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else None
        finally:
            self._line.leave(answer)
            leaving.cancel()

    async def _page(self) -> Response:
        text = page.rendered(await self._reporter.facts(), self._naming, self._token)
        return Response(text, headers=page.HEADERS, media_type="text/html")

    async def _privacy(self, request: Request) -> Response:
        """The switch. A form must bear the token of our page; a PUT, which no foreign page can send, need not."""
        match request.method:
            case "GET" | "HEAD":
                return Response("on\n" if self._line.private else "off\n", 200, page.HEADERS, "text/plain")
            case "PUT":
                self._line.switch(wanted(await _body(request)))
                return Response(
                    f"privacy is {'ON' if self._line.private else 'OFF'}\n", 200, page.HEADERS, "text/plain"
                )
            case "POST":
                form = parse_qs((await _body(request)).decode("utf-8", "replace"))
                if not secrets.compare_digest(form.get("token", [""])[0].encode(), self._token.encode()):
                    return said(403, "use the switch on the proxy's page, or PUT")
                self._line.switch(wanted(form.get("privacy", [""])[0].encode()))
                return RedirectResponse("/", 303, page.HEADERS)
        return said(405, "GET, PUT or POST it", {"allow": "GET, HEAD, PUT, POST"})

    def _read_only(self, request: Request) -> Response | None:
        if request.method in READ:
            return None
        return said(405, "this can only be read: GET or HEAD", {"allow": "GET, HEAD"})


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_LIMIT:
            raise OnoffError(f"more than {BODY_LIMIT} bytes: on or off is needed")
    return bytes(body)


def wanted(body: bytes) -> bool:
    """`on` or `off`, as text or as JSON ("on", or {"privacy": "on"})."""
    text = body.strip().lower()
    if text[:1] in (b'"', b"{"):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        value = value.get("privacy") if isinstance(value, dict) else value
        text = value.encode() if isinstance(value, str) else b""
    if text not in (b"on", b"off"):
        raise OnoffError("the privacy switch takes on or off")
    return text == b"on"
