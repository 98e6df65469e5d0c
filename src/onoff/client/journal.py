"""The client's state on disk: one SQLite file, one transaction before a query is sent and one when it is answered.

What was written survives `kill -9` and power loss (WAL, synchronous=FULL). The file holds the user's secrets: mode
0600, deleted messages are overwritten. How much is written in a step is a function of the sets and the whole answer,
never of the wanted source. A journal that was copied or rolled back is refused (`onoff.client.rollback`).

After a crash `Client.resume` goes on from here: it finishes the pending request with the same query.

What else is checked when it is opened, each against a fault that nothing else catches: SQLite's own check finds pages
that were torn or swapped, and the checksums find digits that have changed inside a page (`onoff.client.journalfile`).
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from onoff.client import cache, journalfile, status
from onoff.client.cache import CACHE, Member, Members
from onoff.client.journalfile import VERSION, DamagedError, Snapshot, Step, Totals, explained
from onoff.client.protocol import Begun, State
from onoff.client.rollback import RollbackGuard
from onoff.client.transport import Answer
from onoff.errors import AFRESH, JournalError, NotOpen
from onoff.files import sync_directory


class Journal:
    """The journal at `path` for a chain and a catalogue, given by their fingerprints. Made if it is not there.

    A journal is made for one promise ("past" or "both") and one set of sensitive sources, and keeps them. `rows` are
    those after the newest query, if its promise is "past" and a request has counted as ON.
    """

    def __init__(
        self,
        path: str | Path,
        chain: str,
        catalogue: str | None,
        first_ever: bool = False,
        *,
        promise: str | None = None,
        sensitive: Sequence[int] = (),
        cache: int = CACHE,
    ) -> None:
        """`first_ever` promises that nothing was ever asked of this server before: then one ON request is enough.

        `promise` and `sensitive` must be those of the journal, if they are given. A new one is for "both" by default.
        Members of earlier answers are cached in at most `cache` bytes; another limit than before takes effect with the
        next answer. Without a catalogue it is opened to be read alone: it must be there, and no server may be asked.
        """
        self.path, self._limit = Path(path), cache
        self._database: sqlite3.Connection | None = None
        self._guard: RollbackGuard | None = None
        if catalogue is None and not self.path.exists():
            raise JournalError(f"{self.path}: there is no journal; the first request makes one")
        with explained(self.path):
            try:
                self._guard = RollbackGuard(self.path)
                self.created = not self.path.exists()
                if self.created:
                    self._create(chain, catalogue or "", first_ever, promise or "both", sensitive)
                journalfile.check_is_journal(self.path)
                self._database = journalfile.connect(self.path)
                self._meta = self._checked(chain, catalogue)
                found = Snapshot.of(self._database, self._meta)
                check_promise(self.path, (found.promise, found.sensitive), promise, sensitive)
                self._guard.check(self._meta)
                self.state, self.memory, self.rows = found.state, found.memory, found.rows
                self.promise, self.sensitive = found.promise, found.sensitive
                self.stream = self._meta["identity"]  # the random name under which its queries go out
                self._members = self._checked_members()
                self._seen = status.read_seen(self._database)
            except BaseException:
                self.close()
                raise

    def naming_versions(self, begun: Begun) -> Begun:
        """The drawn query with the versions of what is held, for all of its members alike."""
        pending = replace(begun.pending, held=cache.versions(self._members, begun.pending.query))
        return replace(begun, pending=pending, state=replace(begun.state, pending=pending))

    def begin(self, begun: Begun, cost: float, law: str | None = None) -> None:
        """Put a drawn query on disk, before it goes on the wire, with what it was drawn from and the rows after it.

        `cost` is what its law expects, and `law` is the digest of that law.
        """
        pending, rows = begun.pending, None if begun.rows is None else begun.rows.as_dict()
        row = (
            *(begun.state.step, pending.private, pending.asked_private, pending.lag, pending.plan),
            *(json.dumps(pending.query), pending.request, pending.next, cost),
            *(journalfile.numbers_text(begun.numbers), law, _pad(pending.request, pending.next)),
        )
        changes = {}
        if rows is not None:
            text = json.dumps(rows)
            changes["rows"] = journalfile.digest(text)
        try:
            with self._transaction(begun.state, changes) as database:
                database.execute(
                    "INSERT INTO steps (step, private, asked_private, lag, plan, query, request, next, cost, numbers, "
                    "law, pad, attempts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)",
                    row,
                )
                if rows is not None:
                    database.execute("INSERT OR REPLACE INTO everyday VALUES (1, ?)", (text,))
        finally:
            if rows is not None and self.state is begun.state:  # on disk, though what comes after may have failed
                self.rows = rows

    def count_sending(self) -> None:
        """Count one more sending of the pending query, before it leaves: an auditor compares with what servers saw."""
        with self._transaction(self.state) as database:
            database.execute("UPDATE steps SET attempts = attempts + 1 WHERE step = ?", (self.state.step,))

    def check_held(self) -> None:
        """Raise an error unless all that the pending query says is held can be read. Done before anything is sent."""
        with self._open() as database:
            cache.check_bodies(database, self._members, sorted(self._named()))

    def finish(self, state: State, query: Sequence[int], answer: Answer) -> None:
        """Put the whole answer and the end of its step on disk, before the caller sees any of it.

        `query` has the sources in the order of the answer. All members are written in that order, except those that are
        there unchanged. What else was held stays while there is room. Which member was wanted changes neither what is
        written nor whether it fits.
        """
        contents, named = dict(zip(query, answer.contents, strict=True)), self._named()
        unchanged = {source for source, content in contents.items() if content.unchanged and source in named}
        members, seen, changes = self._members, self._seen, dict[str, str]()
        try:
            with self._transaction(state, changes) as database:
                members = cache.store(database, members, self.state.step, contents, unchanged, self._limit)
                if members != self._members:
                    changes["held"] = cache.members_digest(members)
                whole = {source: members[source] for source in query if source not in unchanged}
                sizes = {source: (contents[source].size, member.sum) for source, member in whole.items()}
                changed = status.note_seen(database, self._seen, sizes)
                seen = {**seen, **sizes}
                received = [(s, cache.version_of(contents[s]), member.length) for s, member in whole.items()]
                database.execute(
                    "UPDATE steps SET bytes = ?, changed = ?, changed_bytes = ?, received = ?, cache = ? "
                    "WHERE step = ?",
                    (
                        *(answer.size, json.dumps(changed), sum(sizes[source][0] for source in changed)),
                        *(json.dumps(received), self._limit, self.state.step),
                    ),
                )
        finally:
            if self.state is state:  # on disk, though what comes after that may have failed
                self._members, self._seen = members, seen

    def latest(self) -> tuple[Step, Member, bytes] | None:
        """The last finished step, and what there is of its wanted source; None if no step was finished."""
        with self._open() as database:
            step = next(journalfile.read_steps(database, self.state.step - 1), None)
            if step is None or step.bytes is None:
                return None
            row = database.execute(f"SELECT {cache.COLUMNS} FROM members WHERE source = ?", (step.request,)).fetchone()
            return step, Member.of_row(row), row[-1]

    def steps(self, since: int = 0) -> Iterator[Step]:
        """The steps from `since` on, oldest first."""
        with self._open() as database:
            yield from journalfile.read_steps(database, since)

    def totals(self) -> Totals:
        """Sums over the finished steps."""
        with self._open() as database:
            return journalfile.read_totals(database)

    def remember(self, **changes: Any) -> None:
        """Change fields of the memory, all or none."""
        memory = replace(self.memory, **changes)
        rows = self.memory.changes(memory)
        if rows:
            meta = {**self._meta, **dict(rows)}
            with self._transaction(self.state, {"notes": journalfile.notes_digest(meta)}) as database:
                database.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)
            self._meta.update(rows)
            self.memory = memory

    def close(self) -> None:
        """Let other processes have it."""
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The database, with its errors in our words."""
        if self._database is None:
            raise NotOpen("the journal is closed: open a client with it again")
        with explained(self.path):
            yield self._database

    @contextmanager
    def _transaction(self, state: State, changes: Mapping[str, str] | None = None) -> Iterator[sqlite3.Connection]:
        """A transaction that also writes the new state, and `changes` of `meta`, which the body may add to.

        The state in memory changes only once the disk has it.
        """
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
                number = int(self._meta["transaction"]) + 1
                new = {**(changes or {}), "state": _state_text(state), "transaction": str(number)}
                new["checksum"] = journalfile.checksum({**self._meta, **new})
                rows = [(value, key) for key, value in new.items()]
                database.executemany("UPDATE meta SET value = ? WHERE key = ?", rows)
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise
            self.state = state
            self._meta.update(new)
            assert self._guard is not None
            self._guard.seal(number, self._meta["identity"])

    def _named(self) -> set[int]:
        """The sources of which the pending query names a version."""
        pending = self.state.pending
        assert pending is not None
        return {source for source, version in zip(pending.query, pending.held, strict=True) if version is not None}

    def _checked_members(self) -> Members:
        """All that is held, every body checked: the next query depends on it."""
        with self._open() as database:
            members = cache.read_all(database)
        if cache.members_digest(members) != self._meta["held"]:
            raise DamagedError("the checksum of what it holds does not match")
        pending = self.state.pending
        if pending is not None and any(
            version is not None and (source not in members or members[source].version != version)
            for source, version in zip(pending.query, pending.held, strict=True)
        ):
            raise DamagedError("the pending query names what is not held")
        return members

    def _create(self, chain: str, catalogue: str, first_ever: bool, promise: str, sensitive: Sequence[int]) -> None:
        assert self._guard is not None
        start, _ = self._guard.sealed()  # a journal was here before: count on, so that it stays refused
        state = State(unsettled=0 if first_ever and start == 0 else 1)
        unfinished = self.path.with_name(self.path.name + ".new")
        # What processes that were killed have left, here or beside a journal that was moved away: SQLite would take the
        # log of another database for ours.
        for stale in (unfinished, *(self.path.with_name(self.path.name + end) for end in ("-wal", "-shm"))):
            stale.unlink(missing_ok=True)
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        meta = {
            "version": str(VERSION),
            "chain": chain,
            "catalogue": catalogue,
            "identity": secrets.token_hex(16),
            "inode": str(unfinished.stat().st_ino),
            "transaction": str(start),
            "state": _state_text(state),
            "notes": journalfile.notes_digest({}),
            "held": cache.members_digest({}),
            "promise": promise,
            "sensitive": json.dumps(list(sensitive)),
            "rows": journalfile.digest(""),
        }
        database = journalfile.connect(unfinished)
        try:
            database.executescript(f"BEGIN;{journalfile.SCHEMA}COMMIT;")
            rows = {**meta, "checksum": journalfile.checksum(meta)}.items()
            database.executemany("INSERT INTO meta VALUES (?, ?)", rows)
        finally:
            database.close()  # moves everything from the write-ahead log into the file
        self._guard.seal_first(start, meta["identity"])
        os.rename(unfinished, self.path)
        sync_directory(self.path.parent)

    def _checked(self, chain: str, catalogue: str | None) -> dict[str, str]:
        """What the journal says of itself, once all of it makes sense and is for this chain and catalogue."""
        with self._open() as database:
            # Not `quick_check`, which passes over an index from which the key of a note is missing.
            if database.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
                raise DamagedError("the file fails SQLite's check")
            meta = journalfile.read_meta(database)
            journalfile.check_meta(self.path, meta)
            for key, value in (("chain", chain), ("catalogue", catalogue)):
                if value is not None and meta[key] != value:
                    what = "chain" if key == "chain" else "list of sources (a catalogue or URLs, in their order)"
                    raise JournalError(f"{self.path}: {_elsewhere(self.path, what, meta)}")
            return meta


