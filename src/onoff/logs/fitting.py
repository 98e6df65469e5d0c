"""The front door: a log in, a chain with its counts and a report out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
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
from onoff.logs.counting import (
    BUCKETS,
    MOST_FOR_TRIPLES,
    Counts,
    Sources,
    Transitions,
    count_sources,
    count_transitions,
)
from onoff.logs.engines import DuckDB, Engine, Spark
from onoff.logs.opening import columns_of, opened
from onoff.logs.quality import Cost, HeldOut
from onoff.logs.reading import FORMATS, TICKS, Columns, refuse_dates_as_numbers, ticks_per_second
from onoff.logs.region import Misfit, misfits
from onoff.logs.resampling import FEWEST, Interval
from onoff.model.chain import Chain
from onoff.model.chainfile import write
from onoff.model.misfit import too_few
from onoff.types import Mask, Progress, is_flag, is_number, is_whole, silent

OTHER = "other"
SOME = 20  # events: in a log with as many, some source comes twice
MOST = 1000  # sources: for more no plan is made, and 64 n^2 counts would not fit into memory


@dataclass(frozen=True)
class FitOptions:
    """What `fit` can be told; everything is checked before the long work, not after it.

    `user`, `time` and `source` name columns; they are guessed if not given. Without a column of users, or with
    `one_user`, all rows are one user's. `time_format` is that of `strptime`, for times other than ISO 8601 and seconds.
    `kind` is one of `onoff.logs.reading.FORMATS`, if neither name nor look says it. `open_only` leaves out what was
    asked ON, which the journal of a client knows.

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
        for name in ("user", "time", "source", "time_format", "kind"):
            if not isinstance(getattr(self, name), str | None):
                raise LogError(f"{name} is {short(getattr(self, name))}: a word is needed, or None")
        for name in ("engine", "spark", "memory"):
            if not isinstance(getattr(self, name), str):
                raise LogError(f"{name} is {short(getattr(self, name))}: a word is needed")
        for name in ("one_user", "open_only"):
            if not is_flag(getattr(self, name)):
                raise LogError(f"{name} is {short(getattr(self, name))}: True or False is needed")
        if self.kind is not None and self.kind not in FORMATS:
            raise LogError(f"{self.kind!r} is no kind of log: {', '.join(FORMATS)}")
        if self.gap is not None and not (is_number(self.gap) and self.gap > 0):
            raise LogError(f"the gap is {self.gap!r}: a number of seconds above 0 is needed")
        if not (is_whole(self.top, 1) and self.top <= MOST):
            raise LogError(f"top is {self.top!r}: from 1 to {MOST} sources can be kept")
        replicates = 0 if self.replicates is None else self.replicates
        if not all(is_whole(number) for number in (self.min_count, self.seed, replicates)):
            raise LogError("min_count, seed and replicates are whole numbers of at least 0")
        if not (is_number(self.smoothing) and 0 <= self.smoothing < math.inf):
            raise LogError(f"smoothing is {self.smoothing!r}: a finite number of at least 0 is needed")
        if not (is_number(self.held_out) and 0 <= self.held_out < 1):
            raise LogError(f"the held-out share is {self.held_out!r}: it is at least 0 and below 1")
        if not isinstance(self.lags, Iterable) or not list(self.lags) or not all(is_whole(lag, 1) for lag in self.lags):
            raise LogError("lags are whole numbers of at least 1")
        if self.engine not in ("duckdb", "spark"):
            raise LogError(f"{self.engine!r} is no engine: duckdb or spark")
        if self.time_format is not None and self.engine != "duckdb":
            raise LogError("--time-format is read by DuckDB only: for Spark write the times in ISO 8601, or as seconds")
        object.__setattr__(self, "smoothing", float(self.smoothing))  # whole numbers of Python know no bound
        object.__setattr__(self, "gap", None if self.gap is None else float(self.gap))


