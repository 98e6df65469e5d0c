"""Runs ASGI applications with uvicorn: one in this event loop (page, proxy), or `onoff serve` with its processes.

`LocalServer` is a whole server in a thread of this process: the page and the demonstration talk to one over HTTP.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import math
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from asyncio import new_event_loop
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from onoff.errors import OnoffError
from onoff.server.app import SHARED_DIRECTORY, Application, Settings
from onoff.server.limits import CONNECTIONS, REQUEST_SECONDS, Connection, Room, connection_limit, through_connections
from onoff.server.store import Store, open_store
from onoff.server.watch import Watcher
from onoff.wire import Catalogue

with suppress(ImportError):  # without it asyncio serves fewer queries a second
    from uvloop import new_event_loop

# A server that was killed leaves its port within a moment; who starts it again must not fail for that.
_PORT_PATIENCE = 3.0

# What was sent must be taken by the other side within this many milliseconds, or the system ends the connection: one
# that does not read would keep its place for ever. Also ends connections whose other side is gone.
UNREAD_MILLISECONDS = 30_000

# What the system takes of an answer ahead of sending it. Without this it is megabytes for each connection.
UNSENT_BYTES = 128 * 1024
_TCP_NOTSENT_LOWAT = 25  # Linux's number; Python 3.11 has no name for it

BACKLOG = 4096  # connections that the system keeps waiting; it may have a smaller limit of its own (somaxconn)

# Connections that asyncio accepts before any of them is counted (`limits.Room`): out of files it would spin.
ACCEPTED_AT_ONCE = 32

FINISH_SECONDS = 5  # that requests under way have when the server stops
STOP_SECONDS = 10.0  # then a process that has not ended is killed
_RESTART_SECONDS = 0.5  # before a process that has died is replaced: it may die again at once

_LOG_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LOOPBACK = "127.0.0.1"

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # a terminal that is closed is an end, too
_READY = signal.SIGUSR1  # by which a process tells its parent that it answers
_FROM_PROCESSES = (_READY, signal.SIGCHLD)


def reserve(host: str, port: int) -> socket.socket:
    """Listen on the address and port (0: any). Nobody else can have them while the socket is open."""
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        raise OnoffError(f"{host}: not an address to listen on ({error!s})") from error
    deadline = time.monotonic() + _PORT_PATIENCE
    while True:
        made = socket.socket(family)
        try:
            # For the connections of a server that has ended, which linger.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if sys.platform == "linux":  # connections have it from here
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MILLISECONDS)
                made.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, UNSENT_BYTES)
            made.bind(place)
            # Two sockets may be bound to one port as long as neither listens: to listen settles who has it.
            made.listen(BACKLOG)
            return made
        except OSError as error:
            made.close()
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise OnoffError(f"{host} port {port}: {error.strerror}; name another --port") from error
            time.sleep(0.1)


def url_of(listening: socket.socket) -> str:
    """Build the URL at which this machine reaches a listening server."""
    address, port = listening.getsockname()[:2]
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    return f"http://{f'[{address}]' if ':' in address else address}:{port}"


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers, which would also heed signals that are to be ignored."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serve_requests(
    application: ASGIApp, listening: socket.socket, limit: int = CONNECTIONS, seconds: float = REQUEST_SECONDS
) -> AsyncIterator[None]:
    """Serve an application on a listening socket, in this event loop, while the block runs.

    At most `limit` connections are open, and a request must arrive within `seconds`. At the end of the block requests
    under way have `FINISH_SECONDS`. Signals are left to the caller: `stop_event`.
    """
    room = Room(limit, seconds)
    config = uvicorn.Config(
        through_connections(application),
        http=cast("type[asyncio.Protocol]", partial(Connection, room)),
        ws="none",
        backlog=ACCEPTED_AT_ONCE,
        log_config=None,
        log_level="critical",  # applications log their own mistakes, and strangers can make the rest
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=FINISH_SECONDS,
        timeout_keep_alive=math.ceil(seconds),  # an idle connection has as long as a request
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    while not (server.started or serving.done()):
        await asyncio.sleep(0.01)
    listening.listen(BACKLOG)
    try:
        yield
    finally:
        server.should_exit = True
        room.end()
        await serving


def heed_signals() -> set[signal.Signals]:
    """List the signals that end a server. An ignored one (nohup, a background job) stays ignored."""
    return {number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN}


def stop_event() -> asyncio.Event:
    """Make an event set by the signals that end a server. Further ones are ignored: the end takes time."""
    stop, loop, signals = asyncio.Event(), asyncio.get_running_loop(), heed_signals()

    def end() -> None:
        stop.set()
        for number in signals:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)

    for number in signals:
        loop.add_signal_handler(number, end)
    return stop


def serve(
    settings: Settings,
    store: Store,
    *,
    listening: socket.socket,
    workers: int = 1,
    watch: Path | None = None,
    seconds: float = REQUEST_SECONDS,
    application: Callable[[Settings], ASGIApp] = Application,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP, with `workers` processes on one socket and the watcher beside them.

    `listening` is from `reserve`. A request must arrive within `seconds`. When requests are answered, one line of
    JSON on stdout says where. A process that dies is replaced. Each calls `application`, which therefore must
    be a function of a module.
    """
    logging.basicConfig(format=_LOG_LINE, level=logging.INFO)
    limit = connection_limit()
    # Processes start afresh: an SQLite connection or a running thread must not be inherited by forking.
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        if workers > 1:
            os.environ[SHARED_DIRECTORY] = stack.enter_context(tempfile.TemporaryDirectory(prefix="onoff-metrics-"))
        signals = _block_signals()

        def start() -> SpawnProcess:
            process = context.Process(target=_work, args=(application, settings, listening, limit, seconds))
            process.start()
            return process

        if watch is not None:
            stop = threading.Event()
            stack.enter_context(ThreadPoolExecutor(1)).submit(Watcher(watch, store).run, stop)
            stack.callback(stop.set)
        processes: list[SpawnProcess] = []
        stack.callback(lambda: _end(processes))
        processes += [start() for _ in range(workers)]
        ready = False
        while (number := signal.sigwait(signals)) in _FROM_PROCESSES:
            if number == _READY and not ready:
                ready = True
                print(json.dumps({"event": "ready", "url": url_of(listening), "pid": os.getpid()}), flush=True)
            if not all(process.is_alive() for process in processes):
                if not ready:
                    raise OnoffError("a process of the server ended before it answered; its log says why")
                time.sleep(_RESTART_SECONDS)
                processes[:] = [process if process.is_alive() else start() for process in processes]


