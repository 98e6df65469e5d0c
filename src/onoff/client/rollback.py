"""A guard against journals that were copied or rolled back: they would ask again for what was already asked.

Each part catches a fault that no other part sees:

    lock       two processes at one journal
    identity   a journal without its own lock file, or beside that of another journal: it was copied alone
    seal       a journal that was restored alone: its lock file knows a newer transaction
    inode      a journal that was copied together with its lock file, while the original goes on
    witness    a journal that was restored in place together with its lock file

The lock file `NAME.lock` bears the seal: the number of the newest transaction, and the identity of the journal. The
witness is a file in the user's cache, which backups as a rule leave out, under the journal's random identity; it bears
the same number. Both are written after the transaction has reached the disk, so they are never ahead of a journal that
was only killed, moved or rebooted. The witness may be lost or unwritable at any time: then it says nothing.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from onoff.errors import AFRESH, JournalError, JournalLocked
from onoff.files import cache_directory


class RollbackGuard:
    """Holds the lock of the journal at `path`, and seals its transactions. Raises `JournalLocked` if it is in use."""

    def __init__(self, path: Path) -> None:
        self._path, self._witness = path, -1
        self._lock = os.open(lock_beside(path), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise JournalLocked(f"{path}: another client is using this journal; wait for it to end") from None

    def seal(self, number: int, identity: str) -> None:
        """Write which transaction is the newest."""
        os.pwrite(self._lock, f"{number:020d} {identity}\n".encode(), 0)
        with suppress(OSError):
            if self._witness >= 0:
                os.pwrite(self._witness, f"{number:020d}\n".encode(), 0)

    def seal_first(self, number: int, identity: str) -> None:
        """Seal a journal that is being made. The seal is on disk afterwards: without its lock it would be refused."""
        self.seal(number, identity)
        os.fsync(self._lock)

    def read_seal(self) -> tuple[int, str]:
        """The number and the identity that were sealed last; 0 and nothing if none were."""
        number, _, identity = _text(self._lock).partition(" ")
        return _number(number), identity

    def check(self, meta: Mapping[str, str]) -> None:
        """Refuse a copy, and a state that is older than seal or witness remember; then seal it."""
        number, identity = self.read_seal()
        if meta["identity"] != identity or int(meta["inode"]) != self._path.stat().st_ino:
            raise JournalError(f"{self._path}: is a copy or a restored backup of a journal; {AFRESH}")
        with suppress(OSError, RuntimeError):
            place = cache_directory("journals")
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._witness = os.open(place / identity, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            number = max(number, _number(_text(self._witness)))
        if number > int(meta["transaction"]):
            raise JournalError(f"{self._path}: is older than what was last written; was it restored? {AFRESH}")
        self.seal(int(meta["transaction"]), identity)  # a process may have been killed between the two

    def close(self) -> None:
        """Let other processes have the journal."""
        for descriptor in (self._witness, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._witness = self._lock = -1  # the numbers may soon be those of other files


def lock_beside(path: Path) -> Path:
    """The file that seals a journal."""
    return path.with_name(path.name + ".lock")


def _text(descriptor: int) -> str:
    return os.pread(descriptor, 64, 0).decode("ascii", "replace").strip()


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
