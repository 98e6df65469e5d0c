"""The client's state on disk: one SQLite file, one transaction before a query is sent and one when it is answered.

What was written survives `kill -9` and power loss (WAL, synchronous=FULL). The file holds the user's secrets: mode
0600, deleted messages are overwritten. How much is written in a step is a function of the sets and the whole answer,
never of the wanted source. A lock keeps a second process out. Beside it, `NAME.lock` bears the identity of the journal
and the number of its newest transaction, and so does a witness in the user's cache: a journal that is older than one
of them was restored from a backup, and one that has no such lock, or lives in another inode than it was made in, was
copied. They would ask again for what was already asked: they are refused.

After a crash `Client.resume` goes on from here: it finishes the pending request with the same query.
"""

from __future__ import annotations

import fcntl
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

from onoff.client import held, journalfile, traffic
from onoff.client.held import CACHE, Entries, Held
from onoff.client.journalfile import SUMMED, VERSION, DamagedError, explained
from onoff.client.session import Pending, State
from onoff.client.snapshot import check_promise, promise_in
from onoff.client.stored import StepRow, Stored, Totals, last_asked, numbers_text, step_rows, totals_of
from onoff.client.witness import Witness
from onoff.errors import AFRESH, JournalError, JournalLocked, NotOpen


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
        Members of earlier answers are held in at most `cache` bytes. Without a catalogue it is opened to be read alone:
        it must be there, and what it says must not be asked of any server.
        """
        self.path, self._limit = Path(path), cache
        self._database: sqlite3.Connection | None = None
        self._witness: Witness | None = None
        if catalogue is None and not self.path.exists():
            raise JournalError(f"{self.path}: there is no journal; the first request makes one")
        with explained(self.path):
            self._lock = self._locked()
            try:
                self.created = not self.path.exists()
                if self.created:
                    self._create(chain, catalogue or "", first_ever, promise or "both", sensitive)
                journalfile.check_is_journal(self.path)
                self._database = journalfile.connect(self.path)
                meta = self._checked(chain, catalogue, promise, sensitive)
                self._witness = Witness(meta["identity"])
                self._check_newest(meta)
                self.state = State.from_dict(json.loads(meta["state"]))
                self.promise, self.sensitive = promise_in(meta)
                self.rows = journalfile.read_rows(self._database, meta)
                self.stream = meta["identity"]  # the random name under which its queries go out
                self._entries = self._checked_held(meta)
                self._seen = traffic.read_seen(self._database)
            except BaseException:
                self.close()
                raise

    def asking(self, state: State) -> State:
        """The state with the versions of what is held in its pending query, for all of its members alike."""
        assert state.pending is not None
        versions = held.versions(self._entries, state.pending.query)
        return replace(state, pending=replace(state.pending, held=versions))

    def held(self, pending: Pending) -> Held:
        """What the pending query says is held. All of it is read and checked, before anything is sent."""
        sources = [source for source, version in zip(pending.query, pending.held, strict=True) if version is not None]
        with self._open() as database:
            return held.read_bodies(database, self._entries, sources)

    def begin(
        self,
        state: State,
        pending: Pending,
        cost: float,
        numbers: Sequence[tuple[int, int]] = (),
        law: str | None = None,
        rows: dict[str, Any] | None = None,
    ) -> None:
        """Put a drawn query on disk, before it goes on the wire, with what it was drawn from and the rows after it.

        `numbers` are the (bound, number) pairs of the draw, and `law` is the digest of its law: an auditor draws again.
        """
        row = (
            *(state.step, pending.private, pending.asked_private, pending.lag, pending.plan),
            *(json.dumps(pending.query), pending.request, pending.next, cost, numbers_text(numbers), law),
            _pad(pending.request, pending.next),
        )
        try:
            with self._transaction(state) as database:
                database.execute(
                    "INSERT INTO steps (step, private, asked_private, lag, plan, query, request, next, cost, numbers, "
                    "law, pad, attempts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)",
                    row,
                )
                if rows is not None:
                    text = json.dumps(rows)
                    database.execute("INSERT OR REPLACE INTO everyday VALUES (1, ?)", (text,))
                    database.execute("UPDATE meta SET value = ? WHERE key = 'rows'", (journalfile.rows_digest(text),))
        finally:
            if rows is not None and self.state is state:  # on disk, though what comes after that may have failed
                self.rows = rows

    def sending_again(self) -> None:
        """Count one more sending of the pending query, before it leaves: an auditor compares with what servers saw."""
        with self._transaction(self.state) as database:
            database.execute("UPDATE steps SET attempts = attempts + 1 WHERE step = ?", (self.state.step,))

    def finish(self, state: State, members: Sequence[Stored], size: int) -> None:
        """Put the whole answer and the end of its step on disk, before the caller sees any of it.

        All members are written, in the order of the answer, except those that are there unchanged. What else was held
        stays while there is room. Which member was wanted changes neither what is written nor whether it fits.
        """
        entries, seen = self._entries, self._seen
        try:
            with self._transaction(state) as database:
                entries = held.store(database, self._entries, members, self._limit)
                if entries != self._entries:
                    self._sum_up(database, entries)
                seen, changed, changed_bytes = traffic.see(database, self._seen, members, entries)
                received = [(m.source, m.version, len(m.body)) for m in members if not m.unchanged]
                database.execute(
                    "UPDATE steps SET bytes = ?, changed = ?, changed_bytes = ?, received = ?, cache = ? "
                    "WHERE step = ?",
                    (size, json.dumps(changed), changed_bytes, json.dumps(received), self._limit, state.step - 1),
                )
        finally:
            if self.state is state:  # on disk, though what comes after that may have failed
                self._entries, self._seen = entries, seen

    def latest(self) -> Stored | None:
        """The wanted message of the last finished step."""
        last = self.state.step - 1
        with self._open() as database:
            row = database.execute(
                "SELECT members.step, source, status, round, body, content_type, version FROM members "
                "JOIN steps ON source = request WHERE steps.step = ?",
                (last,),
            ).fetchone()
        if row is None:
            return None
        received, *rest = row
        return replace(Stored(last, *rest), unchanged=received != last)

    def steps(self, since: int = 0) -> Iterator[StepRow]:
        """The steps from `since` on, oldest first."""
        with self._open() as database:
            yield from step_rows(database, since)

    def last_asked(self) -> dict[int, int]:
        """The newest step whose query holds a source, for every source that was asked for; a pending one counts."""
        with self._open() as database:
            return last_asked(database)

    def totals(self, lengths: Sequence[float] | None = None, since: int = 0) -> Totals:
        """Sums over the finished steps from `since` on, all of which were planned with these lengths."""
        with self._open() as database:
            return totals_of(database, lengths, since)

    def recall(self, key: str) -> str | None:
        """A note made by `note`."""
        with self._open() as database:
            row = database.execute("SELECT value FROM meta WHERE key = ?", (f"note {key}",)).fetchone()
        return None if row is None else str(row[0])

    def note(self, key: str, value: str) -> None:
        """Keep a note of the caller's."""
        self.note_all({key: value})

    def note_all(self, notes: Mapping[str, str]) -> None:
        """Keep notes of the caller's, all or none."""
        with self._transaction(self.state) as database:
            rows = [(f"note {key}", value) for key, value in notes.items()]
            database.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)
            digest = journalfile.notes_digest(journalfile.notes_of(journalfile.read_meta(database)))
            database.execute("UPDATE meta SET value = ? WHERE key = 'notes'", (digest,))

    def close(self) -> None:
        """Let other processes have it."""
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._witness is not None:
            self._witness.close()
            self._witness = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1  # the number may soon be that of another file

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The database, with its errors in our words."""
        if self._database is None:
            raise NotOpen("the journal is closed: open a client with it again")
        with explained(self.path):
            yield self._database

    @contextmanager
    def _transaction(self, state: State) -> Iterator[sqlite3.Connection]:
        """A transaction that also writes the new state. The state in memory changes only once the disk has it."""
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
                meta = dict(database.execute(f"SELECT key, value FROM meta WHERE key IN {SUMMED}").fetchall())
                number = int(meta["transaction"]) + 1
                changes = {"state": _state_text(state), "transaction": str(number)}
                changes["checksum"] = journalfile.checksum({**meta, **changes})
                rows = [(value, key) for key, value in changes.items()]
                database.executemany("UPDATE meta SET value = ? WHERE key = ?", rows)
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise
            self.state = state
            self._seal(number, meta["identity"])

    def _checked_held(self, meta: dict[str, str]) -> Entries:
        """All that is held, every body checked: the next query depends on it."""
        with self._open() as database:
            entries = held.read_all(database)
        if held.entries_digest(entries) != meta["held"]:
            raise DamagedError("the checksum of what it holds does not match")
        pending = self.state.pending
        for source, version in () if pending is None else zip(pending.query, pending.held, strict=True):
            if version is not None and (source not in entries or entries[source].version != version):
                raise DamagedError("the pending query names what is not held")
        return entries

    def _sum_up(self, database: sqlite3.Connection, entries: Entries) -> None:
        database.execute("UPDATE meta SET value = ? WHERE key = 'held'", (held.entries_digest(entries),))

    def _seal(self, number: int, identity: str) -> None:
        """Write beside the journal, and for its witness, which one it is and which transaction is its newest."""
        os.pwrite(self._lock, f"{number:020d} {identity}\n".encode(), 0)
        if self._witness is not None:
            self._witness.tell(number)

    def _sealed(self) -> tuple[int, str]:
        """What `_seal` wrote last, if anything."""
        number, _, identity = os.pread(self._lock, 64, 0).decode("ascii", "replace").strip().partition(" ")
        return int(number) if number.isdecimal() else 0, identity

    def _locked(self) -> int:
        """A descriptor of the lock file, held while the journal is open. A file of others gets no lock beside it."""
        name = journalfile.lock_beside(self.path)
        if self.path.exists() and not name.exists():
            journalfile.check_is_journal(self.path)
        descriptor = os.open(name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise JournalLocked(f"{self.path}: another process is using this journal; wait for it to end") from None
        return descriptor

    def _create(self, chain: str, catalogue: str, first_ever: bool, promise: str, sensitive: Sequence[int]) -> None:
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
            "state": _state_text(state),
            "notes": journalfile.notes_digest({}),
            "held": held.entries_digest({}),
            **journalfile.promise_of(promise, sensitive),
        }
        database = journalfile.connect(unfinished)
        try:
            database.executescript(f"BEGIN;{journalfile.SCHEMA}COMMIT;")
            rows = {**meta, "checksum": journalfile.checksum(meta)}.items()
            database.executemany("INSERT INTO meta VALUES (?, ?)", rows)
        finally:
            database.close()  # moves everything from the write-ahead log into the file
        self._seal(start, meta["identity"])
        os.fsync(self._lock)  # a journal without its lock would be refused
        os.rename(unfinished, self.path)

    def _checked(
        self, chain: str, catalogue: str | None, promise: str | None, sensitive: Sequence[int]
    ) -> dict[str, str]:
        """What the journal says of itself, once all of it makes sense and is of a known version."""
        with self._open() as database:
            # Not `quick_check`, which passes over an index from which the key of a note is missing.
            if database.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
                raise DamagedError("the file fails SQLite's check")
            meta = journalfile.read_meta(database)
            journalfile.check_version(self.path, meta)
            journalfile.check_sums(meta)
            for key, value in (("chain", chain), ("catalogue", catalogue)):
                if value is not None and meta[key] != value:
                    what = "chain" if key == "chain" else "list of sources (a catalogue or URLs, in their order)"
                    raise JournalError(f"{self.path}: {_elsewhere(self.path, what, meta)}")
            check_promise(self.path, promise_in(meta), promise, sensitive)
            return meta

    def _check_newest(self, meta: dict[str, str]) -> None:
        """Refuse a copy, and a state that is older than the lock or the witness remembers."""
        number, identity = self._sealed()
        if meta["identity"] != identity or int(meta["inode"]) != self.path.stat().st_ino:
            raise JournalError(f"{self.path}: is a copy or a restored backup of a journal; {AFRESH}")
        remembered = 0 if self._witness is None else self._witness.newest()
        if max(number, remembered) > int(meta["transaction"]):
            raise JournalError(f"{self.path}: is older than what was last written; was it restored? {AFRESH}")
        self._seal(int(meta["transaction"]), identity)  # a process may have been killed between the two


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
