"""Orders for combs in which rivals do not meet.

In one order the comb hits x and y together for as long as their intervals overlap modulo one. A context u with
p(x | u) = M_x and p(y | u) nearly M_y needs them apart: the cut {x, y} is violated by the mean overlap over all orders
less (M_x - p(x | u)) + (M_y - p(y | u)). Such x and y are *rivals*. Cuts of a few rivals are nearly all that random
orders violate, so an order is laid source by source, each time the one of a few random candidates whose interval meets
the fewest rivals in the turns of the circle before. The cuts that a mixture of orders still violates make new rivals.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from onoff.schemes.law import Member
from onoff.types import Floats

CANDIDATES = 24  # sources among which the next one of an order is chosen
NEAREST = 40  # sources of a row that can be rivals: those nearest to their peaks
POWER = 4  # rivals that are both at half their peaks matter 16 times less than those at 3/4


def end_to_end(lengths: Floats) -> tuple[Member, Floats]:
    """The sets that teeth one apart hit at a uniform offset, if intervals lie end to end, and their masses.

    The set changes only where an interval ends, modulo one.
    """
    ends = np.concatenate([[0.0], np.cumsum(lengths)])
    cuts = np.unique(np.concatenate([ends % 1.0, [0.0, 1.0]]))
    offsets = (cuts[:-1] + cuts[1:]) / 2
    teeth = np.floor(ends[:, None] - offsets)
    member: Member = (np.diff(teeth, axis=0) > 0).T
    return member, np.diff(cuts)


class Rivals:
    """How much x and y must stay apart: the largest (p(x|u) / M_x + p(y|u) / M_y - 1)^POWER over some rows."""

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
        """A random order of the sources, as intervals of these lengths, in which few rivals overlap modulo one."""
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
        """For each candidate, the mean weight of the sources in earlier turns that it would overlap."""
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
