"""What auditors check a draw against: the digest of its law, which the journal keeps, and the record of all laws.

A digest is the hex SHA-256 of these numbers as 64-bit integers, the low byte first: how many sets there are; for each
set its length and its members; the masses; then for every context, ascending, its number, how many entries its encoder
has, and these entries sorted by request and set: all requests, all positions of sets, all units.

The promise `past` has one digest for all contexts of a step, which is public. A table of the promise `both` has one for
the context (last, next) alone, with the number last * n + next.

The record (`--record FILE`) has the law and the encoders of every OFF step of the promise `past`, noted before the step
is begun: one JSON object a line, without any secret (no request, no context, no query).

    {"format": "onoff-law", "version": 2, "stream": hex, "step": t, "place": [...], "joined": [...], "charge": hex,
     "law": {...}}

`place`, `joined` and `charge` are those of the state in which the step was prepared (`onoff.everyday.Everyday`), and
`law` is `Step.as_dict`. A step that was recorded but not begun, because the client was killed, is recorded again: the
last line of a step counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.errors import OnoffError
from onoff.files import append_line, told
from onoff.types import Query, Units

if TYPE_CHECKING:
    from onoff.everyday import Step
    from onoff.plans.plan import Plan

Entries = tuple[int, Units, Units, Units]  # a context with the requests, the positions of sets and the units


HEAD = b'{"format": "onoff-law", '  # how every line of a record begins


def law_line(stream: str, number: int, step: Step) -> bytes:
    """The line of a prepared step."""
    state = step.state
    line = {
        "format": "onoff-law",
        "version": 2,
        "stream": stream,
        "step": number,
        "place": list(state.place),
        "joined": list(state.joined),
        "charge": state.charge.hex(),
        "law": step.as_dict(),
    }
    return json.dumps(line).encode() + b"\n"


def record(file: Path, line: bytes) -> None:
    """Append a line to the record. Raises `OnoffError` if that fails; then nothing was asked."""
    try:
        append_line(file, line, HEAD)
    except (OSError, OnoffError) as error:
        why = told(error) if isinstance(error, OSError) else error
        raise OnoffError(f"the law of a step cannot be recorded, and nothing was asked: {why}") from None


def step_digest(step: Step) -> str:
    """The digest of a prepared step of the promise `past`: its law and the encoders of all contexts."""
    return _digest(_hashed(step.sets, step.masses), _entries_of(step))


class PlanDigests:
    """Digests of plans in one context. Sets and masses of the newest plan are hashed once."""

    def __init__(self) -> None:
        self._plan: Plan | None = None

    def of(self, plan: Plan, last: int, next: int, lag: int) -> str | None:
        """The digest of a plan's table in one context; None for a race, which has none."""
        if plan.kind != "table":
            return None
        if plan is not self._plan:
            self._plan, self._law = plan, _hashed(plan.law.sets, plan.law.masses)
        table = plan.encoder(last, next, lag)  # type: ignore[attr-defined]
        table.sum_duplicates()
        table.eliminate_zeros()
        rows = np.repeat(np.arange(plan.n), np.diff(table.indptr))
        return _digest(self._law.copy(), [(last * plan.n + next, rows, table.indices, table.data)])


def _hashed(sets: Sequence[Query], masses: Sequence[int]) -> Any:
    """The hash of a law, to which contexts are added."""
    flat = [len(sets)]
    for query in sets:
        flat += [len(query), *query]
    return hashlib.sha256(np.array([*flat, *masses], dtype="<i8").data)


def _digest(law: Any, contexts: Iterable[Entries]) -> str:
    for number, *parts in contexts:
        law.update(np.concatenate([[number, len(parts[0])], *parts], dtype="<i8").data)
    return str(law.hexdigest())


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
