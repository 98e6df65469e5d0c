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
    """`flows[k]` has a row for each open source and a column for each set; `extra[c]` goes to the last column, N."""

    flows: tuple[csr_array, ...]
    group: NDArray[np.intp]
    extra: Units
    totals: Units

    def table(self, context: int) -> csr_array:
        """The joint integer weights of request (row) and set (column) in a context."""
        flow = self.flows[self.group[context]]
        last = csr_array(
            (self.extra[context], (np.arange(flow.shape[0]), np.full(flow.shape[0], flow.shape[1] - 1))), flow.shape
        )
        both: csr_array = flow + last
        both.eliminate_zeros()
        return both

    def row(self, context: int, request: int) -> Units:
        """The units of the request on every set."""
        flow = self.flows[self.group[context]]
        units = np.zeros(flow.shape[1], dtype=np.int64)
        inside = slice(flow.indptr[request], flow.indptr[request + 1])
        units[flow.indices[inside]] = flow.data[inside]
        units[-1] += self.extra[context, request]
        return units

    def column(self, index: int) -> Units:
        """The units of every request (column) on one set, in every context (row)."""
        by_group = np.array([flow[:, [index]].toarray()[:, 0] for flow in self.flows])
        units = by_group[self.group]
        if index == self.flows[0].shape[1] - 1:
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
    flows = tuple(_flow(network, flowing, law.member, row) for row in sharing.rows)
    sums = np.array([flow.sum(axis=1) for flow in flows], dtype=np.int64)[sharing.group]
    missing = np.floor(law.total * rows - sums).astype(np.int64)
    extra = np.where(possible, np.maximum(missing, 1), 0)
    for units in extra:
        _sum_to(units, n + held)
    return Encoders(flows, sharing.group, extra, sums + extra)


def _flow(network: Network, flowing: Units, member: Mask, row: Floats) -> csr_array:
    network.ship(supplies(row, int(flowing.sum())))
    units = network.edges()
    source_of, set_of = network.source_of, network.set_of
    left = np.flatnonzero(flowing - network.filled())
    used = units > 0
    takers = np.where(member[left], row, -1.0).argmax(axis=1)
    return csr_array(
        (
            np.concatenate([units[used], (flowing - network.filled())[left]]),
            (np.concatenate([source_of[used], takers]), np.concatenate([set_of[used], left])),
        ),
        shape=(len(row), len(flowing)),
    )


def _sum_to(units: Units, total: int) -> None:
    """Change the largest entries, where a unit matters least, until they sum to `total`; none falls below 1."""
    while (over := int(units.sum()) - total) != 0:
        x = int(units.argmax())
        units[x] -= min(over, int(units[x]) - 1) if over > 0 else over
