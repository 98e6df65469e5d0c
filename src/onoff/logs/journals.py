"""The journal of a client as a log of one user's requests, read without locking or changing it.

It has the names of all sources, those that were never asked for too: a chain fitted to it is for all of them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
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
    command has noted them. `sensitive` sources are hidden whatever the status is.
    """

    names: tuple[str, ...] | None
    chain: str | None
    requests: tuple[int, ...]
    private: tuple[bool, ...]
    sensitive: frozenset[int] = frozenset()


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
    hidden = _sensitive(file, meta.get("sensitive", "[]"))
    return Noted(names, chain, requests, tuple(bool(private) for _, private in rows), hidden)


def _sensitive(file: Path, text: str) -> frozenset[int]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(map(is_whole, found)):
        raise LogError(f"{file}: the journal is damaged: its sensitive sources cannot be read")
    return frozenset(found)


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


def write_events(files: Sequence[Path], target: Path, open_only: bool) -> tuple[tuple[str, ...], list[str]]:
    """Write the requests of journals, one after the other, as a Parquet file of events; all sources, and notes.

    With `open_only` a request that was asked ON, or for a sensitive source, has no source there: it ends a sequence,
    and nothing is counted across. So does a row between two journals.
    """
    import pyarrow as pa
    from pyarrow import parquet

    names: dict[str, None] = {}
    events: list[str | None] = []
    left_out = hidden = 0
    for file in files:
        found = noted(file)
        if found.names is None:
            raise LogError(f"{file}: this journal was made in Python and does not know the names of its sources")
        names |= dict.fromkeys(found.names)
        events += [None] * bool(events)
        for request, private in zip(found.requests, found.private, strict=True):
            sensitive = request in found.sensitive and not private
            left_out, hidden = left_out + private, hidden + sensitive
            events.append(None if open_only and (private or sensitive) else found.names[request])
    _check_events(files, events, open_only)
    table = {"user": ["me"] * len(events), "time": range(len(events)), "source": pa.array(events, pa.string())}
    parquet.write_table(pa.table(table), target)
    notes = [f"{left_out} requests that were asked ON are left out"] if open_only else [PUBLIC]
    if open_only and hidden:
        notes.append(f"{hidden} requests for sensitive sources are left out: a chain is public, and would tell of them")
    if len(files) > 1:
        notes.append(f"{len(files)} journals are read one after the other, with a row without a source between them")
    return tuple(names), notes


def _check_events(files: Sequence[Path], events: Sequence[str | None], open_only: bool) -> None:
    if any(source is not None for source in events):
        return
    which = ", ".join(map(str, files))
    if open_only and events:
        raise LogError(f"{which}: no request was asked OFF yet: there is nothing to fit. {SWITCH}")
    raise LogError(f"{which}: no request yet: there is nothing to fit")
