"""Proofs that no scheme costs less: lower bounds recomputed here, in integers and fractions, rounded down.

For any multipliers mu_C >= 0 of sets C of sources, with pi(C) = max_u p(C | u),

    sum_C mu_C pi(C) + min_q ( |q| - sum_{C : q meets C} mu_C )  <=  the cost of every realisable law,

since such a law meets C with probability at least pi(C). The minimum runs over all non-empty sets q: it is computed
over all of them (n <= 20) or bounded by CP-SAT, which works in integers. A solver only proposes the multipliers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np

from onoff.model.bounds import down, is_symmetric, outer_bound
from onoff.model.posterior import Posterior, Rows
from onoff.model.powers import times, whole_times
from onoff.schemes.law import as_matrix, as_sets
from onoff.types import Floats, Mask, Units

SHIFT = 40  # multipliers are integers in units of 2^-SHIFT
SUPPORTS = 6000  # supports of contexts that sets are made to meet; using fewer only weakens bounds
TABLE_LIMIT = 20  # up to here the minimum is taken over all 2^n sets


@dataclass(frozen=True)
class Certificate:
    """A lower bound and what proves it.

    `kind` is "outer" (the paper's outer bound, singletons with multiplier 1), "cuts" (multiplier `weights[i]` for the
    set `cuts[i]`) or "sizes" (multiplier `weights[c-1]` spread evenly over all sets of c sources). The unit of weights
    is 2^-SHIFT.
    """

    kind: str
    bound: float
    cuts: tuple[tuple[int, ...], ...] = ()
    weights: tuple[int, ...] = ()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Certificate:
        """Read the values of `dataclasses.asdict`, perhaps from JSON."""
        return cls(data["kind"], data["bound"], tuple(map(tuple, data["cuts"])), tuple(data["weights"]))


def sizes_reached(rows: Rows) -> Floats:
    """max pi(C) over the sets C of c sources, for c = 1..n; on a symmetric chain, pi of each such C."""
    tops = [np.sort(block, axis=1)[:, ::-1].cumsum(axis=1).max(axis=0) for block in map(rows.group, range(rows.groups))]
    reached: Floats = np.max(tops, axis=0)
    reached[-1] = 1.0
    return reached


def supports(rows: Rows) -> Mask:
    """Find the smallest distinct supports that omit a source. Every set of a realisable law meets all supports."""
    found = np.unique(np.concatenate(list(rows.supports())), axis=0)
    partial = found[~found.all(axis=1)]
    return partial[np.argsort(partial.sum(axis=1), kind="stable")[:SUPPORTS]]


def outer_certificate(rows: Rows) -> Certificate:
    """The outer bound."""
    return Certificate("outer", outer_bound(rows))


def cut_certificate(
    cuts: Mask, multipliers: Floats, reached: Floats, error: float, must: Mask, time_limit: float
) -> tuple[Certificate, Mask]:
    """Prove a bound by a pool of cuts; find its limiting set q.

    `reached` are the computed pi(C), of which the true values are at least a part 1 - `error`. `must` are supports of
    contexts: a set that misses one has no mass in any realisable law, so q runs over the sets that meet them all.
    """
    weights = np.floor(np.clip(multipliers, 0.0, 2.0**22) * 2**SHIFT).astype(np.int64)
    used = weights > 0
    cuts, weights, reached = cuts[used], weights[used], reached[used]
    if (cuts.shape[1] << SHIFT) + sum(weights.tolist()) >= 2**62:
        raise OverflowError("the multipliers are too large for 64-bit integers")
    if cuts.shape[1] <= TABLE_LIMIT:
        worst, limiting = _least_in_table(cuts, weights, must)
    else:
        worst, limiting = _least_by_solver(cuts, weights, must, time_limit)
    certain = 1 - Fraction(error)
    total = worst + sum(int(w) * certain * Fraction(p) for w, p in zip(weights, reached.tolist(), strict=True))
    return Certificate("cuts", down(Fraction(total) / 2**SHIFT), as_sets(cuts), tuple(map(int, weights))), limiting


def size_certificate(multipliers: Floats, reached: Floats, error: float) -> Certificate:
    """Prove a bound if pi(C) depends on |C| only: `multipliers` and `reached` for sizes 1..n.

    A set of k sources meets a random set of c with probability 1 - binom(n-c, k) / binom(n, k).
    """
    n = len(reached)
    weights = [int(w) for w in np.floor(np.maximum(multipliers, 0.0) * 2**SHIFT)]
    missed = [[Fraction(comb(n - c, k), comb(n, k)) for c in range(1, n + 1)] for k in range(1, n + 1)]
    worst = min(
        Fraction(k * 2**SHIFT) - sum(w * (1 - m) for w, m in zip(weights, missed[k - 1], strict=True) if w)
        for k in range(1, n + 1)
    )
    certain = 1 - Fraction(error)
    total = worst + sum(w * certain * Fraction(p) for w, p in zip(weights, reached.tolist(), strict=True))
    return Certificate("sizes", down(total / 2**SHIFT), (), tuple(weights))


def prove(stated: Certificate, posterior: Posterior, time_limit: float) -> Certificate:
    """Compute anew the bound of a certificate's multipliers, ignoring the stated one; at least the outer bound."""
    outer, error = outer_certificate(posterior), 2 * posterior.relative_error
    multipliers = np.array(stated.weights, dtype=np.float64) / 2**SHIFT
    found = outer
    if stated.kind == "cuts" and stated.cuts and multipliers.sum() < 2.0**21:
        cuts = as_matrix(stated.cuts, posterior.n)
        blocks = [block for block in map(posterior.group, range(posterior.groups)) if len(block)]
        reached = np.max([times(block, cuts.T.astype(np.float64)).max(axis=0) for block in blocks], axis=0)
        found, _ = cut_certificate(cuts, multipliers, reached, error, supports(posterior), time_limit)
    elif stated.kind == "sizes" and is_symmetric(posterior.chain):
        found = size_certificate(multipliers, sizes_reached(posterior), error)
    return max(outer, found, key=lambda one: one.bound)


