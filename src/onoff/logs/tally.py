"""From a log to counts: open it, choose its columns and its sources, and count what came after what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from onoff.errors import LogError
from onoff.logs.counting import Sources, Transitions, count_sources, count_transitions
from onoff.logs.engines import DuckDB, Engine, Spark
from onoff.logs.opening import columns_of, opened
from onoff.logs.options import MOST, FitOptions
from onoff.logs.reading import TICKS, Columns, refuse_dates_as_numbers, ticks_per_second
from onoff.model.chain import Chain
from onoff.types import Mask, Progress

OTHER = "other"
SOME = 20  # events: in a log with as many, some source comes twice


@dataclass(frozen=True)
class Tally:
    """What was counted in a log, for the sources that are `names`; `held` are the buckets of users that are held out.

    `timed` says whether the log has times, and `notes` what was taken for granted.
    """

    file: Path
    names: list[str]
    sources: Sources
    transitions: Transitions
    held: Mask
    timed: bool
    notes: tuple[str, ...]


def tally(files: Sequence[Path], told: FitOptions, held: Mask, directory: Path, progress: Progress) -> Tally:
    """Read a log, or several journals, and count in it. Of one user alone, nobody is held out after all."""
    file, *more = files
    with progress("reading")(None):
        ready = opened(file, told.kind, directory, told.open_only, more)
        engine: Engine = DuckDB(told.memory, directory) if told.engine == "duckdb" else Spark(told.spark)
    with closing(engine), engine.explained(file):
        wanted = {role: getattr(told, role) for role in ("user", "time", "source")}
        columns, samples, guesses = columns_of(ready, engine, wanted, told.one_user, told.time_format)
        notes = [*ready.notes, *guesses]
        if told.gap is not None and (columns.time is None or ready.kind in ("text", "journal")):
            raise LogError(f"{file}: has no times, so --gap means nothing; leave it out")
        ticks = _ticks(columns, samples, told)
        if ticks > 1:
            notes.append(f"the times in {columns.time!r} look like {TICKS[ticks]} and are taken for them")
        table, known = engine.table(ready.file, ready.readable, columns), ready.names
        if told.without:
            table, known = _left_out(file, table, known, told.without)
        with progress("counting sources")(None):
            sources = count_sources(table, set(np.flatnonzero(held).tolist()), told.top, told.min_count)
            if sources.one_user and held.any():
                held = np.zeros_like(held)
                notes.append("one user: nobody is held out, so how well the chain predicts is not known")
                sources = count_sources(table, set(), told.top, told.min_count)
        if known is not None and len(known) <= MOST:
            sources = replace(sources, kept=known, merged=0, merged_events=0)
        _check_rows(file, sources, columns)
        names, other = _names(file, sources)
        with progress("sorting by users")(None):
            parts = engine.parts(table, sources.rows)
        gap = None if told.gap is None else told.gap * ticks
        with progress("counting transitions")(len(parts) if len(parts) > 1 else None) as advance:
            transitions = count_transitions(parts, sources.kept, other, gap, advance)
    if sources.merged:
        notes.append(f"{sources.merged} sources became {names[-1]!r}: --top and --min-count say which are kept")
    return Tally(file, names, sources, transitions, held, columns.time is not None, tuple(notes))


def _left_out(
    file: Path, table: Any, names: tuple[str, ...] | None, without: Sequence[str]
) -> tuple[Any, tuple[str, ...] | None]:
    """The table in which rows of these sources have none, and the other names if all are known."""
    gone = table.source.isin(list(without))
    there = (
        names
        if names is not None
        else table.filter(gone).select("source").distinct().to_pyarrow()["source"].to_pylist()
    )
    for name in without:
        if name not in there:
            which = "" if names is None else f": it has {', '.join(names)}"
            raise LogError(f"{file}: has no source {name!r}, which --without names{which}")
    kept = table.mutate(source=gone.ifelse(None, table.source))
    return kept, None if names is None else tuple(name for name in names if name not in without)


def _ticks(columns: Columns, samples: Mapping[str, Sequence[object]], told: FitOptions) -> int:
    """How many units of the times are a second, if a gap is to be compared with them."""
    time = columns.time
    if told.gap is None or told.time_format is not None or time is None or time not in samples:
        return 1
    refuse_dates_as_numbers(time, samples[time])
    return ticks_per_second(samples[time])


def _check_rows(file: Path, sources: Sources, columns: Columns) -> None:
    """Columns that cannot be meant are refused here; a chain of them would look like any other."""
    if sources.missing_time == sources.rows and columns.time_format is not None:
        raise LogError(f"{file}: no time in {columns.time!r} has the format {columns.time_format!r}")
    events = sources.rows - sources.dropped - sources.missing_source
    if events >= SOME and sources.distinct >= events:
        raise LogError(f"{file}: no source was asked for twice; is {columns.source!r} the right column for --source?")


def _names(file: Path, sources: Sources) -> tuple[list[str], int | None]:
    """The names of the chain, checked before the long work, and the code of the merged sources if there are any."""
    if sources.rows in (sources.dropped, sources.missing_source):
        raise LogError(f"{file}: no row has a user, a time and a source; are these the right columns?")
    names, other = list(sources.kept), None
    if sources.merged:
        other = len(names)
        names.append(OTHER if OTHER not in names else f"{OTHER} (merged)")
    if len(names) < 2:
        raise LogError(
            f"{file}: of the sources {len(names)} is left, a chain needs at least 2: fewer --held-out users, a smaller "
            "--min-count or a larger --top may leave more"
        )
    Chain(np.eye(len(names)), names)
    return names, other
