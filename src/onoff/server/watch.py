"""Publishing from a directory: one file, one source. It is looked at again and again, which works everywhere."""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from pathlib import Path

from onoff.errors import OnoffError, StoreError
from onoff.store import Store

LOOK_SECONDS = 0.25
# A directory in which some file never rests must not hold up the others for longer than this.
PATIENCE_SECONDS = 2.0

log = logging.getLogger("onoff.watch")

Stamp = tuple[int, int, int]  # inode, size, time of the last change


def source_names(directory: Path) -> tuple[str, ...]:
    """The files in a directory, as names of sources, sorted. Hidden files are none: programs write to them first."""
    try:
        return tuple(sorted(entry.name for entry in directory.iterdir() if entry.is_file() and entry.name[0] != "."))
    except OSError as error:
        raise OnoffError(f"{directory}: cannot be watched ({error.strerror})") from error


class Watcher:
    """Publishes, as one round, the files that differ from what the store has, once the directory has come to rest.

    At rest means: no file has changed between two looks. A file that is being written is thus left alone; a file put
    in place by renaming is never seen half-written at all. A file that is gone, or too long, leaves its source's
    message as it was.
    """

    def __init__(self, directory: Path, store: Store) -> None:
        self._directory, self._store = directory, store
        self._before: dict[int, Stamp] = {}
        self._settled: dict[int, Stamp] = {}  # files that need no look: published, or reported as unusable
        self._waiting_since: float | None = None

    def look(self) -> int | None:
        """Look once; publish what is ready, and return the round if there was anything."""
        now = self._stamps()
        resting = {source for source, stamp in now.items() if self._before.get(source) == stamp}
        changed = {source for source, stamp in now.items() if self._settled.get(source) != stamp}
        self._before = now
        if not changed:
            self._waiting_since = None
            return None
        if self._waiting_since is None:
            self._waiting_since = time.monotonic()
        if not changed <= resting and time.monotonic() - self._waiting_since < PATIENCE_SECONDS:
            return None
        return self._publish({source: now[source] for source in changed & resting})

    def run(self, stop: threading.Event) -> None:
        """Look again and again until `stop` is set. A store that cannot be reached is tried again."""
        while not stop.wait(LOOK_SECONDS):
            try:
                self.look()
            except StoreError as error:
                log.warning("not published yet: %s", error)
            except OSError as error:
                log.warning("%s: %s", self._directory, error)

    def _publish(self, candidates: dict[int, Stamp]) -> int | None:
        kept = self._store.changes(0).messages
        messages: dict[int, bytes] = {}
        settled: dict[int, Stamp] = {}
        for source, expected in candidates.items():
            data = self._read(source, expected)
            if data is None:
                continue
            settled[source] = expected
            if len(data) > self._store.catalogue.length:
                file, most = self._directory / self._store.catalogue.names[source], self._store.catalogue.length
                log.warning("%s: not published: %d bytes, --length is %d", file, expected[1], most)
            elif source not in kept or kept[source].data != data:
                messages[source] = data
        number = self._store.publish(messages) if messages else None
        self._settled |= settled
        return number

    def _read(self, source: int, expected: Stamp) -> bytes | None:
        """The file's content if it is still the file that was at rest; at most one byte more than fits."""
        try:
            with open(self._directory / self._store.catalogue.names[source], "rb") as stream:
                data = stream.read(self._store.catalogue.length + 1)
                return data if _stamp(os.fstat(stream.fileno())) == expected else None
        except OSError:
            return None

    def _stamps(self) -> dict[int, Stamp]:
        stamps: dict[int, Stamp] = {}
        with os.scandir(self._directory) as entries:
            for entry in entries:
                source = self._store.catalogue.index.get(entry.name)
                if source is None:
                    continue
                try:
                    found = entry.stat()
                except FileNotFoundError:  # gone since it was listed
                    continue
                if stat.S_ISREG(found.st_mode):
                    stamps[source] = _stamp(found)
        return stamps


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_ino, found.st_size, found.st_mtime_ns
