"""The integer encoder: with how many units each request goes to each set, in every context.

Of the D units of a law, H = n + `held` units of the full set N, which is its last set, are held out. The others flow: a
maximal integer flow from the supplies floor((D - H) r(x)) into the sets, one for each group of contexts whose rows are
nearly alike. The few units that stay unfilled go to the likeliest possible member, so that every column is full. Then
each context c of the group shares out the H units of N such that the units of x come as near to D r_c(x) as integers
can, at least one for every possible request, however unlikely. So

    the column of every set sums to its mass, in every context, exactly,

and the rows are D r_c up to a few units, which `Encoders.off_by` counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from onoff.errors import PlanError
from onoff.schemes.flow import Network, supplies
from onoff.schemes.law import Law
from onoff.types import Floats, Mask, RandBelow, Units


@dataclass(frozen=True, eq=False)
class Encoders:
    """The encoder of context c is the flow of its group k = group[c], and `extra[c]`: the units for the full set N.

    Row k n + x of `flows` has the units of the source x on every set, in group k. `totals[c, x]` are all units of x.
    All groups stand in one sparse table, because many small ones take longer to make.
    """

    flows: csr_array
    group: NDArray[np.intp]
    extra: Units
    totals: Units

    @property
    def groups(self) -> int:
        """How many groups of contexts have a flow of their own."""
        found: int = self.flows.shape[0] // self.extra.shape[1]
        return found

    def table(self, context: int) -> csr_array:
        """The joint integer weights of request (row) and set (column) in a context."""
        n = self.extra.shape[1]
        first = int(self.group[context]) * n
        flow = self.flows[first : first + n]
        last = csr_array((self.extra[context], (np.arange(n), np.full(n, flow.shape[1] - 1))), flow.shape)
        both: csr_array = flow + last
        both.eliminate_zeros()
        return both

    def row(self, context: int, request: int) -> Units:
        """The units of the request on every set."""
        row = int(self.group[context]) * self.extra.shape[1] + request
        units = np.zeros(self.flows.shape[1], dtype=np.int64)
        inside = slice(self.flows.indptr[row], self.flows.indptr[row + 1])
        units[self.flows.indices[inside]] = self.flows.data[inside]
        units[-1] += self.extra[context, request]
        return units

    def column(self, index: int) -> Units:
        """The units of every request (column) on one set, in every context (row)."""
        n = self.extra.shape[1]
        units: Units = self.flows[:, [index]].toarray().reshape(-1, n)[self.group]
        if index == self.flows.shape[1] - 1:
            units = units + self.extra
        return units

    def off_by(self, rows: Floats) -> float:
        """The largest total variation, over contexts, between the units of the requests and D r_c; rounded up."""
        total = float(self.totals[0].sum())
        # D r_c is rounded in floats: by half a unit in all.
        return float(np.abs(self.totals - total * rows).sum(axis=1).max() / 2 + 1) / total


class LawEncoder:
    """Makes the encoders of one law. Its network is built once; threads may share it."""

    def __init__(self, law: Law, held: int = 0) -> None:
        self.law, self._out = law, law.n + held
        flowing = law.mass.copy()
        flowing[-1] -= self._out
        self._flowing = Law(law.member, flowing)
        self._network = Network(self._flowing)
        self._lock = Lock()  # a flow and its reading belong together

    def encode(
        self, rows: Floats, possible: Mask, shared: Floats | None = None, group: NDArray[np.intp] | None = None
    ) -> Encoders:
        """The encoders of contexts whose rows are r_c, positive exactly where `possible` holds.

        `shared[k]` is the row that the contexts c with group[c] = k share a flow for; without it each has its own.
        """
        n = self.law.n
        shared, group = (rows if shared is None else shared), (np.arange(len(rows)) if group is None else group)
        allowed = np.ones(shared.shape, dtype=bool)
        np.logical_and.at(allowed, group, possible)
        parts = [self._flow(row, mask) for row, mask in zip(shared, allowed, strict=True)]
        number = np.repeat(np.arange(len(parts)), [len(units) for _, _, units in parts])
        source, column, units = (np.concatenate(same) for same in zip(*parts, strict=True))
        flows = csr_array((units, (number * n + source, column)), shape=(len(parts) * n, len(self.law.mass)))
        sums: Units = flows.sum(axis=1, dtype=np.int64).reshape(-1, n)[group]
        missing = np.floor(self.law.total * rows - sums).astype(np.int64)
        extra = np.where(possible, np.maximum(missing, 1), 0)
        for given in extra:
            _sum_to(given, self._out)
        return Encoders(flows, group, extra, sums + extra)

    def left_over(self, row: Floats) -> int:
        """How many units of the sets a flow of this row leaves unfilled."""
        with self._lock:
            return self._flowing.total - self._network.ship(supplies(row, self._flowing.total))

    def _flow(self, row: Floats, possible: Mask) -> tuple[Units, Units, Units]:
        """A maximal flow of a row as (source, set, units). Unfilled units go to the likeliest possible member."""
        network = self._network
        with self._lock:
            network.ship(supplies(row, self._flowing.total))
            units, unfilled = network.edges(), self._flowing.mass - network.filled()
            source_of, set_of = network.source_of, network.set_of
        used, left = np.flatnonzero(units), np.flatnonzero(unfilled)
        takers = self.law.member[left] & possible
        if not takers.any(axis=1).all():
            index = left[np.argmin(takers.any(axis=1))]
            raise PlanError(f"the set {self.law.sets[index]} holds no possible request in some context")
        return (
            np.concatenate([source_of[used], np.where(takers, row, -1.0).argmax(axis=1)]),
            np.concatenate([set_of[used], left]),
            np.concatenate([units[used], unfilled[left]]),
        )


def draw_index(units: Units, randbelow: RandBelow) -> int:
    """Draw i with probability units[i] / sum(units), exactly, from one random number."""
    ends = np.cumsum(units)
    return int(np.searchsorted(ends, randbelow(int(ends[-1])), side="right"))


def _sum_to(units: Units, total: int) -> None:
    """Change the largest entries, where a unit matters least, until they sum to `total`; none falls below 1."""
    while (over := int(units.sum()) - total) != 0:
        x = int(units.argmax())
        units[x] -= min(over, int(units[x]) - 1) if over > 0 else over
