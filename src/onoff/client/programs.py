"""`httpx_transport`: programs with httpx read privately. A GET or HEAD of a known URL is one step of a client.

Requests wait in the queue that the proxy has as well (`onoff.client.queue`): a program that gives up, asks again or is
killed tells nothing here either. Nothing that a program says beside the URL leaves: no header, cookie or condition.

A URL that the client does not know is refused, or handed to another transport, which asks openly. A server that it asks
could lead the program to a known URL, and so decide on a step: that is refused.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from reprlib import repr as short
from typing import Any, Self

import httpx

from onoff.client.client import Client
from onoff.client.queue import TRUE_STATUS, RequestQueue, explain, safe_status
from onoff.client.sync import LoopThread
from onoff.client.transports.http import masked, request_of
from onoff.client.transports.web import HttpTransport
from onoff.errors import OnoffError
from onoff.text import plain
from onoff.types import is_flag

PASSED = "onoff.passed"  # an extension of a request that was handed on: httpx hands it down when it follows a redirect


class Steps:
    """The sources of a client by their URLs, and a step for each request. While it is open, the client is."""

    def __init__(self, client: Client, private: bool | None, passes: bool) -> None:
        if not (isinstance(client, Client) and isinstance(client.transport, HttpTransport)):
            raise OnoffError("programs with httpx ask for URLs: a client of URLs is needed, connect(urls=...)")
        if private is not None and not is_flag(private):
            raise OnoffError(f"private is {private!r}: True or False is needed, or None")
        self._client, self._private, self._passes, self._stack = client, private, passes, AsyncExitStack()
        self._sources = {request_of(url): name for name, url in client.transport.urls.items()}

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._client)
        self._queue = await self._stack.enter_async_context(RequestQueue(self._client))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def source_of(self, request: httpx.Request) -> str | None:
        """The source that is asked for; None if the request is handed on. Raises an error if it is refused."""
        source = self._sources.get(request_of(str(request.url))) if request.url.is_absolute_url else None
        if source is None and self._passes:
            request.extensions = {**request.extensions, PASSED: True}
            return None
        if source is None:
            words = f"{masked(str(request.url))} is none of the client's URLs: add it to them, or give others=..., "
            words += "a transport that asks for it openly"
        elif request.method not in ("GET", "HEAD"):
            words = f"a source can only be read, by GET or HEAD, and {plain(request.method)} is neither"
        elif PASSED in request.extensions:
            words = "a server that was asked openly has led here: ask for this URL yourself"
        else:
            return source
        raise httpx.RequestError(f"{words}. No step was made", request=request)

    async def response(self, request: httpx.Request, source: str) -> httpx.Response:
        """Make one step. It is made to its end, even if the program goes away meanwhile."""
        answer = self._queue.submit(source, request.extensions.get("private", self._private))
        try:
            await asyncio.wait({answer})  # what cancels this leaves the answer alone
            message = answer.result()
        finally:
            self._queue.abandon(answer)
        status, body, extensions = safe_status(message.status), message.body, {}
        headers = {"onoff-step": str(message.step), "onoff-status": "on" if message.private else "off"}
        headers |= {"cache-control": "no-cache", "content-length": str(len(body))}
        if message.content_type is not None:
            headers["content-type"] = message.content_type
        if status != message.status:
            headers[TRUE_STATUS] = str(message.status)
            extensions = {"reason_phrase": f"the origin answered {message.status}".encode()}
        content = b"" if request.method == "HEAD" else body
        return httpx.Response(status, headers=headers, content=content, extensions=extensions)


class StepTransport(httpx.AsyncBaseTransport, httpx.BaseTransport):
    """For `httpx.AsyncClient`, and in a thread for `httpx.Client`. It opens its client with the first step."""

    def __init__(self, client: Client, private: bool | None, others: Any) -> None:
        self._steps, self._others = Steps(client, private, others is not None), others
        self._opened: asyncio.Task[Steps] | None = None
        self._thread, self._gate = LoopThread(self._steps), threading.Lock()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        source = self._steps.source_of(request)
        if source is None:
            return await self._others.handle_async_request(request)  # type: ignore[no-any-return]
        with failures(request):
            if self._opened is None:
                self._opened = asyncio.create_task(self._steps.__aenter__())
            await asyncio.shield(self._opened)  # a client is opened once, whoever gives up meanwhile
            return await self._steps.response(request, source)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        source = self._steps.source_of(request)
        if source is None:
            return self._others.handle_request(request)  # type: ignore[no-any-return]
        with failures(request):
            with self._gate:
                if not self._thread.is_open:
                    self._thread.open()
            return self._thread.wait(self._steps.response(request, source))

    async def aclose(self) -> None:
        if self._opened is not None:
            await asyncio.wait({self._opened})
        await self._steps.__aexit__()
        if self._others is not None:
            await self._others.aclose()

    def close(self) -> None:
        self._thread.close()
        if self._others is not None:
            self._others.close()


@contextmanager
def failures(request: httpx.Request) -> Iterator[None]:
    """Errors as programs with httpx expect them. Those that ask again after a broken connection do not after these."""
    try:
        yield
    except Exception as error:
        raise httpx.TransportError(explain(error), request=request) from error


def httpx_transport(
    client: Client,
    *,
    private: bool | None = None,
    others: httpx.AsyncBaseTransport | httpx.BaseTransport | None = None,
) -> StepTransport:
    """The transport that makes a program with httpx read privately: every GET or HEAD of a known URL is one step.

    `httpx.AsyncClient(transport=httpx_transport(connect(urls=...)))`, or the same with `httpx.Client`. The client is
    opened with the first request and closed with the program's client: nothing else may use it.

    `private` says whether requests are ON; None leaves it to the journal's switch, as the proxy does. A request can say
    it for itself: `http.get(url, extensions={"private": True})`. URLs that the client does not know are refused with an
    `httpx.RequestError`, or handed to `others`, `httpx.AsyncHTTPTransport()` or `httpx.HTTPTransport()`, which asks
    openly.

    A response has the status, the type and the whole body that the web server sent for the URL. A status after which
    programs ask again is 424; the header `Onoff-True-Status` has the true one. A step that is not finished is an
    `httpx.TransportError`, and is finished before the next one. Timeouts of httpx do not count: a set takes its time.
    """
    if others is not None and not isinstance(others, httpx.AsyncBaseTransport | httpx.BaseTransport):
        raise OnoffError(f"others is {short(others)}: a transport of httpx is needed, or None")
    return StepTransport(client, private, others)
