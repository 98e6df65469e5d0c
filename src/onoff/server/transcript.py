"""The transcript: what an adversary at the server would keep, one JSON line for each query.

A line {"catalogue": [names]} says in which order the sources of the lines below it are numbered.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from onoff.wire import Query


class Transcript:
    """A file to which several processes append whole lines."""

    def __init__(self, file: Path) -> None:
        self._descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def begin(self, names: Sequence[str]) -> None:
        """Write down the order of the catalogue, once for all worker processes."""
        self._append({"catalogue": names})

    def record(self, query: Query, client: str | None) -> None:
        line = {"time": time.time(), "stream": query.stream, "step": query.step, "sources": query.sources}
        self._append({**line, "client": client})

    def _append(self, line: dict[str, object]) -> None:
        data = (json.dumps(line) + "\n").encode()
        # One write of a file opened for appending: lines of several processes do not mix.
        if os.write(self._descriptor, data) != len(data):
            raise OSError(errno.ENOSPC, "only a part of the line was written")

    def close(self) -> None:
        os.close(self._descriptor)
