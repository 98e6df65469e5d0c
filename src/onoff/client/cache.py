"""The cache of earlier answers: the table `members` of a journal, and which messages go when room is short.

Every member of an answer, wanted or not, replaces the row of its source. A member with a version is *held*: the next
query with its source asks for a newer message only. The bodies of the newest answer stay on disk in any case, since
the wanted one may be delivered again. Which others stay depends on their sizes and numbers alone.

So the held versions, which queries name, are a function of earlier queries and answers, which the server knows.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from onoff.client.disk import Step
from onoff.client.transports import Content, fails
from onoff.errors import OnoffError
from onoff.files import read_rows

CACHE = 64 * 2**20  # bytes, unless told otherwise
UNITS = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


class Member(NamedTuple):
    """The newest message of a source: a row of `members`, without its body, which may be erased.

    `step` is the step that brought the message.
    """

    source: int
    step: int
    status: int
    round: int | None
    content_type: str | None
    version: str | None
    length: int

    @classmethod
    def of_content(cls, source: int, step: int, content: Content) -> Member:
        """The row of a content that is new."""
        # "Unchanged" of what is not held is a failure of the source: to ask again would be a second query.
        status = 304 if content.unchanged else content.status
        about = (content.round, content.content_type, version_of(content), len(content.body))
        return cls(source, step, status, *about)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Member:
        return cls(**{name: row[name] for name in cls._fields})

    def row(self, body: bytes | None) -> dict[str, Any]:
        """The row with its body; None if that is forgotten."""
        return {**self._asdict(), "body": body}

    def as_entry(self, version: str | None) -> list[Any]:
        """The entry in `steps.received`, with this version; it has a status only if that is a failure."""
        return [self.source, version, self.length, *([self.status] if fails(self.status) else [])]

    @property
    def size(self) -> int:
        """Its bytes toward the limit."""
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


@dataclass(frozen=True)
class Copy:
    """The newest message of a source: when it was asked for, and until when it counts as the newest.

    Both are in seconds since 1970. A clock that was set back makes it stale.
    """

    source: int
    arrived: float
    until: float

    def is_fresh(self, moment: float) -> bool:
        return self.arrived <= moment < self.until


def keep_fitting(members: Iterable[Member], limit: int, fresh: Collection[int]) -> set[int]:
    """Choose the sources that stay held: the smallest first (of equal ones the first number), while there is room.

    Messages are held that have a version or are `fresh`.
    """
    held = (member for member in members if member.version is not None or member.source in fresh)
    sizes = sorted((member.size, member.source) for member in held)
    totals = accumulate(size for size, _ in sizes)
    return {source for (_, source), total in zip(sizes, totals, strict=True) if total <= limit}


def versions(members: Members, query: Iterable[int]) -> tuple[str | None, ...]:
    """The versions that a query names: of every held member, whichever is wanted."""
    return tuple(members[source].version if source in members else None for source in query)


def store(
    members: Members, step: int, whole: Mapping[int, Content], limit: int, fresh: Collection[int]
) -> tuple[Members, set[int]]:
    """Replace members by those that arrived `whole`, and remove the versions of members that do not fit.

    Returns which are held, too. The body of one that is not is forgotten with the next answer that does not contain it.
    """
    after = {**members, **{source: Member.of_content(source, step, content) for source, content in whole.items()}}
    stay = keep_fitting(after.values(), limit, fresh)
    kept = {
        source: member if source in stay or member.version is None else member._replace(version=None)
        for source, member in sorted(after.items())
    }
    return kept, stay


def read_messages(database: sqlite3.Connection, since: int = 0) -> Iterator[tuple[Step, Member, bytes]]:
    """The finished steps from `since` on whose messages are still on disk, with their wanted members and bodies.

    The newest is there, and those that were not yet put into files.
    """
    [noted] = read_rows(database, "meta", "WHERE key = 'unwritten'")
    for step in map(Step.of_row, read_rows(database, "steps", "WHERE step >= ?", max(since, int(noted["value"])))):
        source = step.request
        # In this order: what the client replaces between the two readings is then found twice, and not missed.
        rows = read_rows(database, "members", "WHERE source = ? AND body IS NOT NULL", source)
        newest = [(Member.of_row(row), row["body"]) for row in rows]
        rows = read_rows(database, "replaced", "WHERE source = ? AND until > ?", source, step.step)
        found = [(Member(*json.loads(row["member"])), row["body"]) for row in rows] + newest
        those = [each for each in found if each[0].step <= step.step]  # the first was there after this step
        if step.bytes is not None and those:
            yield step, *those[0]
