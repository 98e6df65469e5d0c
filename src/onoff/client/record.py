"""A record for auditors: law and encoders of every OFF step of the promise `past`, noted before the step is begun.

One JSON object a line. It holds no secret: no request, no context, no query.

    {"format": "onoff-law", "version": 2, "stream": hex, "step": t, "place": [...], "joined": [...], "charge": hex,
     "law": {...}}

`place`, `joined` and `charge` are those of the state in which the step was prepared (`onoff.everyday.Everyday`), and
`law` is `Step.as_dict`. A step that was recorded but not begun, because the client was killed, is recorded again: the
last line of a step counts.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from onoff.errors import OnoffError
from onoff.files import told

if TYPE_CHECKING:
    from onoff.everyday import Step

BLOCK = 1 << 16
PATIENCE = 5.0  # seconds for the lock of another program
HEAD = b'{"format": "onoff-law", '  # how every line begins


def law_line(stream: str, number: int, step: Step) -> bytes:
    """The line of a prepared step."""
    state = step.state
    line = {
        "format": "onoff-law",
        "version": 2,
        "stream": stream,
        "step": number,
        "place": list(state.place),
        "joined": list(state.joined),
        "charge": state.charge.hex(),
        "law": step.as_dict(),
    }
    return json.dumps(line).encode() + b"\n"


def append(file: Path, line: bytes) -> None:
    """Append a line, whole or not at all; it is on disk afterwards. Half a line that a crash has left is cut off.

    A file that is not a record, such as a chain or the journal itself, is refused and stays as it is.
    """
    try:
        descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            begin = os.pread(descriptor, len(HEAD), 0)
            if begin != HEAD[: len(begin)]:
                raise OnoffError(f"{file}: is not a record of laws, and nothing was asked: name another file")
            _locked(descriptor, file)  # only now: the lock of the journal itself is never free
            end = _end_of_lines(descriptor)
            try:
                written = 0
                while written < len(line):
                    written += os.pwrite(descriptor, line[written:], end + written)
                os.fsync(descriptor)
            except BaseException:
                os.ftruncate(descriptor, end)
                raise
        finally:
            os.close(descriptor)
    except OSError as error:
        raise OnoffError(f"the law of a step cannot be recorded, and nothing was asked: {told(error)}") from None


def _locked(descriptor: int, file: Path) -> None:
    """Lock the file. Who appends a line holds it for milliseconds; who holds it for seconds is waited for no longer."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise OnoffError(
                    f"{file}: another program keeps it locked, and nothing was asked: end that program, or name "
                    "another file (--record)"
                ) from None
            time.sleep(0.01)


def _end_of_lines(descriptor: int) -> int:
    """Where the last whole line ends; what stands behind it is cut off."""
    end = size = os.fstat(descriptor).st_size
    while end > 0:
        begin = max(0, end - BLOCK)
        found = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        end = begin + found + 1 if found >= 0 else begin
        if found >= 0:
            break
    if end < size:
        os.ftruncate(descriptor, end)
    return end
