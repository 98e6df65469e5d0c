"""A real `onoff page` for tests, on a free port.

with PageProcess() as page:
    page.post("/ask", source="news", private=True)     # a click; the answer
    page.state()                                        # what a browser would be shown now
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from onoff import Chain
from ports import free_port

ONOFF = Path(sys.executable).with_name("onoff")
CHAIN = Chain([[0.8, 0.15, 0.05], [0.1, 0.6, 0.3], [0.5, 0.0, 0.5]], ["a", "b", "c"])
FULL = (0, 1, 2)


class PageProcess:
    def __init__(self, *options: str, directory: Path | None = None) -> None:
        """Its temporary files are in `directory`: a page that is killed leaves them."""
        self.options, self.port = options, str(free_port())
        self.environment = {**os.environ, "TMPDIR": str(directory)} if directory else None
        self.start()

    def start(self) -> None:
        """Start it (again), on the same port. Returns when it answers."""
        command = [str(ONOFF), "page", "--no-open", "--port", self.port, *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self.environment)
        line = self.process.stdout.readline()
        assert line, "the page did not start"
        self.url = re.search(r"http://127\.0\.0\.1:\d+", line).group()
        self.http = httpx.Client(base_url=self.url, timeout=180)

    def post(self, path: str, **body: object) -> httpx.Response:
        return self.http.post(path, json=body)

    def state(self) -> dict[str, object]:
        with self.http.stream("GET", "/events") as stream:
            return next(json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: "))

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Ctrl-C; the exit code."""
        self.http.close()
        self.process.send_signal(number)
        code = self.process.wait(timeout=180)
        self.process.stdout.close()
        return code

    def __enter__(self) -> PageProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


async def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Let others go on until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.01)
