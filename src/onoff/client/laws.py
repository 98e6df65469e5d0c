"""What auditors check a draw against: the law's digest, which the journal keeps, and the record of laws on `--record`.

A digest is the hex SHA-256 of these numbers as 64-bit integers, the low byte first: how many sets there are; for each
set its length and its members; the masses; then for every context, ascending, its number, how many entries its encoder
has, and these entries sorted by request and set: all requests, all positions of sets, all units.

The promise `past` has one digest for all contexts of a step, which is public. A table of the promise `both` has one for
the context (last, next) alone, with the number last * n + next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from onoff.types import Query, Units

if TYPE_CHECKING:
    from onoff.everyday import Step
    from onoff.plans.plan import Plan

Entries = tuple[int, Units, Units, Units]  # a context with the requests, the positions of sets and the units


def step_digest(step: Step) -> str:
    """The digest of a prepared step of the promise `past`: its law and the encoders of all contexts."""
    return digest(step.sets, step.masses, _entries_of(step))


def plan_digest(plan: Plan, last: int, next: int, lag: int) -> str | None:
    """The digest of a plan's table in one context; None if it has no table."""
    if plan.law is None:
        return None
    table = plan.encoder(last, next, lag)  # type: ignore[attr-defined]
    table.sum_duplicates()
    table.eliminate_zeros()
    rows = np.repeat(np.arange(plan.n), np.diff(table.indptr))
    entries = (last * plan.n + next, rows, table.indices, table.data)
    return digest(plan.sets, plan.masses, [entries])  # type: ignore[attr-defined]


def digest(sets: Sequence[Query], masses: Sequence[int], contexts: Iterable[Entries]) -> str:
    """The digest of a law and its encoders, in the layout above."""
    flat = [len(sets)]
    for query in sets:
        flat += [len(query), *query]
    found = hashlib.sha256(np.array([*flat, *masses], dtype="<i8").data)
    for number, *parts in contexts:
        found.update(np.concatenate([[number, len(parts[0])], *parts], dtype="<i8").data)
    return found.hexdigest()


def _entries_of(step: Step) -> Iterable[Entries]:
    """The entries of all encoders of a step, without a matrix for each: a context differs from its group in one set.

    That is the full set, the last one: every row gets an entry for it, which stands at the end of the row.
    """
    if step.encoders is None:
        return
    encoders, sources = step.encoders, np.flatnonzero(step.state.open_sources)
    flows, n, full = encoders.flows, len(sources), len(step.sets) - 1
    flows.sum_duplicates()  # sorts the entries of every row
    ends, used = flows.indptr[1:], np.diff(flows.indptr) > 0
    lacking = np.flatnonzero(~(used & (flows.indices[ends - 1] == full)))
    columns = np.insert(flows.indices, ends[lacking], full)
    shipped = np.insert(flows.data, ends[lacking], 0)
    ends = ends + np.searchsorted(lacking, np.arange(len(ends)), side="right")
    rows = np.repeat(np.tile(sources, encoders.groups), np.diff(ends, prepend=0))
    for i, context in enumerate(step.contexts):
        first = int(encoders.group[i]) * n
        here = slice(ends[first - 1] if first else 0, ends[first + n - 1])
        units = shipped[here].copy()
        units[ends[first : first + n] - 1 - here.start] += encoders.extra[i]
        kept = units != 0
        yield context, rows[here][kept], columns[here][kept], units[kept]
