"""Pricing: sets whose reduced cost c(q) - sum_{C : q meets C} mu_C - mu_0 is negative, by local search."""

from __future__ import annotations

import numpy as np

from onoff.model.powers import counts, times
from onoff.schemes.law import Member
from onoff.schemes.optimum.centre import Centre
from onoff.schemes.optimum.separation import novel
from onoff.types import Floats

NEAR, WILD, MOST, STEPS = 200, 100, 150, 30


def priced(
    cuts: Member, centre: Centre, lengths: Floats, sets: Member, must: Member, rng: np.random.Generator, least: float
) -> Member:
    """New sets of reduced cost below -`least`, found from the best known sets and from random ones.

    Every set of a realisable law meets every row of `must`, the supports of contexts; these act as cuts of a price
    that no set can afford to miss.
    """
    n = len(lengths)
    near = sets[np.argsort(reduced_cost(cuts, centre, lengths, sets))[:NEAR]]
    wild = rng.random((WILD, n)) < rng.random((WILD, 1)) * min(1.0, 2 * near.mean())
    pool = np.concatenate([cuts, must])
    prices = np.concatenate([centre.multipliers, np.full(len(must), lengths.sum())])
    found = novel(_local_search(pool, prices, lengths, np.concatenate([near, wild])), sets)
    value = reduced_cost(cuts, centre, lengths, found)
    best = np.argsort(value)[:MOST]
    return found[best[value[best] < -least]]


def reduced_cost(cuts: Member, centre: Centre, lengths: Floats, sets: Member) -> Floats:
    """The reduced cost of each set."""
    meets = counts(sets, cuts.T) > 0
    value: Floats = times(sets, lengths) - centre.total_multiplier - times(meets, centre.multipliers)
    return value


def _local_search(cuts: Member, prices: Floats, lengths: Floats, starts: Member) -> Member:
    """Add or drop the best source, in all sets at once, until no single change helps."""
    R = cuts.astype(np.float64)
    sets = starts.copy()
    every = np.arange(len(sets))
    for _ in range(STEPS):
        count = times(sets, R.T)
        gain = times((count == 0) * prices, R) - lengths
        gain[sets] = -np.inf
        loss = lengths - times((count == 1) * prices, R)
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
