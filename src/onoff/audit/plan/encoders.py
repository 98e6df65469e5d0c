"""The encoder of one context, checked in integers.

For the request x and the set q_i of mass m_i, of D in all, it is a matrix of integers e[x, i]. It keeps the promise if

    e >= 0,   e[x, i] > 0 only if x in q_i,   sum_i e[x, i] > 0 iff p(x | u) > 0,   sum_x e[x, i] = m_i exactly.

Then the queries hold the request, and their law is m / D up to the total variation between row sums / D and p(. | u).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onoff.audit.plan.record import Finding, Table
from onoff.audit.plan.rows import ExactRows
from onoff.errors import ContextError, OnoffError
from onoff.types import Query


class Law:
    """The law that every encoder must have, as arrays."""

    def __init__(self, table: Table, names: tuple[str, ...]) -> None:
        self.table, self.names = table, names
        self.masses = np.array(table.masses, dtype=np.int64)
        self.member = np.zeros((len(names), len(table.sets)), dtype=bool)
        for i, query in enumerate(table.sets):
            self.member[list(query), i] = True


def check(plan: Any, law: Law, rows: ExactRows, last: int, next: int) -> Fraction | Finding | None:
    """The total variation in a context, exactly, or what is wrong with its encoder; None if it is impossible."""
    context = rows.lag, last, next
    possible = bool(rows.support(last, next))
    try:
        encoder = plan.encoder(last, next, rows.lag).tocoo()
    except ContextError as error:
        return Finding("contexts", f"a possible context is called impossible: {error}", context) if possible else None
    except OnoffError as error:
        witness = shortfall(law.table, rows.weights(last, next)) if possible else (None, None)
        return Finding("encoder", f"there is no encoder: {error}", context, *witness)
    if not possible:
        return Finding("contexts", "an impossible context has an encoder", context)
    x, i, units = encoder.row, encoder.col, encoder.data
    if encoder.shape != law.member.shape or units.dtype.kind not in "iu" or units.min(initial=0) < 0:
        return Finding("encoder", "not a table of non-negative integers, request by set", context)
    D = law.table.denominator
    if units.max(initial=0) > D:  # else sums of n of them fit 64 bits
        return Finding("columns", "one weight exceeds the denominator", context, law.table.sets[i[units.argmax()]])
    return _broken(x, i, units.astype(np.int64), law, context) or _distance(
        _sums(x, units, len(law.names)), rows.weights(last, next), law, context
    )


def _broken(
    x: NDArray[Any], i: NDArray[Any], units: NDArray[np.int64], law: Law, context: tuple[int, int, int]
) -> Finding | None:
    """Column sums and decodability."""
    sets, D = law.table.sets, law.table.denominator
    excess = _sums(i, units, len(sets)) - law.masses
    if excess.any():
        worst = int(abs(excess).argmax())
        off, way = abs(int(excess[worst])), "many" if excess[worst] > 0 else "few"
        return Finding("columns", f"a set has {off} of {D} units too {way}: the law differs here", context, sets[worst],
                       off / D)  # fmt: skip
    stray = (units > 0) & ~law.member[x, i]
    if stray.any():
        edge = int(stray.argmax())
        return Finding("decoding", f"the request {law.names[x[edge]]!r} is sent in a set without it", context,
                       sets[i[edge]], int(units[edge]) / D)  # fmt: skip
    return None


def _distance(
    sums: NDArray[np.int64], weights: list[int], law: Law, context: tuple[int, int, int]
) -> Fraction | Finding:
    """The total variation between sums / D and weights / total, exactly."""
    D, total, difference = law.table.denominator, sum(weights), 0
    for name, units, weight in zip(law.names, sums.tolist(), weights, strict=True):
        if (units > 0) != (weight > 0):
            what = "possible and has no set" if weight else "impossible and has a set"
            return Finding("requests", f"the request {name!r} is {what}", context, None, units / D)
        difference += abs(units * total - D * weight)
    return Fraction(difference, 2 * D * total)


def _sums(place: NDArray[Any], units: NDArray[Any], size: int) -> NDArray[np.int64]:
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, place, units.astype(np.int64))
    return sums


def shortfall(table: Table, weights: list[int]) -> tuple[Query | None, float | None]:
    """A set C with Pr[Q meets C] < p(C | u), and by how much: then no encoder exists. (None, None) if none is found.

    A minimum cut proposes C; the shortfall is computed from the exact row. Up to 4 n / D it is what plans may round.
    """
    from ortools.graph.python.max_flow import SimpleMaxFlow

    n, total, flow = len(weights), sum(weights), SimpleMaxFlow()
    source, sink = n + len(table.sets), n + len(table.sets) + 1
    for x, weight in enumerate(weights):
        flow.add_arc_with_capacity(source, x, table.denominator * weight // total)
    for i, (query, mass) in enumerate(zip(table.sets, table.masses, strict=True)):
        flow.add_arc_with_capacity(n + i, sink, mass)
        for x in query:
            flow.add_arc_with_capacity(x, n + i, table.denominator)
    if flow.solve(source, sink) != flow.OPTIMAL:
        return None, None
    cut = {int(x) for x in flow.get_source_side_min_cut() if x < n}
    meets = sum(mass for query, mass in zip(table.sets, table.masses, strict=True) if not cut.isdisjoint(query))
    short = Fraction(sum(weights[x] for x in cut), total) - Fraction(meets, table.denominator)
    return (tuple(sorted(cut)), float(short)) if short > Fraction(4 * n, table.denominator) else (None, None)