@dataclass(frozen=True)
class Report:
    """What was in the log, what was done with it, and what the chain is worth. All that was dropped is counted here.

    rows = dropped_rows + breaks + events: a row without a user or a time is left out; one without a source, or with
    one that is not in the chain, ends its sequence; `events` are all others. `merged_sources` became one source,
    "other". `unseen_sources` were asked for by held-out users only: they count as "other" if there is one.
    `dead_ends` were never followed by anything in training; `unseen_cells` is the share of the n^2 transitions that
    training never saw. `second_order_unknown` says which condition for `second_order_gain` failed, if it is None.
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
    second_order_unknown: str | None
    misfit: tuple[Misfit, ...]
    costs: tuple[Cost, ...]
    saving: float
    verdict: str


@dataclass(frozen=True, eq=False)
class Fit:
    """A chain fitted on the training users of a log: counts[i, j] transitions from i to j, and the report."""

    chain: Chain
    counts: Counts
    report: Report

    def save(self, path: str | PathLike[str]) -> None:
        """Write the chain as JSON with its counts (`onoff.model.chainfile.read_counts`); `Chain.load` reads it."""
        if path_of(path, "the file of a chain", LogError).suffix.lower() != ".json":
            raise LogError(f"{path}: a chain with its counts is written as JSON; give a name that ends in .json")
        report = self.report
        about = {key: getattr(report, key) for key in ("smoothing", "training_users", "training_transitions")}
        about["dead_ends"] = list(report.dead_ends)
        write(path, self.chain, {"counts": self.counts.tolist(), "fit": about})

    def to_json(self) -> str:
        return json.dumps(asdict(self.report), indent=2, ensure_ascii=False)


def fit(log: str | PathLike[str], *, progress: Progress = silent, **options: Any) -> Fit:
    """Fit a chain to a log: CSV, JSON lines or Parquet with columns of users, times and sources, or text sequences.

    Logs of web servers (`onoff.logs.access`) and journals (`onoff.logs.journals`) are read, too.
    `options` are the fields of `FitOptions`. One user alone is never held out. `progress` shows each part of the work.
    """
    told = FitOptions(**options)
    need("spark" if told.engine == "spark" else "logs", "fitting a chain to a log")
    file = path_of(log, "the log", LogError)
    rng = np.random.default_rng(told.seed)
    held = np.zeros(BUCKETS, bool)
    held[rng.permutation(BUCKETS)[: max(told.held_out > 0, round(told.held_out * BUCKETS))]] = True
    with TemporaryDirectory(prefix="onoff-fit-") as name:
        directory = Path(name)
        with progress("reading")(None):
            ready = opened(file, told.kind, directory, told.open_only)
            notes = list(ready.notes)
            chosen: Engine = DuckDB(told.memory, directory) if told.engine == "duckdb" else Spark(told.spark)
        with closing(chosen), chosen.explained(file):
            wanted, gap = {role: getattr(told, role) for role in ("user", "time", "source")}, told.gap
            columns, samples, guesses = columns_of(ready, chosen, wanted, told.one_user, told.time_format)
            notes += guesses
            if gap is not None and (columns.time is None or ready.kind in ("text", "journal")):
                raise LogError(f"{file}: has no times, so --gap means nothing; leave it out")
            if gap is not None and columns.time is not None and columns.time in samples and told.time_format is None:
                refuse_dates_as_numbers(columns.time, samples[columns.time])
                if (ticks := ticks_per_second(samples[columns.time])) > 1:
                    gap *= ticks
                    notes.append(f"the times in {columns.time!r} look like {TICKS[ticks]} and are taken for them")
            table = chosen.table(ready.file, ready.readable, columns)
            with progress("counting sources")(None):
                sources = count_sources(table, set(np.flatnonzero(held).tolist()), told.top, told.min_count)
                if sources.one_user and held.any():
                    held[:] = False
                    notes.append("one user: nobody is held out, so how well the chain predicts is not known")
                    sources = count_sources(table, set(), told.top, told.min_count)
            if ready.names is not None and len(ready.names) <= MOST:
                sources = replace(sources, kept=ready.names, merged=0, merged_events=0)
            _check_rows(file, sources, columns)
            names, other = _names(file, sources)
            with progress("sorting by users")(None):
                parts = chosen.parts(table, sources.rows)
            with progress("counting transitions")(len(parts) if len(parts) > 1 else None) as advance:
                counted = count_transitions(parts, sources.kept, other, gap, advance)
    if sources.merged:
        notes.append(f"{sources.merged} sources became {names[-1]!r}: --top and --min-count say which are kept")
    settled = columns.time is not None
    return _fitted(file, names, sources, counted, held, settled, told, rng, progress, notes)


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


def _ends(lags: Sequence[int]) -> list[int]:
    """The first and the last lag, of those up to 100."""
    near = [lag for lag in lags if lag <= 100]
    return sorted({min(near), max(near)}) if near else []


def _why_unknown(counted: Transitions, held: Mask, told: FitOptions, one_user: bool) -> str:
    """Which condition for the distance from first order failed, and what to do."""
    if counted.triples is None:
        return f"there are more than {MOST_FOR_TRIPLES} sources: --top {MOST_FOR_TRIPLES - 1} keeps fewer"
    if one_user:
        return "it takes many users, and this is a log of one"
    if told.held_out == 0:
        return "nobody is held out: --held-out 0.2"
    bucket = counted.triples[0]
    if held[bucket].all():
        return "no training user has three requests in a row"
    filled = len(np.unique(bucket[held[bucket]]))
    least = math.ceil(100 * FEWEST / BUCKETS) / 100
    more = "more users" if told.held_out >= least else f"--held-out {least:g} or more"
    return (
        f"held-out users with three requests in a row are in {filled} of {BUCKETS} parts of the users, and an interval "
        f"takes {FEWEST}: {more}"
    )


def _fitted(
    file: Path,
    names: list[str],
    sources: Sources,
    counted: Transitions,
    held: Mask,
    settled: bool,
    told: FitOptions,
    rng: np.random.Generator,
    progress: Progress,
    notes: list[str],
) -> Fit:
    smoothing, lags, replicates = told.smoothing, told.lags, told.replicates
    counts, starts = counted.pairs[~held].sum(axis=0), counted.starts[~held].sum(axis=0)
    if not counts.any():
        raise LogError(f"{file}: training users have no two events in a row; nothing follows from them")
    chain = quality.estimate(counts, starts, names, smoothing)
    if (word := quality.smoothing_note(counts, smoothing)) is not None:
        notes.append(word)
    n = len(names)
    if too_few(counts.sum(), n):
        notes.append(f"{counts.sum()} transitions are few for {n} sources: do not rely on this chain")
    if replicates is None:
        replicates = 50 if n <= 50 else 20 if n <= 200 else 0
    training = ~held & counted.starts.any(axis=1)  # users without a single event that counts say nothing
    with progress("intervals")(replicates + 1) as advance:
        pairs, begun = counted.pairs[training], counted.starts[training]
        rows = tuple(quality.costs(pairs, begun, names, smoothing, list(lags), replicates, rng, advance))
    gain = None if counted.triples is None else quality.second_order_gain(counts, counted.triples, held, rng)
    report = Report(
        notes=tuple(notes),
        n=n,
        rows=sources.rows,
        missing_user=sources.missing_user,
        missing_time=sources.missing_time,
        missing_source=sources.missing_source,
        dropped_rows=sources.dropped,
        breaks=counted.breaks,
        events=int(counted.pairs.sum() + counted.starts.sum()),
        users=int(counted.users.sum()),
        one_event_users=counted.lone_users,
        sequences=int(counted.starts.sum()),
        one_event_sequences=counted.lone_sequences,
        transitions=int(counted.pairs.sum()),
        equal_times=counted.equal_times if settled else 0,
        out_of_order=counted.out_of_order,
        sources=sources.distinct,
        merged_sources=sources.merged,
        merged_events=sources.merged_events,
        unseen_sources=sources.unseen,
        unseen_events=sources.unseen_events,
        dead_ends=tuple(name for name, row in zip(names, counts, strict=True) if not row.any()),
        training_users=int(counted.users[~held].sum()),
        training_transitions=int(counts.sum()),
        smoothing=float(smoothing),
        unseen_cells=float((counts == 0).mean()),
        held_out=quality.held_out(chain, counts, counted.pairs[held].sum(axis=0)),
        second_eigenvalue=quality.mixing(chain),
        second_order_gain=gain,
        second_order_unknown=None if gain is not None else _why_unknown(counted, held, told, sources.one_user),
        misfit=misfits(chain, counts, smoothing, _ends(lags), rng),
        costs=rows,
        saving=quality.saving(rows, n),
        verdict=quality.verdict(rows, n, int(counts.sum())),
    )
    return Fit(chain, counts, report)
