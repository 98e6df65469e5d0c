"""A log file made ready for an engine: unpacked, its kind known, and a table if it was none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from onoff.errors import LogError, OnoffError
from onoff.logs import access, journals
from onoff.logs.engines import Engine
from onoff.logs.look import by_look, refuse_own_files
from onoff.logs.reading import Columns, choose, kind_of, refuse_unreadable_times, unpacked, write_sequences

EVENTS = Columns("user", "time", "source")


@dataclass(frozen=True)
class Opened:
    """A log as a file that an engine can read.

    `readable` is the format of that file, and `kind` that of the log. `columns` are set if the file was made here, and
    `names`, all sources, if the log tells them. `notes` say what was guessed.
    """

    file: Path
    kind: str
    readable: str
    columns: Columns | None
    notes: tuple[str, ...]
    names: tuple[str, ...] | None = None


def opened(file: Path, kind: str | None, directory: Path, open_only: bool = False, more: Sequence[Path] = ()) -> Opened:
    """Open a log of this kind, or of the one that its name or look says. A journal may be read with `more` of them.

    Text, access logs and journals become a table first. `open_only` leaves out what was asked ON, as journals know it.
    """
    plain = unpacked(file, directory)
    if kind is None and journals.is_journal(plain):
        if len({other.resolve() for other in (file, *more)}) <= len(more):
            raise LogError(f"{file}: a journal is named twice, and its requests would count twice: name each once")
        for other in more:
            if not journals.is_journal(other):
                raise LogError(f"{other}: is no journal, and only journals are read together: leave it out")
        table = directory / "requests.parquet"
        names, notes = journals.write_events([plain, *more], table, open_only)
        return Opened(table, "journal", "parquet", EVENTS, tuple(notes), names)
    if more:
        raise LogError(f"{file}: is no journal, and only journals are read together: join logs into one file first")
    if open_only:
        raise LogError(f"{file}: only a journal says which requests were asked OFF: leave --open-only out")
    named = kind or kind_of(plain)
    if kind is None and named in (None, "json", "text"):
        refuse_own_files(plain)
    found = by_look(plain) if kind is None and named in (None, "text") else named or "text"
    notes = []
    if found != named:
        what = {"text": "text, a sequence in a line", "access": "the access log of a web server"}.get(found, found)
        notes.append(f"the name does not say what the log is: it is read as {what}; or say --format")
    table = directory / "sequences.parquet"
    if found == "access":
        if left_out := access.write_events(plain, table):
            notes.append(f"lines left out: {left_out}. Nothing was fetched there (no GET, or an error)")
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


def columns_of(
    ready: Opened, engine: Engine, wanted: Mapping[str, str | None], one_user: bool, time_format: str | None
) -> tuple[Columns, Mapping[str, Sequence[object]], list[str]]:
    """The columns to use, samples of them if there was a choice, and notes on what was guessed."""
    if ready.columns is not None:
        return _told(ready.columns, ready.kind, wanted["user"], wanted["source"], one_user), {}, []
    samples = engine.samples(ready.file, ready.readable)
    columns, notes = choose(wanted, samples, one_user)
    if columns.time is not None and time_format is None:
        refuse_unreadable_times(columns.time, samples[columns.time])
    return replace(columns, time_format=time_format), samples, notes


def _told(columns: Columns, kind: str, user: str | None, source: str | None, one_user: bool) -> Columns:
    """The columns of a table that was made here, as far as the caller wants others."""
    known = access.NAMES if kind == "access" else ()
    for role, name in (("user", user), ("source", source)):
        if name is not None and name not in known:
            there = f"there are {', '.join(known)}" if known else "sequences have none; leave it out"
            raise LogError(f"there is no column {name!r} for --{role}: {there}")
    if one_user and user is not None:
        raise LogError("one user, or users told apart by a column? Give --one-user or --user, not both")
    return replace(columns, user=None if one_user else user or columns.user, source=source or columns.source)