def _block_signals() -> set[signal.Signals]:
    """Block the signals that `serve` waits for, and return them; the process ends after `serve`, so they stay blocked.

    Its processes inherit the block. So a starting process does not die of SIGTERM half-way, and Ctrl-C,
    which a terminal sends to all processes, is for the parent alone.
    """
    resource_tracker.ensure_running()  # which would be started with the first process, and lift the block
    signals = {*heed_signals(), *_FROM_PROCESSES}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    return signals


def _end(processes: list[SpawnProcess]) -> None:
    """Let processes end, and kill those that take longer than `STOP_SECONDS`."""
    deadline = time.monotonic() + STOP_SECONDS
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        process.kill()
        process.join()


def _work(
    application: Callable[[Settings], ASGIApp], settings: Settings, listening: socket.socket, limit: int, seconds: float
) -> None:
    """Answer requests in a process of its own."""
    logging.basicConfig(format=_LOG_LINE, level=logging.INFO)
    try:
        made = application(settings)
    except OnoffError as error:
        logging.getLogger("onoff.server").error("%s", error)
        return
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_answer(serve_requests(made, listening, limit, seconds)))


async def _answer(serving: AbstractAsyncContextManager[None]) -> None:
    stop, loop, parent = stop_event(), asyncio.get_running_loop(), multiprocessing.parent_process()
    assert parent is not None

    def end_without_parent() -> None:
        """A process without its parent would keep the port, with settings that nobody can change."""
        loop.remove_reader(parent.sentinel)
        logging.getLogger("onoff.server").warning("the parent process is gone; stopping")
        stop.set()

    loop.add_reader(parent.sentinel, end_without_parent)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    async with serving:
        with suppress(ProcessLookupError):  # a parent that was killed meanwhile
            os.kill(cast("int", parent.pid), _READY)
        await stop.wait()


class LocalServer:
    """A server on a free loopback port, with one round published. It ends with the process.

    Use as `with LocalServer(...) as server`. Its files are in `directory`.
    """

    def __init__(self, directory: Path, messages: Mapping[str, bytes], length: int) -> None:
        self.catalogue, self.transcript = Catalogue(tuple(messages), length), directory / "transcript"
        self._messages, self._stack, self.url = messages, ExitStack(), ""
        self._settings = Settings(str(directory / "messages.db"), self.catalogue, transcript=self.transcript)

    def __enter__(self) -> LocalServer:
        """Return when it answers and messages are there."""
        listening = self._stack.enter_context(reserve(_LOOPBACK, 0))
        self.url = url_of(listening)
        open_store(self._settings.store, self.catalogue).close()
        self._app, ready = Application(self._settings), threading.Event()

        async def serve() -> None:
            stop, self._loop = asyncio.Event(), asyncio.get_running_loop()
            self._stack.callback(self._loop.call_soon_threadsafe, stop.set)
            async with serve_requests(self._app, listening):
                ready.set()
                await stop.wait()

        thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
        self._stack.callback(thread.join)
        thread.start()
        ready.wait()
        self.publish(self._messages)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server, if it runs; wait for it."""
        self._stack.close()

    def publish(self, messages: Mapping[str, bytes]) -> None:
        """Publish a round of these messages, from any thread but the server's own."""
        round = {self.catalogue.index[name]: message for name, message in messages.items()}
        asyncio.run_coroutine_threadsafe(self._app.publish(round), self._loop).result()
