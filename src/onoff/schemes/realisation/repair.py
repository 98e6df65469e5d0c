"""Make any law realisable in every context, by enlarging sets.

In a context whose flow falls short, an unmatched source x is in no unmatched set q (else the flow was not maximal).
Moving the mass of q to q + {x} mends it; and since larger sets take whatever smaller ones took, no other context
breaks. One pass over all contexts makes any law realisable, at an extra cost of at most the sum of the shortfalls.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import closing

import numpy as np

from onoff.schemes.law import Law, merged
from onoff.schemes.realisation.network import Network, supplies
from onoff.schemes.realisation.spreading import in_processes, spread
from onoff.types import Floats, Mask

PARALLEL = 3 * 10**7  # flows times memberships from which processes pay for their start: about 3 seconds
CHASES = 3  # rows that are fixed before the one that fell short
SHARE = 8  # blocks of contexts that a process gets at a time


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
        """Make the law realise the row, and return whether anything had to be done.

        Unmatched sources and unmatched sets are laid side by side, largest first, and paired where they overlap:
        few new sets.
        """
        if not self.shortfall(row):
            return False
        missing = supplies(row, self.law.total) - self._network.shipped()
        spare = self.law.mass - self._network.filled()
        sources, sets = np.flatnonzero(missing > 0), np.flatnonzero(spare > 0)
        sources, sets = sources[np.argsort(-missing[sources])], sets[np.argsort(-spare[sets])]
        source_ends, set_ends = np.cumsum(missing[sources]), np.cumsum(spare[sets])
        ends = np.union1d(source_ends, set_ends[set_ends < source_ends[-1]])
        units = np.diff(ends, prepend=0)
        x, q = sources[np.searchsorted(source_ends, ends)], sets[np.searchsorted(set_ends, ends)]
        larger = self.law.member[q]
        larger[np.arange(len(x)), x] = True
        mass = self.law.mass.copy()
        np.subtract.at(mass, q, units)
        self.law = Law(*merged(np.concatenate([self.law.member, larger]), np.concatenate([mass, units])))
        self._network = Network(self.law.member, self.law.mass)
        return True

    def cuts(self) -> list[Mask]:
        """After a shortfall: the smallest and the largest set of sources on the root's side of a minimum cut."""
        return [self._network.cut(), self._network.largest_cut()]

    def chase(self, row: Floats, rows: Floats) -> None:
        """Fix a row by first fixing, among `rows`, those that violate its cut most: one repair for many."""
        for _ in range(CHASES):
            if not self.shortfall(row):
                return
            cut = self._network.cut()
            self.fix(rows[rows[:, cut].sum(axis=1).argmax()])
        self.fix(row)

    def fix_all(self, blocks: Sequence[Floats], deadline: float = math.inf) -> None:
        """Fix every row: find the short ones first, on all cores if there are many, then mend them, worst first.

        Raises `TimeoutError` if the deadline (monotonic) passes: a law that has not been checked in every context must
        not be used.
        """
        found = self._shortfalls(blocks, deadline)
        queue = [(d, k, i) for k, short in enumerate(found) for i, d in enumerate(short) if d]
        for _, k, i in sorted(queue, reverse=True):
            in_time(deadline)
            self.fix(blocks[k][i])

    def _shortfalls(self, blocks: Sequence[Floats], deadline: float) -> list[list[int]]:
        if sum(map(len, blocks)) * int(self.law.member.sum()) < PARALLEL:
            result = []
            for rows in blocks:
                in_time(deadline)
                result.append([self.shortfall(row) for row in rows])
            return result
        shares = [blocks[start : start + SHARE] for start in range(0, len(blocks), SHARE)]
        found: list[list[int]] = []
        with closing(spread(_shortfalls_of, self.law, shares, here=in_processes)) as answers:
            for answer in answers:
                in_time(deadline)
                found += answer
        return found


def in_time(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError("the time limit has passed")


def _shortfalls_of(law: Law, blocks: Sequence[Floats]) -> list[list[int]]:
    """The shortfalls of some rows: the work of one process."""
    repair = Repair(law)
    return [[repair.shortfall(row) for row in rows] for rows in blocks]
