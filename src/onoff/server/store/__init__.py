"""Where the server keeps the latest message of every source: SQLite, or Redis when one machine is not enough.

A new store is a class with the methods of `Store`, and the beginning of its address in `open_store`. The last step of
each stream is kept apart from the messages: `streams` has the table in a file, `redis` the one in Redis.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from onoff.errors import StoreUnavailable
from onoff.extras import need
from onoff.files import is_at
from onoff.wire import Catalogue

MARKS = 1000
REDIS = ("redis://", "rediss://", "unix://")  # how the address of a store in Redis begins
NEW = "a new store; say which sources it has: --source, --sources or --watch"
GONE = "was deleted or replaced under the server: put the file back, or stop the server and start it again"


@dataclass(frozen=True)
class Message:
    """A published message and the round that published it."""

    round: int
    data: bytes


@dataclass(frozen=True)
class Point:
    """A point of a store's history: a round, and the random mark that was drawn when the round was published.

    A store that was emptied, restored or has lost its last rounds may come to the same round again, never to the mark.
    """

    round: int = 0
    mark: bytes = b""


START = Point()


@dataclass(frozen=True)
class Changes:
    """Sources whose latest message is newer than the point asked about, and the `point` that the store has reached.

    `anew` says that the store's history lacks that point: `messages` are then all that the store has.
    """

    point: Point
    messages: Mapping[int, Message]
    anew: bool


class Store(Protocol):
    """The latest message of each source of one catalogue, shared by any number of processes and threads.

    A store belongs to one catalogue for ever: calls with another one raise `StoreError`. Every call raises
    `StoreUnavailable` while the store cannot be reached, and works again once it can.
    """

    catalogue: Catalogue

    def publish(self, messages: Mapping[int, bytes]) -> int:
        """Replace the latest messages of these sources together, and return the number of this round.

        After this call, the messages survive a crash. No reader sees some of them without the others.
        """

    def changes(self, since: Point = START) -> Changes:
        """Find all messages published after this point, at one moment. A store remembers `MARKS` points."""

    def caveat(self) -> str | None:
        """Tell the operator how this store may fail its promise; None if it keeps it."""

    def close(self) -> None:
        """Close files and connections."""


def check_same(path: str, status: os.stat_result) -> None:
    """Raise `StoreUnavailable` unless the path still leads to the file that was opened."""
    if not is_at(path, status):
        raise StoreUnavailable(f"{path}: {GONE}")


def open_store(target: str, catalogue: Catalogue | None = None, *, create: bool = True) -> Store:
    """Open the store at a path (SQLite) or a redis://, rediss:// or unix:// URL (Redis).

    Without a catalogue the store must have one already. A new store takes the catalogue given. Without `create` a file
    must exist: one that was deleted under a server is not made anew by its next process.
    """
    if target.startswith(REDIS):
        need("redis", "a store in Redis")
        from onoff.server.store.redis import RedisStore

        return RedisStore(target, catalogue)
    from onoff.server.store.sqlite import SqliteStore

    return SqliteStore(target, catalogue, create=create)
