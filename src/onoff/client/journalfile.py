"""The file of a journal: its tables and versions, how it is opened, and what is said when that fails.

A trouble of the machine (a full disk, a read-only one, a lock) is never called damage: state must not be thrown away
for it. A file that never was a journal is not called a damaged one.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onoff.errors import AFRESH, JournalError
from onoff.files import reason

VERSION = 5
# All members of the newest answer are kept, by their source, not only the wanted one: what is written in a step, how
# long that takes and whether it fails must not depend on which was wanted. Those of earlier answers are there too, as
# long as they are held (`onoff.client.held`). The body is the last column, so that the others are read without it.
#
# `pad` makes up for the digits of sources. `seen` is the last body of each source, as far as `onoff status` must know
# it (`onoff.client.traffic`). `everyday` has one row, for the promise `past`: what queries so far tell in every
# context, after the newest one. Neither of the two holds a secret.
#
# For auditors: `numbers` and `law` are what the query was drawn from (`onoff.client.stored.numbers_text`,
# `onoff.client.laws`); `received` is [[source, version, bytes], ...] of the members that arrived whole, in the order of
# the answer, and `cache` the limit under which they were then held.
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE steps (
    step INTEGER PRIMARY KEY, private INTEGER NOT NULL, asked_private INTEGER NOT NULL, lag INTEGER NOT NULL,
    plan TEXT NOT NULL, query TEXT NOT NULL, request INTEGER NOT NULL, next INTEGER, cost REAL NOT NULL,
    numbers TEXT NOT NULL, law TEXT, pad TEXT NOT NULL, attempts INTEGER NOT NULL,
    bytes INTEGER, changed TEXT, changed_bytes INTEGER, received TEXT, cache INTEGER
) STRICT;
CREATE TABLE members (source INTEGER PRIMARY KEY, step INTEGER NOT NULL, status INTEGER NOT NULL,
    round INTEGER, content_type TEXT, version TEXT, body BLOB NOT NULL) STRICT;
CREATE TABLE everyday (one INTEGER PRIMARY KEY CHECK (one = 1), rows TEXT NOT NULL) STRICT;
CREATE TABLE seen (source INTEGER PRIMARY KEY, size INTEGER NOT NULL, sum INTEGER NOT NULL) STRICT;
"""
SUMMED = (
    "version", "chain", "catalogue", "identity", "inode", "transaction", "state", "notes", "promise", "sensitive",
    "rows", "held",
)  # fmt: skip
KEEP = "The journal is not to blame: keep it, mend that and try again. No new query was sent"
IDENTITY = re.compile("[0-9a-f]{32}")

# SQLite's codes for what is wrong with the machine and not with the file.
TROUBLES = {
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_NOLFS, sqlite3.SQLITE_AUTH,
}  # fmt: skip


class DamagedError(Exception):
    """The content is not what a client can have written."""


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Errors of SQLite, of the disk and of a content that makes no sense, as a `JournalError` that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code is not None and code & 0xFF in TROUBLES:
            full = ": is the disk full?" if code & 0xFF == sqlite3.SQLITE_IOERR else ""  # or a limit on files in force
            raise JournalError(f"{path}: cannot be used ({error}{full}). {KEEP}") from error
        raise JournalError(f"{path}: the journal is damaged ({error}); {AFRESH}") from error
    except (OSError, MemoryError) as error:
        why = reason(error) if isinstance(error, OSError) else error
        if not path.exists():
            raise JournalError(f"{path}: cannot be used ({why}). No new query was sent") from error
        raise JournalError(f"{path}: cannot be used ({why}). {KEEP}") from error
    except (DamagedError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise JournalError(f"{path}: the journal is damaged ({error}); {AFRESH}") from error


def connect(path: Path) -> sqlite3.Connection:
    """Open for use: what is committed is on disk, and what is deleted is overwritten."""
    database = sqlite3.connect(path, isolation_level=None)
    try:
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
            database.execute(f"PRAGMA {pragma}")
    except BaseException:  # a damaged file: Python 3.13 warns of a connection that nobody closes
        database.close()
        raise
    return database


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open without changing anything."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def lock_beside(path: Path) -> Path:
    """The file that seals a journal."""
    return path.with_name(path.name + ".lock")


def check_is_journal(path: Path) -> None:
    """Refuse a file that never was a journal, without touching it. A sealed lock beside it shows that it once was one.

    Only SQLite opens the file: to close any other descriptor of it would drop the locks of this process.
    """
    if not path.is_file():
        raise JournalError(f"{path}: is not a file; name another one")
    was_one = lock_beside(path).exists() and lock_beside(path).stat().st_size > 0
    database = connect_to_read(path)
    try:
        found = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'steps'").fetchone() is not None
    except sqlite3.DatabaseError as error:
        if was_one or getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_NOTADB:
            raise
        found = False
    finally:
        database.close()
    if not found and was_one:
        raise DamagedError("it is no longer a database")
    if not found:
        raise JournalError(f"{path}: is not a journal; name another file")


def read_meta(database: sqlite3.Connection) -> dict[str, str]:
    """All keys and notes."""
    return dict(database.execute("SELECT key, value FROM meta").fetchall())


def notes_of(meta: dict[str, str]) -> dict[str, str]:
    return {key.removeprefix("note "): value for key, value in meta.items() if key.startswith("note ")}


def check_version(path: Path, meta: dict[str, str]) -> None:
    """Refuse what another version of onoff has written. It cannot be read here, but it is not damaged."""
    if meta["version"] != str(VERSION):
        raise JournalError(
            f"{path}: is a journal of version {meta['version']}, and only version {VERSION} can be used: {AFRESH}"
        )


def check_sums(meta: dict[str, str]) -> None:
    """Everything that the next query depends on, and the notes, must be what was written.

    SQLite itself does not notice a digit that has changed.
    """
    if meta["checksum"] != checksum(meta):
        raise DamagedError("its checksum does not match")
    if meta["notes"] != notes_digest(notes_of(meta)):
        raise DamagedError("the checksum of its notes does not match")
    if IDENTITY.fullmatch(meta["identity"]) is None:
        raise DamagedError("its identity is not one")


def promise_of(promise: str, sensitive: Sequence[int] = ()) -> dict[str, str]:
    """What a new journal says of its promise."""
    return {"promise": promise, "sensitive": json.dumps(list(sensitive)), "rows": rows_digest(None)}


def read_rows(database: sqlite3.Connection, meta: dict[str, str]) -> dict[str, Any] | None:
    """The rows after the newest query; None if there are none. They must be what was written."""
    row = database.execute("SELECT rows FROM everyday").fetchone()
    text = None if row is None else row[0]
    if meta["rows"] != rows_digest(text):
        raise DamagedError("the checksum of its rows does not match")
    found: dict[str, Any] | None = None if text is None else json.loads(text)
    return found


def rows_digest(text: str | None) -> str:
    return hashlib.sha256((text or "").encode()).hexdigest()


def checksum(meta: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps([meta[key] for key in SUMMED]).encode()).hexdigest()


def notes_digest(notes: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(sorted(notes.items())).encode()).hexdigest()
