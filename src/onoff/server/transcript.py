"""The transcript: what an adversary at the server would keep, one JSON line for each query.

A line {"catalogue": [names]} says in which order the sources of the lines below it are numbered.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from onoff.errors import OnoffError
from onoff.files import told
from onoff.wire import Query

_BEGINNINGS = (b'{"time": ', b'{"catalogue": ')
_BLOCK = 64 * 1024


class Transcript:
    """A file to which several processes append lines, each of them whole or not at all.

    A line that the disk took only in part is cut off again, by the process that wrote it or, if that was killed, by the
    next one that writes. Its query was not answered, since answers come after their line.
    """

    def __init__(self, file: Path, names: Sequence[str] = ()) -> None:
        """Open or make the file. `names`, if given, are the catalogue's, with which every file then begins."""
        self._file, self._names = file, names
        with self._errors():
            self._descriptor = self._open()
            try:
                with self._locked():
                    self._end_of_lines()
            except BaseException:
                os.close(self._descriptor)
                raise

    def begin(self, names: Sequence[str]) -> None:
        """Write down the order of the catalogue, once for all worker processes."""
        with self._errors():
            self._append({"catalogue": names})

    def record(self, query: Query, client: str | None) -> None:
        """Append the line of a query. Raises `OSError` if it could not be written."""
        line = {"time": time.time(), "stream": query.stream, "step": query.step, "sources": query.sources}
        self._append({**line, "held": query.held, "client": client})

    def close(self) -> None:
        os.close(self._descriptor)

    def _append(self, line: dict[str, object]) -> None:
        self._follow()
        with self._locked():
            end, data = self._end_of_lines(), _encoded(line)
            if self._names and end == 0 and "catalogue" not in line:
                data = _encoded({"catalogue": self._names}) + data
            try:
                if os.write(self._descriptor, data) != len(data):
                    raise OSError(errno.ENOSPC, "only a part of the line was written", str(self._file))
            except BaseException:
                os.ftruncate(self._descriptor, end)
                raise

    def _open(self) -> int:
        return os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)

    def _follow(self) -> None:
        """Begin a new file if ours was moved away or deleted: nobody would find what is written to it."""
        try:
            if os.path.samestat(os.stat(self._file), os.fstat(self._descriptor)):
                return
        except FileNotFoundError:
            pass
        before, self._descriptor = self._descriptor, self._open()
        os.close(before)

    def _end_of_lines(self) -> int:
        """Where the next line begins. A last line that has no end is cut off."""
        size = end = os.lseek(self._descriptor, 0, os.SEEK_END)
        while end > 0 and os.pread(self._descriptor, 1, end - 1) != b"\n":
            begin = max(0, end - _BLOCK)
            end = begin + os.pread(self._descriptor, end - begin, begin).rfind(b"\n") + 1
        if end < size:
            torn = os.pread(self._descriptor, max(map(len, _BEGINNINGS)), end)
            if not any(torn.startswith(one) or one.startswith(torn) for one in _BEGINNINGS):
                raise OnoffError(f"{self._file}: is not a transcript, its last line has no end; name another file")
            os.ftruncate(self._descriptor, end)
        return end

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            error.filename = str(self._file)
            raise OnoffError(f"the transcript cannot be written: {told(error)}") from error


def _encoded(line: dict[str, object]) -> bytes:
    return (json.dumps(line) + "\n").encode()
