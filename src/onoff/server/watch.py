"""Publishing from a directory: one file for each source. The directory is polled, which works on every file system.

Only files of the directory itself are published. A symbolic link could lead to any file of the machine that the server
may read: one that would name a source is an error, one that is put there later is reported and left alone.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from onoff.errors import OnoffError, StoreError
from onoff.server.store import START, Store

LOOK_SECONDS = 0.25
# A directory in which some file never rests must not hold up the others for longer than this.
PATIENCE_SECONDS = 2.0

log = logging.getLogger("onoff.watch")

Stamp = tuple[int, int, int, int]  # inode, size, time of the last change of the content, and of anything


def source_names(directory: Path) -> tuple[str, ...]:
    """List the files in a directory as names of sources, sorted, without hidden files: programs write to them first."""
    try:
        with os.scandir(directory) as entries:
            visible = sorted((entry for entry in entries if entry.name[0] != "."), key=lambda entry: entry.name)
    except OSError as error:
        raise OnoffError(f"{directory}: cannot be watched ({error.strerror})") from error
    for entry in visible:
        if entry.is_symlink():
            raise OnoffError(
                f"{entry.path}: is a symbolic link, which --watch does not follow; put the file itself there"
            )
    return tuple(entry.name for entry in visible if entry.is_file(follow_symlinks=False))


class Watcher:
    """Publishes, as one round, the files that differ from what the store has, once the directory has come to rest.

    It is at rest if no file has changed between two looks. So a file that is being written is left alone. A file put
    in place by renaming is never seen half-written at all. A file that is gone, too long, unreadable or a link leaves
    its source's message as it was; all but a file that is gone are reported, once.
    """

    def __init__(self, directory: Path, store: Store) -> None:
        self._directory, self._store = directory, store
        self._before: dict[int, Stamp] = {}
        self._settled: dict[int, Stamp] = {}  # files that need no look: published, or too long
        self._waiting_since: float | None = None
        self._reported: dict[str, str] = {}
        self._point, self._digests = START, dict[int, bytes]()  # of what the store has

    def look(self) -> int | None:
        """Look once, publish what is ready, and return the round if anything was."""
        now, before = self._stamps(), self._before
        self._before = now
        self._follow_store()
        changed = {source: stamp for source, stamp in now.items() if self._settled.get(source) != stamp}
        rested = {source: stamp for source, stamp in changed.items() if before.get(source) == stamp}
        if not changed:
            self._waiting_since = None
            return None
        if self._waiting_since is None:
            self._waiting_since = time.monotonic()
        if len(rested) < len(changed) and time.monotonic() - self._waiting_since < PATIENCE_SECONDS:
            return None
        return self._publish(rested)

    def run(self, stop: threading.Event) -> None:
        """Look again and again until `stop` is set. A store that cannot be reached is tried again."""
        while not stop.wait(LOOK_SECONDS):
            try:
                self.look()
                self._reported.pop("", None)
            except StoreError as error:
                self._report("", f"not published yet: {error}")
            except OSError as error:
                self._report("", f"cannot be watched at the moment ({error.strerror})")

    def _stamps(self) -> dict[int, Stamp]:
        stamps: dict[int, Stamp] = {}
        with os.scandir(self._directory) as entries:
            for entry in entries:
                source = self._store.catalogue.index.get(entry.name)
                if source is None:
                    continue
                with suppress(FileNotFoundError):  # gone since it was listed
                    found = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(found.st_mode):
                        stamps[source] = _stamp(found)
                    else:
                        self._report(entry.name, "not published, because it is a link or no file")
        return stamps

    def _follow_store(self) -> None:
        """Learn what the store has. If it was emptied or restored, look at every file again."""
        changes = self._store.changes(self._point)
        if changes.anew and self._point != START:
            self._digests, self._settled = {}, {}
        self._point = changes.point
        self._digests |= {source: sha256(message.data).digest() for source, message in changes.messages.items()}

    def _publish(self, rested: dict[int, Stamp]) -> int | None:
        names, most = self._store.catalogue.names, self._store.catalogue.length
        messages: dict[int, bytes] = {}
        settled: dict[int, Stamp] = {}
        for source, stamp in rested.items():
            data = self._read(names[source], stamp)
            if data is None:
                continue
            settled[source] = stamp
            if len(data) > most:
                self._report(names[source], f"not published: {stamp[1]} bytes, --length is {most}")
            elif self._digests.get(source) != sha256(data).digest():
                messages[source] = data
        number = self._store.publish(messages) if messages else None
        self._settled |= settled
        for source in messages:
            self._reported.pop(names[source], None)
        return number

    def _read(self, name: str, stamp: Stamp) -> bytes | None:
        """Read a file, one byte more than fits at most. None if it is not the file that was at rest."""
        try:
            # A link put there a moment ago is not followed, and a pipe does not keep us waiting for its writer.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(self._directory / name, flags), "rb") as file:
                before, data = _stamp(os.fstat(file.fileno())), file.read(self._store.catalogue.length + 1)
                return data if before == stamp == _stamp(os.fstat(file.fileno())) else None
        except FileNotFoundError:
            return None
        except OSError as error:
            self._report(name, f"not published: cannot be read ({error.strerror})")
            return None

    def _report(self, name: str, words: str) -> None:
        """Report what is wrong with a file, or with the directory, once."""
        if self._reported.get(name) != words:
            self._reported[name] = words
            log.warning("%s: %s", self._directory / name, words)


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
