"""Lower bounds proved again, in integers and fractions, from nothing but the chain and the multipliers.

For multipliers mu_C >= 0 every realisable law costs at least

    sum_C mu_C pi(C) + min_q ( c(q) - sum_{C : q meets C} mu_C ),    pi(C) = max_u p(C | u),

where q runs over the sets that meet the support of every context. Any context u gives p(C | u) <= pi(C), so floats may
choose the context: only p(C | u) must be exact. The minimum is taken over all 2^n sets up to TABLE sources; beyond,
CP-SAT is asked for a set below what is claimed, and has to prove that there is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np

from onoff.audit.plan.record import Table
from onoff.audit.plan.rows import ExactRows
from onoff.model.powers import times
from onoff.types import Floats, Query

SHIFT = 40  # multipliers are in units of 2^-SHIFT times the power of two not above the longest length
TABLE = 20


@dataclass(frozen=True)
class Proof:
    """No scheme costs less than `value`; `method` says what the proof rests on.

    If the claim was not proved, `value` is what is proved instead and `limiting` the set q that stands in the way.
    """

    value: Fraction
    method: str
    limiting: Query | None = None


def outer(rows: ExactRows, lengths: Sequence[float] | None) -> Proof:
    """sum_x c_x max_u p(x | u): each source a cut of its own, with its length as multiplier."""
    prices = [Fraction(1)] * rows.n if lengths is None else [Fraction(c) for c in lengths]
    total = Fraction(0)
    for x, (last, next) in enumerate(_witnesses(rows, lambda block: block)):
        weights = rows.weights(last, next)
        total += prices[x] * Fraction(weights[x], sum(weights))
    return Proof(total, "the outer bound")


def prove(table: Table, claimed: float, rows: ExactRows, lengths: Sequence[float] | None, seconds: float) -> Proof:
    """What the certificate of the table proves, or enough of it to reach the claim."""
    if table.kind == "outer":
        return outer(rows, lengths)
    if table.kind == "sizes":
        return _sizes(table.weights, rows, lengths)
    return _cuts(table, claimed, rows, lengths, seconds)


def _cuts(table: Table, claimed: float, rows: ExactRows, lengths: Sequence[float] | None, seconds: float) -> Proof:
    """Multiplier weights[i] for the set cuts[i]."""
    used = [(cut, weight) for cut, weight in zip(table.cuts, table.weights, strict=True) if weight]
    cuts, weights = [cut for cut, _ in used], [weight for _, weight in used]
    longest = 1.0 if lengths is None else max(lengths)
    unit = Fraction(2) ** (math.frexp(longest)[1] - 1 - SHIFT)
    prices = [int(Fraction(c) / unit) for c in lengths or [1.0] * rows.n]  # rounded down: the bound stays one
    if sum(prices) + sum(weights) >= 2**62:
        return Proof(Fraction(0), "nothing: the multipliers do not fit 64-bit integers")
    reached = sum((w * p for w, p in zip(weights, _reached(rows, cuts), strict=True)), Fraction(0))
    if rows.n <= TABLE:
        least, limiting = _least(rows, cuts, weights, prices)
        return Proof(unit * (reached + least), f"cuts and the minimum over all 2^{rows.n} sets", limiting)
    needed = math.ceil(Fraction(claimed) / unit - reached)  # the minimum is an integer
    needed = max(-sum(weights), min(needed, sum(prices) + 1))  # where it lies anyway; a claim may be any number
    blocked = _below(rows, cuts, weights, prices, needed, seconds)
    if isinstance(blocked, str):
        return Proof(Fraction(0), f"nothing: CP-SAT answered {blocked} within {seconds:g} s")
    if blocked is None:
        return Proof(unit * (reached + needed), "cuts, and CP-SAT that no set is below")
    return Proof(unit * (reached + _value(blocked, cuts, weights, prices)), "cuts, against one set", blocked)


def _witnesses(rows: ExactRows, values: Callable[[Floats], Floats]) -> list[tuple[int, int]]:
    """For each column of `values(rows of some contexts)`, the context where it is largest, as floats see it."""
    best: Floats | None = None
    where = np.empty((0, 2), dtype=np.intp)
    for contexts, block in rows.chain.posterior(rows.lag).blocks():
        found = values(block)
        top = found.argmax(axis=0)
        height = found[top, np.arange(found.shape[1])]
        if best is None:
            best, where = height, contexts[top]
        else:
            where = np.where((height > best)[:, None], contexts[top], where)
            best = np.maximum(height, best)
    return [(int(last), int(next)) for last, next in where]


def _reached(rows: ExactRows, cuts: list[Query]) -> list[Fraction]:
    """p(C | u) exactly, for each cut in its best context."""
    if not cuts:
        return []
    member = np.zeros((rows.n, len(cuts)))
    for i, cut in enumerate(cuts):
        member[list(cut), i] = 1.0
    found = []
    for cut, (last, next) in zip(cuts, _witnesses(rows, lambda block: times(block, member)), strict=True):
        weights = rows.weights(last, next)
        found.append(Fraction(sum(weights[x] for x in cut), sum(weights)))
    return found


def _value(query: Query, cuts: list[Query], weights: list[int], prices: list[int]) -> int:
    """price(q) - weight of the cuts met."""
    chosen = set(query)
    met = sum(weight for cut, weight in zip(cuts, weights, strict=True) if not chosen.isdisjoint(cut))
    return sum(prices[x] for x in query) - met


def _least(rows: ExactRows, cuts: list[Query], weights: list[int], prices: list[int]) -> tuple[int, Query]:
    """The minimum over all non-empty sets that meet every support, and a set that attains it."""
    sets = np.arange(1, 1 << rows.n, dtype=np.int64)  # set number q holds the sources of its bits
    value = np.zeros(len(sets), dtype=np.int64)
    for x, price in enumerate(prices):
        value += price * (sets >> x & 1)
    for cut, weight in zip(cuts, weights, strict=True):
        value -= weight * (sets & sum(1 << x for x in cut) > 0)
    for support in rows.supports():
        value[sets & support == 0] = 2**62
    best = int(value.argmin())
    return int(value[best]), tuple(x for x in range(rows.n) if best + 1 >> x & 1)


def _below(
    rows: ExactRows, cuts: list[Query], weights: list[int], prices: list[int], needed: int, seconds: float
) -> Query | str | None:
    """A set whose value is below `needed`, None if it is proved that there is none, else the solver's answer."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    chosen = [model.new_bool_var(f"source {x}") for x in range(rows.n)]
    met = [model.new_bool_var(f"cut {i}") for i in range(len(cuts))]
    for cut, flag in zip(cuts, met, strict=True):  # a flag may be raised only if the cut is met
        model.add_bool_or([chosen[x] for x in cut] + [~flag])
    for support in rows.supports():
        model.add_bool_or([chosen[x] for x in range(rows.n) if support >> x & 1])
    value = cp_model.LinearExpr.weighted_sum(chosen + met, prices + [-w for w in weights])
    model.add(value <= needed - 1)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 2
    status: Any = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return tuple(x for x in range(rows.n) if solver.boolean_value(chosen[x]))
    return str(solver.status_name(status))


