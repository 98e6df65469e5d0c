"""A real `onoff page` for tests, on a free port.

with PageProcess() as page:
    page.post("/ask", source="news", private=True)     # a click; the answer
    page.state()                                        # what a browser would be shown now
"""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import httpx

from onoff import Chain
from ports import free_port
from serverprocess import OnoffProcess

CHAIN = Chain([[0.8, 0.15, 0.05], [0.1, 0.6, 0.3], [0.5, 0.0, 0.5]], ["a", "b", "c"])
FULL = (0, 1, 2)


class PageProcess(OnoffProcess):
    usual_end = signal.SIGINT  # Ctrl-C

    def __init__(self, *options: str, directory: Path | None = None) -> None:
        """Its temporary files are in `directory`: a page that is killed leaves them."""
        temporary = {"TMPDIR": str(directory)} if directory else {}
        line = self.run("page", "--no-open", "--port", str(free_port()), *options, **temporary)
        self.url = re.search(r"http://127\.0\.0\.1:\d+", line).group()
        self.http = httpx.Client(base_url=self.url, timeout=180)

    def post(self, path: str, **body: object) -> httpx.Response:
        return self.http.post(path, json=body)

    def state(self) -> dict[str, object]:
        with self.http.stream("GET", "/events") as stream:
            return next(json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: "))

    def stop(self, number: signal.Signals | None = None) -> int:
        self.http.close()
        return super().stop(number)
