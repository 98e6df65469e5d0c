"""The optimal law, by row-and-column generation on the dominated-law form of the paper's linear program (24).

    minimise sum_q |q| p(q)  subject to  sum_q p(q) = 1,  p >= 0,  Pr[Q meets C] >= pi(C) for every set C of sources

Rows start with the singletons and their complements and grow by separation of a *central* point of the master; its
vertices violate thousands of cuts, its centre a few dozen. Columns start with the sets of combs and grow by pricing.
Every iterate that was seen in all contexts is repaired into an exact law; lower bounds are proved by `certificate`.

**Symmetric chains** have one value of P on a permutation and one elsewhere. Then P^lag is of that kind too, and the
posterior row of (i, k) is special at two sources, one given by i and one by k, each bijectively: relabelling the
sources permutes the rows. Averaging a law over all relabellings keeps its cost, so some optimal law depends on the size
of the set only: a program of n unknowns and n rows. Its solution is thinned to a few orbits of the rotation.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from onoff.model.bounds import is_symmetric
from onoff.model.posterior import Posterior, Rows
from onoff.model.powers import counts, times
from onoff.schemes import Proposal, Task, Tell
from onoff.schemes.certificate import (
    Certificate,
    cut_certificate,
    outer_certificate,
    size_certificate,
    size_law,
    sizes_reached,
    supports,
)
from onoff.schemes.comb import PRICE, comb, comb_law
from onoff.schemes.comb import propose as by_comb
from onoff.schemes.flow import Repair
from onoff.schemes.interior_point import Solution, central_point
from onoff.schemes.law import DENOMINATOR, Law, Member, as_matrix, everything, quantise, with_full_set
from onoff.schemes.realise import finish, realise
from onoff.types import Floats, Mask, Query

SMALL = 16  # sources up to which the optimum takes less time than the comb
ALL_SETS = 6  # sources up to which all 2^n - 1 sets are columns
COMBS = 8  # random orders behind the first columns
HELP = 2**20  # units of the full set in an iterate, if affordable: they absorb what rounding would leave short
FIRST_ROUND = 3e-7  # seconds, times n^3: the first round with its preparation
PATIENCE = 2  # rounds after which a slack row is dropped, once
PROVED = 14  # sources up to which every bound that may be better is proved at once
NEAR, WILD = 200, 100  # known and random sets that pricing starts from
MOST, STEPS = 150, 30  # new sets of pricing, and changes of a set


def propose(task: Task) -> Proposal:
    """Propose the closed form of a symmetric chain, a comb at the outer bound, or else search.

    On most dense chains a few good orders are realisable as they are, up to less than the gap. The outer bound then
    proves that the comb is an optimum, and no program is solved.
    """
    if (symmetric := by_symmetry(task)) is not None:
        return symmetric
    posterior = task.posterior
    outer = outer_certificate(posterior)
    start = Proposal("everything", everything(posterior.n), outer)
    if posterior.n > SMALL:
        if math.isfinite(task.deadline):  # something to fall back on
            start = by_comb(task)
            if start.scheme != "comb":  # no time was left
                return start
        with suppress(TimeoutError):
            close = comb_law(posterior, task.deadline, min(PRICE, task.gap / 2))
            cost = float(close.cost())
            task.tell(cost, outer.bound)
            if cost <= outer.bound * (1 + task.gap):
                return Proposal("optimal", close, outer)
            if start.scheme != "comb" or start.law is None or close.cost() < start.law.cost():
                start = Proposal("comb", close, outer)
        if start.scheme != "comb":
            return start
    best, proof = optimal_law(posterior, task.gap, task.deadline, start.law, task.tell)
    return Proposal("optimal" if best is not start.law else start.scheme, best, proof)


def by_symmetry(task: Task) -> Proposal | None:
    """Propose the optimum of a symmetric chain; None if the chain is another one, or time runs out."""
    if is_symmetric(task.posterior.chain):
        with suppress(TimeoutError):
            if (found := symmetric_law(task.posterior, task.gap, task.deadline)) is not None:
                return Proposal("optimal", *found)
    return None


def symmetric_law(posterior: Posterior, gap: float, deadline: float = math.inf) -> tuple[Law, Certificate] | None:
    """Find an optimal law of a symmetric chain, or None if no small table comes within `gap`."""
    n = posterior.n
    reached = sizes_reached(posterior)
    masses, multipliers = size_law(reached)
    error = 2 * posterior.relative_error
    proof = max(outer_certificate(posterior), size_certificate(multipliers, reached, error), key=lambda c: c.bound)
    rng = np.random.default_rng(0)
    count = 2
    while count <= max(n, 64):
        sizes = [int(size) for size in np.flatnonzero(masses) + 1]
        parts = [_orbits(n, size, count, rng) for size in sizes]
        shares = [np.full(len(sets), masses[size - 1] / len(sets)) for sets, size in zip(parts, sizes, strict=True)]
        law = realise(posterior, np.concatenate(parts), np.concatenate(shares), deadline=deadline)
        if float(law.cost()) <= proof.bound * (1 + gap):
            return law, proof
        count *= 2
    return None


def _orbits(n: int, size: int, count: int, rng: np.random.Generator) -> Member:
    """Make the sets of this size in `count` random orbits of the rotation; pairs have only n / 2."""
    if size == n:
        return np.ones((1, n), dtype=bool)
    if size == 1:
        starts: list[Query] = [(0,)]
    elif size == 2:
        starts = [(0, step) for step in rng.permutation(np.arange(1, n // 2 + 1))[:count]]
    else:
        starts = [tuple(rng.choice(n, size, replace=False)) for _ in range(count)]
    member = as_matrix(starts, n)
    return np.unique(np.concatenate([np.roll(member, shift, axis=1) for shift in range(n)]), axis=0)


def optimal_law(
    rows: Rows,
    gap: float,
    deadline: float,
    start: Law | None = None,
    progress: Tell = lambda cost, bound: None,
) -> tuple[Law, Certificate]:
    """Improve a law and a proved bound until they are within `gap` or no time is left for another round.

    A round is assumed to last as long as the previous one.
    """
    lasts = FIRST_ROUND * rows.n**3
    if time.monotonic() + lasts > deadline:
        return start or everything(rows.n), outer_certificate(rows)
    search = Search(rows, gap, start)
    while not search.done and (begun := time.monotonic()) + lasts < deadline:
        search.round(deadline)
        progress(search.cost, search.certificate.bound)
        lasts = time.monotonic() - begun
    return search.best, search.certificate


class Search:
    """The state between rounds: cuts (rows of the master), sets (columns), the best law and the best bound."""

    def __init__(self, source: Rows, gap: float, start: Law | None) -> None:
        self.source, self.gap = source, gap
        self.n = n = source.n
        self.rng = np.random.default_rng(0)
        self.rows = np.unique(source.rows, axis=0)
        self.separator = Separator(self.rows)
        self.must = supports(source)
        self.sets = self._first_sets(start)
        singles = np.eye(n, dtype=bool)
        self.cuts = np.concatenate([singles, novel(~singles, singles)])  # singletons first: never dropped
        self.need = self._reach(self.cuts)
        self.idle = np.zeros(len(self.cuts))
        self.dropped: set[bytes] = set()
        self.tolerance = 1e-4
        self.stuck = False
        self.certificate = outer_certificate(source)
        self.best = everything(n) if start is None else start
        affordable = gap / 10 * self.certificate.bound / n
        self.help = min(HELP, int(affordable * DENOMINATOR))
        self.cost = float(self.best.cost())

    @property
    def done(self) -> bool:
        return self.stuck or self.cost <= self.certificate.bound * (1 + self.gap)

    def round(self, deadline: float) -> None:
        """Solve the master once, with separation, pricing, repair and proof as they are due."""
        hits = (counts(self.cuts, self.sets.T) > 0).astype(np.float64)
        prices = self.sets.sum(axis=1).astype(np.float64)
        centre = central_point(prices, hits, self.need, self.tolerance)
        value = float(times(prices, centre.masses))
        bound = self.certificate.bound
        dual = float(times(self.need, centre.multipliers) + centre.total_multiplier)
        lifted = dual > bound * (1 + self.gap / 4)  # the optimum seems to lie above the bound proved so far
        more = self.sets[:0]
        if lifted and self.n > ALL_SETS:
            least = self.gap * value / 20
            more = price_sets(self.cuts, centre, self.sets, self.must, self.rng, least)
        scan = self._separate(centre, max(1e-9, bound * (1 + self.gap) - value), value, deadline)
        provable = dual * (1 + self.gap) >= self.cost or self.n <= PROVED
        if lifted and not self.done and provable and not len(more):
            limiting = self._prove(centre, deadline)
            more = novel(limiting[None], self.sets) if self.n > ALL_SETS else more
        surplus = times(hits, centre.masses) - self.need
        self.idle = np.where(surplus > np.maximum(1e3 * centre.multipliers, 1e-3), self.idle + 1, 0)
        self._grow(scan, more)

    def _separate(self, centre: Solution, budget: float, value: float, deadline: float) -> Scan:
        """Find violated cuts; if the iterate was seen in all contexts and is nearly realisable, repair and keep it."""
        masses = np.where(centre.masses > 1e-12, centre.masses, 0.0)
        law = quantise(self.sets, masses, DENOMINATOR - self.n - self.help)
        repair = Repair(with_full_set(law, self.help))
        scan = self.separator.scan(repair, self.cuts, budget, deadline)
        if scan.complete and scan.total < 0.01 * value:
            shortfalls = {u: repair.shortfall(self.rows[u]) for u in scan.short}
            for u in sorted(scan.short, key=lambda u: -shortfalls[u]):
                repair.fix(self.rows[u])
            law = finish(self.source, repair.law, 0)
            if law.cost() < self.cost:
                self.best, self.cost = law, float(law.cost())
        return scan

    def _prove(self, centre: Solution, deadline: float) -> Mask:
        """Raise the proved bound by the centre's multipliers; return the limiting set."""
        limit = min(60.0, max(0.5, deadline - time.monotonic()))
        error = 2 * self.source.relative_error
        found, limiting = cut_certificate(self.cuts, centre.multipliers, self.need, error, self.must, limit)
        if found.bound > self.certificate.bound:
            self.certificate = found
        return limiting

    def _grow(self, scan: Scan, more: Member) -> None:
        """Make the next master program.

        If there is nothing new, the centre is not yet near enough to the optimum: tighten.
        """
        if not len(scan.cuts) and not len(more):
            self.stuck = self.tolerance < 1e-11
            self.tolerance *= 0.1
        else:
            typical = 0.1 * scan.total / max(1, len(scan.short))
            self.tolerance = min(self.tolerance, max(1e-9, self.gap / 20, typical))
        names = keys(self.cuts)
        keep = np.array([i < self.n or key in self.dropped for i, key in enumerate(names)]) | (self.idle < PATIENCE)
        self.dropped.update(key for key, kept in zip(names, keep, strict=True) if not kept)
        self.cuts = np.concatenate([self.cuts[keep], scan.cuts])
        self.need = np.concatenate([self.need[keep], self._reach(scan.cuts)])
        self.idle = np.concatenate([self.idle[keep], np.zeros(len(scan.cuts))])
        self.sets = np.concatenate([more, self.sets])

    def _first_sets(self, start: Law | None) -> Member:
        """Choose all sets if few; else singletons, combs and start, grown to meet all supports. Full set last."""
        n, full = self.n, np.ones((1, self.n), dtype=bool)
        if n <= ALL_SETS:
            return ((np.arange(1, 1 << n)[:, None] >> np.arange(n)) & 1).astype(bool)
        peak = self.rows.max(axis=0)
        sets = [np.eye(n, dtype=bool), *(comb(peak, self.rng.permutation(n))[0] for _ in range(COMBS))]
        if start is not None:
            sets.append(start.member)
        member = np.concatenate(sets)
        for support in self.must:
            missing = np.flatnonzero(~member[:, support].any(axis=1))
            member[missing, self.rng.choice(np.flatnonzero(support), len(missing))] = True
        return np.concatenate([novel(member, full), full])

    def _reach(self, cuts: Member) -> Floats:
        """Compute pi(C) = max_u p(C | u)."""
        return np.asarray(times(self.rows, cuts.T.astype(np.float64)).max(axis=0), dtype=np.float64)


