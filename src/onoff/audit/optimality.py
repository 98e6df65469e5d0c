"""Is a cheaper scheme possible? Lower bounds proved again, and the cost that a race states. Nothing here is privacy.

For multipliers mu_C >= 0 every realisable law costs at least

    sum_C mu_C pi(C) + min_q ( |q| - sum_{C : q meets C} mu_C ),    pi(C) = max_u p(C | u),

where q runs over the sets that meet the support of every context. Any context u gives p(C | u) <= pi(C), so floats may
choose the context: only p(C | u) must be rounded down. The minimum is taken over all 2^n sets up to ENUMERATED sources;
beyond, CP-SAT is asked for a set below what is claimed, and has to prove that there is none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from itertools import product
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.audit.files import readable, source_set, whole
from onoff.audit.law import Finding, Law
from onoff.audit.rows import Walk
from onoff.errors import OnoffError
from onoff.files import reading
from onoff.model.bounds import down, up
from onoff.model.powers import times
from onoff.types import Floats, Query

if TYPE_CHECKING:
    from onoff.model.chain import Chain

UNIT = 1 << 40  # one message: multipliers are whole numbers of 2^-40 messages
ENUMERATED = 20
MOST_WORK = 2**29  # products of integers for the walks of a lag: a minute or two
RATE = 1e-6  # how often a true statement about a race's cost is called false
LIMIT = 4.8917  # a normal variable lies beyond +-LIMIT with probability RATE
FEW = 300  # draws behind a stated cost
WIDE = 3  # times the width that FEW draws give: no interval is as wide


class LagRows:
    """Posterior rows of one lag as integers: p(x | last, next) = w_x / sum_y w_y, up to `error` in total variation."""

    def __init__(self, chain: Chain, lag: int) -> None:
        if chain.n**3 * lag > MOST_WORK:
            raise OnoffError(f"lag {lag} is too large for an audit in exact integers of {chain.n} sources")
        self.chain, self.n, self.lag, self.error = chain, chain.n, lag, Walk.error(lag)
        self._walk = Walk(chain.P)
        self.vector = cache(lambda last: self._walk.vector(last, lag))

    def weights(self, last: int, next: int) -> list[int]:
        """w_0..w_{n-1}; all 0 iff the context is impossible."""
        return [weight * row[next] for weight, row in zip(self.vector(last), self._walk.rows, strict=True)]

    def successors(self, source: int) -> list[int]:
        """The row of the chain in integers."""
        return self._walk.rows[source]

    def possible(self, last: int, next: int) -> bool:
        return any(self.weights(last, next))

    @cached_property
    def supports(self) -> list[int]:
        """The possible requests of contexts, as bits; of possible contexts those that contain no other's."""
        contexts = product(range(self.n), repeat=2)
        found = {sum(1 << x for x, weight in enumerate(self.weights(*pair)) if weight) for pair in contexts} - {0}
        least: list[int] = []
        for support in sorted(found, key=int.bit_count):
            if not any(smaller & ~support == 0 for smaller in least):
                least.append(support)
        return least


@dataclass(frozen=True)
class Proof:
    """No scheme costs less than `value`; `method` says what the proof rests on.

    If a claim was not proved, `value` is what is proved instead and `limiting` a set q that stands in the way.
    """

    value: Fraction
    method: str
    limiting: Query | None = None


@dataclass(frozen=True)
class Stated:
    """The lower bound that a plan file states, and the multipliers that prove it."""

    bound: float
    kind: str = "outer"
    cuts: tuple[Query, ...] = ()
    weights: tuple[int, ...] = ()


def read_stated(file: Path, n: int) -> Stated:
    """Read what a plan file states of all schemes: the loader believes it only if the plan has the user's seal."""
    with reading(file), readable(f"{file}: what it states of the cost cannot be read"):
        data = json.loads(file.read_bytes())
        proof = data.get("certificate") or {"kind": "outer", "bound": data["lower_bound"], "cuts": [], "weights": []}
        found = Stated(
            float(proof["bound"]),
            proof["kind"],
            tuple(source_set(cut, n) for cut in proof["cuts"]),
            tuple(whole(weight, 2**62 + 1) for weight in proof["weights"]),
        )
        number = {"outer": 0, "cuts": len(found.cuts), "sizes": n}[found.kind]
        if len(found.weights) != number or not math.isfinite(found.bound):
            raise ValueError(f"{len(found.weights)} weights prove a bound of {found.bound!r} by {found.kind}")
        return found