def size_law(reached: Floats) -> tuple[Floats, Floats]:
    """Find masses of the sizes 1..n of least mean size, and multipliers of `reached`, pi(C) by |C|.

    The query is uniform among the sets of its size. Singletons and the full set often reach the outer bound.
    """
    from scipy.optimize import linprog

    n = len(reached)
    sizes = np.arange(1, n + 1)
    meets = np.array([[1 - comb(n - c, k) / comb(n, k) for k in sizes.tolist()] for c in sizes.tolist()])
    full = (n * reached[0] - 1) / (n - 1)
    masses = np.zeros(n)
    masses[0], masses[-1] = 1 - full, full
    if (times(meets, masses) >= reached - 1e-14).all():
        return masses, np.eye(n)[0] * n
    solved = linprog(sizes, A_ub=-meets, b_ub=-reached, A_eq=np.ones((1, n)), b_eq=[1.0], method="highs")
    if solved.status != 0:
        raise ArithmeticError(f"the linear program of the sizes was not solved: {solved.message}")
    masses = np.where(solved.x > 1e-9, solved.x, 0.0)
    masses /= masses.sum()
    met = times(meets, masses)
    lack = np.maximum(reached - met, 0.0)[:-1] / np.maximum(1 - met[:-1], 1e-15)
    lift = min(1.0, float(lack.max()))  # the full set makes up for what the solver's tolerance left
    masses *= 1 - lift
    masses[-1] += lift
    return masses, np.maximum(-solved.ineqlin.marginals, 0.0)


def _least_in_table(cuts: Mask, weights: Units, must: Mask) -> tuple[int, Mask]:
    """min over non-empty q that meet `must` of |q| 2^SHIFT - weight of the cuts met, over all 2^n sets, exactly."""
    n = cuts.shape[1]
    inside = np.zeros(1 << n, dtype=np.int64)  # becomes the weight of the cuts contained in a set
    np.add.at(inside, whole_times(cuts, 1 << np.arange(n)), weights)
    value = np.zeros(1 << n, dtype=np.int64)
    barred = np.zeros(1 << n, dtype=bool)  # becomes whether a set contains a support, so that its complement misses it
    barred[whole_times(must, 1 << np.arange(n))] = True
    for x in range(n):
        halves, sums, bars = (array.reshape(-1, 2, 1 << x) for array in (inside, value, barred))
        halves[:, 1] += halves[:, 0]
        sums[:, 1] = sums[:, 0] + (1 << SHIFT)
        bars[:, 1] |= bars[:, 0]
    value += inside[::-1]  # a cut is missed iff it lies in the complement, whose index is reversed
    value[barred[::-1]] = np.iinfo(np.int64).max
    least = 1 + int(value[1:].argmin())
    return int(value[least]) - int(weights.sum()), (least >> np.arange(n)) & 1 > 0


def _least_by_solver(cuts: Mask, weights: Units, must: Mask, time_limit: float) -> tuple[int, Mask]:
    """Compute the same minimum, or a proved lower bound if time runs out, by CP-SAT (in integers)."""
    from ortools.sat.python import cp_model

    n = cuts.shape[1]
    model = cp_model.CpModel()
    chosen = [model.new_bool_var("") for _ in range(n)]
    met = [model.new_bool_var("") for _ in range(len(cuts))]
    for cut, flag in zip(cuts, met, strict=True):
        model.add_bool_or([chosen[x] for x in np.flatnonzero(cut)] + [~flag])
    for needed in [np.ones(n, dtype=bool), *must]:
        model.add_bool_or([chosen[x] for x in np.flatnonzero(needed)])
    model.minimize(cp_model.LinearExpr.weighted_sum(chosen + met, [1 << SHIFT] * n + [-int(w) for w in weights]))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit
    solver.parameters.num_workers = 2
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return -sum(weights.tolist()), np.ones(n, dtype=bool)  # the trivial bound: every cut met at no price
    best = np.array([solver.boolean_value(flag) for flag in chosen])
    # The bound is reported as a float; one unit in its last place is given away.
    bound = solver.best_objective_bound
    return int(np.floor(bound - abs(bound) * 2.0**-50)) - 1, best
