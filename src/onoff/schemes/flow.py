"""Max-flows: one integer network for a law, reused in every context; only the supplies change.

    root --supply--> source x --mass of q--> set q containing x --mass of q--> sink

A law is realisable in a context iff the supplies D p(x | u) all reach the sink (max-flow / min-cut; Hall, Strassen):
iff Pr[Q meets C] >= p(C | u) for every set C of sources. A minimum cut names a C for which that fails.

**Repair** makes any law realisable in every context, by enlarging sets. In a context whose flow falls short, an
unmatched source x is in no unmatched set q (else the flow was not maximal). Moving the mass of q to q + {x} mends it;
and since larger sets take whatever smaller ones took, no other context breaks. One pass over all contexts makes any law
realisable, at an extra cost of at most the sum of the shortfalls.
"""

from __future__ import annotations

import math
import time

import numpy as np
from numpy.typing import NDArray
from ortools.graph.python.max_flow import SimpleMaxFlow

from onoff.schemes.law import Law, Member, merge_sets
from onoff.types import Floats, Mask, Units

ROOT, SINK, FIRST_SOURCE = 0, 1, 2
FEW = 8  # supplies of fewer than 1 / FEW of the sources have a network of their own


class Network:
    """The network of a law.

    A set of one source at once takes what it can from that source, since nothing else can fill it. If few sources
    have more, it is shipped in the part of the network that they reach: the rest would carry nothing.
    Edges are those of the last shipment, set by set in the order of `set_of` and `source_of`; sets of one source last.
    """

    def __init__(self, law: Law) -> None:
        self.n, self._law = law.n, law
        self._whole: _Part | None = None
        alone = np.flatnonzero(np.count_nonzero(law.member, axis=1) == 1)
        self._own = np.full(law.n, -1)  # the set of this source alone
        self._own[law.member[alone].argmax(axis=1)] = alone
        self._room = np.where(self._own >= 0, law.mass[self._own], 0)  # in that set
        self._shared = law.mass.copy()  # in all others
        self._shared[self._own[self._own >= 0]] = 0

    def ship(self, supply: Units) -> int:
        """Send as much of the supply as possible, and return how many units arrive."""
        self._supply = supply
        self._kept = np.minimum(supply, self._room)
        few = np.flatnonzero(supply - self._kept)
        if FEW * len(few) < self.n:
            self._part = _Part(self._law.member, self._shared, few)
            return int(self._kept.sum()) + self._part.ship((supply - self._kept)[few])
        return self._ship_all()

    def _ship_all(self) -> int:
        self._whole = self._whole or _Part(self._law.member, self._law.mass, np.arange(self.n))
        self._part, self._kept = self._whole, np.zeros_like(self._supply)
        return self._part.ship(self._supply)

    @property
    def set_of(self) -> NDArray[np.intp]:
        """Set of each edge."""
        return np.concatenate([self._part.set_of, self._own[self._kept > 0]])

    @property
    def source_of(self) -> NDArray[np.intp]:
        """Source of each edge."""
        return np.concatenate([self._part.sources[self._part.source_of], np.flatnonzero(self._kept)])

    def units_sent(self) -> Units:
        """Units sent by each source."""
        units = self._kept.copy()
        units[self._part.sources] += self._part.flows(self._part.supply_arcs)
        return units

    def units_received(self) -> Units:
        """Units received by each set."""
        units = self._part.flows(self._part.mass_arcs)
        kept = self._kept > 0
        units[self._own[kept]] += self._kept[kept]
        return units

    def edges(self) -> Units:
        """Units on each edge."""
        return np.concatenate([self._part.flows(self._part.edge_arcs), self._kept[self._kept > 0]])

    def cut(self) -> Mask:
        """Find the smallest set of sources on the root's side of a minimum cut.

        It is violated if not all supply arrived. It holds no source without supply.
        """
        return self._sources_in(self._part.solver.get_source_side_min_cut())

    def largest_cut(self) -> Mask:
        """Find the largest set of sources on the root's side of a minimum cut. Some may have no supply."""
        if self._part is not self._whole:
            self._ship_all()
        return ~self._sources_in(self._part.solver.get_sink_side_min_cut())

    def _sources_in(self, nodes: list[int]) -> Mask:
        index = np.asarray(nodes, dtype=np.intp) - FIRST_SOURCE
        side = np.zeros(self.n, dtype=bool)
        side[self._part.sources[index[(index >= 0) & (index < len(self._part.sources))]]] = True
        return side


