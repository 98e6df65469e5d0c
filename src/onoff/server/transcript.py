"""The transcript: what an adversary at the server would keep, one JSON line for each query."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path

from onoff.wire import Query


class Transcript:
    """A file to which several processes append whole lines."""

    def __init__(self, file: Path) -> None:
        self._descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def record(self, query: Query, client: str | None) -> None:
        line = {"time": time.time(), "step": query.step, "sources": query.sources, "client": client}
        data = (json.dumps(line) + "\n").encode()
        # One write of a file opened for appending: lines of several processes do not mix.
        if os.write(self._descriptor, data) != len(data):
            raise OSError(errno.ENOSPC, "only a part of the line was written")

    def close(self) -> None:
        os.close(self._descriptor)
