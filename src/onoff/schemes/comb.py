"""The comb: systematic sampling of the sources, each hit with exactly its largest posterior probability.

With M_x = max_u p(x | u), lay the sources end to end in some order as intervals of length M_x and put a comb with
teeth one apart on them at a uniform offset: the sources hit are the query. Its cost is exactly sum_x M_x, the outer
bound; one order gives at most n + 2 sets. A mixture of a few orders is nearly realisable; repair does the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from onoff.model.posterior import Rows
from onoff.schemes import Proposal, Task
from onoff.schemes.certificate import outer_certificate
from onoff.schemes.exchange import Exchange
from onoff.schemes.flow import Network, in_time, supplies
from onoff.schemes.law import DENOMINATOR, Law, Member, end_to_end, everything, merge_sets, quantise
from onoff.schemes.realise import (
    FIRST,
    Short,
    Survey,
    finish,
    realise,
    rows_of,
    short_rows,
    start,
    survey,
    units_of,
)
from onoff.types import Floats

PRICE = 6e-4  # share of the outer bound spent on slack for the screen
SEED = 0  # of the random orders: the same rows give the same law
ENOUGH = 1e-4  # shortfall in the hard contexts, as a share of the outer bound, at which orders suffice
HITS = 28  # orders times the outer bound to begin with: with about so many others a source shares its intervals
ORDERS = 3, 20  # at least to begin with, and at most; twice as many as to begin with are enough
FAR = 1e-2  # shortfall in the hard contexts, as a share of the outer bound, beyond which combs are not repaired
NEAR = 5e-3  # above the outer bound, as a share of it: near enough
LONG = 5e7  # contexts that fall short times memberships at which repair waits
ROUNDS = 6  # of exchanges, at most
WORST = 10  # contexts of a group that a further round has in mind, at most
HARD = 300  # contexts in which a mixture of orders is tried
CANDIDATES = 24  # sources among which the next one of an order is chosen
NEAREST = 40  # sources of a row that can be rivals: those nearest to their peaks
POWER = 4  # rivals that are both at half their peaks matter 16 times less than those at 3/4


def propose(task: Task) -> Proposal:
    """Propose the comb, or everything if time is up."""
    certificate = outer_certificate(task.posterior)
    try:
        law = comb_law(task.posterior, task.deadline)
    except TimeoutError:  # what is always at hand, with its honest gap
        return Proposal("everything", everything(task.posterior.n), certificate)
    task.tell(float(law.cost()), certificate.bound)
    return Proposal("comb", law, certificate)


def comb_law(rows: Rows, deadline: float = math.inf, price: float = PRICE) -> Law:
    """Make a realisable law, on dense chains within 0.1 % of the outer bound.

    Where combs fall far short, as on sparse chains, their sources change places (`onoff.schemes.exchange`).
    `price` is the share of that bound that may be spent on saving flows. Raises `TimeoutError` if time runs out.
    """
    outer = float(rows.peaks.sum())
    seen = survey(rows, price * outer, deadline)
    first = first_orders(rows)
    most = min(ORDERS[1], 2 * first)
    member, mass = mix_combs(rows, seen.hard, first, most, min(ENOUGH, price / 6), deadline)
    short = float(_find_violated(member, mass, seen.hard[:HARD], deadline)[1].sum()) / outer
    law = realise(rows, member, mass, seen, deadline) if short <= FAR else None
    if law is not None and law.cost() <= (1 + NEAR) * outer:
        return law
    try:
        other = _exchange(rows, seen, deadline)
    except TimeoutError:
        if law is None:
            raise
        return law
    return other if law is None or other.cost() < law.cost() else law


def _exchange(rows: Rows, seen: Survey, deadline: float) -> Law:
    """Choose the cheapest of a few laws, each made for the contexts in which earlier laws fell short.

    Where many contexts fall short and sets are large, repair is long, and waits for the last round.
    """
    outer = float(rows.peaks.sum())
    cells = Exchange(rows.peaks * (1 + 1e-9), np.random.default_rng(SEED))
    cells.add(np.concatenate([seen.hard, at_peaks(rows)]))
    best: Law | None = None
    for left in reversed(range(ROUNDS)):
        try:
            cells.settle(deadline)
            member, mass = cells.law()
            repair = start(rows, member, mass, seen, deadline)
            short = short_rows(rows, repair.law, seen, deadline)
            again = np.array(list(rows_of(rows, seen, _worst(short)))).reshape(-1, rows.n)
            if left and len(short) * np.count_nonzero(member) > LONG:
                cells.add(again)
                continue
            for row in seen.hard[:FIRST]:  # the hardest first: what mends them mends most of the others
                repair.fix(row)
            for row in rows_of(rows, seen, short):
                repair.fix(row)
            law = finish(rows, repair.law, units_of(seen.cover))
        except TimeoutError:
            if best is None:
                raise
            return best
        gained = float(best.cost() - law.cost()) if best else math.inf
        best = law if gained > 0 else best
        assert best is not None
        if best.cost() <= (1 + NEAR) * outer or gained < NEAR * outer or not left:
            return best
        cells.add(again)
    raise AssertionError("the last round ends with a law")


def _worst(short: list[Short]) -> list[Short]:
    """Choose the worst few contexts of each group, worst first."""
    few: dict[int, list[Short]] = {}
    for each in short:
        few.setdefault(each[1], []).append(each)
    return [each for group in few.values() for each in group[:WORST]]


def at_peaks(rows: Rows) -> Floats:
    """Find for each source a row at its peak; drop repeated rows."""
    peaks, found = np.full(rows.n, -1.0), np.zeros((rows.n, rows.n))
    for k in range(rows.groups):
        group = rows.group(k)
        if len(group):
            which = group.argmax(axis=0)
            top = group[which, np.arange(rows.n)]
            found[top > peaks] = group[which[top > peaks]]
            peaks = np.maximum(peaks, top)
    return np.unique(found, axis=0)


def first_orders(rows: Rows) -> int:
    """Choose the number of first orders: few where sets are large, since sources then meet many others in each."""
    least, most = ORDERS
    return min(most, max(least, math.ceil(HITS / float(rows.peaks.sum()))))


def mix_combs(
    rows: Rows, hard: Floats, first: int, most: int, enough: float = ENOUGH, deadline: float = math.inf
) -> tuple[Member, Floats]:
    """Mix `first` combs or more, at most `most`, until the hard contexts fall short by at most `enough`.

    Further orders keep apart what violated cuts name.
    """
    rng = np.random.default_rng(SEED)
    lengths = rows.peaks * (1 + 1e-9)  # a little longer: rounding must not leave a source short in all contexts at once
    rivals = Rivals(rows.peaks, hard)
    combs: list[tuple[Member, Floats]] = []
    wanted = first
    while True:
        while len(combs) < wanted:
            in_time(deadline)
            combs.append(comb(lengths, rivals.order(lengths, rng)))
        member, mass = (np.concatenate(parts) for parts in zip(*combs, strict=True))
        mixture = merge_sets(member, mass / len(combs))
        if wanted >= most:
            return mixture
        cuts, short = _find_violated(*mixture, hard[:HARD], deadline)
        if short.sum() <= enough * rows.peaks.sum():
            return mixture
        rivals.learn(cuts)
        wanted = min(most, wanted + max(1, wanted // 2))


def comb(lengths: Floats, order: NDArray[np.intp]) -> tuple[Member, Floats]:
    """Lay out one comb: sets and masses."""
    sets, mass = end_to_end(lengths[order])
    member = np.empty_like(sets)
    member[:, order] = sets
    member[~member.any(axis=1), np.argmax(lengths)] = True  # only if the lengths sum to less than one
    return member, mass


def _find_violated(member: Member, mass: Floats, hard: Floats, deadline: float) -> tuple[Member, Floats]:
    """Find cuts C with Pr[Q meets C] < p(C | u) in the hard contexts (rows), and their gaps."""
    law = quantise(member, mass, DENOMINATOR)
    network = Network(law)
    cuts, short = [], []
    for row in hard:
        in_time(deadline)
        supply = supplies(row, law.total)
        missing = int(supply.sum()) - network.ship(supply)
        if missing > law.total >> 30:
            cuts.append(network.cut())
            short.append(missing / law.total)
    return np.array(cuts, dtype=bool).reshape(len(cuts), member.shape[1]), np.array(short)


class Rivals:
    """How much x and y must stay apart: the largest (p(x|u) / M_x + p(y|u) / M_y - 1)^POWER over some rows.

    In one order the comb hits x and y together for as long as their intervals overlap modulo one. A context u with
    p(x | u) = M_x and p(y | u) nearly M_y needs them apart: the cut {x, y} is violated by the mean overlap over all
    orders less (M_x - p(x | u)) + (M_y - p(y | u)). Such x and y are *rivals*. Cuts of a few rivals are nearly all that
    random orders violate, so an order is laid source by source, each time the one of a few random candidates whose
    interval meets the fewest rivals in the turns of the circle before.
    """

    def __init__(self, peaks: Floats, rows: Iterable[Floats]) -> None:
        n = len(peaks)
        self._weight = np.zeros((n, n), dtype=np.float32)
        top = np.where(peaks > 0, peaks, 1.0)
        for row in rows:
            share = row / top
            x = np.argpartition(-share, min(NEAREST, n) - 1)[:NEAREST]
            both = np.maximum(0.0, share[x][:, None] + share[x] - 1) ** POWER
            self._raise(x, np.maximum(self._weight[np.ix_(x, x)], both))

    def learn(self, cuts: Member) -> None:
        """Double the weight of all pairs in cuts that a mixture of orders violates."""
        for cut in cuts:
            x = np.flatnonzero(cut)
            if len(x) <= NEAREST:
                self._raise(x, 2 * self._weight[np.ix_(x, x)] + np.float32(0.1))

    def order(self, lengths: Floats, rng: np.random.Generator) -> NDArray[np.intp]:
        """Draw an order of the sources, as intervals of these lengths, in which few rivals overlap modulo one."""
        n = len(lengths)
        left, order, ends = rng.permutation(n), np.empty(n, dtype=np.intp), np.zeros(n + 1)
        for place in range(n):
            some = left[max(0, n - place - CANDIDATES) : n - place]
            chosen = int(self._meetings(some, lengths, order[:place], ends[: place + 1]).argmin())
            order[place] = some[chosen]
            some[chosen] = some[-1]  # the last candidate takes its place among those left
            ends[place + 1] = ends[place] + lengths[order[place]]
        return order

    def _meetings(self, some: NDArray[np.intp], lengths: Floats, order: NDArray[np.intp], ends: Floats) -> Floats:
        """Compute for each candidate the mean weight of sources it would overlap in earlier turns."""
        begin = ends[-1]
        stop = begin + lengths[some]
        turns = np.arange(1, int(stop.max()) + 1)
        first = np.searchsorted(ends, np.maximum(begin - turns, 0.0), side="right") - 1
        count = np.maximum(np.minimum(np.searchsorted(ends, stop.max() - turns), len(order)) - first, 0)
        if not len(order) or not count.any():
            return np.zeros(len(some))
        shift = np.repeat(turns, count)
        index = np.arange(len(shift)) - np.repeat(np.cumsum(count) - count - first, count)
        overlap = np.minimum(ends[index + 1] + shift, stop[:, None]) - np.maximum(ends[index] + shift, begin)
        met: Floats = (self._weight[some[:, None], order[index]] * np.maximum(overlap, 0)).sum(axis=1)
        return met / np.maximum(lengths[some], np.finfo(float).tiny)

    def _raise(self, x: NDArray[np.intp], weights: NDArray[np.floating]) -> None:
        np.fill_diagonal(weights, 0)
        self._weight[np.ix_(x, x)] = weights