def _sizes(weights: Sequence[int], rows: ExactRows, lengths: Sequence[float] | None) -> Proof:
    """Multiplier weights[c-1] spread evenly over all sets of c sources, on a chain whose pi(C) depends on |C| only.

    A set of k sources misses a random set of c with probability binom(n-c, k) / binom(n, k).
    """
    n = rows.n
    if lengths is not None or not _symmetric(rows):
        return Proof(Fraction(0), "nothing: the chain is not symmetric, or messages have lengths")
    reached = Fraction(0)
    for c, (last, next) in enumerate(_witnesses(rows, lambda block: np.sort(block)[:, ::-1].cumsum(axis=1)), start=1):
        row = sorted(rows.weights(last, next), reverse=True)
        reached += weights[c - 1] * Fraction(sum(row[:c]), sum(row))
    least = min(
        (k << SHIFT) - sum(w * (1 - Fraction(comb(n - c, k), comb(n, k))) for c, w in enumerate(weights, start=1))
        for k in range(1, n + 1)
    )
    return Proof((reached + least) / 2**SHIFT, "symmetry, cuts by size and the minimum over all sizes")


def _symmetric(rows: ExactRows) -> bool:
    """Whether P is one value a on a permutation F and one value b elsewhere, and every context is possible.

    Then P = b J + (a - b) F and P^lag = b' J + (a - b)^lag F^lag: the row of (i, k) is special at F^lag(i) and at
    F^-1(k), so that relabelling sources permutes the rows, and pi(C) is a function of |C|.
    """
    P = rows.chain.P
    common = np.median(P)
    special = common != P
    if special.any():
        once = (special.sum(axis=0) == 1).all() and (special.sum(axis=1) == 1).all()
        if not once or len(np.unique(P[special])) > 1:
            return False
    return all(rows.support(last, next) for last in range(rows.n) for next in range(rows.n))
