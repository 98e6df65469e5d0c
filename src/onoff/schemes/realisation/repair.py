"""Make any law realisable in every context, by enlarging sets.

In a context whose flow falls short, an unmatched source x is in no unmatched set q (else the flow was not maximal).
Moving the mass of q to q + {x} mends it; and since larger sets take whatever smaller ones took, no other context
breaks. One pass over all contexts makes any law realisable, at an extra cost of at most the sum of the shortfalls.
"""

from __future__ import annotations

import time

import numpy as np

from onoff.schemes.law import Law, merged
from onoff.schemes.realisation.network import Network, supplies
from onoff.types import Floats, Mask, Units


class Repair:
    """A law under repair."""

    def __init__(self, law: Law) -> None:
        self.law = law
        self._network = Network(law.member, law.mass)

    def shortfall(self, row: Floats) -> int:
        """The units of the row's supply that the law cannot take."""
        supply = supplies(row, self.law.total)
        return int(supply.sum()) - self._network.ship(supply)

    def fix(self, row: Floats) -> bool:
        """Make the law realise the row, and return whether anything had to be done."""
        if not self.shortfall(row):
            return False
        missing = supplies(row, self.law.total) - self._network.shipped()
        spare = self.law.mass - self._network.filled()
        sources, sets, units = _paired(missing, spare)
        larger = self.law.member[sets]
        larger[np.arange(len(sets)), sources] = True
        left = self.law.mass.copy()
        np.subtract.at(left, sets, units)
        member, mass = np.concatenate([self.law.member, larger]), np.concatenate([left, units])
        order = np.argsort(np.concatenate([np.arange(len(left)), sets]), kind="stable")  # each beside what it was
        self.law = Law(*merged(member[order], mass[order]))
        self._network = Network(self.law.member, self.law.mass)
        return True

    def cuts(self) -> list[Mask]:
        """After a shortfall: the smallest and the largest set of sources on the root's side of a minimum cut."""
        return [self._network.cut(), self._network.largest_cut()]

    def fix_all(self, rows: Floats) -> None:
        """Fix every row: find the short ones first, then mend them, worst first."""
        short = [(self.shortfall(row), i) for i, row in enumerate(rows)]
        for _, i in sorted((entry for entry in short if entry[0]), reverse=True):
            self.fix(rows[i])


def _paired(missing: Units, spare: Units) -> tuple[Units, Units, Units]:
    """Which source goes into which set with how many units: all that is missing, into spare mass.

    Both are laid side by side, largest first, and paired where they overlap. So there are few pairs.
    """
    sources, sets = np.flatnonzero(missing > 0), np.flatnonzero(spare > 0)
    sources, sets = sources[np.argsort(-missing[sources])], sets[np.argsort(-spare[sets])]
    source_ends, set_ends = np.cumsum(missing[sources]), np.cumsum(spare[sets])
    ends = np.union1d(source_ends, set_ends[set_ends < source_ends[-1]])
    x, q = sources[np.searchsorted(source_ends, ends)], sets[np.searchsorted(set_ends, ends)]
    return x, q, np.diff(ends, prepend=0)


def in_time(deadline: float) -> None:
    """Raise `TimeoutError` if the deadline has passed."""
    if time.monotonic() > deadline:
        raise TimeoutError("the time limit has passed")
