"""The front door: a log in, a chain with its counts and a report out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path
from reprlib import repr as short
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from onoff.errors import ChainError, LogError
from onoff.extras import need
from onoff.files import path_of
from onoff.logs import quality
from onoff.logs.count import BUCKETS, Sources, Transitions, count_sources, count_transitions
from onoff.logs.engines import Columns, DuckDB, Engine, Spark, explained
from onoff.logs.quality import Cost, HeldOut, Interval
from onoff.logs.read import FORMATS, Log, ReadOptions, open_log
from onoff.logs.region import Misfit, misfits
from onoff.model.bounds import outer_bound
from onoff.model.chain import Chain
from onoff.model.misfit import is_too_small
from onoff.types import Mask, Progress, Units, is_flag, is_number, is_whole, silent

MOST = 1000  # sources: for more no plan is made, and 64 n^2 counts would not fit into memory
OTHER = "other"
LARGEST = 1e300
SOME = 20  # events: in a log with as many, some source comes twice


@dataclass(frozen=True)
class FitOptions(ReadOptions):
    """What `fit` can be told, with the options for reading; everything is checked before the long work, not after it.

    Sources that are named in `without` are not in the chain: a request for one of them ends a sequence. So does a pause
    of more than `gap` seconds. The `top` sources are kept, the others become one. The chain is fitted on users outside
    the share `held_out`, chosen by `seed`; those inside test it. `smoothing` is added to every count (None: chosen by
    `onoff.logs.quality.choose_smoothing`). Costs are reported at `lags`. DuckDB uses `memory`, and counts unless
    `spark` names the master of a Spark.
    """

    without: Sequence[str] = ()
    gap: float | None = None
    top: int = 100
    smoothing: float | None = None
    held_out: float = 0.2
    seed: int = 1
    lags: Sequence[int] = range(1, 11)
    spark: str | None = None
    memory: str = "2GB"

    def __post_init__(self) -> None:
        for name, (is_right, needed) in RULES.items():
            value = getattr(self, name)
            if not (is_right(value) or (value is None and name in OPTIONAL)):
                raise LogError(f"{name} is {short(value)}: {needed} is needed")


def _is_word(value: object) -> bool:
    return isinstance(value, str)


def _is_list(value: object, is_right: Callable[[Any], bool]) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(map(is_right, value))


OPTIONAL = {"user", "time", "source", "time_format", "kind", "gap", "smoothing", "spark"}
RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("user", "time", "source", "time_format"), (_is_word, "a word")),
    "one_user": (is_flag, "True or False"),
    "kind": (lambda kind: _is_word(kind) and kind in FORMATS, f"one of {', '.join(FORMATS)}"),
    "without": (lambda names: _is_list(names, _is_word), "a list of names"),
    "gap": (lambda gap: is_number(gap) and 0 < gap < LARGEST, "a number of seconds above 0"),
    "top": (lambda top: is_whole(top, 1) and top <= MOST, f"a number of sources from 1 to {MOST}"),
    "smoothing": (lambda added: is_number(added) and 0 <= added < LARGEST, "a finite number of at least 0"),
    "held_out": (lambda share: is_number(share) and 0 <= share < 1, "a share of at least 0 and below 1"),
    "seed": (is_whole, "a whole number of at least 0"),
    "lags": (lambda lags: _is_list(lags, lambda lag: is_whole(lag, 1)) and bool(lags), "a list of numbers from 1"),
    "spark": (
        lambda master: _is_word(master) and master.startswith(("local", "spark:", "yarn", "k8s:")),
        "a master of Spark, such as local[*],",
    ),
    "memory": (_is_word, "a word such as 2GB"),
}


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
    sequences: int
    transitions: int
    sources: int
    merged_sources: int
    merged_events: int
    unseen_sources: int
    dead_ends: tuple[str, ...]
    training_users: int
    training_transitions: int
    smoothing: float
    unseen_cells: float
    held_out: HeldOut | None
    second_order_gain: Interval | None
    misfit: tuple[Misfit, ...]
    costs: tuple[Cost, ...]
    verdict: str


@dataclass(frozen=True, eq=False)
class Fit:
    """A chain fitted on the training users of a log: counts[i, j] transitions from i to j, and the report."""

    chain: Chain
    counts: Units
    report: Report


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

    Logs of web servers and journals (`onoff.logs.read`) are read, too. Journals may be `more` than one: they are read
    one after the other, and the chain has the sources of all.
    `options` are the fields of `FitOptions`. One user alone is never held out. `progress` shows each part of the work.
    """
    told = FitOptions(**options)
    need("logs" if told.spark is None else "spark", "fitting a chain to a log")
    files = [path_of(each, "the log", LogError) for each in (log, *more)]
    rng = np.random.default_rng(told.seed)
    held = np.zeros(BUCKETS, bool)
    held[rng.permutation(BUCKETS)[: max(told.held_out > 0, round(told.held_out * BUCKETS))]] = True
    with (
        TemporaryDirectory(prefix="onoff-fit-") as directory,
        closing(DuckDB(told.memory, Path(directory))) as reader,
        explained(files[0]),
    ):
        with progress("reading")(None):
            opened = open_log(reader, files, told)
        if told.gap is not None and opened.columns.time is None:
            raise LogError(f"{files[0]}: has no times, so --gap means nothing; leave it out")
        with nullcontext(reader) if told.spark is None else closing(Spark(told.spark, reader)) as engine:
            counted = _count(engine, files[0], opened, told, held, progress)
    return _estimate(files[0], counted, told, rng, progress)


