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
import secrets
import struct
import time
from hashlib import blake2b, sha256
from typing import Protocol

from onoff.errors import StoreError, StoreUnavailable
from onoff.server.store import REDIS, check_same

STREAMS = 100_000
LOOK_SECONDS = 0.25  # between two looks whether the file was moved or deleted: one at each query costs 6 % of them

_ENTRY = struct.Struct(">16sQQ32s")  # stream, step, number of the last use (0: a free place), SHA-256 of the query
_KEY_BYTES = 16
_WAYS = 32
_BUCKETS = 2**13
_BUCKET = struct.Struct(">" + "16sQQ32s" * _WAYS)


class Streams(Protocol):
    """The last step of each stream and its query, shared by all processes that use the same store.

    What was admitted survives a crash of the server, though not always one of the machine. Calls raise
    `StoreUnavailable` while the table cannot be reached.
    """

    async def admit(self, stream: str, step: int, query: bytes) -> bool:
        """True if the query may be answered; then it becomes the stream's last one."""

    def close(self) -> None:
        """Close files and connections."""


def open_streams(target: str) -> Streams:
    """Open the table of the store at `target`: in the same Redis, or in a file beside the SQLite file."""
    if target.startswith(REDIS):
        from onoff.server.store.redis import RedisStreams

        return RedisStreams(target)
    return FileStreams(f"{target}-streams")


class FileStreams:
    """`Streams` in a file of 16 MiB, for the processes of one machine.

    The file is a table of 2^13 buckets of 32 entries, and a random key. The stream, hashed with this key, names the
    bucket, so that nobody can choose streams that push another one out. If the bucket is full, the entry goes that was
    used least recently. With 100,000 streams in use the probability that any bucket is too small is below 1 %. An entry
    never crosses the border of a page, and is written by one call: a process that is killed leaves the old entry or the
    new one. A lost or older file forgets, but never refuses wrongly.
    """

    def __init__(self, path: str) -> None:
        self._path, end, self._looked = path, _BUCKETS * _BUCKET.size, time.monotonic()
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            if os.fstat(self._file).st_size == 0:
                _take_room(self._file, end)
                os.pwrite(self._file, secrets.token_bytes(_KEY_BYTES), end)
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self._status, self._key = os.fstat(self._file), os.pread(self._file, _KEY_BYTES, end)
        except OSError as error:
            raise self._unavailable(error) from error
        if self._status.st_size != end + _KEY_BYTES:
            os.close(self._file)
            raise StoreError(f"{path}: is not a table of streams ({self._status.st_size} bytes); move it away")

    async def admit(self, stream: str, step: int, query: bytes) -> bool:
        key, digest = bytes.fromhex(stream), sha256(query).digest()
        bucket = int.from_bytes(blake2b(key, digest_size=4, key=self._key).digest()) % _BUCKETS
        start = bucket * _BUCKET.size
        self._check_same()
        try:
            # For other processes; in this one there is one thread, and nothing in between gives way.
            fcntl.lockf(self._file, fcntl.LOCK_EX, 1, bucket)
            try:
                fields = _BUCKET.unpack(os.pread(self._file, _BUCKET.size, start))
                names, steps, uses, digests = fields[::4], fields[1::4], fields[2::4], fields[3::4]
                if key in names and uses[names.index(key)]:
                    place = names.index(key)
                    if step < steps[place] or (step == steps[place] and digest != digests[place]):
                        return False
                else:
                    place = uses.index(min(uses))  # a free one was never used
                entry = _ENTRY.pack(key, step, max(uses) + 1, digest)
                os.pwrite(self._file, entry, start + place * _ENTRY.size)
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, bucket)
        except OSError as error:
            raise self._unavailable(error) from error
        return True

    def close(self) -> None:
        os.close(self._file)

    def _check_same(self) -> None:
        now = time.monotonic()
        if now - self._looked > LOOK_SECONDS:
            check_same(self._path, self._status)
            self._looked = now

    def _unavailable(self, error: OSError) -> StoreUnavailable:
        return StoreUnavailable(f"{self._path}: {error.strerror}")


def _take_room(file: int, size: int) -> None:
    """Fill an empty file with zeros that have their room on the disk: a disk that is full later does no harm."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:  # macOS
        with open(file, "wb", closefd=False) as stream:
            stream.write(bytes(size))
