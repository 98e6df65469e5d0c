"""The optimal law, by row-and-column generation on the dominated-law form of the paper's linear program (24).

    minimise sum_q c(q) p(q)  subject to  sum_q p(q) = 1,  p >= 0,  Pr[Q meets C] >= pi(C) for every set C of sources

Rows start with the singletons and their complements and grow by separation of a *central* point of the master; its
vertices violate thousands of cuts, its centre a few dozen. Columns start with the sets of combs and grow by pricing.
Every iterate that was seen in all contexts is repaired into an exact law; lower bounds are proved by `certificate`.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from math import isfinite

import numpy as np

from onoff.model.powers import counts, times
from onoff.model.rows import Rows
from onoff.schemes import Proposal, Task, Tell
from onoff.schemes.certificate import Certificate, cut_certificate, outer_certificate, supports, unit_of
from onoff.schemes.comb import PRICE, comb, comb_law
from onoff.schemes.comb import propose as by_comb
from onoff.schemes.law import DENOMINATOR, Law, Member, everything, quantised, with_full_set
from onoff.schemes.optimum.centre import Centre, central_point
from onoff.schemes.optimum.pricing import priced
from onoff.schemes.optimum.separation import TABLE_LIMIT, Scan, Separator, keys, novel
from onoff.schemes.optimum.sizes import propose as by_symmetry
from onoff.schemes.realisation.realise import finished
from onoff.schemes.realisation.repair import Repair
from onoff.types import Floats, Mask

SMALL = 16  # sources up to which the optimum takes less time than the comb
ALL_SETS = 6  # sources up to which all 2^n - 1 sets are columns
COMBS = 8  # random orders behind the first columns
HELP = 2**20  # units of the full set in an iterate, if affordable: they absorb what rounding would leave short
PATIENCE = 2  # rounds after which a slack row is dropped, once


def propose(task: Task) -> Proposal:
    """The closed form of a symmetric chain; a comb that reaches the outer bound; or else a search.

    On most dense chains a few good orders are realisable as they are, up to less than the gap. The outer bound then
    proves that the comb is an optimum, and no program is solved.
    """
    if (symmetric := by_symmetry(task)) is not None:
        return symmetric
    posterior, lengths = task.posterior, task.lengths
    outer = outer_certificate(posterior, lengths)
    start = Proposal("everything", everything(posterior.n), outer)
    if posterior.n > SMALL:
        if isfinite(task.deadline):  # something to fall back on
            start = by_comb(task)
            if start.scheme != "comb":  # no time was left
                return start
        with suppress(TimeoutError):
            close = comb_law(posterior, task.deadline, min(PRICE, task.gap / 2), task.spread)
            cost = float(close.cost(lengths))
            task.tell(cost, outer.bound)
            if cost <= outer.bound * (1 + task.gap):
                return Proposal("optimal", close, outer)
            if start.scheme != "comb" or start.law is None or close.cost(lengths) < start.law.cost(lengths):
                start = Proposal("comb", close, outer)
        if start.scheme != "comb":
            return start
    unit = unit_of(lengths)
    weights = np.ones(posterior.n) if lengths is None else np.array(lengths) / unit

    def tell(cost: float, bound: float) -> None:
        task.tell(cost * unit, bound * unit)

    best, proof = optimal_law(posterior, weights, task.gap, task.deadline, start.law, tell)
    name = "optimal" if best is not start.law else start.scheme
    return Proposal(name, best, replace(proof, bound=proof.bound * unit))


def optimal_law(
    rows: Rows,
    lengths: Floats,
    gap: float,
    deadline: float,
    start: Law | None = None,
    progress: Tell = lambda cost, bound: None,
) -> tuple[Law, Certificate]:
    """The cheapest law found and a proved bound, once they are within `gap` or the deadline (monotonic) has passed."""
    search = Search(rows, lengths, gap, start)
    while not search.done and time.monotonic() < deadline:
        search.round(deadline)
        progress(search.cost, search.certificate.bound)
    return search.best, search.certificate


class Search:
    """The state between rounds: cuts (rows of the master), sets (columns), the best law and the best bound."""

    def __init__(self, source: Rows, lengths: Floats, gap: float, start: Law | None) -> None:
        self.source, self.lengths, self.gap = source, lengths, gap
        self.n = n = source.n
        self.rng = np.random.default_rng(0)
        self.rows = np.unique(source.rows, axis=0)
        self.separator = Separator(self.rows)
        self.must = supports(source)
        self.sets = self._first_sets(start)
        singles = np.eye(n, dtype=bool)
        self.cuts = np.concatenate([singles, novel(~singles, singles)])  # singletons first: never dropped
        self.need = self._reached(self.cuts)
        self.idle = np.zeros(len(self.cuts))
        self.dropped: set[bytes] = set()
        self.tolerance = 1e-4
        self.stuck = False
        self.certificate = outer_certificate(source, lengths.tolist())
        self.best = everything(n) if start is None else start
        affordable = gap / 10 * self.certificate.bound / float(lengths.sum())
        self.help = min(HELP, int(affordable * DENOMINATOR))
        self.cost = self._cost(self.best)

    @property
    def done(self) -> bool:
        return self.stuck or self.cost <= self.certificate.bound * (1 + self.gap)

    def round(self, deadline: float) -> None:
        """One solve of the master, with separation, pricing, repair and proof as they are due."""
        hits = (counts(self.cuts, self.sets.T) > 0).astype(np.float64)
        prices = times(self.sets, self.lengths)
        centre = central_point(prices, hits, self.need, self.tolerance)
        value = float(times(prices, centre.masses))
        bound = self.certificate.bound
        dual = float(times(self.need, centre.multipliers) + centre.total_multiplier)
        lifted = dual > bound * (1 + self.gap / 4)  # the optimum seems to lie above the bound proved so far
        more = self.sets[:0]
        if lifted and self.n > ALL_SETS:
            least = self.gap * value / 20
            more = priced(self.cuts, centre, self.lengths, self.sets, self.must, self.rng, least)
        scan = self._separate(centre, max(1e-9, (bound * (1 + self.gap) - value) / self.lengths.max()), value, deadline)
        provable = dual * (1 + self.gap) >= self.cost or self.n <= TABLE_LIMIT + 4
        if lifted and not self.done and provable and not len(more):
            limiting = self._prove(centre, deadline)
            more = novel(limiting[None], self.sets) if self.n > ALL_SETS else more
        surplus = times(hits, centre.masses) - self.need
        self.idle = np.where(surplus > np.maximum(1e3 * centre.multipliers, 1e-3), self.idle + 1, 0)
        self._grow(scan, more)

    def _separate(self, centre: Centre, budget: float, value: float, deadline: float) -> Scan:
        """Find violated cuts; if the iterate was seen in all contexts and is nearly realisable, repair and keep it."""
        masses = np.where(centre.masses > 1e-12, centre.masses, 0.0)
        law = quantised(self.sets, masses, DENOMINATOR - self.n - self.help)
        if self.n <= TABLE_LIMIT:
            cuts = self.separator.table(law, self.cuts, max(budget / len(self.rows), 1e-11))
            if len(cuts):
                return Scan([], 1e-3, cuts, complete=False)
        repair = Repair(with_full_set(law, self.help))
        scan = self.separator.scan(repair, self.cuts, budget, deadline)
        if scan.complete and scan.total * self.lengths.max() < 0.01 * value:
            shortfalls = {u: repair.shortfall(self.rows[u]) for u in scan.short}
            for u in sorted(scan.short, key=lambda u: -shortfalls[u]):
                repair.fix(self.rows[u])
            law = finished(self.source, repair.law, 0)
            if self._cost(law) < self.cost:
                self.best, self.cost = law, self._cost(law)
        return scan

    def _prove(self, centre: Centre, deadline: float) -> Mask:
        """Raise the proved bound by the multipliers of the centre; the set that limits it."""
        limit = min(60.0, max(2.0, deadline - time.monotonic()))
        error = 2 * self.source.relative_error
        found, limiting = cut_certificate(
            self.cuts, centre.multipliers, self.need, error, self.lengths, self.must, limit
        )
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
        self.need = np.concatenate([self.need[keep], self._reached(scan.cuts)])
        self.idle = np.concatenate([self.idle[keep], np.zeros(len(scan.cuts))])
        self.sets = np.concatenate([more, self.sets])

    def _first_sets(self, start: Law | None) -> Member:
        """All sets if few; else singletons, combs and the start, grown to meet all supports. The full set is last."""
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

    def _reached(self, cuts: Member) -> Floats:
        """pi(C) = max_u p(C | u), as computed."""
        return np.asarray(times(self.rows, cuts.T.astype(np.float64)).max(axis=0), dtype=np.float64)

    def _cost(self, law: Law) -> float:
        return float(law.cost(tuple(self.lengths.tolist())))
