"""A real `onoff serve` for tests: on a free port, with its files in a directory of the test.

with ServerProcess(tmp_path, names=["news", "sports"], length=64) as server:
    server.publish({"news": b"hello", "sports": b"world"})     # one round
    frames = server.ask([0, 1], step=1)                         # checked frames
    server.kill(); server.start()                               # kill -9; same port, same store
    server.transcript()                                         # the queries it has seen
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Self

import httpx

from clikit import ONOFF
from onoff.server.tokens import hash_line, new_token
from onoff.wire import Catalogue, Frame, QueryMessage, decode_answer, encode_publication
from ports import free_port
from waiting import within


class OnoffProcess:
    """A command that goes on until it is told to stop, in a process of its own. A subclass says how it ends."""

    usual_end = signal.SIGTERM

    def run(self, *words: str, errors: Path | None = None, **environment: str) -> str:
        """Start it (again); the line that it prints when it answers."""
        command, environment = [str(ONOFF), *words], {**os.environ, **environment}
        with errors.open("a") if errors else nullcontext() as stderr:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment)
        line = self.process.stdout.readline()
        assert line, f"it ended: {errors and errors.read_text()}"
        return line

    def stop(self, number: signal.Signals | None = None) -> int:
        """End it, unless it has ended; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number or self.usual_end)
        code = self.process.wait(timeout=180)
        self.process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class ServerProcess(OnoffProcess):
    """The server as its operators run it. `store` may be a redis:// URL; `options` are added to the command."""

    def __init__(
        self,
        directory: Path,
        *options: str,
        names: Sequence[str] = ("news", "sports", "science", "wetter süd"),
        length: int = 64,
        store: str | None = None,
    ) -> None:
        self.directory = directory
        self.catalogue = Catalogue(tuple(names), length)
        self.token = new_token()
        self.transcript_file = directory / "transcript.jsonl"
        self.stderr_file = directory / "stderr.txt"
        self.options = ["--store", store or str(directory / "messages.db"), "--length", str(length)]
        self.options += [part for name in names for part in ("--source", name)]
        self.options += ["--transcript", str(self.transcript_file), *options]
        self.port = free_port()  # the same one when it is started again
        self.start()

    def start(self) -> None:
        """Start it (again). Returns when it answers."""
        words = ("serve", "--port", str(self.port), *self.options)
        ready = json.loads(self.run(*words, errors=self.stderr_file, ONOFF_PUBLISHERS=hash_line(self.token)))
        assert ready["event"] == "ready"
        self.url = ready["url"]
        self.http = httpx.Client(base_url=self.url, timeout=180)

    def workers(self) -> list[int]:
        """The processes that answer."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [pid for pid in map(int, children) if "multiprocessing.spawn" in _command_line(pid)]

    def kill_worker(self) -> None:
        """kill -9 of one process that answers, and wait until another one is there."""
        before = self.workers()
        os.kill(before[0], signal.SIGKILL)
        within(60, lambda: set(self.workers()) - set(before) != set())

    def kill(self) -> None:
        """kill -9, and wait until the workers have noticed."""
        workers = self.workers()
        self.stop(signal.SIGKILL)
        within(180, lambda: not any(_command_line(pid) for pid in workers))

    def stop(self, number: signal.Signals | None = None) -> int:
        self.http.close()
        return super().stop(number)

    @property
    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def publish(self, messages: Mapping[str, bytes]) -> int:
        """Publish a round over HTTP; its number."""
        body = encode_publication(self.catalogue, messages)
        headers = {**self.authorization, "Content-Type": "application/json"}
        response = self.http.post("/v1/rounds", content=body, headers=headers)
        assert response.status_code == 200, response.text
        return response.json()["round"]

    def query(
        self, sources: Sequence[int], step: int = 1, stream: str | None = None, held: Sequence[int] = ()
    ) -> httpx.Response:
        """Ask for a set, as a new stream unless one is given."""
        stream = stream or secrets.token_hex(16)
        body = QueryMessage(self.catalogue.fingerprint, stream, step, tuple(sources), tuple(held)).encode()
        return self.http.post("/v1/query", content=body, headers={"Content-Type": "application/json"})

    def ask(self, sources: Sequence[int], step: int = 1, stream: str | None = None) -> tuple[Frame, ...]:
        response = self.query(sources, step, stream)
        assert response.status_code == 200, response.text
        return decode_answer(self.catalogue, sources, response.content)

    def transcript(self) -> list[dict[str, object]]:
        lines = map(json.loads, self.transcript_file.read_text().splitlines())
        return [line for line in lines if "step" in line]  # all but the catalogue's


def _command_line(pid: int) -> str:
    """Empty for a process that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