@dataclass(frozen=True)
class Scan:
    """Result of a scan: short contexts (row indices), their total shortfall, new cuts, and if it was complete."""

    short: list[int]
    total: float
    cuts: Member
    complete: bool


class Separator:
    """Scans the contexts of one table of rows, round after round."""

    def __init__(self, rows: Floats) -> None:
        self.rows = rows
        self.n = rows.shape[1]
        self.most = max(20, 2 * self.n)  # cuts returned by a scan
        self._single = rows.astype(np.float32)
        self._seen_fit = np.zeros(len(rows))  # the round in which a context was last seen realisable
        self._round = 0

    def scan(self, repair: Repair, cuts: Member, budget: float, deadline: float) -> Scan:
        """Ship flows in the contexts, those nearest a known cut first, then those checked longest ago.

        The scan ends early when it has enough cuts, or none for a while; but not while the total shortfall is so
        small that repairing it costs less than `budget`.
        """
        law = repair.law
        met = times(counts(cuts, law.member.T) > 0, law.mass / law.total)
        room = (met.astype(np.float32) - times(self._single, cuts.T.astype(np.float32))).min(axis=1)
        order = self._seen_fit + 1e-3 * room
        near = np.argsort(room)[: 2 * self.n]
        order[near] = -1 + room[near]
        self._round += 1
        known, found = set(keys(cuts)), []
        short: list[int] = []
        total, quiet, complete = 0.0, 0, True
        for step, u in enumerate(np.argsort(order)):
            missing = repair.shortfall(self.rows[u])
            quiet += 1
            self._seen_fit[u] = 0 if missing else self._round
            if missing:
                short.append(int(u))
                total += missing / law.total
                for cut in repair.cuts():
                    key = np.packbits(cut).tobytes()
                    if key not in known:
                        known.add(key)
                        found.append((missing, cut))
                        quiet = 0
            enough = len(found) >= 2 * self.most or quiet > 2 * self.n
            if (total > budget and found and enough) or (step % 64 == 63 and time.monotonic() > deadline):
                complete = False
                break
        found.sort(key=lambda entry: -entry[0])
        deepest = np.array([cut for _, cut in found[: self.most]], dtype=bool).reshape(-1, self.n)
        return Scan(short, total, deepest, complete)


