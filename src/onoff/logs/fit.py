"""The front door: a log in, a chain with its counts and a report out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, fields, replace
from math import isfinite
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
from onoff.logs.count import Sources, Transitions, count_sources, count_transitions
from onoff.logs.engines import Columns, DuckDB, Engine, Spark, explained
from onoff.logs.quality import LAGS
from onoff.logs.read import FORMATS, Log, ReadOptions, open_log
from onoff.logs.region import Misfit, misfits
from onoff.model.bounds import outer_bound
from onoff.model.chain import Chain
from onoff.model.misfit import is_too_small
from onoff.types import Progress, Units, is_flag, is_number, is_whole, silent

MOST = 1000  # sources: for more no plan is made, and 64 n^2 counts would not fit into memory
OTHER = "other"
LARGEST = 1e300
LEAST = 1e-3  # transitions that a row rests on, if nothing was counted and nothing is added
SOME = 20  # events: in a log with as many, some source comes twice
SEED = 1  # of the chains that the counts leave plausible


@dataclass(frozen=True)
class FitOptions(ReadOptions):
    """What `fit` can be told, with the options for reading; everything is checked before the long work, not after it.

    Sources that are named in `without` are not in the chain: a request for one of them ends a sequence. So does a pause
    of more than `gap` seconds. The `top` sources are kept, the others become one. `smoothing` is added to every count
    (None: chosen by `onoff.logs.quality.choose_smoothing`). DuckDB uses `memory`, and counts unless `spark` names the
    master of a Spark.
    """

    without: Sequence[str] = ()
    gap: float | None = None
    top: int = 100
    smoothing: float | None = None
    spark: str | None = None
    memory: str = "2GB"

    def __post_init__(self) -> None:
        for field in fields(self):
            is_right, needed = RULES[field.name]
            value = getattr(self, field.name)
            if not (is_right(value) or (value is None and field.default is None)):
                raise LogError(f"{field.name} is {short(value)}: {needed} is needed")


def _is_word(value: object) -> bool:
    return isinstance(value, str)


RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("user", "time", "source", "time_format", "memory"), (_is_word, "a word")),
    "one_user": (is_flag, "True or False"),
    "kind": (lambda kind: _is_word(kind) and kind in FORMATS, f"one of {', '.join(FORMATS)}"),
    "without": (lambda names: isinstance(names, list | tuple) and all(map(_is_word, names)), "a list of names"),
    "gap": (lambda gap: is_number(gap) and 0 < gap < LARGEST, "a number of seconds above 0"),
    "top": (lambda top: is_whole(top, 1) and top <= MOST, f"a number of sources from 1 to {MOST}"),
    "smoothing": (lambda added: is_number(added) and 0 <= added < LARGEST, "a finite number of at least 0"),
    "spark": (
        lambda master: _is_word(master) and master.startswith(("local", "spark:", "yarn", "k8s:")),
        "a master of Spark, such as local[*],",
    ),
}


@dataclass(frozen=True)
class Report:
    """What was in the log, what was done with it, and what the chain is worth. All that was dropped is counted here.

    rows = dropped_rows + breaks + events. A row without a user or a time is left out. One without a source, or with one
    that is not in the chain, ends its sequence. All others are `events`. `merged_sources` became one source, "other".
    `dead_ends` were never followed by anything; `unseen_cells` is the share of the n^2 transitions that nobody made.

    `bits` is the mean of -log2 P over transitions of readers who were held out in turn (`onoff.logs.quality`), None if
    one of them is called impossible; `marginal_bits` the same if only the frequencies of sources are known.
    `second_order_gain` is None for too many sources. `costs` are outer bounds at lags 1 to 10, in messages per request.
    """

    notes: tuple[str, ...]
    n: int
    rows: int
    missing_user: int
    missing_time: int
    dropped_rows: int
    breaks: int
    events: int
    users: int
    sequences: int
    transitions: int
    sources: int
    merged_sources: int
    dead_ends: tuple[str, ...]
    smoothing: float
    unseen_cells: float
    bits: float | None
    marginal_bits: float
    second_order_gain: float | None
    misfit: tuple[Misfit, ...]
    costs: tuple[float, ...]
    verdict: str


@dataclass(frozen=True, eq=False)
class Fit:
    """A chain fitted to a log: counts[i, j] transitions from i to j, and the report."""

    chain: Chain
    counts: Units
    report: Report


@dataclass(frozen=True)
class _Counted:
    """What was counted in a log, for the sources in `names`. A log `of_a_reader` is one of journals."""

    names: list[str]
    of_a_reader: bool
    sources: Sources
    transitions: Transitions
    notes: tuple[str, ...]


def fit(log: str | PathLike[str], *more: str | PathLike[str], progress: Progress = silent, **options: Any) -> Fit:
    """Fit a chain to a log: CSV, JSON lines or Parquet with columns of users, times and sources, or text sequences.

    Logs of web servers and journals (`onoff.logs.read`) are read, too. Journals may be `more` than one: they are read
    one after the other, and the chain has the sources of all.
    `options` are the fields of `FitOptions`. `progress` shows each part of the work.
    """
    told = FitOptions(**options)
    need("logs" if told.spark is None else "spark", "fitting a chain to a log")
    files = [path_of(each, "the log", LogError) for each in (log, *more)]
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
            counted = _count(engine, files[0], opened, told, progress)
    return _estimate(files[0], counted, told.smoothing, progress)


def _count(engine: Engine, file: Path, log: Log, told: FitOptions, progress: Progress) -> _Counted:
    """Count in the table `log`."""
    notes = log.notes
    with progress("counting sources")(None):
        sources = count_sources(engine, told.top, told.without)
    sources = _with_all_names(file, sources, log.names, told.without)
    _check_rows(file, sources, log.columns)
    names, other = _name_sources(file, sources)
    with progress("sorting by users")(None):
        parts = engine.divide(sources.rows)
    codes = {name: code for code, name in enumerate(sources.kept)} | dict.fromkeys(told.without, -1)
    with progress("counting transitions")(len(parts) if len(parts) > 1 else None) as advance:
        found = count_transitions(engine, codes, len(names), other, told.gap, sources.one_user, parts, advance)
    if sources.merged_sources:
        notes += (f"{sources.merged_sources} sources became {names[-1]!r}: --top says how many are kept",)
    return _Counted(names, log.names is not None, sources, found, notes)


def _with_all_names(file: Path, sources: Sources, names: tuple[str, ...] | None, without: Sequence[str]) -> Sources:
    """Check the sources that are left out, and keep all others of a log that has told the `names` of all."""
    for name in without:
        if name not in (*sources.left_out, *(names or ())):
            which = "" if names is None else f": it has {', '.join(names)}"
            raise LogError(f"{file}: has no source {name!r}, which --without names{which}")
    if names is None or len(names) > MOST:
        return sources
    kept = tuple(name for name in names if name not in without)
    return replace(sources, kept=kept, merged_sources=0)


def _check_rows(file: Path, sources: Sources, columns: Columns) -> None:
    """Columns that cannot be meant are refused here; a chain of them would look like any other."""
    if 2 * sources.missing_time > sources.rows:
        read_as = columns.time_format or "ISO 8601, or as a number of seconds"
        raise LogError(
            f"{file}: most times in {columns.time!r} cannot be read as {read_as}; give --time-format, such as "
            "'%m/%d/%Y %H:%M' for 05/31/2024 14:00"
        )
    if not sources.requests:
        raise LogError(f"{file}: no row has a user, a time and a source; are these the right columns?")
    if sources.requests >= SOME and sources.sources >= sources.requests:
        raise LogError(f"{file}: no source was asked for twice; is {columns.source!r} the right column for --source?")


def _name_sources(file: Path, sources: Sources) -> tuple[list[str], int | None]:
    """Check the names of the chain before the long work; add one for the merged sources, with its code, if needed."""
    names, other = list(sources.kept), None
    if sources.merged_sources:
        other = len(names)
        names.append(OTHER if OTHER not in names else f"{OTHER} (merged)")
    if len(names) < 2:
        raise LogError(f"{file}: it has {len(names)} source, and a chain needs 2")
    try:
        Chain(np.eye(len(names)), names)
    except ChainError as error:
        raise LogError(f"{file}: {error}") from None
    return names, other


def _estimate(file: Path, log: _Counted, smoothing: float | None, progress: Progress) -> Fit:
    """Make the chain of what was counted, with its report."""
    found, notes = log.transitions, log.notes
    counts, starts = found.pairs.sum(axis=0), found.starts.sum(axis=0)
    transitions, sequences = int(counts.sum()), int(starts.sum())
    if not transitions:
        raise LogError(f"{file}: no two events in a row are one user's; nothing follows from them")
    smoothing = quality.choose_smoothing(found.pairs) if smoothing is None else float(smoothing)
    chain = quality.estimate(counts, starts, log.names, smoothing)
    weight = counts.sum(axis=1) + smoothing * chain.n
    if log.of_a_reader:  # how often each source was read is nobody's business
        weight = np.full(chain.n, weight.mean())
    chain = Chain(chain.P, chain.names, np.maximum(weight, LEAST))
    if is_too_small(transitions, chain.n):
        notes += (f"{transitions} transitions are few for {chain.n} sources: do not rely on this chain",)
    bits = float(quality.held_out_bits(found.pairs, np.array([smoothing]))[0])
    with progress("costs")(None):
        costs = tuple(outer_bound(chain.posterior(lag)) for lag in LAGS)
    counted = vars(log.sources) | vars(found)
    report = Report(
        **{field.name: counted[field.name] for field in fields(Report) if field.name in counted},
        notes=notes,
        n=chain.n,
        events=transitions + sequences,
        sequences=sequences,
        transitions=transitions,
        dead_ends=tuple(name for name, row in zip(log.names, counts, strict=True) if not row.any()),
        smoothing=smoothing,
        unseen_cells=float((counts == 0).mean()),
        bits=bits if isfinite(bits) else None,
        marginal_bits=quality.marginal_bits(found.pairs),
        second_order_gain=None if found.triples is None else quality.second_order_gain(chain.n, found.triples),
        misfit=misfits(chain, counts, smoothing, (LAGS[0], LAGS[-1]), np.random.default_rng(SEED)),
        costs=costs,
        verdict=quality.verdict(costs, chain.n, transitions),
    )
    return Fit(chain, counts, report)
