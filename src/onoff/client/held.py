"""What a client holds of earlier answers: the table `members` of a journal, and which of it goes when room is short.

Every member of an answer replaces what was held of its source, wanted or not. It is *held* if it has a version: the
next query that contains it asks for it only if it is newer. The members of the newest answer stay on disk in any case,
since the wanted one may be delivered again. Which others stay depends on their sizes and numbers alone.

So what is held, and with it what is sent, is a function of earlier queries and answers, which the server knows.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple
from zlib import crc32

from onoff.client.journalfile import DamagedError
from onoff.client.stored import Stored
from onoff.errors import OnoffError

CACHE = 64 * 2**20  # bytes, unless told otherwise
UNITS = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
COLUMNS = "source, step, status, round, content_type, version, body"


class Entry(NamedTuple):
    """A member on disk, without its body; `step` is the one in which it was received."""

    source: int
    step: int
    status: int
    round: int | None
    content_type: str | None
    version: str | None
    length: int
    sum: int  # CRC-32 of the body: it is damage that must be noticed, and for all members of every step

    @classmethod
    def of(cls, member: Stored) -> Entry:
        """The entry of a member that was received."""
        fields = (member.source, member.step, member.status, member.round, member.content_type, member.version)
        return cls(*fields, len(member.body), crc32(member.body))

    @property
    def size(self) -> int:
        """What it counts toward the limit: the bytes that a server chose."""
        return self.length + len(self.version or "")


Entries = dict[int, Entry]  # by source
Held = dict[int, tuple[Entry, bytes]]  # by source, with their bodies


def cache_size(given: int | str) -> int:
    """A limit in bytes: a number, or words such as 64MiB. Raises `OnoffError` if it is neither."""
    found = re.fullmatch(r"([0-9]{1,12})\s*([A-Za-z]*)", str(given).strip())
    if found is None or found[2].upper() not in UNITS or isinstance(given, bool):
        raise OnoffError(f"the size of a cache is {str(given)!r}: bytes are needed, as 64MiB; 0 switches it off")
    return int(found[1]) * UNITS[found[2].upper()]


def kept(entries: Iterable[Entry], limit: int) -> set[int]:
    """The sources that stay held: in the order of size, of equal ones in that of their numbers, while there is room."""
    sizes = sorted((entry.size, entry.source) for entry in entries if entry.version is not None)
    totals = accumulate(size for size, _ in sizes)
    return {source for (_, source), total in zip(sizes, totals, strict=True) if total <= limit}


def versions(entries: Entries, query: Iterable[int]) -> tuple[str | None, ...]:
    """The versions that go out with a query: of every member that is held, whichever is wanted."""
    return tuple(entries[source].version if source in entries else None for source in query)


def read_all(database: sqlite3.Connection) -> Entries:
    """All entries, from their rows as they are now."""
    rows = database.execute(f"SELECT {COLUMNS} FROM members ORDER BY source")
    return {entry.source: entry for entry in map(_entry, rows)}


def read_bodies(database: sqlite3.Connection, entries: Entries, sources: Sequence[int]) -> Held:
    """The held members of these sources, each of them checked. Raises `DamagedError` if one is not what it was."""
    wanted = f"SELECT {COLUMNS} FROM members WHERE source IN (SELECT value FROM json_each(?))"
    found = {}
    for row in database.execute(wanted, (json.dumps(sources),)):
        entry = _entry(row)
        if entry == entries.get(entry.source):
            found[entry.source] = entry, row[-1]
    if len(found) != len(sources):
        raise DamagedError("what it holds of earlier answers is not what was written")
    return found


def store(database: sqlite3.Connection, entries: Entries, members: Sequence[Stored], limit: int) -> Entries:
    """Put the members of an answer in the place of what was held of their sources; forget what does not fit."""
    answered = {member.source for member in members}
    received = {member.source: Entry.of(member) for member in members if not member.unchanged}
    everything = {**entries, **received}
    stay = kept(everything.values(), limit)
    after = {}
    for source, entry in sorted(everything.items()):
        if source in stay:
            after[source] = entry
        elif source in answered:
            after[source] = entry._replace(version=None)
    _forget(database, entries, after, received)
    rows = [
        (m.source, m.step, m.status, m.round, m.content_type, after[m.source].version, m.body)
        for m in members
        if m.source in received
    ]
    database.executemany(f"INSERT OR REPLACE INTO members ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    return after


def _forget(database: sqlite3.Connection, before: Entries, after: Entries, received: Mapping[int, Entry]) -> None:
    """Delete what is no longer there, and the versions of what stays without one; what was received is written anew."""
    gone = [(source,) for source in before if source not in after]
    database.executemany("DELETE FROM members WHERE source = ?", gone)
    unheld = [
        (source,)
        for source, entry in before.items()
        if source in after and source not in received and entry.version != after[source].version
    ]
    database.executemany("UPDATE members SET version = NULL WHERE source = ?", unheld)


def entries_digest(entries: Entries) -> str:
    """A sum over all entries, bodies included."""
    return hashlib.sha256(json.dumps([entry for _, entry in sorted(entries.items())]).encode()).hexdigest()


def _entry(row: tuple[int, int, int, int | None, str | None, str | None, bytes]) -> Entry:
    return Entry(*row[:-1], len(row[-1]), crc32(row[-1]))
