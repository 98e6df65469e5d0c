"""Messages in an SQLite file: nothing to start, several processes on one machine.

Every row has a checksum of its own, and the state one of all rows: a flipped byte or a lost row is damage, and nothing
that is damaged is served. A file that is deleted or replaced under a server is not written to any more.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from os import PathLike
from pathlib import Path

from onoff.errors import CatalogueError, StoreError, StoreUnavailable
from onoff.server.store import GONE, MARKS, NEW, START, Changes, Message, Point, check_same
from onoff.wire import Catalogue

# "ONOF": other programs' files are told apart from ours before anything is written.
_APPLICATION_ID = 0x4F4E4F46
_LOCK_SECONDS = 2.0
_CHECKSUM = 16

# `total` is the exclusive or of the checksums of all messages, `checksum` that of the catalogue, the round and `total`.
_SCHEMA = """
CREATE TABLE state (
    one INTEGER PRIMARY KEY CHECK (one = 1), catalogue BLOB NOT NULL, round INTEGER NOT NULL, total BLOB NOT NULL,
    checksum BLOB NOT NULL
);
CREATE TABLE mark (round INTEGER PRIMARY KEY, mark BLOB NOT NULL);
CREATE TABLE message (source INTEGER PRIMARY KEY, round INTEGER NOT NULL, checksum BLOB NOT NULL, data BLOB NOT NULL);
CREATE INDEX message_round ON message (round);
"""


class SqliteStore:
    """A `Store` in a file. A write-ahead log lets readers go on while a round is written, and a round is on the disk
    (synchronous=FULL) before it is acknowledged. `create` says that a missing file may be made."""

    catalogue: Catalogue

    def __init__(self, path: str | PathLike[str], catalogue: Catalogue | None = None, *, create: bool = True) -> None:
        self._path = str(path)
        if not Path(path).exists() and (catalogue is None or not create):  # connecting would make it
            raise StoreError(f"{self._path}: {NEW if create else GONE}")
        with suppress(OSError):  # which SQLite will explain. Its other files get the same mode.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        # Two connections: a publication that waits for another process must not hold up readers of this one.
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()
        with self._errors():
            self._writer, self._reader = self._connect(), self._connect()
            self._file = os.stat(self._path)
            self.catalogue = self._bind(catalogue)

    def publish(self, messages: Mapping[int, bytes]) -> int:
        with self._write_lock, self._transaction(self._writer, "BEGIN IMMEDIATE") as database:
            number, total = self._state(database)
            number += 1
            for source, data in messages.items():
                for (checksum,) in database.execute("SELECT checksum FROM message WHERE source = ?", (source,)):
                    total ^= int.from_bytes(checksum)
                checksum = _checksum(source, number, data)
                total ^= int.from_bytes(checksum)
                database.execute("REPLACE INTO message VALUES (?, ?, ?, ?)", (source, number, checksum, data))
            self._set_state(database, number, total)
            database.execute("INSERT INTO mark VALUES (?, ?)", (number, secrets.token_bytes(16)))
            database.execute("DELETE FROM mark WHERE round <= ?", (number - MARKS,))
        return number

    def changes(self, since: Point = START) -> Changes:
        with self._read_lock, self._transaction(self._reader, "BEGIN") as database:
            number, total = self._state(database)
            point, known = self._point(database, number), self._point(database, since.round)
            if since == point != START:
                return Changes(point, {}, anew=False)
            anew = since == START or since != known
            rows = database.execute("SELECT * FROM message WHERE round > ?", (0 if anew else since.round,)).fetchall()
            for source, round, checksum, data in rows:
                if checksum != _checksum(source, round, data):
                    raise self._damage_error(f"the message of source {source}")
                total ^= int.from_bytes(checksum)
            if anew and total:
                raise self._damage_error("a message is missing")
            return Changes(point, {source: Message(round, data) for source, round, _, data in rows}, anew)

    def caveat(self) -> str | None:
        return None

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(
            self._path, timeout=_LOCK_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=16
        )
        database.execute("PRAGMA synchronous = FULL")
        return database

    def _bind(self, catalogue: Catalogue | None) -> Catalogue:
        """Make the tables in a new file, or check that the file holds this catalogue."""
        [application] = self._writer.execute("PRAGMA application_id").fetchone()
        [tables] = self._writer.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if application != _APPLICATION_ID and (application or tables):
            raise StoreError(f"{self._path}: belongs to another program; name another file")
        self._writer.execute("PRAGMA journal_mode = WAL")
        with self._transaction(self._writer, "BEGIN IMMEDIATE") as database:
            [tables] = database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if not tables:
                if catalogue is None:
                    raise StoreError(f"{self._path}: {NEW}")
                database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                for statement in filter(None, map(str.strip, _SCHEMA.split(";"))):
                    database.execute(statement)
                self.catalogue = catalogue
                database.execute("INSERT INTO state VALUES (1, ?, 0, x'', x'')", (catalogue.document,))
                self._set_state(database, 0, 0)
            [(document,)] = database.execute("SELECT catalogue FROM state").fetchall()
            try:
                self.catalogue = found = Catalogue.parse(bytes(document))  # NULL is no bytes
            except CatalogueError as error:
                raise self._damage_error(f"the catalogue: {error}") from error
            if catalogue is not None and found != catalogue:
                raise StoreError(
                    f"{self._path}: holds the catalogue {found.fingerprint[:12]}… ({found.n} sources of {found.length} "
                    f"bytes), not {catalogue.fingerprint[:12]}…; give another file (--store): readers pin the catalogue"
                )
            self._state(database)
        return found

    def _state(self, database: sqlite3.Connection) -> tuple[int, int]:
        """Read the latest round, and the XOR of all checksums."""
        [(number, total, checksum)] = database.execute("SELECT round, total, checksum FROM state").fetchall()
        if checksum != _checksum(self.catalogue.fingerprint, number, total):
            raise self._damage_error("the number of its last round")
        return number, int.from_bytes(total)

    def _set_state(self, database: sqlite3.Connection, number: int, total: int) -> None:
        data = total.to_bytes(_CHECKSUM)
        checksum = _checksum(self.catalogue.fingerprint, number, data)
        database.execute("UPDATE state SET round = ?, total = ?, checksum = ?", (number, data, checksum))

    def _point(self, database: sqlite3.Connection, number: int) -> Point:
        """Find a round's point, without its mark if the store has forgotten or never had it."""
        found = database.execute("SELECT mark FROM mark WHERE round = ?", (number,)).fetchone()
        return Point(number, found[0]) if found else Point(number)

    @contextmanager
    def _transaction(self, database: sqlite3.Connection, begin: str) -> Iterator[sqlite3.Connection]:
        """Begin a transaction on the opened file, as long as its path still leads to it."""
        with self._errors():
            check_same(self._path, self._file)
            with database:  # commits, or rolls back
                database.execute(begin)
                yield database
            check_same(self._path, self._file)

    def _damage_error(self, what: str) -> StoreError:
        return StoreError(f"{self._path}: is damaged ({what}): put a backup in its place, or name another file")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of SQLite into ours.

        A lock or a full disk is `StoreUnavailable`. Values of a wrong type, or tables that are not there, are damage.
        """
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:
                raise self._damage_error(str(error)) from error
            raise StoreUnavailable(f"{self._path}: {error}") from error
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: {error}") from error
        except (TypeError, ValueError) as error:  # NULL, or what SQLite quotes and is no text
            raise self._damage_error("a value is not of its type") from error


def _checksum(key: object, number: object, data: bytes) -> bytes:
    """Compute a row's checksum. Values count with their types: damage may make a float of an integer."""
    return sha256(f"{key!r} {number!r} ".encode() + data).digest()[:_CHECKSUM]
