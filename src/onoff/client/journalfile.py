"""The file of a journal: its tables, what a row of them means, and how it is read without opening it for use.

A trouble of the machine (a full disk, a read-only one, a lock) is never called damage: state must not be thrown away
for it. A file that never was a journal is not called a damaged one.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from onoff.client.protocol import State
from onoff.errors import AFRESH, ChainError, JournalError, OnoffError
from onoff.files import path_of, reason
from onoff.model.chain import Chain

VERSION = 5
# `numbers`, `law`, `received` and `cache` are for auditors: what a query was drawn from (`numbers_text`,
# `onoff.client.laws`); [[source, version, bytes], ...] of the members that arrived whole, in the order of the answer;
# and the limit under which they were then cached. `pad` makes up for the digits of sources.
#
# All members of the newest answer are in `members`, not only the wanted one, and those of earlier answers as long as
# they are cached (`onoff.client.cache`). The body is the last column, so that the others are read without it. `seen` is
# the last body of each source, as far as `onoff status` must know it. `everyday` has one row, for the promise `past`:
# the law of the next request in every context, after the newest query. Neither `seen` nor `everyday` holds a secret.
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


class Progress(NamedTuple):
    """A file that is played: a hash of its requests, the step of the first, its name, and how many there are."""

    digest: str
    first: int
    file: str
    requests: int


@dataclass(frozen=True)
class Memory:
    """What a journal remembers for its owner beside the steps. On disk every field is JSON under the key `note FIELD`.

    `server` or `urls` (a file) is where the sources are, `chain` the habits as `Chain.as_dict` has them, `cache` the
    limit in bytes. `learning` has the names of the sources if there is no chain yet.

    `gap`: a request before the next one may have been lost, so the next one must be ON. A proxy sets `gap` while it
    runs; it also keeps the switch (`privacy`) and how many of the next requests are ON (`owed`).

    `play` is the file that was played last, and `played` are the hashes of those that were played to their ends.
    """

    server: str | None = None
    urls: str | None = None
    chain: dict[str, Any] | None = None
    cache: int | None = None
    learning: tuple[str, ...] | None = None
    gap: bool = False
    privacy: bool | None = None
    owed: int = 0
    play: Progress | None = None
    played: tuple[str, ...] = ()

    @classmethod
    def of(cls, meta: Mapping[str, str]) -> Memory:
        """Read the notes of a journal."""
        found = {each.name: json.loads(meta[key]) for each in fields(cls) if (key := f"note {each.name}") in meta}
        if found.get("play") is not None:
            found["play"] = Progress(*found["play"])
        for key in ("learning", "played"):
            if found.get(key) is not None:
                found[key] = tuple(found[key])
        return cls(**found)

    def known_chain(self, path: Path) -> Chain:
        """The remembered chain. Raises an error if the journal at `path` has none."""
        self.refuse_learning(path)
        if self.chain is None:
            raise OnoffError(f"{path}: no command has noted its chain here: give --chain, which `onoff get` notes")
        return Chain.from_dict(self.chain)

    def refuse_learning(self, path: Path) -> None:
        """Raise an error if this is the memory of a journal that was made while learning."""
        if self.learning is not None:
            raise JournalError(
                f"{path}: was made while learning and has no chain. Go on with --learn (learn=True), or fit a chain to "
                f"it (`onoff fit {path} -o habits.json --open-only`) and give that with another journal"
            )

    def changes(self, other: Memory) -> list[tuple[str, str]]:
        """The rows of `meta` in which the other memory differs."""
        return [
            (f"note {each.name}", json.dumps(new))
            for each in fields(self)
            if (new := getattr(other, each.name)) != getattr(self, each.name)
        ]


@dataclass(frozen=True)
class Step:
    """One step as the journal has it; `bytes` is None until it is answered.

    `attempts` counts its sendings, each before it leaves: a client that was killed may have counted one more.
    """

    step: int
    private: bool
    asked_private: bool
    lag: int
    plan: str
    query: tuple[int, ...]
    request: int
    next: int | None
    cost: float
    bytes: int | None
    attempts: int

    @property
    def made_private(self) -> bool:
        """True if it was asked OFF but made ON."""
        return self.private and not self.asked_private


@dataclass(frozen=True)
class Totals:
    """Sums over the finished steps; `lags` counts the steps of each lag.

    `downloaded` is how many messages their queries held, and `cost` how many their laws expected.
    """

    steps: int
    private: int
    bytes: int
    downloaded: int
    cost: float
    attempts: int
    lags: dict[int, int]


@dataclass(frozen=True)
class Snapshot:
    """What a journal says, read without opening it for use: another process may be writing to it.

    `chain` is the fingerprint of its chain. `rows` are those after the newest query.
    """

    state: State
    memory: Memory
    chain: str
    promise: str
    sensitive: tuple[int, ...]
    rows: dict[str, Any] | None

    @classmethod
    def of(cls, database: sqlite3.Connection, meta: Mapping[str, str]) -> Snapshot:
        """Read it off a database whose checksums were checked."""
        sensitive = tuple(json.loads(meta["sensitive"]))
        rows = read_rows(database, meta)
        return cls(state_in(meta), Memory.of(meta), meta["chain"], meta["promise"], sensitive, rows)


@contextmanager
def reading(path: str | Path) -> Iterator[tuple[sqlite3.Connection, dict[str, str]]]:
    """One state of a journal that is not opened for use, and its checked `meta`. Nothing is locked or changed."""
    file = Path(path)
    if not file.exists():
        raise JournalError(f"{file}: there is no journal; the first request makes one")
    with explained(file):
        check_is_journal(file)
        with closing(connect_to_read(file)) as database:
            database.execute("BEGIN")  # one state, though another process may be writing
            meta = read_meta(database)
            check_meta(file, meta)
            yield database, meta


def snapshot(path: str | Path) -> Snapshot:
    """Read a journal without locking or changing it."""
    with reading(path) as (database, meta):
        return Snapshot.of(database, meta)


def message_lengths(path: str | Path) -> dict[int, int]:
    """The bytes of the newest body of each source that was ever received whole, by its index in the chain."""
    lengths: dict[int, int] = {}
    with reading(path) as (database, _):
        for (text,) in database.execute("SELECT received FROM steps WHERE received IS NOT NULL ORDER BY step"):
            lengths.update((source, size) for source, _, size in json.loads(text))
    return lengths


def has_pending(path: Path, chain: str | None) -> bool | None:
    """True if a journal that is not open has a request for `resume`. None if it cannot be read.

    A journal of another chain, if the fingerprint of ours is known, is another client's.
    """
    try:
        found = snapshot(path) if path.exists() else None
    except (OnoffError, OSError):
        return None  # whoever opens it is told what is wrong
    if found is None or (chain is not None and found.chain != chain):
        return False
    return found.state.pending is not None


def chain_of(chain: Chain | str | Path) -> Chain:
    """The chain, read if it is a file."""
    return chain if isinstance(chain, Chain) else Chain.load(path_of(chain, "the chain", ChainError))


def numbers_text(numbers: Sequence[tuple[int, int]]) -> str:
    """The random numbers of a draw as JSON, [[bound, number], ...], equally long whatever the numbers are.

    Races have larger bounds than JSON's readers take. Those of their clocks are 2^k with k above 256, which follows
    from the chain, and are written so. Those of an earlier request have at most 256 bits and are padded to that: they,
    and whether one of them is a power of two, may depend on the request.
    """
    return "[" + ",".join(map(_pair, numbers)) + "]"


def _pair(pair: tuple[int, int]) -> str:
    bound, number = pair
    if bound < 1 << 63:
        return json.dumps(pair).ljust(len("[, ]") + 2 * 19)
    bits = bound.bit_length() - 1
    if bits > 256:
        return f'["2^{bits}", "0x{number:0{-(-bits // 4)}x}"]'
    return f'["0x{bound:x}", "0x{number:x}"]'.ljust(len('["0x", "0x"]') + 2 * 65)


def read_steps(database: sqlite3.Connection, since: int = 0) -> Iterator[Step]:
    """The steps from `since` on, oldest first."""
    columns = "step, private, asked_private, lag, plan, query, request, next, cost, bytes, attempts"
    cursor = database.execute(f"SELECT {columns} FROM steps WHERE step >= ? ORDER BY step", (since,))
    for step, private, asked, lag, plan, query, request, *rest in cursor:
        yield Step(step, bool(private), bool(asked), lag, plan, _checked_query(step, query, request), request, *rest)


def _checked_query(step: int, text: str, request: int) -> tuple[int, ...]:
    """The set of a step; a row that no client can have written is damage."""
    query = json.loads(text)
    if not isinstance(query, list) or any(type(source) is not int for source in query) or sorted({*query}) != query:
        raise DamagedError(f"step {step} has no set")
    if request not in query or min(query) < 0:
        raise DamagedError(f"the set of step {step} does not hold its request")
    return tuple(query)


def read_totals(database: sqlite3.Connection) -> Totals:
    """Sums over the finished steps."""
    finished = "FROM steps WHERE bytes IS NOT NULL"
    sums = "COUNT(*), SUM(private), SUM(bytes), SUM(json_array_length(query)), SUM(cost), SUM(attempts)"
    steps, private, size, downloaded, cost, attempts = (
        value or 0 for value in database.execute(f"SELECT {sums} {finished}").fetchone()
    )
    lags = database.execute(f"SELECT lag, COUNT(*) {finished} GROUP BY lag")
    return Totals(steps, private, size, downloaded, cost, attempts, dict(lags))


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
    """All keys of the journal, and its notes."""
    return dict(database.execute("SELECT key, value FROM meta").fetchall())


def check_meta(path: Path, meta: Mapping[str, str]) -> None:
    """Refuse what another version of onoff has written, and what is not what was written.

    SQLite itself does not notice a digit that has changed. The checksums cover all that the next query depends on.
    """
    if meta["version"] != str(VERSION):
        raise JournalError(
            f"{path}: is a journal of version {meta['version']}, and only version {VERSION} can be used: {AFRESH}"
        )
    if meta["checksum"] != checksum(meta):
        raise DamagedError("its checksum does not match")
    if meta["notes"] != notes_digest(meta):
        raise DamagedError("the checksum of its notes does not match")
    if IDENTITY.fullmatch(meta["identity"]) is None:
        raise DamagedError("its identity is not one")


def state_in(meta: Mapping[str, str]) -> State:
    """The state of the protocol."""
    return State.from_dict(json.loads(meta["state"]))


def read_rows(database: sqlite3.Connection, meta: Mapping[str, str]) -> dict[str, Any] | None:
    """The rows after the newest query; None if there are none. They must be what was written."""
    row = database.execute("SELECT rows FROM everyday").fetchone()
    text = None if row is None else row[0]
    if meta["rows"] != digest(text or ""):
        raise DamagedError("the checksum of its rows does not match")
    found: dict[str, Any] | None = None if text is None else json.loads(text)
    return found


def digest(text: str) -> str:
    """Hex SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()


def checksum(meta: Mapping[str, str]) -> str:
    """The digest of all that the next query depends on; rows, notes and cached members are in it by their digests."""
    return digest(json.dumps([meta[key] for key in SUMMED]))


def notes_digest(meta: Mapping[str, str]) -> str:
    """The digest of the notes in `meta`."""
    return digest(json.dumps(sorted((key, value) for key, value in meta.items() if key.startswith("note "))))
