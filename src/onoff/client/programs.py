"""`httpx_transport`: programs with httpx read privately. A GET or HEAD of a known URL is one step of a client.

Requests wait in the queue that the proxy has as well (`onoff.client.queue`): a program that gives up, asks again or is
killed tells nothing here either. Nothing that a program says beside the URL leaves: no header, cookie or condition.

A URL that the client does not know is refused, or handed to another transport if there is one. That one asks openly. A
server that it asks could lead the program to a known URL, and so decide on a step: that is refused.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from typing import overload

import httpx

from onoff.client.client import Client
from onoff.client.queue import TRUE_STATUS, RequestQueue, explain, safe_status
from onoff.client.sync import SyncClient
from onoff.client.transports.http import masked, request_of
from onoff.client.transports.web import HttpTransport
from onoff.errors import OnoffError
from onoff.text import plain
from onoff.types import is_flag

PASSED = "onoff.passed"  # an extension of a request that was handed on: httpx hands it down when it follows a redirect


class Steps:
    """The sources of a client by their URLs, and a step for each request: both transports consist of it."""

    def __init__(self, client: Client, private: bool | None, passes: bool) -> None:
        if not isinstance(client.transport, HttpTransport):
            raise OnoffError("programs ask for URLs: a client of URLs is needed, connect(urls=...)")
        if private is not None and not is_flag(private):
            raise OnoffError(f"private is {private!r}: True or False is needed, or None")
        self._client, self._private, self._passes = client, private, passes
        self._sources = {request_of(url): name for name, url in client.transport.urls.items()}

    async def __aenter__(self) -> None:
        self._queue = await RequestQueue(self._client).__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await self._queue.__aexit__()

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
            words = f"a source can only be read, by GET or HEAD: {plain(request.method)} is not possible"
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
        status, extensions = safe_status(message.status), {}
        headers = {"onoff-step": str(message.step), "onoff-status": "on" if message.private else "off"}
        headers |= {"cache-control": "no-cache"} | (
            {"content-type": message.content_type} if message.content_type else {}
        )
        if status != message.status:
            headers[TRUE_STATUS] = str(message.status)
            extensions = {"reason_phrase": f"the origin answered {message.status}".encode()}
        body = message.body
        if request.method == "HEAD":
            headers["content-length"], body = str(len(body)), b""
        return httpx.Response(status, headers=headers, content=body, extensions=extensions)


class AsyncStepTransport(httpx.AsyncBaseTransport):
    """For `httpx.AsyncClient`. It opens its client with the first step, and closes it with the program's."""

    def __init__(self, client: Client, private: bool | None, others: httpx.AsyncBaseTransport | None) -> None:
        self._steps, self._client, self._others = Steps(client, private, others is not None), client, others
        self._stack = AsyncExitStack()
        self._opened: asyncio.Task[None] | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        source = self._steps.source_of(request)
        if source is None:
            assert self._others is not None, "it passes requests on"
            return await self._others.handle_async_request(request)
        with failures(request):
            if self._opened is None:
                self._opened = asyncio.create_task(self._open())
            await asyncio.shield(self._opened)  # a client is opened once, whoever gives up meanwhile
            return await self._steps.response(request, source)

    async def aclose(self) -> None:
        if self._opened is not None:
            await asyncio.wait({self._opened})
        await self._stack.aclose()
        if self._others is not None:
            await self._others.aclose()

    async def _open(self) -> None:
        await self._stack.enter_async_context(self._client)
        await self._stack.enter_async_context(self._steps)


class StepTransport(httpx.BaseTransport):
    """For `httpx.Client`: the same from any thread."""

    def __init__(self, client: SyncClient, private: bool | None, others: httpx.BaseTransport | None) -> None:
        self._steps, self._client, self._others = Steps(client.client, private, others is not None), client, others
        self._stack, self._opened, self._gate = ExitStack(), False, threading.Lock()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        source = self._steps.source_of(request)
        if source is None:
            assert self._others is not None, "it passes requests on"
            return self._others.handle_request(request)
        with failures(request):
            with self._gate:
                if not self._opened:
                    self._stack.enter_context(self._client)
                    self._client.wait(self._steps.__aenter__())
                    self._stack.callback(self._end)
                    self._opened = True
            return self._client.wait(self._steps.response(request, source))

    def close(self) -> None:
        with self._gate:
            self._stack.close()
        if self._others is not None:
            self._others.close()

    def _end(self) -> None:
        with suppress(OnoffError):  # in a process that was forked
            self._client.wait(self._steps.__aexit__())


@contextmanager
def failures(request: httpx.Request) -> Iterator[None]:
    """Errors as programs with httpx expect them. Those that ask again after a broken connection do not after these."""
    try:
        yield
    except Exception as error:
        raise httpx.TransportError(explain(error), request=request) from error


@overload
def httpx_transport(
    client: Client, *, private: bool | None = None, others: httpx.AsyncBaseTransport | None = None
) -> AsyncStepTransport: ...
@overload
def httpx_transport(
    client: SyncClient, *, private: bool | None = None, others: httpx.BaseTransport | None = None
) -> StepTransport: ...
def httpx_transport(
    client: Client | SyncClient,
    *,
    private: bool | None = None,
    others: httpx.AsyncBaseTransport | httpx.BaseTransport | None = None,
) -> AsyncStepTransport | StepTransport:
    """The transport that makes a program with httpx read privately: every GET or HEAD of a known URL is one step.

    `httpx.AsyncClient(transport=httpx_transport(connect(urls=...)))` is for programs with `async`, and
    `httpx.Client(transport=httpx_transport(connect_sync(urls=...)))` for all others. The client is not open yet, and
    nothing else uses it: it is opened with the first request, and closed with the program's client.

    `private` says whether requests are ON; None leaves it to the journal's switch, as the proxy does. A request can say
    it for itself: `http.get(url, extensions={"private": True})`. URLs that the client does not know are refused with an
    `httpx.RequestError`, or handed to `others`, such as `httpx.AsyncHTTPTransport()`, which asks openly.

    A response has the status, the type and the whole body that the web server sent for the URL. A status after which
    programs ask again is 424; the header `Onoff-True-Status` has the true one. A step that is not finished is an
    `httpx.TransportError`, and is finished before the next one. Timeouts of httpx are for others: a set takes as long
    as its slowest member.
    """
    if isinstance(client, Client) and isinstance(others, httpx.AsyncBaseTransport | None):
        return AsyncStepTransport(client, private, others)
    if isinstance(client, SyncClient) and isinstance(others, httpx.BaseTransport | None):
        return StepTransport(client, private, others)
    raise OnoffError(
        "a client of connect is needed with others for async, or one of connect_sync with others for threads"
    )
