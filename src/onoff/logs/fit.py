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
from onoff.logs import memory
from onoff.logs.count import MOST_WITH_MEMORY, Sources, Transitions, count_sources, count_transitions
from onoff.logs.engines import Columns, DuckDB, Engine, Spark, explain_errors
from onoff.logs.memory import AUTO, DEPTHS, Depth
from onoff.logs.read import FORMATS, Log, ReadOptions, open_log
from onoff.model.chain import Chain
from onoff.model.misfit import FEW, is_too_small
from onoff.types import Progress, Units, is_flag, is_number, is_whole, silent

MOST = 1000  # sources: for more no plan is made
OTHER = "other"
LARGEST = 1e300
LEAST = 1e-3  # transitions that a row rests on, if nothing was counted and nothing is added
SOME = 20  # events: in a log with as many, some source comes twice
WORTH = 0.1  # the least saving for which switching privacy OFF is worth the trouble


@dataclass(frozen=True)
class FitOptions(ReadOptions):
    """Options of `fit`, with those for reading; all are checked before the long work, not after it.

    Sources named in `without` are not in the chain: a request for one of them ends a sequence. So does a pause
    of more than `gap` seconds. The `top` sources are kept, the others become one. `smoothing` is added to every count
    (None: chosen by `onoff.logs.memory.choose_smoothing`). The habits remember up to `memory` requests, or as many as
    `onoff.logs.memory.choose_depth` says ("auto"). DuckDB uses `ram`, and counts unless `spark` names the master of a
    Spark.
    """

    without: Sequence[str] = ()
    gap: float | None = None
    top: int = 100
    smoothing: float | None = None
    memory: int | str = 1
    spark: str | None = None
    ram: str = "2GB"

    def __post_init__(self) -> None:
        for field in fields(self):
            is_right, needed = RULES[field.name]
            value = getattr(self, field.name)
            if not (is_right(value) or (value is None and field.default is None)):
                raise LogError(f"{field.name} is {short(value)}: {needed} is needed")


def _is_word(value: object) -> bool:
    return isinstance(value, str)


RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("user", "time", "source", "time_format", "ram"), (_is_word, "a word")),
    "one_user": (is_flag, "True or False"),
    "kind": (lambda kind: _is_word(kind) and kind in FORMATS, f"one of {', '.join(FORMATS)}"),
    "without": (lambda names: isinstance(names, list | tuple) and all(map(_is_word, names)), "a list of names"),
    "gap": (lambda gap: is_number(gap) and 0 < gap < LARGEST, "a number of seconds above 0"),
    "top": (lambda top: is_whole(top, 1) and top <= MOST, f"a number of sources from 1 to {MOST}"),
    "smoothing": (lambda added: is_number(added) and 0 <= added < LARGEST, "a finite number of at least 0"),
    "memory": (
        lambda depth: depth == AUTO if _is_word(depth) else is_whole(depth, 1) and depth <= len(DEPTHS),
        f"{AUTO}, 1, 2 or 3",
    ),
    "spark": (
        lambda master: _is_word(master) and master.startswith(("local", "spark:", "yarn", "k8s:")),
        "a master of Spark, such as local[*],",
    ),
}


