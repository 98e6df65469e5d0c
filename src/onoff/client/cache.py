"""What a client caches of earlier answers: the table `members` of a journal, and which of it goes when room is short.

Every member of an answer replaces what was there of its source, wanted or not. It is *held* if it has a version: the
next query that contains it asks for it only if it is newer. The members of the newest answer stay on disk in any case,
since the wanted one may be delivered again. Which others stay depends on their sizes and numbers alone.

So what is held, and with it what is sent, is a function of earlier queries and answers, which the server knows.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple
from zlib import crc32

from onoff.client.journalfile import DamagedError, digest
from onoff.client.transport import Content
from onoff.errors import OnoffError

CACHE = 64 * 2**20  # bytes, unless told otherwise
UNITS = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
COLUMNS = "source, step, status, round, content_type, version, body"


class Member(NamedTuple):
    """A row of `members`, without its body; `step` is the one in which it was received."""

    source: int
    step: int
    status: int
    round: int | None
    content_type: str | None
    version: str | None
    length: int
    sum: int  # CRC-32 of the body: it is damage that must be noticed, and for all members of every step

    @classmethod
    def received(cls, source: int, step: int, content: Content) -> Member:
        """The row of a content that is new."""
        # "Unchanged" of what is not held is a failure of the source: to ask again would be a second query.
        status = 304 if content.unchanged else content.status
        about = (status, content.round, content.content_type, version_of(content))
        return cls(source, step, *about, len(content.body), crc32(content.body))

    @classmethod
    def of_row(cls, row: Sequence[object]) -> Member:
        """A row of the table as it is now."""
        *about, body = row
        assert isinstance(body, bytes)
        return cls(*about, len(body), crc32(body))  # type: ignore[arg-type, call-arg]

    @property
    def size(self) -> int:
        """What it counts toward the limit."""
        return self.length + len(self.version or "")


Members = dict[int, Member]  # by source


def version_of(content: Content) -> str | None:
    """The version of a content that is new, if it is a message."""
    return content.version if content.status == 200 and not content.unchanged else None


def cache_size(given: int | str) -> int:
    """A limit in bytes: a number, or words such as 64MiB. Raises `OnoffError` if it is neither."""
    found = re.fullmatch(r"([0-9]{1,12})\s*([A-Za-z]*)", str(given).strip())
    if found is None or found[2].upper() not in UNITS or isinstance(given, bool):
        raise OnoffError(f"the size of a cache is {str(given)!r}: bytes are needed, as 64MiB; 0 switches it off")
    return int(found[1]) * UNITS[found[2].upper()]


def kept(members: Iterable[Member], limit: int) -> set[int]:
    """The sources that stay held: in the order of size, of equal ones in that of their numbers, while there is room."""
    sizes = sorted((member.size, member.source) for member in members if member.version is not None)
    totals = accumulate(size for size, _ in sizes)
    return {source for (_, source), total in zip(sizes, totals, strict=True) if total <= limit}


def versions(members: Members, query: Iterable[int]) -> tuple[str | None, ...]:
    """The versions that go out with a query: of every member that is held, whichever is wanted."""
    return tuple(members[source].version if source in members else None for source in query)


def read_all(database: sqlite3.Connection) -> Members:
    """All members, from their rows as they are now."""
    rows = database.execute(f"SELECT {COLUMNS} FROM members ORDER BY source")
    return {member.source: member for member in map(Member.of_row, rows)}


def check_bodies(database: sqlite3.Connection, members: Members, sources: Sequence[int]) -> None:
    """Raise `DamagedError` unless all of these are on disk as they were written."""
    wanted = f"SELECT {COLUMNS} FROM members WHERE source IN (SELECT value FROM json_each(?))"
    found = [Member.of_row(row) for row in database.execute(wanted, (json.dumps(sources),))]
    if len(found) != len(sources) or any(member != members.get(member.source) for member in found):
        raise DamagedError("what it holds of earlier answers is not what was written")


def store(
    database: sqlite3.Connection,
    members: Members,
    step: int,
    contents: Mapping[int, Content],
    unchanged: Collection[int],
    limit: int,
) -> Members:
    """Put the contents of an answer in the place of what was there of their sources; forget what does not fit.

    `unchanged` are the sources of which the server said that what is held is still the latest.
    """
    received = {source: Member.received(source, step, c) for source, c in contents.items() if source not in unchanged}
    everything = {**members, **received}
    stay = kept(everything.values(), limit)
    after = {
        source: member if source in stay else member._replace(version=None)
        for source, member in sorted(everything.items())
        if source in stay or source in contents
    }
    gone = [(source,) for source in members if source not in after]
    database.executemany("DELETE FROM members WHERE source = ?", gone)
    unheld = [
        (source,)
        for source, member in members.items()
        if source in after and source not in received and member.version != after[source].version
    ]
    database.executemany("UPDATE members SET version = NULL WHERE source = ?", unheld)
    rows = [(*after[source][:6], contents[source].body) for source in received]
    database.executemany(f"INSERT OR REPLACE INTO members ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    return after


def members_digest(members: Members) -> str:
    """A digest of all members, bodies included."""
    return digest(json.dumps([member for _, member in sorted(members.items())]))
