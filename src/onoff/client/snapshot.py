"""A journal read without opening it for use, and whether it was made for what a caller wants."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onoff.client import journalfile
from onoff.client.journalfile import explained
from onoff.client.session import State
from onoff.client.stored import Totals, last_asked, totals_of
from onoff.client.traffic import Traffic, traffic_of
from onoff.errors import JournalError, OnoffError


@dataclass(frozen=True)
class Snapshot:
    """What a journal says, read without opening it for use: another process may be at it.

    `chain` is the fingerprint of its chain. `rows` are those after the newest query. `traffic` is None if no step was
    finished. `asked` is the newest step whose query holds a source, if
    there are lengths.
    """

    state: State
    totals: Totals
    notes: dict[str, str]
    chain: str = ""
    promise: str = "both"
    sensitive: tuple[int, ...] = ()
    rows: dict[str, Any] | None = None
    traffic: Traffic | None = None
    asked: Mapping[int, int] = field(default_factory=dict)


def snapshot(path: str | Path, lengths: Sequence[float] | None = None, since: int = 0) -> Snapshot:
    """Read a journal without locking or changing it; `lengths` and `since` are those of `Journal.totals`."""
    file = Path(path)
    if not file.exists():
        raise JournalError(f"{file}: there is no journal; the first request makes one")
    with explained(file):
        journalfile.check_is_journal(file)
        database = journalfile.connect_to_read(file)
        try:
            database.execute("BEGIN")  # one state, though another process may be writing
            meta = journalfile.read_meta(database)
            journalfile.check_version(file, meta)
            journalfile.check_sums(meta)
            totals = totals_of(database, lengths, since)
            rows = journalfile.read_rows(database, meta)
            asked = {} if lengths is None else last_asked(database)
            traffic = traffic_of(database)
        finally:
            database.close()
        state, notes = State.from_dict(json.loads(meta["state"])), journalfile.notes_of(meta)
        return Snapshot(state, totals, notes, meta["chain"], *promise_in(meta), rows, traffic, asked)


def has_pending(path: Path, chain: str | None) -> bool | None:
    """Whether a journal that is not open has a request for `resume`. None if it cannot be read.

    A journal of another chain, if the fingerprint of ours is known, is another client's.
    """
    try:
        found = snapshot(path) if path.exists() else None
    except (OnoffError, OSError):
        return None  # whoever opens it is told what is wrong
    if found is None or (chain is not None and found.chain != chain):
        return False
    return found.state.pending is not None


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


def promise_in(meta: dict[str, str]) -> tuple[str, tuple[int, ...]]:
    """The promise of a journal and its sensitive sources."""
    return meta["promise"], tuple(json.loads(meta["sensitive"]))
