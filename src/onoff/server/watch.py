"""Publishing from a directory: one file for each source. The directory is polled, which works on every file system.

Only files of the directory itself are published. A symbolic link could lead to any file of the machine that the server
may read: one that is there at the start is an error, one that is put there later is reported and left alone. The path
of the directory may lead through links when the server starts. A link that takes the place of any part of it later is
not followed either.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onoff.errors import OnoffError, StoreError
from onoff.server.store import Store
from onoff.wire import Catalogue

LOOK_SECONDS = 0.25
# A directory in which some file never rests must not hold up the others for longer than this.
PATIENCE_SECONDS = 2.0
# Files that have changed are kept open from one look to the next, this many of them.
HELD_OPEN = 256

# To pass through a directory one need not be able to list it; systems without O_PATH ask for that.
_THROUGH = getattr(os, "O_PATH", os.O_RDONLY)

log = logging.getLogger("onoff.watch")

Stamp = tuple[int, int, int]  # inode, size, time of the last change


def source_names(directory: Path) -> tuple[str, ...]:
    """The files in a directory as names of sources, sorted. Hidden files are left out: programs write to them first."""
    try:
        with os.scandir(directory) as entries:
            visible = sorted((entry for entry in entries if entry.name[0] != "."), key=lambda entry: entry.name)
            for entry in visible:
                if entry.is_symlink():
                    raise _a_link(directory / entry.name)
            return tuple(entry.name for entry in visible if entry.is_file(follow_symlinks=False))
    except OSError as error:
        raise OnoffError(f"{directory}: cannot be watched ({error.strerror})") from error


def check_files(directory: Path, catalogue: Catalogue) -> None:
    """Refuse a directory with files that would never be published: links, and messages that are too long."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name not in catalogue.index:
                    continue
                if entry.is_symlink():
                    raise _a_link(directory / entry.name)
                size = entry.stat(follow_symlinks=False).st_size if entry.is_file(follow_symlinks=False) else 0
                if size > catalogue.length:
                    raise OnoffError(
                        f"{directory / entry.name}: has {size} bytes, and the longest message of this store "
                        f"{catalogue.length}: shorten it, or start a new store with a larger --length"
                    )
    except OSError as error:
        raise OnoffError(f"{directory}: cannot be watched ({error.strerror})") from error


def _a_link(file: Path) -> OnoffError:
    return OnoffError(f"{file}: is a symbolic link, which --watch does not follow; put the file itself there")


