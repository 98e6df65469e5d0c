"""`httpx_transport`: programs with httpx read privately. A GET or HEAD of a known URL is one step of a client.

Requests wait in a queue like the proxy's (`onoff.client.queue`): a program that gives up, asks again or is killed
tells nothing. Only the URL of a program's request is used: no header, cookie or condition of it leaves.

An unknown URL is refused, or handed to another transport, which asks openly. A server that this transport asks could
redirect the program to a known URL, and so decide on a step: such a request is refused.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from reprlib import repr as short
from typing import Any

import httpx

from onoff.client.client import Client
from onoff.client.message import Message
from onoff.client.queue import TRUE_STATUS, RequestQueue, explain, safe_status
from onoff.client.sync import LoopThread
from onoff.client.transports.http import mask, request_of
from onoff.client.transports.web import HttpTransport
from onoff.errors import OnoffError
from onoff.text import plain

Others = httpx.AsyncBaseTransport | httpx.BaseTransport
PASSED = "onoff.passed"  # an extension of a request that was handed on: httpx hands it down when it follows a redirect


class StepTransport(httpx.AsyncBaseTransport, httpx.BaseTransport):
    """The sources of a client by their URLs, and a step for each request: where it is asked, or in a thread."""

    def __init__(self, client: Client, private: bool | None, others: Any) -> None:
        if not (isinstance(client, Client) and isinstance(client.transport, HttpTransport)):
            raise OnoffError("programs with httpx ask for URLs: a client of URLs is needed, connect(urls=...)")
        self._client, self._private, self._others = client, private, others
        self._sources = {request_of(url): name for name, url in client.transport.urls.items()}
        self._stack, self._gate = AsyncExitStack(), threading.Lock()
        self._opened: asyncio.Task[RequestQueue] | None = None
        self._thread: LoopThread[StepTransport] | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        source = self.source_of(request)
        if source is None:
            return await self._others.handle_async_request(request)  # type: ignore[no-any-return]
        with failures(request):
            return await self._step(request, source)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        source = self.source_of(request)
        if source is None:
            return self._others.handle_request(request)  # type: ignore[no-any-return]
        with failures(request):
            with self._gate:
                self._thread = self._thread or LoopThread(self).open()
            return self._thread.wait(self._step(request, source))

    async def aclose(self) -> None:
        if self._opened is not None:
            await asyncio.wait({self._opened})
        await self._stack.aclose()
        if isinstance(self._others, httpx.AsyncBaseTransport):
            await self._others.aclose()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.close()
        if isinstance(self._others, httpx.BaseTransport):
            self._others.close()

    def source_of(self, request: httpx.Request) -> str | None:
        """Find a request's source; None if it is handed on. Raises an error if it is refused."""
        source = self._sources.get(request_of(str(request.url))) if request.url.is_absolute_url else None
        if source is None and self._others is not None:
            request.extensions = {**request.extensions, PASSED: True}
            return None
        if source is None:
            words = f"{mask(str(request.url))} is none of the client's URLs: add it to them, or give others=..., "
            words += "a transport that asks for it openly"
        elif request.method not in ("GET", "HEAD"):
            words = f"a source can only be read, by GET or HEAD, and {plain(request.method)} is neither"
        elif PASSED in request.extensions:
            words = "a server that was asked openly has led here: ask for this URL yourself"
        else:
            return source
        raise httpx.RequestError(f"{words}. No step was made", request=request)

    async def _open(self) -> RequestQueue:
        await self._stack.enter_async_context(self._client)
        return await self._stack.enter_async_context(RequestQueue(self._client))

    async def _step(self, request: httpx.Request, source: str) -> httpx.Response:
        """Make one step. It is made to its end, even if the program goes away meanwhile."""
        if self._opened is None:
            self._opened = asyncio.create_task(self._open())
        queue = await asyncio.shield(self._opened)  # a client is opened once, whoever gives up meanwhile
        answer = queue.submit(source, request.extensions.get("private", self._private))
        try:
            await asyncio.wait({answer})  # what cancels this leaves the answer alone
            return response_of(answer.result(), request.method)
        finally:
            queue.abandon(answer)


def response_of(message: Message, method: str) -> httpx.Response:
    """Make a program's response: the status, type and body of the source."""
    status, extensions = safe_status(message.status), {}
    headers = {"onoff-step": str(message.step), "onoff-status": "on" if message.private else "off"}
    headers |= {"cache-control": "no-cache", "age": str(int(message.age)), "content-length": str(len(message.body))}
    if message.content_type is not None:
        headers["content-type"] = message.content_type
    if status != message.status:
        headers[TRUE_STATUS] = str(message.status)
        extensions = {"reason_phrase": f"the origin answered {message.status}".encode()}
    content = b"" if method == "HEAD" else message.body
    return httpx.Response(status, headers=headers, content=content, extensions=extensions)


@contextmanager
def failures(request: httpx.Request) -> Iterator[None]:
    """Turn errors into httpx's. Programs that ask again after a broken connection do not after these."""
    try:
        yield
    except Exception as error:
        raise httpx.TransportError(explain(error), request=request) from error


def httpx_transport(client: Client, *, private: bool | None = None, others: Others | None = None) -> StepTransport:
    """A transport with which httpx reads privately: every GET or HEAD of a known URL is one step.

    `httpx.AsyncClient(transport=httpx_transport(connect(urls=...)))`, or the same with `httpx.Client`. The client is
    opened with the first request and closed with the program's client: nothing else may use it.

    `private` says whether requests are ON; with None the journal's switch decides, as in the proxy. One request can
    differ: `http.get(url, extensions={"private": True})`. Other URLs are refused with an `httpx.RequestError`, or
    handed to `others`, `httpx.AsyncHTTPTransport()` or `httpx.HTTPTransport()`, which asks openly.

    A response has the status, the type and the whole body that the web server sent. 424 replaces statuses after which
    programs ask again; the header `Onoff-True-Status` has the true one. An unfinished step raises
    `httpx.TransportError`, and is finished before the next one. Timeouts of httpx do not count: a set takes its time.
    """
    if not isinstance(others, Others | None):
        raise OnoffError(f"others is {short(others)}: a transport of httpx is needed, or None")
    return StepTransport(client, private, others)
