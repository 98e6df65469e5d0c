"""The transcript: what an adversary at the server would keep, one JSON line for each query.

A line {"catalogue": [names]} says in which order the sources of the lines below it are numbered.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

from onoff.errors import OnoffError
from onoff.files import append_line, error_sentence
from onoff.wire import QueryMessage

_HEAD = b'{"'  # how a line of a transcript begins


class Transcript:
    """A file to which several processes append lines, each of them whole or not at all.

    A line that the disk took only in part is cut off again, by the process that wrote it or, if that was killed, by the
    next one that writes. Its query was not answered, since answers come after their line. A file that was moved away or
    deleted is begun anew.
    """

    def __init__(self, file: Path, names: Sequence[str] = ()) -> None:
        """Open or make the file. `names`, if given, are the catalogue's; every file then begins with them."""
        self._file = file
        self._first = _encode({"catalogue": names}) if names else b""
        self._try(b"")

    def begin(self, names: Sequence[str]) -> None:
        """Write down the order of the catalogue, once for all worker processes."""
        self._try(_encode({"catalogue": names}))

    def record(self, query: QueryMessage, client: str | None) -> None:
        """Append the line of a query. Raises `OSError` if it could not be written."""
        line = {"time": time.time(), "stream": query.stream, "step": query.step, "sources": query.sources}
        line |= {"held": query.held, "client": client}
        append_line(self._file, _encode(line), head=_HEAD, first=self._first, sync=False)

    def _try(self, line: bytes) -> None:
        try:
            append_line(self._file, line, head=_HEAD, sync=False)
        except OSError as error:
            error.filename = str(self._file)
            raise OnoffError(f"the transcript cannot be written: {error_sentence(error)}") from error


def _encode(line: dict[str, object]) -> bytes:
    return (json.dumps(line) + "\n").encode()
