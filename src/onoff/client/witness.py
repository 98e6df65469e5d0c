"""A witness of a journal: a tiny file elsewhere that knows the number of the journal's newest transaction.

A journal restored together with its lock is as old as its lock. The witness lies in the user's cache, which backups as
a rule leave out, under the journal's random identity: a journal that is older than its witness was restored. The
witness is written after the journal's own transaction has reached the disk, so it is never ahead of a journal that was
only killed, moved or rebooted. It may be lost or unwritable at any time: then it says nothing and is made anew.
"""

from __future__ import annotations

import os
from contextlib import suppress

from onoff.files import cache_directory


class Witness:
    """What is remembered of the journal with this identity. No method raises."""

    def __init__(self, identity: str) -> None:
        self._file = -1
        with suppress(OSError, RuntimeError):
            place = cache_directory("journals")
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(place / identity, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)

    def newest(self) -> int:
        """The number of the newest transaction that was told; 0 if nothing is remembered."""
        with suppress(OSError):
            words = os.pread(self._file, 64, 0).decode("ascii", "replace").strip()
            return int(words) if words.isdecimal() else 0
        return 0

    def tell(self, number: int) -> None:
        """Remember the newest transaction."""
        with suppress(OSError):
            os.pwrite(self._file, f"{number:020d}\n".encode(), 0)

    def close(self) -> None:
        """Let the file go."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