@dataclass(frozen=True)
class Report:
    """Content of the log, how it was used, and what the chain is worth. All dropped rows are counted.

    rows = dropped_rows + breaks + events. A row without a user or a time is left out. One without a source, or with one
    that is not in the chain, ends its sequence. All others are `events`. `merged_sources` became one source, "other".
    `dead_ends` were never followed by anything; `unseen_cells` is the share of the n^2 transitions that nobody made.

    `bits` is the mean of -log2 P over transitions of readers who were held out in turn (`onoff.logs.memory`), None if
    one of them is called impossible; `marginal_bits` the same if only the frequencies of sources are known. The habits
    remember up to `memory` requests, and `depths` compares them with others; there is one of them for too many sources.
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
    memory: int
    depths: tuple[Depth, ...]
    verdict: str


@dataclass(frozen=True, eq=False)
class Fit:
    """A chain fitted to a log: counts[i, j] transitions from i to j, and the report."""

    chain: Chain
    counts: Units
    report: Report


@dataclass(frozen=True)
class _Counted:
    """Counts of a log, for the sources in `names`. A log `of_a_reader` is from journals."""

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
        closing(DuckDB(told.ram, Path(directory))) as reader,
        explain_errors(files[0]),
    ):
        with progress("reading")(None):
            opened = open_log(reader, files, told)
        if told.gap is not None and opened.columns.time is None:
            raise LogError(f"{files[0]}: has no times, so --gap means nothing; leave it out")
        with nullcontext(reader) if told.spark is None else closing(Spark(told.spark, reader)) as engine:
            counted = _count(engine, files[0], opened, told, progress)
    return _report(files[0], counted, told, progress)


def _count(engine: Engine, file: Path, log: Log, told: FitOptions, progress: Progress) -> _Counted:
    """Count in the table `log`."""
    notes = log.notes
    with progress("counting sources")(None):
        sources = count_sources(engine, told.top, told.without)
    sources = _with_all_names(file, sources, log.names, told.without)
    _check_rows(file, sources, log.columns)
    names, other = _name_sources(file, sources)
    depth = 1 if len(names) > MOST_WITH_MEMORY else 2 if told.memory == 1 else len(DEPTHS)
    if depth == 1 and told.memory != 1:
        raise LogError(f"{file}: habits of {len(names)} sources have no memory: keep 100 (--top), or use --memory 1")
    with progress("sorting by users")(None):
        parts = engine.divide(sources.rows)
    codes = {name: code for code, name in enumerate(sources.kept)} | dict.fromkeys(told.without, -1)
    with progress("counting transitions")(len(parts) * max(1, depth - 1) if len(parts) > 1 else None) as advance:
        found = count_transitions(engine, codes, len(names), other, told.gap, depth, sources.one_user, parts, advance)
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
    """Refuse columns that cannot be meant; a chain of them would look like any other."""
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


def _report(file: Path, log: _Counted, told: FitOptions, progress: Progress) -> Fit:
    """Make the chain from the counts, with its report."""
    found, notes, n = log.transitions, log.notes, len(log.names)
    pairs = found.levels[0].counts
    counts = pairs.sum(axis=0)
    transitions, sequences = int(counts.sum()), int(found.starts.sum())
    if not transitions:
        raise LogError(f"{file}: no two events in a row are one user's; nothing follows from them")
    if is_too_small(transitions, n):
        notes += (f"{transitions} transitions are few for {n} sources: do not rely on this chain",)
    smoothing = memory.choose_smoothing(pairs) if told.smoothing is None else float(told.smoothing)
    first = estimate(counts, found.starts, log.names, smoothing)
    with progress("contexts")(None):
        contexts = memory.fit_contexts(found.levels, first.P, smoothing)
        choices = [memory.choose_states(contexts, depth) for depth, _ in enumerate(found.levels, 1)]
        chosen = memory.choose_depth(contexts, choices) if told.memory == AUTO else DEPTHS.index(told.memory)
        depths = memory.compare(contexts, choices)
    states = choices[chosen]
    weight = np.maximum(contexts.weight[states], LEAST)
    if log.of_a_reader:  # how often each source was read is nobody's business
        weight = np.full(len(weight), weight.mean())
    chain = contexts.chain(states, log.names, weight)
    counted = vars(log.sources) | vars(found)
    report = Report(
        **{field.name: counted[field.name] for field in fields(Report) if field.name in counted},
        notes=notes,
        n=n,
        events=transitions + sequences,
        sequences=sequences,
        transitions=transitions,
        dead_ends=tuple(name for name, row in zip(log.names, counts, strict=True) if not row.any()),
        smoothing=smoothing,
        unseen_cells=float((counts == 0).mean()),
        bits=depths[chosen].bits,
        marginal_bits=memory.marginal_bits(pairs),
        memory=chosen + 1,
        depths=depths,
        verdict=verdict(depths[chosen].first_cost, n, transitions),
    )
    return Fit(chain, counts, report)


def estimate(pairs: Units, starts: Units, names: Sequence[str], smoothing: float) -> Chain:
    """Make the chain with P[i, j] proportional to pairs[i, j] + smoothing.

    After a source that nothing ever followed a new sequence begins: its row is that of `starts`.
    """
    dead = pairs.sum(axis=1, keepdims=True) == 0
    return Chain.from_counts(np.where(dead, starts, pairs), names, smoothing)


def verdict(first_cost: float, n: int, transitions: int) -> str:
    """Say whether OFF steps pay: whether the least cost of the first one is well below n, the cost of ON.

    No advice where the costs themselves cannot be relied on.
    """
    if is_too_small(transitions, n):
        return (
            f"No recommendation: {transitions} transitions are few for {n} sources, and the costs may be far off. "
            f"Collect at least {FEW * n}, or keep fewer sources (--top)."
        )
    saved = 1 - first_cost / n
    what = f"OFF saves download: at most {saved:.0%}" if saved >= WORTH else "ON all the time is nearly as cheap as OFF"
    least = f"no scheme of the promise past needs less than {first_cost:.2f} of {n} messages"
    return f"{what} at the first step after ON, where {least}. Later steps usually need fewer."
