"""The front door: a log in, a chain with its counts and a report out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from os import PathLike
from pathlib import Path
from reprlib import repr as short
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from onoff.errors import LogError
from onoff.extras import need
from onoff.files import path_of
from onoff.logs import quality
from onoff.logs.count import BUCKETS, Sources, Transitions, count_sources, count_transitions
from onoff.logs.engines import Columns, DuckDB, Engine, Spark
from onoff.logs.quality import Cost, HeldOut, Interval
from onoff.logs.read import FORMATS, TICKS, choose_columns, open_log, ticks_per_second
from onoff.logs.region import Misfit, misfits
from onoff.model import chainfile
from onoff.model.chain import Chain
from onoff.model.misfit import is_too_small
from onoff.types import Mask, Progress, Units, is_flag, is_number, is_whole, silent

MOST = 1000  # sources: for more no plan is made, and 64 n^2 counts would not fit into memory
OTHER = "other"
SOME = 20  # events: in a log with as many, some source comes twice


@dataclass(frozen=True)
class FitOptions:
    """What `fit` can be told; everything is checked before the long work, not after it.

    `user`, `time` and `source` name columns; they are guessed if not given. Without a column of users, or with
    `one_user`, all rows are one user's. `time_format` is that of `strptime`, for times other than ISO 8601 and seconds.
    `kind` is one of `onoff.logs.read.FORMATS`, if the name does not say it. `open_only` leaves out what was asked ON,
    which the journal of a client knows. Sources that are named in `without` are not in the chain: a request for one of
    them ends a sequence.

    A pause of more than `gap` seconds starts a new sequence. The `top` sources with at least `min_count` events are
    kept, the others become one. The chain, with `smoothing` added to every count, is fitted on users outside the
    share `held_out`, chosen by `seed`; they test it. Costs are reported at `lags`, and `replicates` is the number of
    bootstrap samples for their intervals (None: 50, or 20 above 50 sources, or none above 200). DuckDB uses `memory`;
    `engine="spark"` counts at the master `spark`.
    """

    user: str | None = None
    time: str | None = None
    source: str | None = None
    one_user: bool = False
    time_format: str | None = None
    kind: str | None = None
    open_only: bool = False
    without: Sequence[str] = ()
    gap: float | None = None
    top: int = 100
    min_count: int = 1
    smoothing: float = 1.0
    held_out: float = 0.2
    seed: int = 1
    lags: Sequence[int] = range(1, 11)
    replicates: int | None = None
    engine: str = "duckdb"
    spark: str = "local[*]"
    memory: str = "2GB"

    def __post_init__(self) -> None:
        for name in ("user", "time", "source", "time_format", "kind", "engine", "spark", "memory"):
            value = getattr(self, name)
            if not isinstance(value, str) and not (value is None and name not in ("engine", "spark", "memory")):
                self._refuse(name, "a word")
        for name in ("one_user", "open_only"):
            if not is_flag(getattr(self, name)):
                self._refuse(name, "True or False")
        for name in ("min_count", "seed", "replicates"):
            if not is_whole(getattr(self, name)) and not (name == "replicates" and self.replicates is None):
                self._refuse(name, "a whole number of at least 0")
        listed = isinstance(self.without, Sequence) and not isinstance(self.without, str)
        if not listed or not all(isinstance(name, str) for name in self.without):
            self._refuse("without", "a list of names")
        if self.gap is not None and not (is_number(self.gap) and self.gap > 0):
            self._refuse("gap", "a number of seconds above 0")
        if not (is_whole(self.top, 1) and self.top <= MOST):
            self._refuse("top", f"a number of sources from 1 to {MOST}")
        if not (is_number(self.smoothing) and 0 <= self.smoothing <= sys.float_info.max):
            self._refuse("smoothing", "a finite number of at least 0")
        if not (is_number(self.held_out) and 0 <= self.held_out < 1):
            self._refuse("held_out", "a share of at least 0 and below 1")
        lags = tuple(self.lags) if isinstance(self.lags, Iterable) else ()
        if not lags or not all(is_whole(lag, 1) for lag in lags):
            self._refuse("lags", "a list of whole numbers of at least 1")
        if self.kind is not None and self.kind not in FORMATS:
            self._refuse("kind", f"one of {', '.join(FORMATS)}")
        if self.engine not in ("duckdb", "spark"):
            self._refuse("engine", "duckdb or spark")
        if self.time_format is not None and self.engine != "duckdb":
            raise LogError("--time-format is read by DuckDB only: for Spark write the times in ISO 8601, or as seconds")
        object.__setattr__(self, "lags", lags)  # an iterator is gone through once
        object.__setattr__(self, "smoothing", float(self.smoothing))
        if self.gap is not None:
            object.__setattr__(self, "gap", float(min(self.gap, sys.float_info.max)))  # whole numbers know no bound

    def _refuse(self, name: str, needed: str) -> None:
        raise LogError(f"{name} is {short(getattr(self, name))}: {needed} is needed")


@dataclass(frozen=True)
class Report:
    """What was in the log, what was done with it, and what the chain is worth. All that was dropped is counted here.

    rows = dropped_rows + breaks + events. A row without a user or a time is left out. One without a source, or with one
    that is not in the chain, ends its sequence. All others are `events`. `merged_sources` became one source,
    "other". `unseen_sources` were asked for by held-out users only: they count as "other" if there is one.
    `dead_ends` were never followed by anything in training; `unseen_cells` is the share of the n^2 transitions that
    training never saw. `second_order_gain` is None where it takes more users or fewer sources.
    """

    notes: tuple[str, ...]
    n: int
    rows: int
    missing_user: int
    missing_time: int
    missing_source: int
    dropped_rows: int
    breaks: int
    events: int
    users: int
    one_event_users: int
    sequences: int
    one_event_sequences: int
    transitions: int
    equal_times: int
    out_of_order: int
    sources: int
    merged_sources: int
    merged_events: int
    unseen_sources: int
    unseen_events: int
    dead_ends: tuple[str, ...]
    training_users: int
    training_transitions: int
    smoothing: float
    unseen_cells: float
    held_out: HeldOut | None
    second_eigenvalue: float
    second_order_gain: Interval | None
    misfit: tuple[Misfit, ...]
    costs: tuple[Cost, ...]
    saving: float
    verdict: str


@dataclass(frozen=True, eq=False)
class Fit:
    """A chain fitted on the training users of a log: counts[i, j] transitions from i to j, and the report."""

    chain: Chain
    counts: Units
    report: Report

    def save(self, path: str | PathLike[str]) -> None:
        """Write the chain as JSON with its counts (`onoff.model.chainfile.read_counts`); `Chain.load` reads it."""
        if path_of(path, "the file of a chain", LogError).suffix.lower() != ".json":
            raise LogError(f"{path}: a chain with its counts is written as JSON; give a name that ends in .json")
        report = self.report
        about = {key: getattr(report, key) for key in ("smoothing", "training_users", "training_transitions")}
        about["dead_ends"] = list(report.dead_ends)
        chainfile.write(path, self.chain, {"counts": self.counts.tolist(), "fit": about})

    def to_json(self) -> str:
        return json.dumps(asdict(self.report), indent=2, ensure_ascii=False)


@dataclass(frozen=True)
class _Counted:
    """What was counted in a log, for the sources in `names`; `held` are the buckets of users that are held out."""

    names: list[str]
    sources: Sources
    transitions: Transitions
    held: Mask
    notes: tuple[str, ...]


def fit(log: str | PathLike[str], *more: str | PathLike[str], progress: Progress = silent, **options: Any) -> Fit:
    """Fit a chain to a log: CSV, JSON lines or Parquet with columns of users, times and sources, or text sequences.

    Logs of web servers (`onoff.logs.read`) and journals (`onoff.logs.journals`) are read, too. Journals may be `more`
    than one: they are read one after the other, and the chain has the sources of all.
    `options` are the fields of `FitOptions`. One user alone is never held out. `progress` shows each part of the work.
    """
    told = FitOptions(**options)
    need("spark" if told.engine == "spark" else "logs", "fitting a chain to a log")
    files = [path_of(each, "the log", LogError) for each in (log, *more)]
    rng = np.random.default_rng(told.seed)
    held = np.zeros(BUCKETS, bool)
    held[rng.permutation(BUCKETS)[: max(told.held_out > 0, round(told.held_out * BUCKETS))]] = True
    with TemporaryDirectory(prefix="onoff-fit-") as directory:
        counted = _count(files, told, held, Path(directory), progress)
    return _estimate(files[0], counted, told, rng, progress)


def _count(files: Sequence[Path], told: FitOptions, held: Mask, directory: Path, progress: Progress) -> _Counted:
    """Read a log, or several journals, and count in it. Of one user alone, nobody is held out after all."""
    file, *more = files
    with progress("reading")(None):
        log = open_log(file, told.kind, directory, told.open_only, more)
        engine: Engine = DuckDB(told.memory, directory) if told.engine == "duckdb" else Spark(told.spark)
    with closing(engine), engine.explained(file):
        wanted = {"user": told.user, "time": told.time, "source": told.source}
        samples = engine.samples(log.file, log.readable)
        columns, guesses = choose_columns(wanted, list(samples), told.one_user, told.time_format)
        notes, ticks = [*log.notes, *guesses], 1
        if told.gap is not None and (columns.time is None or log.kind in ("text", "journal")):
            raise LogError(f"{file}: has no times, so --gap means nothing; leave it out")
        if told.gap is not None and told.time_format is None and columns.time is not None:
            ticks = ticks_per_second(columns.time, samples[columns.time])
        if ticks > 1:
            notes.append(f"the times in {columns.time!r} look like {TICKS[ticks]} and are taken for them")
        engine.open(log.file, log.readable, columns)
        with progress("counting sources")(None):
            choice = told.top, told.min_count, told.without
            sources = count_sources(engine, np.flatnonzero(held).tolist(), *choice)
            if sources.one_user and held.any():
                held = np.zeros_like(held)
                notes.append("one user: nobody is held out, so how well the chain predicts is not known")
                sources = count_sources(engine, (), *choice)
        sources = _with_all_names(file, sources, log.names, told.without)
        _check_rows(file, sources, columns)
        names, other = _name_sources(file, sources)
        with progress("sorting by users")(None):
            parts = engine.divide(sources.rows)
        codes = {name: code for code, name in enumerate(sources.kept)} | dict.fromkeys(told.without, -1)
        gap = None if told.gap is None else told.gap * ticks
        with progress("counting transitions")(len(parts) if len(parts) > 1 else None) as advance:
            found = count_transitions(engine, codes, len(names), other, gap, parts, advance)
    if sources.merged_sources:
        notes.append(f"{sources.merged_sources} sources became {names[-1]!r}: --top and --min-count say which are kept")
    if columns.time is None:
        found = replace(found, equal_times=0)
    return _Counted(names, sources, found, held, tuple(notes))


def _with_all_names(file: Path, sources: Sources, names: tuple[str, ...] | None, without: Sequence[str]) -> Sources:
    """Check the sources that are left out, and keep all others of a log that has told the `names` of all."""
    for name in without:
        if name not in (*sources.left_out, *(names or ())):
            which = "" if names is None else f": it has {', '.join(names)}"
            raise LogError(f"{file}: has no source {name!r}, which --without names{which}")
    if names is None or len(names) > MOST:
        return sources
    kept = tuple(name for name in names if name not in without)
    return replace(sources, kept=kept, merged_sources=0, merged_events=0)


def _check_rows(file: Path, sources: Sources, columns: Columns) -> None:
    """Columns that cannot be meant are refused here; a chain of them would look like any other."""
    if 2 * sources.missing_time > sources.rows:
        read_as = columns.time_format or "ISO 8601, or as a number of seconds"
        raise LogError(
            f"{file}: most times in {columns.time!r} cannot be read as {read_as}; give --time-format, such as "
            "'%m/%d/%Y %H:%M' for 05/31/2024 14:00"
        )
    if sources.rows in (sources.dropped_rows, sources.missing_source):
        raise LogError(f"{file}: no row has a user, a time and a source; are these the right columns?")
    events = sources.rows - sources.dropped_rows - sources.missing_source
    if events >= SOME and sources.sources >= events:
        raise LogError(f"{file}: no source was asked for twice; is {columns.source!r} the right column for --source?")


def _name_sources(file: Path, sources: Sources) -> tuple[list[str], int | None]:
    """Check the names of the chain before the long work; add one for the merged sources, with its code, if needed."""
    names, other = list(sources.kept), None
    if sources.merged_sources:
        other = len(names)
        names.append(OTHER if OTHER not in names else f"{OTHER} (merged)")
    if len(names) < 2:
        raise LogError(
            f"{file}: of the sources {len(names)} is left, a chain needs at least 2: fewer --held-out users, a smaller "
            "--min-count or a larger --top may leave more"
        )
    Chain(np.eye(len(names)), names)
    return names, other


def _estimate(file: Path, log: _Counted, told: FitOptions, rng: np.random.Generator, progress: Progress) -> Fit:
    """Make the chain of what was counted, with its report."""
    found, training = log.transitions, ~log.held
    counts, starts = found.pairs[training].sum(axis=0), found.starts[training].sum(axis=0)
    if not counts.any():
        raise LogError(f"{file}: training users have no two events in a row; nothing follows from them")
    chain = quality.estimate(counts, starts, log.names, told.smoothing)
    notes = [*log.notes]
    if (word := quality.smoothing_note(counts, told.smoothing)) is not None:
        notes.append(word)
    if is_too_small(counts.sum(), chain.n):
        notes.append(f"{counts.sum()} transitions are few for {chain.n} sources: do not rely on this chain")
    replicates = told.replicates
    if replicates is None:
        replicates = 50 if chain.n <= 50 else 20 if chain.n <= 200 else 0
    active = training & found.starts.any(axis=1)  # users without a single event that counts say nothing
    with progress("intervals")(replicates + 1) as advance:
        pairs, begun = found.pairs[active], found.starts[active]
        costs = tuple(quality.costs(pairs, begun, log.names, told.smoothing, list(told.lags), replicates, rng, advance))
    return Fit(chain, counts, _report(replace(log, notes=tuple(notes)), told, chain, counts, costs, rng))


def _report(
    log: _Counted, told: FitOptions, chain: Chain, counts: Units, costs: tuple[Cost, ...], rng: np.random.Generator
) -> Report:
    found, held = log.transitions, log.held
    counted = vars(log.sources) | vars(found)
    near = [lag for lag in told.lags if lag <= 100]
    return Report(
        **{field.name: counted[field.name] for field in fields(Report) if field.name in counted},
        notes=log.notes,
        n=chain.n,
        events=int(found.pairs.sum() + found.starts.sum()),
        users=int(found.users_by_bucket.sum()),
        sequences=int(found.starts.sum()),
        transitions=int(found.pairs.sum()),
        dead_ends=tuple(name for name, row in zip(log.names, counts, strict=True) if not row.any()),
        training_users=int(found.users_by_bucket[~held].sum()),
        training_transitions=int(counts.sum()),
        smoothing=float(told.smoothing),
        unseen_cells=float((counts == 0).mean()),
        held_out=quality.held_out(chain, counts, found.pairs[held].sum(axis=0)),
        second_eigenvalue=quality.mixing(chain),
        second_order_gain=quality.second_order_gain(counts, found.triples, held, rng),
        misfit=misfits(chain, counts, told.smoothing, sorted({min(near), max(near)}) if near else [], rng),
        costs=costs,
        saving=quality.saving(costs, chain.n),
        verdict=quality.verdict(costs, chain.n, int(counts.sum())),
    )