def keys(member: Member) -> list[bytes]:
    """Make hashable keys of boolean rows."""
    return [row.tobytes() for row in np.packbits(member, axis=1)]


def novel(new: Member, old: Member) -> Member:
    """Find the distinct rows of `new` not in `old`, in order."""
    seen = set(keys(old))
    keep = []
    for i, key in enumerate(keys(new)):
        if key not in seen:
            seen.add(key)
            keep.append(i)
    return new[keep]


def price_sets(
    cuts: Member, centre: Solution, sets: Member, must: Member, rng: np.random.Generator, least: float
) -> Member:
    """Find sets with reduced cost |q| - sum_{C : q meets C} mu_C - mu_0 below -`least`, by local search.

    Every set of a realisable law meets every row of `must`, the supports of contexts; they act as cuts whose price
    no set can afford to miss.
    """
    n = sets.shape[1]
    near = sets[np.argsort(reduced_cost(cuts, centre, sets))[:NEAR]]
    wild = rng.random((WILD, n)) < rng.random((WILD, 1)) * min(1.0, 2 * near.mean())
    pool = np.concatenate([cuts, must])
    prices = np.concatenate([centre.multipliers, np.full(len(must), float(n))])
    found = novel(_local_search(pool, prices, np.concatenate([near, wild])), sets)
    value = reduced_cost(cuts, centre, found)
    best = np.argsort(value)[:MOST]
    return found[best[value[best] < -least]]


def reduced_cost(cuts: Member, centre: Solution, sets: Member) -> Floats:
    """Compute reduced costs."""
    meets = counts(sets, cuts.T) > 0
    value: Floats = sets.sum(axis=1) - centre.total_multiplier - times(meets, centre.multipliers)
    return value


def _local_search(cuts: Member, prices: Floats, starts: Member) -> Member:
    """Add or drop the best source, in all sets at once, until no single change helps."""
    R = cuts.astype(np.float64)
    sets = starts.copy()
    every = np.arange(len(sets))
    for _ in range(STEPS):
        count = times(sets, R.T)
        gain = times((count == 0) * prices, R) - 1
        gain[sets] = -np.inf
        loss = 1 - times((count == 1) * prices, R)
        loss[~sets] = -np.inf
        add, drop = gain.argmax(axis=1), loss.argmax(axis=1)
        by_adding, by_dropping = gain[every, add], loss[every, drop]
        better = np.maximum(by_adding, by_dropping) > 1e-12
        if not better.any():
            break
        adding = better & (by_adding >= by_dropping)
        dropping = better & ~adding
        sets[every[adding], add[adding]] = True
        sets[every[dropping], drop[dropping]] = False
    return sets[sets.any(axis=1)]
