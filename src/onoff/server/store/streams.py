"""Which step each stream asked for last: what a journal that was restored from a backup cannot know.

A client draws the query of a step once and repeats its bytes for ever. Another query for the same step, or an older
step, therefore comes from a copy of a journal, which would draw again; the two draws together could tell what was
wanted. So a stream's query is *admitted* if its step is newer than the last one of the stream, or if it is the last
one again, byte for byte. At least the `STREAMS` streams that asked last are remembered; a stream that was forgotten is
admitted at any step.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from hashlib import sha256
from typing import Protocol

from onoff.errors import StoreError, StoreUnavailable

STREAMS = 100_000

_ENTRY = struct.Struct(">16sQQ32s")  # stream, step, time of last use (0: the place is free), SHA-256 of the query
_WAYS = 32
_BUCKETS = 2**13
_BUCKET_BYTES = _WAYS * _ENTRY.size


class Streams(Protocol):
    """The last step of each stream and its query, shared by all processes that use the same store.

    What was admitted survives a crash of the server, though not always one of the machine. Calls raise
    `StoreUnavailable` while the table cannot be reached.
    """

    async def admit(self, stream: str, step: int, query: bytes) -> bool:
        """Whether the query may be answered; if so, it is the stream's last one from now on."""

    def close(self) -> None:
        """Let go of files and connections."""


def open_streams(target: str) -> Streams:
    """The table that belongs to the store at `target`: in the same Redis, or in a file beside the SQLite file."""
    if target.startswith(("redis://", "rediss://", "unix://")):
        from onoff.server.store.redis import RedisStreams

        return RedisStreams(target)
    return FileStreams(f"{target}-streams")


class FileStreams:
    """`Streams` in a file of 16 MiB, for the processes of one machine.

    The file is a table of 2^13 buckets of 32 entries. The first bits of a stream, which is random, name its bucket; if
    that is full, the entry goes that was used least recently. With 100,000 streams in use the probability that any
    bucket is too small is below 1 %. An entry never crosses the border of a page, and is written by one call: a process
    that is killed leaves the old entry or the new one. A lost or older file forgets, but never refuses wrongly.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        size = _BUCKETS * _BUCKET_BYTES
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                found = os.fstat(self._file).st_size
                if found not in (0, size):
                    raise StoreError(f"{path}: is not a table of streams ({found} bytes); move it away")
                os.posix_fallocate(self._file, 0, size)  # a disk that fills up later does no harm
            except BaseException:
                os.close(self._file)
                raise
        except OSError as error:
            raise self._unavailable(error) from error

    async def admit(self, stream: str, step: int, query: bytes) -> bool:
        key, digest = bytes.fromhex(stream), sha256(query).digest()
        bucket = int.from_bytes(key[:4]) % _BUCKETS
        start = bucket * _BUCKET_BYTES
        try:
            # For other processes; in this one there is one thread, and nothing in between gives way.
            fcntl.lockf(self._file, fcntl.LOCK_EX, 1, bucket)
            try:
                entries = os.pread(self._file, _BUCKET_BYTES, start)
                place = _place(entries, key)
                if place is None:
                    place = _oldest(entries)
                else:
                    _, last, _, last_digest = _ENTRY.unpack_from(entries, place)
                    if step < last or (step == last and digest != last_digest):
                        return False
                os.pwrite(self._file, _ENTRY.pack(key, step, time.time_ns(), digest), start + place)
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, bucket)
        except OSError as error:
            raise self._unavailable(error) from error
        return True

    def close(self) -> None:
        os.close(self._file)

    def _unavailable(self, error: OSError) -> StoreUnavailable:
        return StoreUnavailable(f"{self._path}: {error.strerror}")


def _place(entries: bytes, key: bytes) -> int | None:
    """Where the entry of a stream is in its bucket."""
    place = entries.find(key)
    while place != -1:
        # The bytes may also stand across two entries, or be those of a free place.
        if place % _ENTRY.size == 0 and _ENTRY.unpack_from(entries, place)[2]:
            return place
        place = entries.find(key, place + 1)
    return None


def _oldest(entries: bytes) -> int:
    """The place that was used least recently; free ones were never used."""
    used = [entry[2] for entry in _ENTRY.iter_unpack(entries)]
    return used.index(min(used)) * _ENTRY.size
