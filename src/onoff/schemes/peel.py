"""Peeling: a law for a few rows, at the outer bound unless contexts get into each other's way.

Think of a coupling: a random source for every context u, source x with probability p(x | u), and their image as the
query. Let rho be what is left to be coupled, and M_x = max_u rho(x, u). If for a while delta every source x in use is
taken by (at least) all contexts u at its peak, rho(x, u) = M_x, then M_x falls by delta, and asking for x has cost
exactly what sum_x M_x has lost. A coupling that is peeled like this to the end costs sum_x max_u p(x | u), the outer
bound. The mass min_u p(x | u) that all contexts share is peeled at once: queries of one source.

A context must be *at home*, with a source at whose peak it is, for as long as it has mass there. The rest of the time,
its laxity, it may ride along with any source that it has mass on. So contexts are served in the order of their laxity,
as in scheduling by least laxity: the pressed ones choose a home source whose other peak contexts are still free, the
others ride along, or choose in turn. Only if no such source is left is one taken that costs extra.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

import numpy as np

from onoff.model.posterior import Rows
from onoff.schemes.law import Member, as_matrix, merge_sets
from onoff.types import Floats

NOTHING = 1e-11  # mass below this is none: what floats leave behind
REST = 1e-9  # what goes to the full set at last: it mends what rounding leaves short
BEGIN = 0.25  # share of the pieces to begin with; the others come with the mass that is peeled


def peel(rows: Rows, pieces: int) -> tuple[Member, Floats, Floats]:
    """Make sets and masses of a coupling of the rows, from about `pieces` pieces, and return what is left.

    It is a float proposal, to be repaired like any other. The budget follows the mass: pieces may stay small
    for long, when two contexts in turn leave each other hardly any laxity; the rest is not worth its pieces.
    """
    n = rows.n
    common = rows.rows.min(axis=0)
    used = np.flatnonzero(rows.peaks - common > NOTHING)
    peel = _Peel(np.ascontiguousarray((rows.rows - common)[:, used]), float(1 - common.sum()))
    images: list[list[int]] = []
    masses: list[float] = []
    whole = peel.left
    while peel.left > REST and len(masses) < pieces * (BEGIN + 1 - peel.left / whole):
        image, delta = peel.piece()
        images.append(image)
        masses.append(delta)
    rest = np.zeros(rows.rows.shape)
    rest[:, used] = np.array(peel.column).T
    sets = [*((x,) for x in range(n)), *(tuple(used[image]) for image in images), tuple(range(n))]
    member, mass = merge_sets(as_matrix(sets, n), np.concatenate([common, masses, [REST]]))
    return member, mass, np.maximum(rest, 0.0) if peel.left > REST else rest[:0]


class _Peel:
    """Rest of the rows, and of the mass of each; `peak[x]` are the contexts at the peak of x, as bits.

    A piece touches a few numbers of a few sources, so they are lists: an array operation takes longer than all of them.
    What would need a look at all sources is updated with those few: the laxity of a context, the order of its homes.
    """

    def __init__(self, mass: Floats, left: float) -> None:
        self.left = left
        self.contexts, sources = range(len(mass)), range(mass.shape[1])
        self.laxity = [left] * len(mass)
        self.column: list[list[float]] = mass.T.tolist()  # [source][context]
        self.peak = [0] * len(sources)
        self.some = [0] * len(sources)  # the contexts with any mass on a source
        self.wanted = [(0, 0, 0)] * len(sources)  # by how many contexts, at the peak and in all; and -x
        self.homes: list[list[tuple[int, int, int]]] = [[] for _ in self.contexts]  # what is wanted, the most last
        for x in sources:
            self._enter(x)

    def piece(self) -> tuple[list[int], float]:
        """Peel one image and its mass."""
        column, laxity = self.column, self.laxity
        image, taken = self._choose(laxity)
        delta = self.left
        for i, x in enumerate(image):
            masses = column[x]
            below = max(masses) - NOTHING
            for u, mass in enumerate(masses):
                if taken[u] == i:
                    if mass < delta:  # noqa: PLR1730 (calls of `min` would take a third of all the time)
                        delta = mass
                elif mass < below and below - mass < delta:  # of the others none may come to stand out
                    delta = min(delta, below - mass + NOTHING)
        for u, i in enumerate(taken):  # who rides along does so for as long as it may
            if NOTHING < laxity[u] < delta and not self.peak[image[i]] >> u & 1:
                delta = laxity[u]
        for x in image:
            self._leave(x)
        for u, i in enumerate(taken):
            column[image[i]][u] -= delta
            laxity[u] -= delta
        for x in image:
            self._enter(x)
        self.left -= delta
        return image, delta

    def _choose(self, laxity: list[float]) -> tuple[list[int], list[int]]:
        """Choose the sources in use, and one of them by context."""
        free = (1 << len(self.contexts)) - 1
        image: list[int] = []
        taken = [-1] * len(self.contexts)
        column = self.column
        for u in sorted(self.contexts, key=laxity.__getitem__):
            if taken[u] >= 0:
                continue
            bit = 1 << u
            rides = [(column[x][u], i) for i, x in enumerate(image) if self.some[x] & bit]
            if not rides or laxity[u] <= NOTHING:
                home = next((-least for *_, least in reversed(self.homes[u]) if not self.peak[-least] & ~free), None)
                if home is not None:
                    free &= ~self.peak[home]
                    for other in _bits(self.peak[home]):
                        taken[other] = len(image)
                    image.append(home)
                    continue
            if not rides:  # there is no way without extra cost: a source that it has mass on
                rides = [(0.0, len(image))]
                image.append(max(range(len(column)), key=lambda x: column[x][u]))
            taken[u] = max(rides)[1]
            free &= ~bit
        return image, taken

    def _enter(self, x: int) -> None:
        """Find the peak of a source: who is at home there has less laxity."""
        masses = self.column[x]
        least = max(NOTHING, max(masses) - NOTHING)
        peak = some = 0
        for u, mass in enumerate(masses):
            if mass > NOTHING:
                some |= 1 << u
                if mass >= least:
                    peak |= 1 << u
        self.peak[x], self.some[x] = peak, some
        self.wanted[x] = peak.bit_count(), some.bit_count(), -x
        for u in _bits(peak):
            insort(self.homes[u], self.wanted[x])
            self.laxity[u] -= masses[u]

    def _leave(self, x: int) -> None:
        """The opposite."""
        for u in _bits(self.peak[x]):
            del self.homes[u][bisect_left(self.homes[u], self.wanted[x])]
            self.laxity[u] += self.column[x][u]


def _bits(mask: int) -> Iterator[int]:
    """Yield the places of the ones."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1
