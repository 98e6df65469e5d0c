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
SWITCH = "Switch OFF for what need not be hidden (`curl -X PUT -d off http://HOST:PORT/onoff/privacy` at a proxy)"


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
    sources = (*found.requests, *found.sensitive)
    if not all(is_whole(source) and (names is None or source < len(names)) for source in sources):
        raise LogError(f"{file}: the journal is damaged: it has requests for no source")
    return found


def read_requests(files: Sequence[Path], open_only: bool) -> tuple[tuple[str, ...], list[str | None], list[str]]:
    """Read the requests of journals, one after the other, as names; return all sources, the requests, and notes.

    With `open_only` a request that was asked ON, or for a sensitive source, is None: it ends a sequence, and nothing
    is counted across. So does a None between two journals.
    """
    names: dict[str, None] = {}
    requests: list[str | None] = []
    left_out = 0
    if len({file.resolve() for file in files}) < len(files):
        raise LogError(f"{files[0]}: a journal is named twice, and its requests would count twice: name each once")
    for file in files:
        found = read_journal(file)
        if found.names is None:
            raise LogError(f"{file}: this journal was made in Python and does not know the names of its sources")
        names |= dict.fromkeys(found.names)
        requests += [None] * bool(requests)
        for request, private in zip(found.requests, found.private, strict=True):
            hidden = open_only and (private or request in found.sensitive)
            left_out += hidden
            requests.append(None if hidden else found.names[request])
    if not any(requests):
        why = f"no request was asked OFF yet: there is nothing to fit. {SWITCH}" if left_out else "no request yet"
        raise LogError(f"{', '.join(map(str, files))}: {why}")
    notes = (
        [f"{left_out} requests that were asked ON, or for sensitive sources, are left out"] if open_only else [PUBLIC]
    )
    return tuple(names), requests, notes
