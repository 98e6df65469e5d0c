"""Proxies for tests: the application in this process, a real `onoff proxy`, and plain web servers behind them.

async with proxied(client) as (http, queue): ...         # the application, asked without a socket
with ProxyProcess(tmp_path, urls, chain) as proxy: ...  # what setup writes, and the command; proxy.kill() is kill -9
with PlainOrigin(directory) as origin: origin.log       # what Python's own web server logged, in order
"""

from __future__ import annotations

import asyncio
import functools
import http.server
import json
import os
import signal
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from clientkit import CHAIN, client_with, faulty
from onoff import Chain
from onoff.apps.proxy.app import Application
from onoff.apps.setup import PORT, Setup
from onoff.client.client import Client
from onoff.client.feeds import Source
from onoff.client.queue import LONGEST, RequestQueue
from ports import free_port
from recordingserver import Reply
from serverprocess import OnoffProcess


@asynccontextmanager
async def proxied(client: Client, longest: int = LONGEST) -> AsyncIterator[tuple[httpx.AsyncClient, RequestQueue]]:
    """The application over a client, asked as a local program asks."""
    async with client, RequestQueue(client, longest) as queue:
        transport = httpx.ASGITransport(Application(queue))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8800") as http:
            yield http, queue


def through(world, ask, **options):
    """What `ask` gives, called with the local program's side and the queue."""
    kept = {key: options.pop(key) for key in ("longest",) if key in options}

    async def run():
        async with proxied(past(world, **options), **kept) as (http, queue):
            return await ask(http, queue)

    return asyncio.run(run())


def past(world, chain=CHAIN, **options):
    settings = {"delay": 0.001, "attempts": 2, "backoff": 0.01, "first_ever": True, **options}
    return client_with(chain, world.transport(), world.directory / "journal", promise="past", **settings)


def no_answer(_):
    """What a server does that goes away when it is asked."""
    return Reply([], close=True)


def no_frames(world):
    """What an onoff server does that goes away when it is asked for messages."""
    return faulty(world.origin, lambda request, _: None if request.method == "GET" else no_answer(request))


def true_status(answer):
    """The status of an answer after which programs would ask again: they get 424 instead."""
    assert answer.status_code == 424
    assert f"[status {answer.headers['onoff-true-status']}]" in answer.text
    assert "retry-after" not in answer.headers
    return int(answer.headers["onoff-true-status"])


def steps(queue):
    return queue.client.journal.state.step


def set_up(directory: Path, urls: Mapping[str, str], chain: Chain | None, port: int = PORT, **more: Any) -> Setup:
    """What `onoff setup` writes for these URLs, which are not asked for. The proxy makes the journal."""
    directory.mkdir()
    made = Setup(directory, {name: Source(name, url) for name, url in urls.items()}, chain=chain, port=port, **more)
    made.write()
    return made


class ProxyProcess(OnoffProcess):
    """`onoff proxy` on a free port, which stays the same when it is started again."""

    def __init__(
        self, directory: Path, urls: Mapping[str, str], chain: Chain | None, *options: str, **more: Any
    ) -> None:
        made = set_up(directory / "proxy", urls, chain, free_port(), **more)
        self.directory, self.port, self.journal = directory, made.port, made.journal
        self.stderr_file = directory / "proxy.err"
        self.words = ("proxy", "--directory", str(made.directory), "--delay", "0.01", *options)
        self.start()

    def start(self) -> None:
        """Start it (again). Returns when it answers."""
        self.url = json.loads(self.run(*self.words, errors=self.stderr_file))["url"]

    def kill(self) -> None:
        """kill -9."""
        self.stop(signal.SIGKILL)


class PlainOrigin:
    """Python's own web server over the files of a directory. `log` has the path of every request, in order."""

    def __init__(self, directory: Path) -> None:
        self.log: list[str] = []
        log = self.log

        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_request(self, *_: object) -> None:
                log.append(self.path)

            def log_message(self, *_: object) -> None:
                return

        handler = functools.partial(Handler, directory=os.fspath(directory))
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> PlainOrigin:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(60)
        self._server.server_close()
