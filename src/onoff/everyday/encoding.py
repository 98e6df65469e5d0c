"""Integer encoders of one law in many contexts, from one flow for each group of contexts.

Of the D units of the law, H = |N| + ceil(e D) units of the full set N are held out. The others flow: in group k a
maximal integer flow F_k from the supplies floor((D - H) r_k(x)) into the sets. The few units that stay unfilled go to
the member of largest r_k, so that every column is full. The encoder of a context c of the group is F_k, and the H units
of N shared out such that the units of x come as near to D r_c(x) as integers can, at least one for every possible
request. So

    the column of every set sums to its mass, in every context, exactly,

and the rows are D r_c up to a few units, which are counted and stated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from onoff.everyday.sharing import Sharing
from onoff.schemes.law import Law
from onoff.schemes.realisation.network import Network, supplies
from onoff.types import Floats, Mask, Units


@dataclass(frozen=True, eq=False)
class Encoders:
    """The encoder of context c is the flow of its group k = group[c], and `extra[c]`: the units for the full set N.

    Row k n + x of `flows` has the units of the open source x on every set, in group k. N is the last set. All groups
    stand in one sparse table, because many small ones take longer to make.
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
        last = csr_array(
            (self.extra[context], (np.arange(flow.shape[0]), np.full(flow.shape[0], flow.shape[1] - 1))), flow.shape
        )
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
        return float(np.abs(self.totals - total * rows).sum(axis=1).max() / 2 + rows.shape[1]) / total


def encoders(law: Law, rows: Floats, possible: Mask, sharing: Sharing, held: int) -> Encoders:
    """The encoders of all contexts, whose rows are r_c, positive exactly where `possible` holds."""
    n = rows.shape[1]
    flowing = law.mass.copy()
    flowing[-1] -= n + held
    network = Network(law.member, flowing)
    parts = [_flow(network, flowing, law.member, row) for row in sharing.rows]
    number = np.repeat(np.arange(len(parts)), [len(units) for _, _, units in parts])
    source, column, units = (np.concatenate(same) for same in zip(*parts, strict=True))
    flows = csr_array((units, (number * n + source, column)), shape=(len(parts) * n, len(flowing)))
    sums: Units = flows.sum(axis=1, dtype=np.int64).reshape(-1, n)[sharing.group]
    missing = np.floor(law.total * rows - sums).astype(np.int64)
    extra = np.where(possible, np.maximum(missing, 1), 0)
    for given in extra:
        _sum_to(given, n + held)
    return Encoders(flows, sharing.group, extra, sums + extra)


def _flow(network: Network, flowing: Units, member: Mask, row: Floats) -> tuple[Units, Units, Units]:
    """A maximal flow of a row as (source, set, units); what stays unfilled goes to the likeliest member."""
    network.ship(supplies(row, int(flowing.sum())))
    units = network.edges()
    unfilled = flowing - network.filled()
    used, left = np.flatnonzero(units), np.flatnonzero(unfilled)
    takers = np.where(member[left], row, -1.0).argmax(axis=1)
    return (
        np.concatenate([network.source_of[used], takers]),
        np.concatenate([network.set_of[used], left]),
        np.concatenate([units[used], unfilled[left]]),
    )


def _sum_to(units: Units, total: int) -> None:
    """Change the largest entries, where a unit matters least, until they sum to `total`; none falls below 1."""
    while (over := int(units.sum()) - total) != 0:
        x = int(units.argmax())
        units[x] -= min(over, int(units[x]) - 1) if over > 0 else over
