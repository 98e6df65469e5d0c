"""The comb: systematic sampling of the sources, each hit with exactly its largest posterior probability.

With M_x = max_u p(x | u), lay the sources end to end in some order as intervals of length M_x and put a comb with
teeth one apart on them at a uniform offset: the sources hit are the query. Its cost is exactly sum_x M_x, the outer
bound; one order gives at most n + 2 sets. A mixture of a few orders is nearly realisable; repair does the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onoff.model.rows import Rows
from onoff.schemes import Proposal, Task
from onoff.schemes.certificate import outer_certificate
from onoff.schemes.exchange import Exchange
from onoff.schemes.law import DENOMINATOR, Law, Member, everything, merged, quantised
from onoff.schemes.orders import Rivals, end_to_end
from onoff.schemes.realisation.looking import Short, Spread
from onoff.schemes.realisation.network import Network, supplies
from onoff.schemes.realisation.realise import FIRST, Realising, Survey, realised, survey
from onoff.schemes.realisation.repair import in_time
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


def propose(task: Task) -> Proposal:
    """The comb, or everything if time runs out first."""
    certificate = outer_certificate(task.posterior, task.lengths)
    try:
        law = comb_law(task.posterior, task.deadline, spread=task.spread)
    except TimeoutError:  # what is always at hand, with its honest gap
        return Proposal("everything", everything(task.posterior.n), certificate)
    task.tell(float(law.cost(task.lengths)), certificate.bound)
    return Proposal("comb", law, certificate)


def comb_law(rows: Rows, deadline: float = math.inf, price: float = PRICE, spread: Spread | None = None) -> Law:
    """A realisable law, on dense chains within 0.1 per cent of the outer bound.

    Where combs fall far short, as on sparse chains, their sources change places (`onoff.schemes.exchange`).
    `price` is the share of that bound that may be spent on saving flows. Raises `TimeoutError` if time runs out.
    """
    outer = float(rows.peaks.sum())
    seen = survey(rows, price * outer, deadline)
    orders = Orders.for_rows(rows, min(ENOUGH, price / 6))
    member, mass = mixed_combs(rows, np.random.default_rng(SEED), deadline, orders, seen)
    short = float(_violated(member, mass, seen.hard[:HARD])[1].sum()) / outer
    law = realised(rows, member, mass, seen, deadline, spread) if short <= FAR else None
    if law is not None and law.cost() <= (1 + NEAR) * outer:
        return law
    try:
        other = _exchanged(rows, seen, deadline, spread)
    except TimeoutError:
        if law is None:
            raise
        return law
    return other if law is None or other.cost() < law.cost() else law


def _exchanged(rows: Rows, seen: Survey, deadline: float, spread: Spread | None) -> Law:
    """The cheapest of a few laws, each made with the contexts in mind in which those before fell short.

    Where many contexts fall short and sets are large repair is long, and waits for the last round.
    """
    outer = float(rows.peaks.sum())
    cells = Exchange(rows.peaks * (1 + 1e-9), np.random.default_rng(SEED))
    cells.add(np.concatenate([seen.hard, at_peaks(rows)]))
    best: Law | None = None
    for left in reversed(range(ROUNDS)):
        try:
            cells.settle(deadline)
            member, mass = cells.law()
            under = Realising(rows, member, mass, seen, deadline)
            short = under.look(spread)
            again = np.array(list(under.rows_of(_worst(short)))).reshape(-1, rows.n)
            if left and len(short) * np.count_nonzero(member) > LONG:
                cells.add(again)
                continue
            under.fix(seen.hard[:FIRST])  # the hardest first: what mends them mends most of the others
            law = under.finished(short)
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
    """Of contexts, the worst first, the first few of each group."""
    few: dict[int, list[Short]] = {}
    for each in short:
        few.setdefault(each.group, []).append(each)
    return [each for group in few.values() for each in group[:WORST]]


def at_peaks(rows: Rows) -> Floats:
    """For each source a row with its largest probability, as long as they differ."""
    peaks, found = np.full(rows.n, -1.0), np.zeros((rows.n, rows.n))
    for k in range(rows.groups):
        group = rows.group(k)
        if len(group):
            which = group.argmax(axis=0)
            top = group[which, np.arange(rows.n)]
            found[top > peaks] = group[which[top > peaks]]
            peaks = np.maximum(peaks, top)
    return np.unique(found, axis=0)


@dataclass(frozen=True)
class Orders:
    """How many orders to begin with and to have at most, and when they suffice (see ENOUGH)."""

    first: int
    most: int
    enough: float = ENOUGH

    @classmethod
    def for_rows(cls, rows: Rows, enough: float = ENOUGH) -> Orders:
        """Few where sets are large: what counts is with how many others a source can share its part of the circle."""
        least, most = ORDERS
        first = min(most, max(least, math.ceil(HITS / float(rows.peaks.sum()))))
        return cls(first, min(most, 2 * first), enough)


def mixed_combs(
    rows: Rows,
    rng: np.random.Generator,
    deadline: float = math.inf,
    orders: Orders | None = None,
    seen: Survey | None = None,
) -> tuple[Member, Floats]:
    """Combs mixed until the hard contexts hardly fall short. Further orders keep apart what violated cuts name."""
    effort = orders or Orders.for_rows(rows)
    hard = (seen or survey(rows)).hard
    lengths = rows.peaks * (1 + 1e-9)  # a little longer: rounding must not leave a source short in all contexts at once
    rivals = Rivals(rows.peaks, hard)
    combs: list[tuple[Member, Floats]] = []
    wanted = effort.first
    while True:
        while len(combs) < wanted:
            in_time(deadline)
            combs.append(comb(lengths, rivals.order(lengths, rng)))
        mixture = _mixture(combs)
        if wanted >= effort.most:
            return mixture
        cuts, short = _violated(*mixture, hard[:HARD])
        if short.sum() <= effort.enough * rows.peaks.sum():
            return mixture
        rivals.learn(cuts)
        wanted = min(effort.most, wanted + max(1, wanted // 2))


def comb(lengths: Floats, order: NDArray[np.intp]) -> tuple[Member, Floats]:
    """The sets of one comb and their masses."""
    sets, mass = end_to_end(lengths[order])
    member = np.empty_like(sets)
    member[:, order] = sets
    member[~member.any(axis=1), np.argmax(lengths)] = True  # only if the lengths sum to less than one
    return member, mass


def _mixture(combs: list[tuple[Member, Floats]]) -> tuple[Member, Floats]:
    member = np.concatenate([sets for sets, _ in combs])
    return merged(member, np.concatenate([mass for _, mass in combs]) / len(combs))


def _violated(member: Member, mass: Floats, hard: Floats) -> tuple[Member, Floats]:
    """Cuts C with Pr[Q meets C] < p(C | u) in the hard contexts, a row each, and by how much."""
    law = quantised(member, mass, DENOMINATOR)
    network = Network(law.member, law.mass)
    cuts, short = [], []
    for row in hard:
        supply = supplies(row, law.total)
        missing = int(supply.sum()) - network.ship(supply)
        if missing > law.total >> 30:
            cuts.append(network.cut())
            short.append(missing / law.total)
    return np.array(cuts, dtype=bool).reshape(len(cuts), member.shape[1]), np.array(short)
