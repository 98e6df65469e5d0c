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

from onoff.model.powers import counts, times
from onoff.model.rows import Rows
from onoff.schemes import Proposal, Task
from onoff.schemes.certificate import outer_certificate
from onoff.schemes.law import DENOMINATOR, Law, Member, everything, merged, quantised
from onoff.schemes.realisation.network import Network, supplies
from onoff.schemes.realisation.realise import hard_contexts, realised
from onoff.schemes.realisation.repair import in_time
from onoff.types import Floats

PRICE = 5e-4  # share of the outer bound spent on slack for the screen
TRIES = 40  # random orders among which the next one is chosen
SEED = 0  # of the random orders: the same rows give the same law
ENOUGH = 2e-4  # shortfall in the hard contexts, as a share of the outer bound, at which orders suffice


def propose(task: Task) -> Proposal:
    """The comb, or everything if time runs out first."""
    certificate = outer_certificate(task.posterior, task.lengths)
    try:
        law = comb_law(task.posterior, task.deadline)
    except TimeoutError:  # what is always at hand, with its honest gap
        return Proposal("everything", everything(task.posterior.n), certificate)
    task.tell(float(law.cost(task.lengths)), certificate.bound)
    return Proposal("comb", law, certificate)


def comb_law(rows: Rows, deadline: float = math.inf) -> Law:
    """A realisable law, on dense chains within a few per cent of the outer bound.

    Raises `TimeoutError` if time runs out.
    """
    member, mass = mixed_combs(rows, np.random.default_rng(SEED), deadline)
    return realised(rows, member, mass, PRICE * float(rows.peaks.sum()), deadline)


@dataclass(frozen=True)
class Orders:
    """How many random orders to begin with, how many to have at most, and among how many to choose each further one."""

    first: int
    most: int
    tries: int


def mixed_combs(
    rows: Rows, rng: np.random.Generator, deadline: float = math.inf, orders: Orders | None = None
) -> tuple[Member, Floats]:
    """Combs mixed until the hard contexts hardly fall short.

    Sources that peak in the same group must hardly ever be hit together, since p({those} | u) is nearly the sum
    of their peaks there: every order keeps them adjacent. Each further order is the best of a few random ones against
    the cuts that the mixture so far violates.
    """
    peak = rows.peaks
    home = np.array([rows.group(k).max(axis=0, initial=0.0) for k in range(rows.groups)]).argmax(axis=0)
    hard = list(hard_contexts(rows).values())
    lengths = peak * (1 + 1e-9)  # a little longer: rounding must not leave a source short in all contexts at once
    effort = orders or Orders(first=4, most=min(60, max(5, 1500 // rows.n)), tries=TRIES)
    combs = [comb(lengths, _grouped_order(home, rng)) for _ in range(effort.first)]
    while len(combs) < effort.most:
        in_time(deadline)
        cuts, short = _violated(*_mixture(combs), hard)
        if short.sum() <= ENOUGH * peak.sum():
            break
        candidates = [comb(lengths, _grouped_order(home, rng)) for _ in range(effort.tries)]
        gains = [times(times(short, counts(cuts, member.T) > 0), mass) for member, mass in candidates]
        combs.append(candidates[int(np.argmax(gains))])
    return _mixture(combs)


def comb(lengths: Floats, order: NDArray[np.intp]) -> tuple[Member, Floats]:
    """The sets of one comb and their masses: the set changes only where an interval ends, modulo one."""
    ends = np.concatenate([[0.0], np.cumsum(lengths[order])])
    cuts = np.unique(np.concatenate([ends % 1.0, [0.0, 1.0]]))
    offsets = (cuts[:-1] + cuts[1:]) / 2
    teeth = np.floor(ends[:, None] - offsets)
    member = np.empty((len(offsets), len(lengths)), dtype=bool)
    member[:, order] = (np.diff(teeth, axis=0) > 0).T
    member[~member.any(axis=1), np.argmax(lengths)] = True  # only if the lengths sum to less than one
    return member, np.diff(cuts)


def _grouped_order(group: NDArray[np.intp], rng: np.random.Generator) -> NDArray[np.intp]:
    """A random order that keeps the sources of each group together."""
    shuffled = rng.permutation(len(group))
    rank = rng.permutation(int(group.max()) + 1)
    return shuffled[np.argsort(rank[group[shuffled]], kind="stable")]


def _mixture(combs: list[tuple[Member, Floats]]) -> tuple[Member, Floats]:
    member = np.concatenate([sets for sets, _ in combs])
    return merged(member, np.concatenate([mass for _, mass in combs]) / len(combs))


def _violated(member: Member, mass: Floats, hard: list[Floats]) -> tuple[Member, Floats]:
    """Cuts C with Pr[Q meets C] < p(C | u) in the hard contexts, a row each, and by how much."""
    law = quantised(member, mass, DENOMINATOR)
    network = Network(law.member, law.mass)
    cuts, short = [], []
    for row in (row for rows in hard for row in rows):
        supply = supplies(row, law.total)
        missing = int(supply.sum()) - network.ship(supply)
        if missing > law.total >> 30:
            cuts.append(network.cut())
            short.append(missing / law.total)
    return np.array(cuts, dtype=bool).reshape(len(cuts), member.shape[1]), np.array(short)
