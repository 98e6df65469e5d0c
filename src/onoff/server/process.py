"""Running the application: Granian's worker processes on one port, and the watcher beside them."""

from __future__ import annotations

import errno
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
from pathlib import Path
from typing import Any

from granian.constants import HTTPModes, Interfaces, Loops
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server import Server
from starlette.applications import Starlette

from onoff.errors import OnoffError
from onoff.server.app import create_app
from onoff.server.metrics import SHARED_DIRECTORY
from onoff.server.settings import Settings
from onoff.server.watch import Watcher
from onoff.store import Store

# A server that was killed leaves its port within a moment; who starts it again must not fail for that.
_PORT_PATIENCE = 3.0
_STOP_SECONDS = 10
_LOOK_FOR_PARENT = 0.2

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


def serve(
    settings: Settings,
    store: Store,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    workers: int = 1,
    watch: Path | None = None,
    parent: int | None = None,
    application: Callable[[Settings], Starlette] = create_app,
) -> None:
    """Serve until SIGTERM or SIGINT, or until the process `parent`, which started this one, is gone.

    When requests are answered, one line of JSON on stdout says where.

    Each worker process makes its own `application`, which therefore must be a function of a module.
    """
    if parent is not None:
        _start(_end_with, parent)
    with ExitStack() as stack:
        if workers > 1:
            os.environ[SHARED_DIRECTORY] = stack.enter_context(tempfile.TemporaryDirectory(prefix="onoff-metrics-"))
        address, port = stack.enter_context(reserved(host, port))
        # Workers start afresh: an SQLite connection or a running thread must not be inherited by forking.
        multiprocessing.set_start_method("spawn", force=True)
        server = Server(
            "onoff",
            address=address,
            port=port,
            interface=Interfaces.ASGI,
            workers=workers,
            loop=Loops.auto,
            http=HTTPModes.http1,
            http1_settings=HTTP1Settings(header_read_timeout=_HEADER_MILLISECONDS, max_buffer_size=_HEADER_BYTES),
            websockets=False,
            log_level=LogLevels.warning,
            log_dictconfig=LOGGING,
            respawn_failed_workers=True,
            workers_kill_timeout=_STOP_SECONDS,
        )
        stop = threading.Event()
        stack.callback(stop.set)
        _start(_announce, address, port, stop)
        if watch is not None:
            watching = _start(Watcher(watch, store).run, stop)
            stack.callback(watching.join)
            stack.callback(stop.set)
        server.serve(target_loader=partial(_load, application, settings), wrap_loader=False)


def _load(application: Callable[[Settings], Starlette], settings: Settings) -> Starlette:
    """In a worker: the application."""
    _start(_end_with, os.getppid())
    return application(settings)


def _end_with(parent: int) -> None:
    """Whoever outlives its parent would keep the port, with settings that nobody can change."""
    while os.getppid() == parent:
        time.sleep(_LOOK_FOR_PARENT)
    logging.getLogger("onoff.server").warning("the parent process is gone; stopping")
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def reserved(host: str, port: int) -> Iterator[tuple[str, int]]:
    """The address and the port, free (0: any), and ours from now on.

    Granian's workers listen on sockets of their own that share the port, and so could another server started on it by
    mistake: that no one else listens is checked first. The socket kept here never listens; it holds the port.
    """
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise OnoffError(f"{host}: not an address to listen on ({error.strerror})") from error
    if port:
        _wait_until_free(family, place)
    with socket.socket(family) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(place)
        place = held.getsockname()
        yield str(place[0]), int(place[1])


def _wait_until_free(family: int, place: Any) -> None:
    deadline = time.monotonic() + _PORT_PATIENCE
    while True:
        try:
            with socket.socket(family) as alone:
                alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                return alone.bind(place)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise OnoffError(f"{place[0]} port {place[1]}: {error.strerror}; name another --port") from error
            time.sleep(0.1)


def _announce(address: str, port: int, stop: threading.Event) -> None:
    """Say where the server is, once it accepts connections."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    while not stop.wait(0.02):
        try:
            socket.create_connection((reachable, port), timeout=1).close()
        except OSError:
            continue
        shown = f"[{address}]" if ":" in address else address
        print(json.dumps({"event": "ready", "url": f"http://{shown}:{port}", "pid": os.getpid()}), flush=True)
        return


def _start(work: Any, *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread
