"""Races have no table: their draws are tested, with a stated error rate.

Contexts are drawn under the chain, the request from its exact posterior, and the query from the plan. If the law is the
same in all contexts then, for every event A of the query, the number of draws with A in one context, or in all contexts
of one lag, is hypergeometric given the number in all of them (Fisher's exact test). Events are "q meets C" for many C,
and "q has at least s sources". A race serves larger lags by first drawing where the reader may have been. A mistake
there is the same in all contexts of a lag, so lags are compared as wholes as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onoff.audit.plan.rows import ExactRows
from onoff.model.powers import times, whole_times
from onoff.types import Query, RandBelow

if TYPE_CHECKING:
    from onoff.plans.base import Plan

RATE = 1e-6  # how often a true claim is called false, for each of the two tests
LIMIT = 4.8917  # a normal variable lies beyond +-LIMIT with probability RATE
FEW = 300  # draws behind a stated cost
WIDE = 3  # times the width that FEW draws give: no interval is as wide
CONTEXTS = 10  # for each lag
COMMON = 64  # random sets C whose meeting is an event, besides the singletons


@dataclass(frozen=True)
class Place:
    """A context at a lag."""

    lag: int
    last: int
    next: int


@dataclass(frozen=True)
class Sample:
    """member[g, t, x]: whether the t-th query in the context places[g] holds x."""

    places: tuple[Place, ...]
    member: NDArray[np.bool_]
    undecodable: tuple[Place, int, Query] | None  # a query without its request, if one was drawn


@dataclass(frozen=True)
class Uneven:
    """In `place` the event happens in a share `here` of the draws, in all contexts together in a share `overall`.

    If `whole` is true it is all contexts of that lag, and `place` is the one of them that is furthest off.
    """

    place: Place
    whole: bool
    event: str
    cut: Query | None
    here: float
    overall: float


def draws(
    plan: Plan, rows: Sequence[ExactRows], count: int, randbelow: RandBelow, advance: Callable[[], None]
) -> Sample:
    """`count` queries, shared evenly among random contexts of the given lags."""
    places = []
    for exact in rows:
        for _ in range(CONTEXTS):
            last = randbelow(exact.n)
            walk = exact.walk(last)
            request = _drawn(walk, randbelow)
            places.append(Place(exact.lag, last, _drawn(exact.successors(request), randbelow)))
    each = max(1, count // len(places))
    member = np.zeros((len(places), each, rows[0].n), dtype=bool)
    undecodable = None
    for g, place in enumerate(places):
        weights = rows[g // CONTEXTS].weights(place.last, place.next)
        for t in range(each):
            request = _drawn(weights, randbelow)
            query = plan.draw(request, place.last, place.next, place.lag, randbelow)
            if request not in query and undecodable is None:
                undecodable = place, request, query
            member[g, t, list(query)] = True
            advance()
    return Sample(tuple(places), member, undecodable)


def cost_test(sample: Sample, lengths: Sequence[float] | None) -> tuple[float, float, float]:
    """The mean download, its standard error, and that of a mean of FEW draws, which is behind a stated cost.

    The third says how far a statement may lie off, so nothing that is stated enters it. Large queries that are too rare
    to be seen here, all of a chance below ln(1 / RATE) / (number of draws), may have been seen there: they are allowed
    for.
    """
    prices = np.ones(sample.member.shape[2]) if lengths is None else np.array(lengths)
    sizes = times(sample.member, prices).ravel()
    mean, deviation, count = float(sizes.mean()), float(sizes.std(ddof=1)), len(sizes)
    unseen = float(prices.sum() - prices.min()) * math.sqrt(-math.log(RATE) / count)
    return mean, deviation / math.sqrt(count), math.hypot(deviation, unseen) / math.sqrt(FEW)


def same_law(sample: Sample) -> Uneven | None:
    """None, or a context and an event that one common law would show with a chance below RATE, all tests counted."""
    from scipy.stats import hypergeom

    contexts, each, n = sample.member.shape
    rng = np.random.default_rng(n)  # the events are public and need not be unpredictable
    cuts = [np.array([x]) for x in range(n)]
    cuts += [rng.choice(n, int(rng.integers(2, n // 2 + 2)), replace=False) for _ in range(COMMON if n > 2 else 0)]
    size = sample.member.sum(axis=2)
    steps = np.unique(size)[1:]
    events = [sample.member[:, :, cut].any(axis=2) for cut in cuts] + [size >= step for step in steps]
    lags = np.array([place.lag for place in sample.places])
    groups = np.vstack([np.eye(contexts, dtype=int), *(lags == lag for lag in sorted(set(lags)) if len(set(lags)) > 1)])
    alone = np.array([event.sum(axis=1) for event in events])  # event, context
    counts, sizes = whole_times(alone, groups.T), each * groups.sum(axis=1)
    totals = alone.sum(axis=1, keepdims=True)
    common = hypergeom(contexts * each, totals, sizes)
    chance = np.minimum(1.0, 2 * np.minimum(common.cdf(counts), common.sf(counts - 1)))
    event, group = np.unravel_index(int(chance.argmin()), chance.shape)
    if chance[event, group] * chance.size >= RATE:
        return None
    cut = tuple(sorted(map(int, cuts[event]))) if event < len(cuts) else None
    name = "the query meets" if cut else f"the query has at least {steps[event - len(cuts)]} sources"
    here, overall = counts[event, group] / sizes[group], totals[event, 0] / (contexts * each)
    off = np.where(groups[group], np.abs(alone[event] - overall * each), -1)
    return Uneven(sample.places[int(off.argmax())], bool(group >= contexts), name, cut, float(here), float(overall))


def _drawn(weights: Sequence[int], randbelow: RandBelow) -> int:
    left = randbelow(sum(weights))
    for x, weight in enumerate(weights):
        left -= weight
        if left < 0:
            return x
    raise AssertionError("randbelow answered with a number that is too large")
