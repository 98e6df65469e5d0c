"""The front door: a log in, a chain with its counts and a report out."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from onoff.errors import LogError
from onoff.extras import need
from onoff.files import path_of
from onoff.logs import quality
from onoff.logs.counting import BUCKETS, MOST_FOR_TRIPLES, Counts, Transitions
from onoff.logs.options import FitOptions
from onoff.logs.quality import Cost, HeldOut
from onoff.logs.region import Misfit, misfits
from onoff.logs.resampling import FEWEST, Interval
from onoff.logs.tally import Tally, tally
from onoff.model.chain import Chain
from onoff.model.chainfile import write
from onoff.model.misfit import too_few
from onoff.types import Mask, Progress, silent


@dataclass(frozen=True)
class Report:
    """What was in the log, what was done with it, and what the chain is worth. All that was dropped is counted here.

    rows = dropped_rows + breaks + events. A row without a user or a time is left out. One without a source, or with one
    that is not in the chain, ends its sequence. All others are `events`. `merged_sources` became one source,
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


def fit(log: str | PathLike[str], *more: str | PathLike[str], progress: Progress = silent, **options: Any) -> Fit:
    """Fit a chain to a log: CSV, JSON lines or Parquet with columns of users, times and sources, or text sequences.

    Logs of web servers (`onoff.logs.access`) and journals (`onoff.logs.journals`) are read, too. Journals may be `more`
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
        counts = tally(files, told, held, Path(directory), progress)
    return _fitted(counts, told, rng, progress)


def _ends(lags: Sequence[int]) -> list[int]:
    """The first and the last lag, of those up to 100."""
    near = [lag for lag in lags if lag <= 100]
    return sorted({min(near), max(near)}) if near else []


def _why_unknown(found: Transitions, held: Mask, told: FitOptions, one_user: bool) -> str:
    """Which condition for the distance from first order failed, and what to do."""
    if found.triples is None:
        return f"there are more than {MOST_FOR_TRIPLES} sources: --top {MOST_FOR_TRIPLES - 1} keeps fewer"
    if one_user:
        return "it takes many users, and this is a log of one"
    if told.held_out == 0:
        return "nobody is held out: --held-out 0.2"
    bucket = found.triples[0]
    if held[bucket].all():
        return "no training user has three requests in a row"
    filled = len(np.unique(bucket[held[bucket]]))
    least = math.ceil(100 * FEWEST / BUCKETS) / 100
    more = "more users" if told.held_out >= least else f"--held-out {least:g} or more"
    return (
        f"held-out users with three requests in a row are in {filled} of {BUCKETS} parts of the users, and an interval "
        f"takes {FEWEST}: {more}"
    )


def _fitted(log: Tally, told: FitOptions, rng: np.random.Generator, progress: Progress) -> Fit:
    """The chain of what was counted, with its report."""
    found, names, training = log.transitions, log.names, ~log.held
    counts, starts = found.pairs[training].sum(axis=0), found.starts[training].sum(axis=0)
    if not counts.any():
        raise LogError(f"{log.file}: training users have no two events in a row; nothing follows from them")
    chain = quality.estimate(counts, starts, names, told.smoothing)
    notes = [*log.notes]
    if (word := quality.smoothing_note(counts, told.smoothing)) is not None:
        notes.append(word)
    if too_few(counts.sum(), chain.n):
        notes.append(f"{counts.sum()} transitions are few for {chain.n} sources: do not rely on this chain")
    replicates = told.replicates
    if replicates is None:
        replicates = 50 if chain.n <= 50 else 20 if chain.n <= 200 else 0
    active = training & found.starts.any(axis=1)  # users without a single event that counts say nothing
    with progress("intervals")(replicates + 1) as advance:
        pairs, begun = found.pairs[active], found.starts[active]
        costs = tuple(quality.costs(pairs, begun, names, told.smoothing, list(told.lags), replicates, rng, advance))
    return Fit(chain, counts, _report(replace(log, notes=tuple(notes)), told, chain, counts, costs, rng))


def _report(
    log: Tally, told: FitOptions, chain: Chain, counts: Counts, costs: tuple[Cost, ...], rng: np.random.Generator
) -> Report:
    sources, found, held = log.sources, log.transitions, log.held
    gain = None if found.triples is None else quality.second_order_gain(counts, found.triples, held, rng)
    return Report(
        notes=log.notes,
        n=chain.n,
        rows=sources.rows,
        missing_user=sources.missing_user,
        missing_time=sources.missing_time,
        missing_source=sources.missing_source,
        dropped_rows=sources.dropped,
        breaks=found.breaks,
        events=int(found.pairs.sum() + found.starts.sum()),
        users=int(found.users.sum()),
        one_event_users=found.lone_users,
        sequences=int(found.starts.sum()),
        one_event_sequences=found.lone_sequences,
        transitions=int(found.pairs.sum()),
        equal_times=found.equal_times if log.timed else 0,
        out_of_order=found.out_of_order,
        sources=sources.distinct,
        merged_sources=sources.merged,
        merged_events=sources.merged_events,
        unseen_sources=sources.unseen,
        unseen_events=sources.unseen_events,
        dead_ends=tuple(name for name, row in zip(log.names, counts, strict=True) if not row.any()),
        training_users=int(found.users[~held].sum()),
        training_transitions=int(counts.sum()),
        smoothing=float(told.smoothing),
        unseen_cells=float((counts == 0).mean()),
        held_out=quality.held_out(chain, counts, found.pairs[held].sum(axis=0)),
        second_eigenvalue=quality.mixing(chain),
        second_order_gain=gain,
        second_order_unknown=None if gain is not None else _why_unknown(found, held, told, sources.one_user),
        misfit=misfits(chain, counts, told.smoothing, _ends(told.lags), rng),
        costs=costs,
        saving=quality.saving(costs, chain.n),
        verdict=quality.verdict(costs, chain.n, int(counts.sum())),
    )
