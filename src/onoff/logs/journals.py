"""Journals as logs: the requests that a client made.

A journal is a SQLite file, read without a lock. It is one user's log, and names all sources, also those that were never
asked for. A chain becomes public, so a journal with something to hide is refused (`open_requests`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from onoff.errors import LogError
from onoff.files import check_version, explain_reading, read_rows
from onoff.text import plain
from onoff.types import is_whole

HEAD = b"SQLite format 3\0"
WHAT = "what it hides. Import a chain, or learn with a new journal and privacy OFF before the first private request"


@dataclass(frozen=True)
class JournalRequests:
    """The requests of all steps of a journal, as positions in `names`, and which were asked ON.

    `chain` is the fingerprint of the journal's chain, and None if it was made while learning. Names are None if no
    command has noted them. `sensitive` sources are hidden whatever the status is.
    """

    names: tuple[str, ...] | None
    chain: str | None
    promise: str
    requests: tuple[int, ...]
    private: tuple[bool, ...]
    sensitive: frozenset[int] = frozenset()


def is_journal(file: Path) -> bool:
    """Say whether the file is a database, as journals are."""
    with explain_reading(file, LogError), file.open("rb") as stream:
        return stream.read(len(HEAD)) == HEAD


def read_journal(file: Path) -> JournalRequests:
    """Read a journal's notes."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            check_version(database, file, LogError)
            if database.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                raise ValueError("it fails SQLite's check")
            meta = {row["key"]: row["value"] for row in read_rows(database, "meta")}
            rows = [(step["request"], step["asked_private"]) for step in read_rows(database, "steps")]
        learning, chain = meta.get("note learning"), meta.get("note chain")
        names = json.loads(learning) if learning is not None else json.loads(chain)["names"] if chain else None
        found = JournalRequests(
            names=None if names is None else tuple(names),
            chain=meta.get("chain") if learning is None else None,
            promise=meta["promise"],
            requests=tuple(request for request, _ in rows if request is not None),  # others were erased
            private=tuple(bool(private) for _, private in rows),
            sensitive=frozenset(json.loads(meta["sensitive"])),
        )
    except (sqlite3.Error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise LogError(f"{file}: cannot be read as a journal ({plain(str(error))})") from None
    sources = (*found.requests, *found.sensitive)
    if not all(is_whole(source) and (names is None or source < len(names)) for source in sources):
        raise LogError(f"{file}: the journal is damaged: it has requests for no source")
    return found


def open_requests(files: Sequence[Path]) -> tuple[tuple[str, ...], list[str | None]]:
    """Return all sources of some journals, and their requests one after the other, with a None between two journals.

    Counts of open requests show where each run of them begins and ends, and so tell of the private request between two
    runs. A journal is therefore refused if anything in it is hidden: by what is public, the statuses, the promise and
    the list of sensitive sources, never by which requests were made.
    """
    names: dict[str, None] = {}
    requests: list[str | None] = []
    if len({file.resolve() for file in files}) < len(files):
        raise LogError(f"{files[0]}: a journal is named twice, and its requests would count twice: name each once")
    for file in files:
        found = read_journal(file)
        if found.names is None:
            raise LogError(f"{file}: this journal was made in Python and does not know the names of its sources")
        if hidden := _hidden(found):
            raise LogError(f"{file}: {hidden}: a chain is public, and one fitted to this journal would tell of {WHAT}")
        if not found.requests:
            raise LogError(f"{file}: no request yet")
        names |= dict.fromkeys(found.names)
        requests += [None] * bool(requests) + [found.names[request] for request in found.requests]
    return tuple(names), requests


def _hidden(journal: JournalRequests) -> str:
    """Say what a journal hides; "" if it is all open."""
    if journal.sensitive:
        return "has sensitive sources"
    if journal.promise == "all" or (journal.chain is not None and journal.promise == "both"):
        return f"keeps the promise {journal.promise}"
    return f"has requests that were asked ON ({sum(journal.private)})" if any(journal.private) else ""