def check_promise(path: Path, made: tuple[str, tuple[int, ...]], promise: str | None, sensitive: Sequence[int]) -> None:
    """Refuse another promise, or other sensitive sources, than the journal was `made` for."""
    if promise is not None and promise != made[0]:
        raise JournalError(
            f"{path}: was made for the promise {made[0]!r} and keeps it: leave the promise out, or name another journal"
        )
    if sensitive and tuple(sensitive) != made[1]:
        raise JournalError(
            f"{path}: was made {'for other' if made[1] else 'without'} sensitive sources, and they stay as they are: "
            "leave them out, or name another journal"
        )


def _state_text(state: State) -> str:
    """The state as JSON, equally long whichever sources it names: blanks make up for their digits."""
    pending = state.pending
    named = [state.last, state.previous, state.announced, state.context]
    named += [] if pending is None else [pending.request, pending.next]
    return json.dumps(state.as_dict()) + " " * sum(8 - len(json.dumps(source)) for source in named)


def _pad(request: int, following: int | None) -> str:
    """Blanks that make up for the bytes that SQLite needs for two sources: none for 0 and 1, then one to four."""

    def needed(source: int | None) -> int:
        return 0 if source is None or source < 2 else 1 + sum(source >= 1 << bits for bits in (7, 15, 23))

    return " " * (8 - needed(request) - needed(following))


def _elsewhere(path: Path, what: str, meta: Mapping[str, str]) -> str:
    """What is said of a journal that is for another chain or list. What one has learned is kept."""
    if "note learning" not in meta:
        return f"belongs to another {what}; {AFRESH}"
    first, second = (shlex.quote(f"{path}{end}") for end in ("", "-2"))
    return (
        "has learned with another list of sources or URLs, and keeps to it. Nothing of it is lost: learn with another "
        f"journal (--journal {second}), and then fit (`onoff fit {first} {second} -o habits.json --open-only`)"
    )
