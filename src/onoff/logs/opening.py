"""A log file made ready for an engine: unpacked, its kind known, and a table if it was none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from onoff.errors import LogError, OnoffError
from onoff.logs import access
from onoff.logs.look import by_look
from onoff.logs.reading import Columns, kind_of, unpacked, write_sequences

EVENTS = Columns("user", "time", "source")


@dataclass(frozen=True)
class Opened:
    """A file that an engine can read, as `readable`, and what the log was (`kind`).

    `columns` are known if the table was made here; `notes` say what was guessed.
    """

    file: Path
    kind: str
    readable: str
    columns: Columns | None
    notes: tuple[str, ...]


def opened(file: Path, kind: str | None, directory: Path) -> Opened:
    """Open a log of this kind, or of the one that its name or look says. Text and access logs become a table first."""
    plain = unpacked(file, directory)
    named = kind or kind_of(plain)
    found = by_look(plain) if kind is None and named in (None, "text") else named or "text"
    notes = []
    if found != named:
        what = {"text": "text, a sequence in a line", "access": "the access log of a web server"}.get(found, found)
        notes.append(f"the name does not say what the log is: it is read as {what}; or say --format")
    table = directory / "sequences.parquet"
    if found == "access":
        if left_out := access.write_events(plain, table):
            notes.append(f"{left_out} lines are left out: nothing was fetched there (no GET, or an error)")
        return Opened(table, found, "parquet", EVENTS, tuple(notes))
    if found != "text":
        return Opened(plain, found, found, None, tuple(notes))
    try:
        longest = write_sequences(plain, table)
    except LogError:
        raise
    except OnoffError as error:
        raise LogError(str(error)) from None
    if longest > 1:
        return Opened(table, found, "parquet", EVENTS, tuple(notes))
    notes.append("every line has one word: all of them are taken to be one user's requests, in order")
    return Opened(table, found, "parquet", Columns(None, None, "source"), tuple(notes))


def told(columns: Columns, kind: str, user: str | None, source: str | None, one_user: bool) -> Columns:
    """The columns of a table that was made here, as far as the caller wants others."""
    known = access.NAMES if kind == "access" else ()
    for role, name in (("user", user), ("source", source)):
        if name is not None and name not in known:
            there = f"there are {', '.join(known)}" if known else "sequences have none; leave it out"
            raise LogError(f"there is no column {name!r} for --{role}: {there}")
    if one_user and user is not None:
        raise LogError("one user, or users told apart by a column? Give --one-user or --user, not both")
    return replace(columns, user=None if one_user else user or columns.user, source=source or columns.source)