class Watcher:
    """Publishes, as one round, the files that differ from what the store has, once the directory has come to rest.

    It is at rest if no file has changed between two looks. So a file that is being written is left alone. A file put
    in place by renaming is never seen half-written at all. It is kept open, and is published even if another one takes
    its name before the next look, once it has not changed itself. A file that is gone, too long or a link leaves its
    source's message as it was, and is reported.
    """

    def __init__(self, directory: Path, store: Store) -> None:
        self._directory, self._store = directory, store
        self._place = Path(os.path.realpath(directory))
        self._trouble: str | None = None  # of the directory, as it was reported
        self._before: dict[int, Stamp] = {}
        self._settled: dict[int, Stamp] = {}  # files that need no look: published, or reported as unusable
        self._held: dict[int, tuple[int, Stamp]] = {}  # open files, as they were at the last look
        self._waiting_since: float | None = None
        self._restless_since: dict[int, float] = {}
        self._reported: dict[int, object] = {}

    def look(self) -> int | None:
        """Look once, publish what is ready, and return the round if anything was."""
        with _opened(self._place) as directory:
            now = self._stamps(directory)
            changed = {source for source, stamp in now.items() if self._settled.get(source) != stamp}
            ready = {source: now[source] for source in changed if self._before.get(source) == now[source]}
            # What was there at the last look and has not changed since, though another file has its name by now.
            ready |= {s: stamp for s, (file, stamp) in self._held.items() if s in changed and _stamp_of(file) == stamp}
            try:
                return self._when_rested(directory, changed, ready)
            finally:
                self._before = now
                self._hold(directory, changed)

    def close(self) -> None:
        """Let go of open files."""
        for file, _ in self._held.values():
            os.close(file)
        self._held = {}

    def run(self, stop: threading.Event) -> None:
        """Look again and again until `stop` is set. A store that cannot be reached is tried again."""
        while not stop.wait(LOOK_SECONDS):
            try:
                self.look()
                self._say_of_directory(self._moved())
            except StoreError as error:
                log.warning("not published yet: %s", error)
            except OSError as error:
                self._say_of_directory(f"cannot be watched at the moment ({error.strerror})")
        self.close()

    def _moved(self) -> str | None:
        """That the path leads elsewhere by now, if it does."""
        if Path(os.path.realpath(self._directory)) == self._place:
            return None
        return f"leads elsewhere now; {self._place} is watched until the server is started again"

    def _say_of_directory(self, words: str | None) -> None:
        """Report what is wrong with the directory, once."""
        if words is not None and words != self._trouble:
            log.warning("%s: %s", self._directory, words)
        self._trouble = words

    def _when_rested(self, directory: int, changed: set[int], ready: dict[int, Stamp]) -> int | None:
        if not changed:
            self._waiting_since, self._restless_since = None, {}
            return None
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        restless = changed - ready.keys()
        self._restless_since = {source: self._restless_since.get(source, now) for source in restless}
        if restless:
            if now - self._waiting_since < PATIENCE_SECONDS:
                return None
            for source in (s for s, since in self._restless_since.items() if now - since >= PATIENCE_SECONDS):
                self._report(source, "restless", "not published, because it is written to again and again; rename it")
        return self._publish(directory, ready)

    def _publish(self, directory: int, candidates: dict[int, Stamp]) -> int | None:
        kept = self._store.changes(0).messages
        messages: dict[int, bytes] = {}
        settled: dict[int, Stamp] = {}
        for source, expected in candidates.items():
            data = self._read(directory, source, expected)
            if data is None:
                continue
            settled[source] = expected
            if len(data) > self._store.catalogue.length:
                most = self._store.catalogue.length
                self._report(source, expected, f"not published: {expected[1]} bytes, --length is {most}")
            elif source not in kept or kept[source].data != data:
                messages[source] = data
        number = self._store.publish(messages) if messages else None
        self._settled |= settled
        for source in messages:
            self._reported.pop(source, None)
        return number

    def _read(self, directory: int, source: int, expected: Stamp) -> bytes | None:
        """The file's content if it is still the file that was at rest; at most one byte more than fits."""
        most = self._store.catalogue.length + 1
        if source in self._held and self._held[source][1] == expected:
            return _content(self._held[source][0], expected, most)
        file = _open_file(directory, self._store.catalogue.names[source])
        if file is None:
            return None
        try:
            return _content(file, expected, most)
        finally:
            os.close(file)

    def _hold(self, directory: int, changed: set[int]) -> None:
        """Keep the files that were not published now open until the next look, and no others."""
        self.close()
        for source in sorted(changed):
            if len(self._held) == HELD_OPEN:
                break
            if self._settled.get(source) != self._before[source]:
                file = _open_file(directory, self._store.catalogue.names[source])
                if file is not None:
                    self._held[source] = file, _stamp_of(file)

    def _stamps(self, directory: int) -> dict[int, Stamp]:
        stamps: dict[int, Stamp] = {}
        with os.scandir(directory) as entries:
            for entry in entries:
                source = self._store.catalogue.index.get(entry.name)
                if source is None:
                    continue
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # gone since it was listed
                    continue
                if stat.S_ISREG(found.st_mode):
                    stamps[source] = _stamp(found)
                else:
                    what = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "not a file"
                    self._report(source, (found.st_ino, what), f"not published, because it is {what}")
        return stamps

    def _report(self, source: int, what: object, words: str) -> None:
        """Report a file, once."""
        if self._reported.get(source) != what:
            self._reported[source] = what
            log.warning("%s: %s", self._directory / self._store.catalogue.names[source], words)


@contextmanager
def _opened(place: Path) -> Iterator[int]:
    """A descriptor of the directory at this absolute path: all that one look looks at and reads is in the same one.

    No part of the path may be a link: each is opened in the one before. `O_NOFOLLOW` alone looks at the last part.
    """
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(place.anchor, _THROUGH | flags)
    try:
        for number, part in enumerate(place.parts[1:], 2):
            how = os.O_RDONLY if number == len(place.parts) else _THROUGH
            above, descriptor = descriptor, os.open(part, how | flags, dir_fd=descriptor)
            os.close(above)
        yield descriptor
    finally:
        os.close(descriptor)


def _open_file(directory: int, name: str) -> int | None:
    """A file of the directory, opened; a link, also one that was put there a moment ago, is not followed."""
    try:
        # A pipe must not keep us waiting for its writer.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(name, flags, dir_fd=directory)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    return None


def _content(file: int, expected: Stamp, most: int) -> bytes | None:
    """The content of an open file if it is the one that is expected, before and after it was read."""
    if _stamp_of(file) != expected:
        return None
    parts: list[bytes] = []
    place = 0
    while place < most and (part := os.pread(file, most - place, place)):
        parts.append(part)
        place += len(part)
    return b"".join(parts) if _stamp_of(file) == expected else None


def _stamp_of(file: int) -> Stamp:
    return _stamp(os.fstat(file))


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_ino, found.st_size, found.st_mtime_ns
