"""The file of a journal: its tables and rows, the ways to open it, and its errors in words.

Trouble of the machine (a full or read-only disk, a lock) is never called damage: nobody should throw state away for
it. A file that never was a journal is not called damaged either.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onoff.client.rollback import lock_beside
from onoff.errors import AFRESH, JournalError
from onoff.files import check_version, read_rows, reason, row_sum
from onoff.text import plain

# The last column of each table is the checksum of its row (`onoff.files.row_sum`). `pad` makes up for the digits of
# sources. The body is behind the other columns of `members`, so that they are read without it. `replaced` has members
# that stood in `members` until a step's answer took their place, while `onoff play --out` may not have written them.
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, sum TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE steps (
    step INTEGER PRIMARY KEY, private INTEGER NOT NULL, asked_private INTEGER NOT NULL, lag INTEGER NOT NULL,
    plan TEXT NOT NULL, query TEXT NOT NULL, spared TEXT NOT NULL, began REAL NOT NULL, request INTEGER, next INTEGER,
    cost REAL NOT NULL, numbers TEXT, law TEXT, maker TEXT, attempts INTEGER NOT NULL, ended REAL, bytes INTEGER,
    received TEXT, until TEXT, cache INTEGER, pad TEXT NOT NULL,
    sum TEXT NOT NULL
) STRICT;
CREATE TABLE copies (source INTEGER PRIMARY KEY, arrived REAL NOT NULL, until REAL NOT NULL, sum TEXT NOT NULL) STRICT;
CREATE TABLE chains (step INTEGER PRIMARY KEY, weight TEXT, states TEXT NOT NULL, matrix TEXT NOT NULL,
    sum TEXT NOT NULL) STRICT;
CREATE TABLE members (source INTEGER PRIMARY KEY, step INTEGER NOT NULL, status INTEGER NOT NULL, round INTEGER,
    content_type TEXT, version TEXT, length INTEGER NOT NULL, body BLOB, sum TEXT NOT NULL) STRICT;
CREATE TABLE replaced (until INTEGER NOT NULL, source INTEGER NOT NULL, member TEXT NOT NULL, body BLOB NOT NULL,
    sum TEXT NOT NULL, PRIMARY KEY (until, source)) STRICT;
"""
KEEP = "The journal is not to blame: keep it, mend that and try again"

# SQLite's codes for what is wrong with the machine and not with the file.
TROUBLES = {
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_NOLFS, sqlite3.SQLITE_AUTH,
}  # fmt: skip


class DamagedError(Exception):
    """The content is not what a client can have written."""


@dataclass(frozen=True)
class Step:
    """One step: a row of `steps`. Fields of the answer are None until the step is answered.

    `query` is what was asked for, and `spared` what was fresh when the step `began`, and so left out. `until` has for
    each source of the query when its copy ceases to be fresh.

    `attempts` counts sendings, each before it leaves: a client that was killed may have counted one too many. `ended`
    is when the answer was on disk, in seconds since 1970. `request`, `next` and `numbers` are None if erased. For
    auditors there are the `numbers`, the `law` of the draw and its `maker` (`onoff.client.laws`); `received`, [source,
    version, bytes] of each whole member in the order of the answer, and the status of a failure; and `cache`, the limit
    in bytes at that time.
    """

    step: int
    private: bool
    asked_private: bool
    lag: int
    plan: str
    query: tuple[int, ...]
    spared: tuple[int, ...]
    began: float
    request: int | None
    next: int | None
    cost: float
    numbers: str | None = None
    law: str | None = None
    maker: str | None = None
    attempts: int = 1
    ended: float | None = None
    bytes: int | None = None
    received: str | None = None
    until: str | None = None
    cache: int | None = None

    @classmethod
    def of_row(cls, row: dict[str, Any]) -> Step:
        flags = {name: bool(row[name]) for name in ("private", "asked_private")}
        sets = {name: tuple(json.loads(row[name])) for name in ("query", "spared")}
        del row["pad"]
        return cls(**{**row, **flags, **sets})

    @property
    def row(self) -> dict[str, Any]:
        flags = {"private": int(self.private), "asked_private": int(self.asked_private)}
        sets = {"query": json.dumps(self.query), "spared": json.dumps(self.spared)}
        return {**vars(self), **flags, **sets, "pad": _pad(self.request, self.next)}

    @property
    def failures(self) -> dict[int, int]:
        """The status of each member that failed."""
        return {source: status[0] for source, _, _, *status in json.loads(self.received or "[]") if status}

    @property
    def made_private(self) -> bool:
        """True if it was asked OFF but made ON."""
        return self.private and not self.asked_private