class _Part:
    """The part of a network that some sources reach."""

    def __init__(self, member: Member, mass: Units, sources: NDArray[np.intp]) -> None:
        self.sources, sets = sources, len(mass)
        member = member if len(sources) == member.shape[1] else member[:, sources]
        self.set_of, self.source_of = (index.astype(np.int32) for index in np.nonzero(member))
        source = np.arange(FIRST_SOURCE, FIRST_SOURCE + len(sources), dtype=np.int32)
        node = np.arange(sets, dtype=np.int32) + FIRST_SOURCE + len(sources)
        self.solver = SimpleMaxFlow()
        add = self.solver.add_arcs_with_capacity
        self.supply_arcs = add(np.full(len(sources), ROOT, np.int32), source, np.zeros(len(sources), np.int64))
        self.edge_arcs = add(source[self.source_of], node[self.set_of], mass[self.set_of])
        self.mass_arcs = add(node, np.full(sets, SINK, np.int32), mass)

    def ship(self, supply: Units) -> int:
        """Send as much of these sources' supply as possible."""
        self.solver.set_arcs_capacity(self.supply_arcs, supply)
        status = self.solver.solve(ROOT, SINK)
        if status != SimpleMaxFlow.OPTIMAL:
            raise ArithmeticError(f"the max-flow solver ended with status {status}")
        return int(self.solver.optimal_flow())

    def flows(self, arcs: Units) -> Units:
        """Units on these arcs."""
        return np.asarray(self.solver.flows(arcs), dtype=np.int64)


def supplies(row: Floats, total: int) -> Units:
    """Round total * row down to integers that sum to at most `total`."""
    units = np.floor(row * total).astype(np.int64)
    over = int(units.sum()) - total
    if over > 0:  # only if the floats of the row sum to a little more than 1
        units[units.argmax()] -= over
    return units


class Repair:
    """A law under repair, which raises `TimeoutError` once the deadline has passed."""

    def __init__(self, law: Law, deadline: float = math.inf) -> None:
        self.law, self._deadline = law, deadline
        self._network = Network(law)

    def shortfall(self, row: Floats) -> int:
        """Count the row's units that the law cannot take."""
        in_time(self._deadline)
        supply = supplies(row, self.law.total)
        return int(supply.sum()) - self._network.ship(supply)

    def fix(self, row: Floats) -> bool:
        """Make the law realise the row, and return True if it had to change."""
        if not self.shortfall(row):
            return False
        missing = supplies(row, self.law.total) - self._network.units_sent()
        spare = self.law.mass - self._network.units_received()
        sources, sets, units = pair_up(missing, spare)
        larger = self.law.member[sets]
        larger[np.arange(len(sets)), sources] = True
        left = self.law.mass.copy()
        np.subtract.at(left, sets, units)
        member, mass = np.concatenate([self.law.member, larger]), np.concatenate([left, units])
        order = np.argsort(np.concatenate([np.arange(len(left)), sets]), kind="stable")  # each beside what it was
        self.law = Law(*merge_sets(member[order], mass[order]))
        self._network = Network(self.law)
        return True

    def cuts(self) -> list[Mask]:
        """After a shortfall, find the smallest and largest source sets on the root's side of a minimum cut."""
        return [self._network.cut(), self._network.largest_cut()]

    def fix_all(self, rows: Floats) -> None:
        """Fix every row: find the short ones first, then mend them, worst first."""
        short = [(self.shortfall(row), i) for i, row in enumerate(rows)]
        for _, i in sorted((entry for entry in short if entry[0]), reverse=True):
            self.fix(rows[i])


def pair_up(missing: Units, spare: Units) -> tuple[Units, Units, Units]:
    """Pair sources and sets (or other sources), with units for each pair: all that is missing goes into spare mass.

    Both are laid side by side, largest first; pairs are overlaps, so there are few.
    """
    sources, sets = np.flatnonzero(missing > 0), np.flatnonzero(spare > 0)
    if not len(sources):
        return sources, sets[:0], missing[:0]
    sources, sets = sources[np.argsort(-missing[sources])], sets[np.argsort(-spare[sets])]
    source_ends, set_ends = np.cumsum(missing[sources]), np.cumsum(spare[sets])
    ends = np.union1d(source_ends, set_ends[set_ends < source_ends[-1]])
    x, q = sources[np.searchsorted(source_ends, ends)], sets[np.searchsorted(set_ends, ends)]
    return x, q, np.diff(ends, prepend=0)


def in_time(deadline: float) -> None:
    """Raise `TimeoutError` if the deadline has passed."""
    if time.monotonic() > deadline:
        raise TimeoutError("the time limit has passed")
