"""One integer network for a law, reused in every context: only the supplies change.

    root --supply--> source x --mass of q--> set q containing x --mass of q--> sink

A law is realisable in a context iff the supplies D p(x | u) all reach the sink (max-flow / min-cut; Hall, Strassen):
iff Pr[Q meets C] >= p(C | u) for every set C of sources. A minimum cut names a C for which that fails.
"""

from __future__ import annotations

import numpy as np
from ortools.graph.python.max_flow import SimpleMaxFlow

from onoff.types import Floats, Mask, Units

ROOT, SINK, FIRST_SOURCE = 0, 1, 2


class Network:
    """`member` is a boolean matrix with a row for each set; `mass` are the integer capacities of the sets."""

    def __init__(self, member: Mask, mass: Units) -> None:
        sets, self.n = member.shape
        self.set_of, self.source_of = (index.astype(np.int32) for index in np.nonzero(member))
        source = np.arange(FIRST_SOURCE, FIRST_SOURCE + self.n, dtype=np.int32)
        node = np.arange(sets, dtype=np.int32) + FIRST_SOURCE + self.n
        self._solver = SimpleMaxFlow()
        add = self._solver.add_arcs_with_capacity
        self._supply_arcs = add(np.full(self.n, ROOT, np.int32), source, np.zeros(self.n, np.int64))
        self._edge_arcs = add(source[self.source_of], node[self.set_of], mass[self.set_of])
        self._mass_arcs = add(node, np.full(sets, SINK, np.int32), mass)

    def ship(self, supply: Units) -> int:
        """Send as much of the supply as possible, and return how many units arrive."""
        self._solver.set_arcs_capacity(self._supply_arcs, supply)
        status = self._solver.solve(ROOT, SINK)
        if status != SimpleMaxFlow.OPTIMAL:
            raise ArithmeticError(f"the max-flow solver ended with status {status}")
        return int(self._solver.optimal_flow())

    def shipped(self) -> Units:
        """Units sent by each source."""
        return np.asarray(self._solver.flows(self._supply_arcs), dtype=np.int64)

    def filled(self) -> Units:
        """Units received by each set."""
        return np.asarray(self._solver.flows(self._mass_arcs), dtype=np.int64)

    def edges(self) -> Units:
        """Units on each membership, in the order of `set_of` and `source_of`."""
        return np.asarray(self._solver.flows(self._edge_arcs), dtype=np.int64)

    def cut(self) -> Mask:
        """The smallest set of sources on the root's side of a minimum cut.

        It is a violated C if not all supply arrived.
        """
        return self._sources_in(self._solver.get_source_side_min_cut())

    def largest_cut(self) -> Mask:
        """The largest set of sources on the root's side of a minimum cut."""
        return ~self._sources_in(self._solver.get_sink_side_min_cut())

    def _sources_in(self, nodes: list[int]) -> Mask:
        index = np.asarray(nodes, dtype=np.intp) - FIRST_SOURCE
        side = np.zeros(self.n, dtype=bool)
        side[index[(index >= 0) & (index < self.n)]] = True
        return side


def supplies(row: Floats, total: int) -> Units:
    """Integers not above total * row, and together not above `total`."""
    units = np.floor(row * total).astype(np.int64)
    over = int(units.sum()) - total
    if over > 0:  # only if the floats of the row sum to a little more than 1
        units[units.argmax()] -= over
    return units
