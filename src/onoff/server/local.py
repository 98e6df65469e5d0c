"""`onoff serve` as a process of its own on a free loopback port, with one round published.

The demonstration and the page talk to it over HTTP as they would to any server.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from onoff.errors import OnoffError
from onoff.server.tokens import hash_line, new_token
from onoff.wire import Catalogue, encode_publication

ONOFF = [sys.executable, "-P", "-m", "onoff"]  # this very command, wherever it is installed
STOP_SECONDS = 20


class LocalServer:
    """Its files are in `directory`. It may be stopped, or be killed, and started again: same port, same messages."""

    def __init__(self, directory: Path, messages: Mapping[str, bytes], length: int) -> None:
        self.catalogue = Catalogue(tuple(messages), length)
        self.transcript, self._log = directory / "transcript", directory / "server.log"
        self._messages, self._token, self._port = messages, new_token(), 0
        self._options = ["--store", str(directory / "messages.db"), "--length", str(length)]
        self._options += [part for name in messages for part in ("--source", name)]
        self._options += ["--transcript", str(self.transcript)]
        self._process: subprocess.Popen[str] | None = None
        self._lock, self._closed = threading.Lock(), False
        self.url = ""

    @property
    def pid(self) -> int | None:
        """The number of its process, while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Return when it answers; the first time, publish the messages."""
        with self._lock:
            if not self._closed:
                self._end()
                self._begin()

    def stop(self) -> None:
        """End it, if it runs, and wait for its end."""
        with self._lock:
            self._end()

    def close(self) -> None:
        """Stop it for good, whatever other threads are about to do."""
        with self._lock:
            self._closed = True
            self._end()

    def _begin(self) -> None:
        command = [*ONOFF, "serve", "--port", str(self._port), *self._options]
        environment = {**os.environ, "ONOFF_PUBLISHERS": hash_line(self._token)}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        ready = _output(self._process).readline()
        if not ready:
            raise OnoffError(f"the server did not start: {self._log.read_text(errors='replace').strip()}")
        self.url = json.loads(ready)["url"]
        if not self._port:
            self._port = int(self.url.rpartition(":")[2])
            self.publish(self._messages)

    def _end(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _output(self._process).close()
        self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def publish(self, messages: Mapping[str, bytes]) -> None:
        """Publish a round of these messages."""
        import httpx

        body = encode_publication(self.catalogue, messages)
        headers = {"authorization": f"Bearer {self._token}", "content-type": "application/json"}
        try:
            # Plain HTTP on this machine: without `verify` no certificates are loaded, which would take 30 ms.
            reply = httpx.post(f"{self.url}/v1/rounds", content=body, headers=headers, trust_env=False, verify=False)
            reply.raise_for_status()
        except httpx.HTTPError as error:
            raise OnoffError(f"the server did not take the messages: {error}") from None


def _output(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout
