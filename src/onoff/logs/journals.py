"""The journal of a client as a log of one user's requests, read without locking or changing it.

It has the names of all sources, those that were never asked for too: a chain fitted to it is for all of them.
"""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
class JournalRequests:
    """The requests of all steps of a journal, as positions in `names`, and which were asked ON.

    `chain` is the fingerprint of the journal's chain, and None if it was made while learning. Names are None if no
    command has noted them. `sensitive` sources are hidden whatever the status is.
    """

    names: tuple[str, ...] | None
    chain: str | None
    requests: tuple[int, ...]
    private: tuple[bool, ...]
    sensitive: frozenset[int] = frozenset()


def is_journal(file: Path) -> bool:
    """Say whether the file is a database, as journals are."""
    with reading(file, LogError), file.open("rb") as stream:
        return stream.read(len(HEAD)) == HEAD


def read_journal(file: Path) -> JournalRequests:
    """Read what a journal has noted."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            meta = dict(database.execute("SELECT key, value FROM meta").fetchall())
            rows = database.execute("SELECT request, asked_private FROM steps ORDER BY step").fetchall()
        learning, chain = meta.get("note learning"), meta.get("note chain")
        names = json.loads(learning) if learning is not None else json.loads(chain)["names"] if chain else None
        found = JournalRequests(
            names=None if names is None else tuple(names),
            chain=meta.get("chain") if learning is None else None,
            requests=tuple(request for request, _ in rows),
            private=tuple(bool(private) for _, private in rows),
            sensitive=frozenset(json.loads(meta.get("sensitive", "[]"))),
        )
    except (sqlite3.Error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise LogError(f"{file}: cannot be read as a journal ({error})") from None
    _check(file, found)
    return found


def _check(file: Path, found: JournalRequests) -> None:
    def is_source(value: Any) -> bool:
        return is_whole(value) and (found.names is None or value < len(found.names))

    names = found.names or ()
    if not all(isinstance(name, str) for name in names) or not all(map(is_source, (*found.requests, *found.sensitive))):
        raise LogError(f"{file}: the journal is damaged: its sources or requests cannot be read")


def write_events(files: Sequence[Path], target: Path, open_only: bool) -> tuple[tuple[str, ...], list[str]]:
    """Write the requests of journals, one after the other, as a CSV; return all sources, and notes.

    With `open_only` a request that was asked ON, or for a sensitive source, has no source there: it ends a sequence,
    and nothing is counted across. So does a row between two journals.
    """
    _check_files(files)
    names: dict[str, None] = {}
    events: list[str] = []
    left_out = hidden = 0
    for file in files:
        found = read_journal(file)
        if found.names is None:
            raise LogError(f"{file}: this journal was made in Python and does not know the names of its sources")
        names |= dict.fromkeys(found.names)
        events += [""] * bool(events)
        for request, private in zip(found.requests, found.private, strict=True):
            sensitive = request in found.sensitive and not private
            left_out, hidden = left_out + private, hidden + sensitive
            events.append("" if open_only and (private or sensitive) else found.names[request])
    if not any(events):
        why = (
            f"no request was asked OFF yet: there is nothing to fit. {SWITCH}"
            if open_only and events
            else ("no request yet: there is nothing to fit")
        )
        raise LogError(f"{', '.join(map(str, files))}: {why}")
    with target.open("w", encoding="utf-8", newline="") as out:
        rows = (("the user", time, event) for time, event in enumerate(events))
        csv.writer(out).writerows([("user", "time", "source"), *rows])
    notes = [f"{left_out} requests that were asked ON are left out"] if open_only else [PUBLIC]
    if open_only and hidden:
        notes.append(f"{hidden} requests for sensitive sources are left out: a chain is public, and would tell of them")
    if len(files) > 1:
        notes.append(f"{len(files)} journals are read one after the other, with a row without a source between them")
    return tuple(names), notes


def _check_files(files: Sequence[Path]) -> None:
    if len({file.resolve() for file in files}) < len(files):
        raise LogError(f"{files[0]}: a journal is named twice, and its requests would count twice: name each once")
    for file in files:
        if not is_journal(file):
            raise LogError(f"{file}: is no journal, and only journals are read together: leave it out")