def prove(stated: Stated, rows: LagRows, seconds: float) -> Proof:
    """Prove what the certificate in a plan file gives; CP-SAT is given so many seconds."""
    if stated.kind == "cuts":
        return prove_cuts(rows, stated.cuts, stated.weights, stated.bound, seconds)
    return prove_sizes(rows, stated.weights) if stated.kind == "sizes" else prove_outer(rows)


def check_statements(stated: Stated, law: Law | None, proof: Proof) -> Iterator[Finding]:
    """Compare the stated lower bound with the proof, and the cost of a table with the bound.

    Rounding may move 4 n units of a law, so it may cost less than the bound by that share.
    """
    excess = Fraction(stated.bound) - proof.value
    if excess > 0:
        message = f"a lower bound of {stated.bound!r} is stated, {down(proof.value)!r} is proved ({proof.method})"
        yield Finding("bound", message, query=proof.limiting, amount=up(excess))
    elif stated.bound <= 0:
        yield Finding("bound", f"the stated lower bound is {stated.bound!r}: a positive number is needed")
    if law is not None:
        short, n = Fraction(stated.bound) - law.cost, len(law.sets[-1])
        if short > Fraction(stated.bound) * 4 * n / law.denominator:
            message = f"the law costs {up(law.cost)!r}, less than the lower bound {stated.bound!r} for all schemes"
            yield Finding("cost", message, amount=up(short))


def prove_outer(rows: LagRows) -> Proof:
    """Prove sum_x max_u p(x | u): each source is a cut of its own, with multiplier 1."""
    return Proof(sum(_largest(rows, [(x,) for x in range(rows.n)]), Fraction(0)), "the outer bound")


def prove_sizes(rows: LagRows, weights: Sequence[int]) -> Proof:
    """Spread multiplier weights[c-1] evenly over all sets of c sources, on a chain whose pi(C) depends on |C| only.

    A set of k sources misses a random set of c with probability binom(n-c, k) / binom(n, k).
    """
    n = rows.n
    if not _is_symmetric(rows):
        return Proof(Fraction(0), "nothing: the chain is not symmetric")
    reached = Fraction(0)
    best = _best_contexts(rows, lambda block: np.sort(block)[:, ::-1].cumsum(axis=1))
    for c, (last, next) in enumerate(best, start=1):
        row = sorted(rows.weights(last, next), reverse=True)
        reached += weights[c - 1] * (Fraction(sum(row[:c]), sum(row)) - rows.error)
    least = min(
        k * UNIT - sum(w * (1 - Fraction(comb(n - c, k), comb(n, k))) for c, w in enumerate(weights, start=1))
        for k in range(1, n + 1)
    )
    return Proof((reached + least) / UNIT, "symmetry, cuts by size and the minimum over all sizes")


def prove_cuts(rows: LagRows, cuts: Sequence[Query], weights: Sequence[int], claimed: float, seconds: float) -> Proof:
    """Prove what the multiplier weights[i] for each set cuts[i] gives, or enough of it to reach the claim."""
    used = [(cut, weight) for cut, weight in zip(cuts, weights, strict=True) if weight]
    cuts, weights = [cut for cut, _ in used], [weight for _, weight in used]
    if rows.n * UNIT + sum(weights) >= 2**62:
        return Proof(Fraction(0), "nothing: the multipliers do not fit 64-bit integers")
    reached = sum((w * p for w, p in zip(weights, _largest(rows, cuts), strict=True)), Fraction(0))
    if rows.n <= ENUMERATED:
        least, limiting = _enumerate(rows, cuts, weights)
        return Proof((reached + least) / UNIT, f"cuts and the minimum over all 2^{rows.n} sets", limiting)
    needed = math.ceil(Fraction(claimed) * UNIT - reached)  # the minimum is a whole number
    needed = max(-sum(weights), min(needed, rows.n * UNIT + 1))  # where it lies anyway; a claim may be any number
    blocked = _search_below(rows, cuts, weights, needed, seconds)
    if isinstance(blocked, str):
        return Proof(Fraction(0), f"nothing: CP-SAT answered {blocked} within {seconds:g} s")
    if blocked is None:
        return Proof((reached + needed) / UNIT, "cuts, and CP-SAT that no set is below")
    met = sum(weight for cut, weight in used if not set(blocked).isdisjoint(cut))
    return Proof((reached + len(blocked) * UNIT - met) / UNIT, "cuts, against one set", blocked)


