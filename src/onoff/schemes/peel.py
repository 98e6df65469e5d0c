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

import numpy as np

from onoff.model.rows import Rows
from onoff.schemes.law import Member, as_matrix, merged
from onoff.types import Floats

MOST_ROWS = 62  # sets of contexts are bits of 64-bit integers
NOTHING = 1e-11  # mass below this is none: what floats leave behind
REST = 1e-9  # the last of the mass, which goes to the full set: it mends what rounding leaves short


def peeled(rows: Rows, pieces: int) -> tuple[Member, Floats]:
    """Sets and masses of a coupling of up to MOST_ROWS rows. The pieces are bounded, and the full set gets what is
    left.

    It is a proposal in floats, to be repaired like any other.
    """
    n = rows.n
    common = rows.rows.min(axis=0)
    used = np.flatnonzero(rows.peaks - common > NOTHING)
    peel = _Peel(np.ascontiguousarray((rows.rows - common)[:, used]), float(1 - common.sum()))
    images: list[list[int]] = []
    masses: list[float] = []
    while peel.left > REST and len(masses) < pieces:
        image, mass = peel.piece()
        images.append(image)
        masses.append(mass)
    sets = [*((x,) for x in range(n)), *(tuple(used[image]) for image in images), tuple(range(n))]
    member = as_matrix(sets, n)
    return merged(member, np.concatenate([common, masses, [max(peel.left, REST)]]))


class _Peel:
    """What is left of the rows, and of the mass of each; `peak[x]` are the contexts at the peak of x, as bits."""

    def __init__(self, mass: Floats, left: float) -> None:
        self.mass, self.left = mass, left
        self.contexts, sources = range(len(mass)), range(mass.shape[1])
        self.bits = 1 << np.arange(len(mass), dtype=np.int64)[:, None]
        self.at_peak = np.zeros(mass.shape, dtype=bool)
        self.peak = [0] * len(sources)
        self.some = [0] * len(sources)  # the contexts with any mass on a source
        self.wanted = [(0, 0, 0)] * len(sources)  # by how many contexts, at the peak and in all
        self.homes: list[set[int]] = [set() for _ in self.contexts]
        self._look(list(sources))

    def piece(self) -> tuple[list[int], float]:
        """The next image and its mass."""
        laxity = self.left - (self.mass * self.at_peak).sum(axis=1)
        image, taken = self._taken(laxity.tolist())
        part = self.mass[:, image]
        served = np.array(taken)[:, None] == np.arange(len(image))
        delta = min(self.left, float(part[served].min()))
        room = part.max(axis=0) - part
        room[served] = np.inf  # of the others none may come to stand out
        room = room[room > NOTHING]
        riding = laxity[~self.at_peak[:, image][served]]
        riding = riding[riding > NOTHING]
        delta = min(delta, float(room.min(initial=delta)), float(riding.min(initial=delta)))
        self.mass[:, image] = part - delta * served
        self._look(image)
        self.left -= delta
        return image, delta

    def _taken(self, laxity: list[float]) -> tuple[list[int], list[int]]:
        """The sources in use, and which of them each context takes."""
        free = (1 << len(self.contexts)) - 1
        image: list[int] = []
        taken = [-1] * len(self.contexts)
        mass = self.mass.tolist()
        for u in sorted(self.contexts, key=laxity.__getitem__):
            if taken[u] >= 0:
                continue
            bit, row = 1 << u, mass[u]
            rides = [(row[x], i) for i, x in enumerate(image) if self.some[x] & bit]
            if not rides or laxity[u] <= NOTHING:
                homes = [(self.wanted[x], x) for x in self.homes[u] if not self.peak[x] & ~free]
                if homes:
                    x = max(homes)[1]
                    others = self.peak[x]
                    free &= ~others
                    while others:
                        taken[(others & -others).bit_length() - 1] = len(image)
                        others &= others - 1
                    image.append(x)
                    continue
            if not rides:  # there is no way without extra cost: a source that it has mass on
                rides = [(0.0, len(image))]
                image.append(row.index(max(row)))
            taken[u] = max(rides)[1]
            free &= ~bit
        return image, taken

    def _look(self, sources: list[int]) -> None:
        """Find the peaks of these sources anew."""
        part = self.mass[:, sources]
        some = part > NOTHING
        at_peak = some & (part >= part.max(axis=0) - NOTHING)
        self.at_peak[:, sources] = at_peak
        peaks, somes = (np.where(mask, self.bits, 0).sum(axis=0).tolist() for mask in (at_peak, some))
        for x, peak, any_mass in zip(sources, peaks, somes, strict=True):
            changed = peak ^ self.peak[x]
            self.peak[x], self.some[x] = peak, any_mass
            self.wanted[x] = peak.bit_count(), any_mass.bit_count(), -x
            while changed:
                u = (changed & -changed).bit_length() - 1
                changed &= changed - 1
                if peak >> u & 1:
                    self.homes[u].add(x)
                else:
                    self.homes[u].discard(x)