def _count(engine: Engine, file: Path, log: Log, told: FitOptions, held: Mask, progress: Progress) -> _Counted:
    """Count in the table `log`. Of one user alone, nobody is held out after all."""
    notes = [*log.notes]
    with progress("counting sources")(None):
        sources = count_sources(engine, np.flatnonzero(held).tolist(), told.top, told.without)
        if sources.one_user and held.any():
            held = np.zeros_like(held)
            notes.append("one user: nobody is held out, so how well the chain predicts is not known")
            sources = count_sources(engine, (), told.top, told.without)
    sources = _with_all_names(file, sources, log.names, told.without)
    _check_rows(file, sources, log.columns)
    names, other = _name_sources(file, sources)
    with progress("sorting by users")(None):
        parts = engine.divide(sources.rows)
    codes = {name: code for code, name in enumerate(sources.kept)} | dict.fromkeys(told.without, -1)
    with progress("counting transitions")(len(parts) if len(parts) > 1 else None) as advance:
        found = count_transitions(engine, codes, len(names), other, told.gap, sources.one_user, parts, advance)
    if sources.merged_sources:
        notes.append(f"{sources.merged_sources} sources became {names[-1]!r}: --top says how many are kept")
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
        raise LogError(f"{file}: the training users ask for {len(names)} source, and a chain needs 2")
    try:
        Chain(np.eye(len(names)), names)
    except ChainError as error:
        raise LogError(f"{file}: {error}") from None
    return names, other


def _estimate(file: Path, log: _Counted, told: FitOptions, rng: np.random.Generator, progress: Progress) -> Fit:
    """Make the chain of what was counted, with its report."""
    found, training = log.transitions, ~log.held
    counts, starts = found.pairs[training].sum(axis=0), found.starts[training].sum(axis=0)
    if not counts.any():
        raise LogError(f"{file}: training users have no two events in a row; nothing follows from them")
    given = told.smoothing
    smoothing = quality.choose_smoothing(found.pairs[training]) if given is None else float(given)
    chain = quality.estimate(counts, starts, log.names, smoothing)
    if is_too_small(counts.sum(), chain.n):
        few = f"{counts.sum()} transitions are few for {chain.n} sources: do not rely on this chain"
        log = replace(log, notes=(*log.notes, few))
    with progress("costs")(None):
        costs = tuple(Cost(lag, outer_bound(chain.posterior(lag))) for lag in told.lags)
    return Fit(chain, counts, _report(log, told, smoothing, chain, counts, costs, rng))


def _report(
    log: _Counted,
    told: FitOptions,
    smoothing: float,
    chain: Chain,
    counts: Units,
    costs: tuple[Cost, ...],
    rng: np.random.Generator,
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
        smoothing=smoothing,
        unseen_cells=float((counts == 0).mean()),
        held_out=quality.held_out(chain, counts, found.pairs[held].sum(axis=0)),
        second_order_gain=quality.second_order_gain(counts, found.triples, held),
        misfit=misfits(chain, counts, smoothing, sorted({min(near), max(near)}) if near else [], rng),
        costs=costs,
        verdict=quality.verdict(costs, chain.n, int(counts.sum())),
    )
