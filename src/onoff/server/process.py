"""Running the application: Granian's worker processes on one port, and the watcher beside them."""

from __future__ import annotations

import http.client
import json
import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from granian.constants import HTTPModes, Interfaces, Loops
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server.mp import MPServer
from starlette.applications import Starlette

from onoff.server.app import create_app
from onoff.server.listening import BACKLOG, GivenSocket, connection_limit
from onoff.server.metrics import SHARED_DIRECTORY
from onoff.server.settings import Settings
from onoff.server.store import Store
from onoff.server.watch import Watcher

_STOP_SECONDS = 10
_ANSWER_SECONDS = 5.0
_LOOK_FOR_PARENT = 0.2
_LOOK_FOR_CONNECTIONS = 1.0

_HEADER_MILLISECONDS = 10_000
_HEADER_BYTES = 64 * 1024

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stderr"}},
    "loggers": {
        "_granian": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
        "onoff": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
    },
}


class _Server(GivenSocket, MPServer):
    """Granian's worker processes on our socket. Ctrl-C is for the parent, which ends them."""

    def _spawn_workers(self, *arguments: Any) -> None:
        with _interrupts_held_back():
            super()._spawn_workers(*arguments)  # type: ignore[no-untyped-call]


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Hold SIGINT back while workers start. They never see it: half started they would die with a traceback."""
    resource_tracker.ensure_running()  # which would be started with the first of them, and lift the block
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve(
    settings: Settings,
    store: Store,
    *,
    listening: socket.socket,
    workers: int = 1,
    watch: Path | None = None,
    parent: int | None = None,
    application: Callable[[Settings], Starlette] = create_app,
) -> None:
    """Serve until SIGTERM or SIGINT, or until the process `parent`, which started this one, is gone.

    `listening` is the socket, from `reserved`. When requests are answered, one line of JSON on stdout says where.

    Each worker process makes its own `application`, which therefore must be a function of a module.
    """
    if parent is not None:
        _start(_end_with, parent)
    with ExitStack() as stack:
        if workers > 1:
            os.environ[SHARED_DIRECTORY] = stack.enter_context(tempfile.TemporaryDirectory(prefix="onoff-metrics-"))
        address, port = listening.getsockname()[:2]
        # Workers start afresh: an SQLite connection or a running thread must not be inherited by forking.
        multiprocessing.set_start_method("spawn", force=True)
        limit = connection_limit()
        server = _Server(
            "onoff",
            address=address,
            port=port,
            interface=Interfaces.ASGI,
            workers=workers,
            loop=Loops.auto,
            http=HTTPModes.http1,
            http1_settings=HTTP1Settings(header_read_timeout=_HEADER_MILLISECONDS, max_buffer_size=_HEADER_BYTES),
            websockets=False,
            backlog=BACKLOG,
            backpressure=limit,
            log_level=LogLevels.warning,
            log_dictconfig=LOGGING,
            respawn_failed_workers=True,
            workers_kill_timeout=_STOP_SECONDS,
        )
        server.listening = listening
        stop = threading.Event()
        stack.callback(stop.set)
        _start(_announce, address, port, stop)
        if watch is not None:
            watching = _start(Watcher(watch, store).run, stop)
            stack.callback(watching.join)
            stack.callback(stop.set)
        server.serve(target_loader=partial(_load, application, settings, limit), wrap_loader=False)


def _load(application: Callable[[Settings], Starlette], settings: Settings, limit: int) -> Starlette:
    """In a worker: the application."""
    _start(_end_with, os.getppid())
    _start(_watch_connections, limit)
    return application(settings)


def _end_with(parent: int) -> None:
    """End this process when its parent is gone: it would keep the port, with settings that nobody can change."""
    while os.getppid() == parent:
        time.sleep(_LOOK_FOR_PARENT)
    logging.getLogger("onoff.server").warning("the parent process is gone; stopping")
    os.kill(os.getpid(), signal.SIGTERM)


def _watch_connections(limit: int) -> None:
    """Say when new connections must wait because this worker has all that it may have; Granian does not."""
    full = False
    while True:
        time.sleep(_LOOK_FOR_CONNECTIONS)
        was_full, full = full, len(os.listdir("/dev/fd")) >= limit
        if full and not was_full:
            logging.getLogger("onoff.server").warning(
                "%d connections are open, all that this worker takes: others wait. Limit them by address in a proxy.",
                limit,
            )


def _announce(address: str, port: int, stop: threading.Event) -> None:
    """Say where the server is, once it answers. (The operating system accepts connections earlier.)"""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    while not stop.wait(0.02):
        connection = http.client.HTTPConnection(reachable, port, timeout=_ANSWER_SECONDS)
        try:
            connection.request("GET", "/health")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            continue
        finally:
            connection.close()
        shown = f"[{address}]" if ":" in address else address
        print(json.dumps({"event": "ready", "url": f"http://{shown}:{port}", "pid": os.getpid()}), flush=True)
        return


def _start(work: Any, *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread
