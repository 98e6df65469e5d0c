"""The client's state on disk: one SQLite file, one transaction before a query is sent and one when it is answered.

What was written survives `kill -9` and power loss (WAL, synchronous=FULL). The file holds the user's secrets: mode
0600, deleted messages are overwritten. A lock keeps a second process out. Beside it, `NAME.lock` bears the identity of
the journal and the number of its newest transaction: a journal that is older than its own lock was restored from a
backup, and one that has no such lock, or lives in another inode than it was made in, was copied. They would ask again
for what was already asked: they are refused.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onoff.errors import JournalError, JournalLocked
from onoff.session import Pending, State

VERSION = 1
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE steps (
    step INTEGER PRIMARY KEY, private INTEGER NOT NULL, asked_private INTEGER NOT NULL, lag INTEGER NOT NULL,
    plan TEXT NOT NULL, query TEXT NOT NULL, request INTEGER NOT NULL, next INTEGER,
    cost REAL NOT NULL, bytes INTEGER, attempts INTEGER
) STRICT;
CREATE TABLE message (step INTEGER PRIMARY KEY, source INTEGER NOT NULL, status INTEGER NOT NULL,
    round INTEGER, body BLOB NOT NULL) STRICT;
"""
SUMMED = ("version", "chain", "catalogue", "identity", "inode", "transaction", "state")
AFRESH = "move it away: a new journal starts with two full-set requests, which is always safe"


@dataclass(frozen=True)
class Stored:
    """The latest message as it lies on disk."""

    step: int
    source: int
    status: int
    round: int | None
    body: bytes


@dataclass(frozen=True)
class Totals:
    """Sums over the finished steps; `lags` is how many steps each lag had.

    `downloaded` is what their queries held and `cost` what their plans expected: messages, or the unit of the lengths.
    """

    steps: int
    private: int
    bytes: int
    downloaded: float
    cost: float
    attempts: int
    lags: dict[int, int]


class Journal:
    """The journal at `path` for a chain and a catalogue, given by their fingerprints. Made if it is not there."""

    def __init__(self, path: str | Path, chain: str, catalogue: str, first_ever: bool = False) -> None:
        """`first_ever` promises that nothing was ever asked of this server before: then one ON request is enough."""
        self.path = Path(path)
        self._lock = self._locked()
        try:
            self.created = not self.path.exists()
            with self._explained():
                if self.created:
                    self._create(chain, catalogue, first_ever)
                with self.path.open("rb") as stream:
                    if stream.read(16) != b"SQLite format 3\0":  # SQLite would turn an empty file into a journal
                        raise ValueError("it is not a database")
                self._database = _connect(self.path)
                self._check(chain, catalogue)
                self.state = State.from_dict(json.loads(self._meta("state")))
        except BaseException:
            self.close()
            raise

    def begin(self, state: State, pending: Pending, cost: float) -> None:
        """Put a drawn query on disk, before it goes on the wire."""
        row = (
            *(state.step, pending.private, pending.asked_private, pending.lag, pending.plan),
            *(json.dumps(pending.query), pending.request, pending.next, cost),
        )
        with self._transaction(state):
            self._database.execute(
                "INSERT INTO steps (step, private, asked_private, lag, plan, query, request, next, cost) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )

    def finish(self, state: State, message: Stored, size: int, attempts: int) -> None:
        """Put the wanted message and the end of its step on disk, before the caller sees it; forget the one before."""
        with self._transaction(state):
            self._database.execute("DELETE FROM message")
            self._database.execute(
                "INSERT INTO message VALUES (?, ?, ?, ?, ?)",
                (message.step, message.source, message.status, message.round, message.body),
            )
            row = (size, attempts, message.step)
            self._database.execute("UPDATE steps SET bytes = ?, attempts = ? WHERE step = ?", row)

    def latest(self) -> Stored | None:
        """The message of the last finished step."""
        with self._explained():
            row = self._database.execute("SELECT step, source, status, round, body FROM message").fetchone()
        return None if row is None else Stored(*row)

    def steps(self, since: int = 0) -> Iterator[dict[str, Any]]:
        """The steps from `since` on, oldest first: status, lag, plan, query, request, cost, bytes, attempts."""
        with self._explained():
            cursor = self._database.execute("SELECT * FROM steps WHERE step >= ? ORDER BY step", (since,))
            names = [column[0] for column in cursor.description]
            for row in cursor:
                record = dict(zip(names, row, strict=True))
                yield {**record, "query": json.loads(record["query"])}

    def totals(self, lengths: Sequence[float] | None = None, since: int = 0) -> Totals:
        """Sums over the finished steps from `since` on, all of which were planned with these lengths."""
        with self._explained():
            return _totals(self._database, lengths, since)

    def recall(self, key: str) -> str | None:
        """A note made by `note`."""
        with self._explained():
            row = self._database.execute("SELECT value FROM meta WHERE key = ?", (f"note {key}",)).fetchone()
        return None if row is None else str(row[0])

    def note(self, key: str, value: str) -> None:
        """Keep a note of the caller's."""
        with self._transaction(self.state):
            self._database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (f"note {key}", value))

    def close(self) -> None:
        """Let other processes have it."""
        if hasattr(self, "_database"):
            self._database.close()
        os.close(self._lock)

    @contextmanager
    def _transaction(self, state: State) -> Iterator[None]:
        """All or nothing, with the new state; the state in memory changes only once the disk has it."""
        with self._explained():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                number = int(self._meta("transaction")) + 1
                changes = {"state": json.dumps(state.as_dict()), "transaction": str(number)}
                changes["checksum"] = _checksum({**self._summed(), **changes})
                rows = [(value, key) for key, value in changes.items()]
                self._database.executemany("UPDATE meta SET value = ? WHERE key = ?", rows)
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
            self.state = state
            self._seal(number, self._meta("identity"))

    def _seal(self, number: int, identity: str) -> None:
        """Write beside the journal which one it is and which transaction is its newest."""
        os.pwrite(self._lock, f"{number:020d} {identity}\n".encode(), 0)

    def _sealed(self) -> tuple[int, str]:
        """What `_seal` wrote last, if anything."""
        number, _, identity = os.pread(self._lock, 64, 0).decode("ascii", "replace").strip().partition(" ")
        return int(number) if number.isdecimal() else 0, identity

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """SQLite's errors in our words."""
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:
            raise JournalError(f"{self.path}: cannot be used ({error}); no new query was sent") from error
        except (sqlite3.DatabaseError, KeyError, TypeError, ValueError) as error:
            raise JournalError(f"{self.path}: the journal is damaged ({error}); {AFRESH}") from error

    def _locked(self) -> int:
        """A descriptor of the lock file, held for as long as the journal is open."""
        name = self.path.with_name(self.path.name + ".lock")
        try:
            descriptor = os.open(name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise JournalError(f"{self.path}: cannot be used ({error.strerror}); no new query was sent") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise JournalLocked(f"{self.path}: another process is using this journal; wait for it to end") from None
        return descriptor

    def _create(self, chain: str, catalogue: str, first_ever: bool) -> None:
        start, _ = self._sealed()  # a journal was here before: count on, so that it stays refused
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
            "state": json.dumps(state.as_dict()),
        }
        database = _connect(unfinished)
        try:
            database.executescript(f"BEGIN;{SCHEMA}COMMIT;")
            rows = {**meta, "checksum": _checksum(meta)}.items()
            database.executemany("INSERT INTO meta VALUES (?, ?)", rows)
        finally:
            database.close()  # moves everything from the write-ahead log into the file
        self._seal(start, meta["identity"])
        os.fsync(self._lock)  # a journal without its lock would be refused
        os.rename(unfinished, self.path)

    def _check(self, chain: str, catalogue: str) -> None:
        if self._database.execute("PRAGMA quick_check").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("the file fails SQLite's check")
        if int(self._meta("version")) != VERSION:
            raise JournalError(f"{self.path}: version {self._meta('version')} of the journal is not known here")
        if self._meta("checksum") != _checksum(self._summed()):
            raise sqlite3.DatabaseError("its checksum does not match")
        for key, value in (("chain", chain), ("catalogue", catalogue)):
            if self._meta(key) != value:
                what = "chain" if key == "chain" else "list of sources (a catalogue or URLs, in their order)"
                raise JournalError(f"{self.path}: belongs to another {what}; {AFRESH}")
        number, identity = self._sealed()
        if self._meta("identity") != identity or int(self._meta("inode")) != self.path.stat().st_ino:
            raise JournalError(f"{self.path}: is a copy or a restored backup of a journal; {AFRESH}")
        if number > int(self._meta("transaction")):
            raise JournalError(f"{self.path}: is older than what was last written; was it restored? {AFRESH}")
        self._seal(int(self._meta("transaction")), identity)  # a process may have been killed between the two

    def _summed(self) -> dict[str, str]:
        return {key: self._meta(key) for key in SUMMED}

    def _meta(self, key: str) -> str:
        row = self._database.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise sqlite3.DatabaseError(f"{key} is missing")
        return str(row[0])


def _checksum(meta: dict[str, str]) -> str:
    """Of all that the next query depends on: SQLite itself does not notice a digit that has changed."""
    return hashlib.sha256(json.dumps([meta[key] for key in SUMMED]).encode()).hexdigest()


def _connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    try:
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
            database.execute(f"PRAGMA {pragma}")
    except BaseException:  # a damaged file: Python 3.13 warns of a connection that nobody closes
        database.close()
        raise
    return database


@dataclass(frozen=True)
class Snapshot:
    """What a journal says, read without opening it for use: another process may be at it."""

    state: State
    totals: Totals
    notes: dict[str, str]
    chain: str = ""  # its fingerprint


def snapshot(path: str | Path, lengths: Sequence[float] | None = None, since: int = 0) -> Snapshot:
    """Read a journal without locking or changing it; `lengths` and `since` are those of `Journal.totals`."""
    file = Path(path)
    if not file.exists():
        raise JournalError(f"{file}: there is no journal; the first request makes one")
    try:
        database = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
        try:
            meta = dict(database.execute("SELECT key, value FROM meta"))
            totals = _totals(database, lengths, since)
        finally:
            database.close()
        state = State.from_dict(json.loads(meta["state"]))
    except (sqlite3.Error, KeyError, TypeError, ValueError) as error:
        raise JournalError(f"{file}: the journal is damaged ({error}); {AFRESH}") from error
    notes = {key.removeprefix("note "): value for key, value in meta.items() if key.startswith("note ")}
    return Snapshot(state, totals, notes, meta["chain"])


def _totals(database: sqlite3.Connection, lengths: Sequence[float] | None, since: int) -> Totals:
    held = "json_array_length"
    if lengths is not None:
        held = "held"
        database.create_function(held, 1, lambda query: math.fsum(lengths[source] for source in json.loads(query)))
    finished = "FROM steps WHERE bytes IS NOT NULL AND step >= ?"
    row = database.execute(
        f"SELECT COUNT(*), SUM(private), SUM(bytes), SUM({held}(query)), SUM(cost), SUM(attempts) {finished}", (since,)
    ).fetchone()
    lags = database.execute(f"SELECT lag, COUNT(*) {finished} GROUP BY lag", (since,))
    steps, private, size, downloaded, cost, attempts = (value or 0 for value in row)
    return Totals(steps, private, size, downloaded, cost, attempts, dict(lags))
