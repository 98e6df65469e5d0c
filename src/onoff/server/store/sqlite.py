"""Messages in an SQLite file: nothing to start, several processes on one machine."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path

from onoff.errors import CatalogueError, StoreError, StoreUnavailable
from onoff.server.store import NEW, Changes, Message
from onoff.wire import Catalogue

# "ONOF": other programs' files are told apart from ours before anything is written.
_APPLICATION_ID = 0x4F4E4F46
_LOCK_SECONDS = 2.0

_SCHEMA = """
CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), catalogue BLOB NOT NULL, round INTEGER NOT NULL);
CREATE TABLE message (source INTEGER PRIMARY KEY, round INTEGER NOT NULL, data BLOB NOT NULL);
CREATE INDEX message_round ON message (round);
"""


class SqliteStore:
    """A `Store` in a file. A write-ahead log lets readers go on while a round is written, and a round is on the disk
    (synchronous=FULL) before it is acknowledged."""

    catalogue: Catalogue

    def __init__(self, path: str | PathLike[str], catalogue: Catalogue | None = None) -> None:
        self._path = str(path)
        if catalogue is None and not Path(path).exists():  # which connecting would make
            raise StoreError(f"{self._path}: {NEW}")
        with suppress(OSError):  # which SQLite will explain. Its other files get the same mode.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        # Two connections: a publication that waits for another process must not hold up readers of this one.
        with self._errors():
            self._writer = self._connect()
            self._reader = self._connect()
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()
        try:
            with self._errors():
                self.catalogue = self._bind(catalogue)
        except BaseException:
            self.close()
            raise

    def publish(self, messages: Mapping[int, bytes]) -> int:
        with self._errors(), self._write_lock, self._transaction(self._writer, "IMMEDIATE") as database:
            [number] = database.execute("UPDATE state SET round = round + 1 RETURNING round").fetchone()
            database.executemany(
                "INSERT OR REPLACE INTO message VALUES (?, ?, ?)",
                [(source, number, data) for source, data in messages.items()],
            )
        return int(number)

    def changes(self, since: int) -> Changes:
        with self._errors(), self._read_lock, self._transaction(self._reader, "DEFERRED") as database:
            [number] = database.execute("SELECT round FROM state").fetchone()
            rows = () if number == since else database.execute("SELECT * FROM message WHERE round > ?", (since,))
            return Changes(number, {source: Message(round, data) for source, round, data in rows})

    def caveat(self) -> str | None:
        return None

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(
            self._path, timeout=_LOCK_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=16
        )
        try:
            database.execute("PRAGMA synchronous = FULL")
        except BaseException:
            database.close()
            raise
        return database

    def _bind(self, catalogue: Catalogue | None) -> Catalogue:
        """Make the tables in a new file, or check that the file holds this catalogue."""
        [application] = self._writer.execute("PRAGMA application_id").fetchone()
        [tables] = self._writer.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if application != _APPLICATION_ID and (application or tables):
            raise StoreError(f"{self._path}: belongs to another program; name another file")
        self._writer.execute("PRAGMA journal_mode = WAL")
        with self._transaction(self._writer, "IMMEDIATE") as database:
            [tables] = database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if not tables:
                if catalogue is None:
                    raise StoreError(f"{self._path}: {NEW}")
                database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                for statement in filter(None, map(str.strip, _SCHEMA.split(";"))):
                    database.execute(statement)
                database.execute("INSERT INTO state VALUES (1, ?, 0)", (catalogue.document,))
            [document] = database.execute("SELECT catalogue FROM state").fetchone()
        try:
            found = Catalogue.parse(document)
        except CatalogueError as error:
            raise StoreError(f"{self._path}: damaged: {error}") from error
        if catalogue is not None and found != catalogue:
            raise StoreError(
                f"{self._path}: holds the catalogue {found.fingerprint[:12]}… ({found.n} sources of {found.length} "
                f"bytes), not {catalogue.fingerprint[:12]}…; give another file (--store): readers pin the catalogue"
            )
        return found

    @contextmanager
    def _transaction(self, database: sqlite3.Connection, kind: str) -> Iterator[sqlite3.Connection]:
        database.execute(f"BEGIN {kind}")
        try:
            yield database
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of SQLite into ours.

        A lock or a full disk is `StoreUnavailable`, a foreign file is a `StoreError`.
        """
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StoreUnavailable(f"{self._path}: {error}") from error
        except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite quotes what is damaged, and that may be no text
            raise StoreError(f"{self._path}: {error}") from error