def _best_contexts(rows: LagRows, values: Callable[[Floats], Floats]) -> list[tuple[int, int]]:
    """For each column of `values(rows of some contexts)`: the context where it is largest, as floats see it."""
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


def _largest(rows: LagRows, cuts: Sequence[Query]) -> list[Fraction]:
    """p(C | u) rounded down, for each cut in its best context."""
    if not cuts:
        return []
    member = np.zeros((rows.n, len(cuts)))
    for i, cut in enumerate(cuts):
        member[list(cut), i] = 1.0
    found = []
    for cut, (last, next) in zip(cuts, _best_contexts(rows, lambda block: times(block, member)), strict=True):
        weights = rows.weights(last, next)
        found.append(Fraction(sum(weights[x] for x in cut), sum(weights)) - rows.error)
    return found


def _enumerate(rows: LagRows, cuts: Sequence[Query], weights: Sequence[int]) -> tuple[int, Query]:
    """The minimum of |q| - (weight of the cuts met) over all sets that meet every support, and a set that attains it.

    Set number q holds the sources of its bits.
    """
    sets = np.arange(1, 1 << rows.n, dtype=np.int64)
    value = np.zeros(len(sets), dtype=np.int64)
    for x in range(rows.n):
        value += UNIT * (sets >> x & 1)
    for cut, weight in zip(cuts, weights, strict=True):
        value -= weight * (sets & sum(1 << x for x in cut) > 0)
    for support in rows.supports:
        value[sets & support == 0] = 2**62
    best = int(value.argmin())
    return int(value[best]), tuple(x for x in range(rows.n) if best + 1 >> x & 1)


def _search_below(
    rows: LagRows, cuts: Sequence[Query], weights: Sequence[int], needed: int, seconds: float
) -> Query | str | None:
    """A set whose value is below `needed`; None if it is proved that there is none; else the solver's answer."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    chosen = [model.new_bool_var(f"source {x}") for x in range(rows.n)]
    met = [model.new_bool_var(f"cut {i}") for i in range(len(cuts))]
    for cut, flag in zip(cuts, met, strict=True):  # a flag may be raised only if the cut is met
        model.add_bool_or([chosen[x] for x in cut] + [~flag])
    for support in rows.supports:
        model.add_bool_or([chosen[x] for x in range(rows.n) if support >> x & 1])
    value = cp_model.LinearExpr.weighted_sum(chosen + met, [UNIT] * rows.n + [-w for w in weights])
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


def _is_symmetric(rows: LagRows) -> bool:
    """True if P is one value a on a permutation F and one value b elsewhere, and every context is possible.

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
    return all(rows.possible(last, next) for last in range(rows.n) for next in range(rows.n))


@dataclass(frozen=True)
class RaceCost:
    """The mean size of fresh draws of a race, its standard error, and the error of a mean of FEW draws (`behind`)."""

    mean: float
    error: float
    behind: float


def estimate_cost(sizes: Sequence[int], n: int) -> RaceCost:
    """Estimate the cost of a race from the sizes of its queries.

    `behind` says how far a statement from FEW draws may lie off, so nothing that is stated enters it. Large queries
    that are too rare to be seen here, all of a chance below ln(1 / RATE) / (number of draws), may have been seen there:
    they are allowed for.
    """
    mean, deviation, count = float(np.mean(sizes)), float(np.std(sizes, ddof=1)), len(sizes)
    unseen = (n - 1) * math.sqrt(-math.log(RATE) / count)
    return RaceCost(mean, deviation / math.sqrt(count), math.hypot(deviation, unseen) / math.sqrt(FEW))


def check_race_cost(found: RaceCost, cost: float, interval: tuple[float, float], proved: Fraction) -> Iterator[Finding]:
    """Find what speaks against the stated cost and interval, at the error rate RATE."""
    fresh = f"fresh draws have the mean {found.mean:.4f} ± {found.error:.4f} (error rate {RATE:g})"
    half, fair = max(interval[1] - cost, cost - interval[0]), 1.96 * found.behind
    if abs(found.mean - cost) > LIMIT * math.hypot(found.error, found.behind):
        yield Finding("race cost", f"the cost {cost:.4f} is stated; {fresh}", amount=abs(cost - found.mean))
    if half > WIDE * fair:
        yield Finding("race interval", f"the cost is stated ± {half:.4f}; {FEW} draws give ± {fair:.4f}")
    if cost + LIMIT * found.behind < proved:
        yield Finding("race bound", f"the cost {cost:.4f} is stated, less than {float(proved)!r}, proved for all")
