"""The journal of a client as a log of one user's requests, read without locking or changing it.

It has the names of all sources, those that were never asked for too: a chain fitted to it is for all of them.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from onoff.errors import LogError
from onoff.files import reading
from onoff.types import is_whole

HEAD = b"SQLite format 3\0"
PUBLIC = (
    "this chain is fitted to requests of your own, private ones among them. A chain is public: who knows it knows your "
    "habits. --open-only fits it to requests that were asked OFF alone"
)
SWITCH = (
    "Switch OFF for what need not be hidden, and go on: `curl -X PUT -d off http://HOST:PORT/onoff/privacy` with the "
    "address of the proxy, or private=False in Python. Without --open-only the chain tells of private requests"
)


@dataclass(frozen=True)
class Noted:
    """The requests of all steps, as positions in `names`, and which were asked ON.

    `chain` is the fingerprint of the journal's chain, and None if it was made while learning. Names are None if no
    command has noted them.
    """

    names: tuple[str, ...] | None
    chain: str | None
    requests: tuple[int, ...]
    private: tuple[bool, ...]


def is_journal(file: Path) -> bool:
    """Whether the file is a database, as journals are."""
    with reading(file, LogError), file.open("rb") as stream:
        return stream.read(len(HEAD)) == HEAD


def noted(file: Path) -> Noted:
    """What a journal has noted."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            meta = dict(database.execute("SELECT key, value FROM meta").fetchall())
            rows = database.execute("SELECT request, asked_private FROM steps ORDER BY step").fetchall()
    except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite quotes what is damaged, and that may be no text
        raise LogError(f"{file}: cannot be read as a journal ({error})") from None
    learning = meta.get("note learning")
    names = _names(file, learning, meta.get("note chain"))
    requests = tuple(request for request, _ in rows)
    if not all(is_whole(request) and (names is None or request < len(names)) for request in requests):
        raise LogError(f"{file}: the journal is damaged: it has requests for no source")
    chain = meta.get("chain") if learning is None else None
    return Noted(names, chain, requests, tuple(bool(private) for _, private in rows))


def _names(file: Path, learning: str | None, chain: str | None) -> tuple[str, ...] | None:
    """The sources, from one of two notes."""
    try:
        found = json.loads(learning) if learning is not None else None if chain is None else json.loads(chain)["names"]
    except (ValueError, KeyError, TypeError, RecursionError):
        found = 0
    if found is None:
        return None
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise LogError(f"{file}: the journal is damaged: the names of its sources cannot be read")
    return tuple(found)


def write_events(file: Path, target: Path, open_only: bool) -> tuple[tuple[str, ...], str]:
    """Write the requests as a Parquet file of events; the names of all sources, and a note.

    With `open_only` a request that was asked ON has no source there: it ends a sequence, and nothing is counted across.
    """
    import pyarrow as pa
    from pyarrow import parquet

    found = noted(file)
    if found.names is None:
        raise LogError(f"{file}: this journal was made in Python and does not know the names of its sources")
    sources = [
        None if open_only and private else found.names[request]
        for request, private in zip(found.requests, found.private, strict=True)
    ]
    if not any(source is not None for source in sources):
        if open_only and sources:
            raise LogError(f"{file}: no request was asked OFF yet: there is nothing to fit. {SWITCH}")
        raise LogError(f"{file}: no request yet: there is nothing to fit")
    events = {"user": ["me"] * len(sources), "time": range(len(sources)), "source": pa.array(sources, pa.string())}
    parquet.write_table(pa.table(events), target)
    left_out = sum(source is None for source in sources)
    return found.names, f"{left_out} requests that were asked ON are left out" if open_only else PUBLIC