def _pad(request: int | None, following: int | None) -> str:
    """Blanks that make rows equally long: SQLite needs no byte for the sources 0 and 1, then one to four."""

    def needed(source: int | None) -> int:
        return 0 if source is None or source < 2 else 1 + sum(source >= 1 << bits for bits in (7, 15, 23))

    return " " * (8 - needed(request) - needed(following))


def last_on_wire(database: sqlite3.Connection) -> float | None:
    """When the newest step that asked for something ended, in seconds since 1970."""
    newest = "WHERE step = (SELECT MAX(step) FROM steps WHERE ended IS NOT NULL AND query != '[]')"
    return next((row["ended"] for row in read_rows(database, "steps", newest)), None)


@contextmanager
def explain_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite, of the disk and of damaged content into a `JournalError` that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code is not None and code & 0xFF in TROUBLES:
            raise JournalError(f"{path}: cannot be used ({error}). {KEEP}") from error
        raise JournalError(f"{path}: the journal is damaged ({plain(str(error))}); {AFRESH}") from error
    except (OSError, MemoryError) as error:
        why = reason(error) if isinstance(error, OSError) else error
        raise JournalError(f"{path}: cannot be used ({why}). {KEEP if path.exists() else ''}".rstrip()) from error
    except (DamagedError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise JournalError(f"{path}: the journal is damaged ({plain(str(error))}); {AFRESH}") from error


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


def check_is_journal(path: Path) -> None:
    """Refuse a file that never was a journal, without touching it. A sealed lock beside it shows that it once was one.

    Only SQLite opens the file: to close any other descriptor of it would drop the locks of this process.
    """
    if not path.is_file():
        raise JournalError(f"{path}: is not a file; name another one")
    lock = lock_beside(path)
    was_one = lock.exists() and lock.stat().st_size > 0
    try:
        with closing(connect_to_read(path)) as database:
            found = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'steps'").fetchone()
    except sqlite3.DatabaseError as error:
        if was_one or getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_NOTADB:
            raise
        found = None
    if found is None and was_one:
        raise DamagedError("it is no longer a database")
    if found is None:
        raise JournalError(f"{path}: is not a journal; name another file")


def write_row(database: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> None:
    """Put a row, with all columns in their order and the checksum, in the place of the one that has its key."""
    values = (*row.values(), row_sum(table, row))
    database.execute(f"INSERT OR REPLACE INTO {table} VALUES ({'?, ' * len(row)}?)", values)


def read_meta(path: Path, database: sqlite3.Connection) -> dict[str, str]:
    """All keys of a journal of this version, once the whole file has passed SQLite's check."""
    check_version(database, path, JournalError)
    if database.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
        raise DamagedError("the file fails SQLite's check")
    return {row["key"]: row["value"] for row in read_rows(database, "meta")}


def newest_chain(database: sqlite3.Connection) -> dict[str, Any] | None:
    """The row of the newest chain; None before the first."""
    return next(iter(read_rows(database, "chains", "WHERE step = (SELECT MAX(step) FROM chains)")), None)


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


def check_is_for(path: Path, meta: Mapping[str, str], chain: str, catalogue: str | None) -> None:
    """Refuse a journal of another chain or catalogue."""
    for key, value in (("chain", chain), ("catalogue", catalogue)):
        if value is None or meta[key] == value:
            continue
        is_chain = key == "chain" and "note learning" not in meta
        what = "chain" if is_chain else "list of sources (a catalogue or URLs, in their order)"
        raise JournalError(f"{path}: belongs to another {what}; {AFRESH}")
