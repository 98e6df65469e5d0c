"""The integer encoder of one context: with how many units each request goes to each set.

Of the D units of a law, n of the full set N, which is the last set, are held out. The others flow: a maximal integer
flow from the supplies floor((D - n) r(x)) of the context's row r into the sets. The few units that the flow leaves
unfilled go to the likeliest possible member of their set, so that every column is full. Then the n units of N are
shared out such that the units of x come as near to D r(x) as integers can, with at least one unit for every possible
request, however unlikely. So

    the column of every set sums to its mass, in every context, exactly,

and the rows are D r up to a few units, which `Encoder.off_by` counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf
from threading import Lock

import numpy as np

from onoff.errors import PlanError
from onoff.schemes.flow import Network, in_time, supplies
from onoff.schemes.law import Law
from onoff.types import Floats, Mask, RandBelow, Units

Entries = tuple[Units, Units, Units]  # requests, sets (by their positions in the law) and units, sorted by both


@dataclass(frozen=True, eq=False)
class Encoder:
    """The entries above 0 of one context's encoder: joint integer weights of request and set, of `n` sources."""

    n: int
    entries: Entries

    @cached_property
    def totals(self) -> Units:
        """All units of each request."""
        requests, _, units = self.entries
        totals = np.zeros(self.n, dtype=np.int64)
        np.add.at(totals, requests, units)
        return totals

    def draw(self, request: int, randbelow: RandBelow) -> int:
        """Draw a set with probability units / sum(units) of the request, exactly, from one random number."""
        requests, sets, units = self.entries
        inside = slice(*np.searchsorted(requests, [request, request + 1]))
        return int(sets[inside][draw_index(units[inside], randbelow)])

    def off_by(self, row: Floats) -> float:
        """Bound the total variation between the units of the requests and D r."""
        total = float(self.totals.sum())
        # D r is rounded in floats: by half a unit in all.
        return float(np.abs(self.totals - total * row).sum() / 2 + 1) / total


class LawEncoder:
    """Makes the encoders of one law, until a deadline. Its network is built once; threads may share it."""

    def __init__(self, law: Law, deadline: float = inf) -> None:
        self.law, self._deadline = law, deadline
        flowing = law.mass.copy()
        flowing[-1] -= law.n
        self._flowing = Law(law.member, flowing)
        self._network = Network(self._flowing)
        self._lock = Lock()  # a flow and its reading belong together

    def encode(self, row: Floats, possible: Mask) -> Encoder:
        """Encode the context whose row is r, positive exactly where `possible` holds."""
        n, count = self.law.n, len(self.law.mass)
        in_time(self._deadline)
        requests, sets, units = self._flow(row, possible)
        sums = np.zeros(n, dtype=np.int64)
        np.add.at(sums, requests, units)
        missing = np.floor(self.law.total * row - sums).astype(np.int64)
        extra = np.where(possible, np.maximum(missing, 1), 0)
        _sum_to(extra, n)
        takers = np.flatnonzero(extra)
        cell = np.concatenate([requests * count + sets, (takers + 1) * count - 1])
        order = np.argsort(cell)
        cell, units = cell[order], np.concatenate([units, extra[takers]])[order]
        first = np.flatnonzero(np.diff(cell, prepend=-1))  # units of one request on one set are added up
        units = np.add.reduceat(units, first)
        return Encoder(n, (cell[first] // count, cell[first] % count, units))

    def takes(self, row: Floats) -> bool:
        """Whether all of the row's supply flows into the sets."""
        supply = supplies(row, self._flowing.total)
        with self._lock:
            return self._network.ship(supply) == int(supply.sum())

    def left_over(self, row: Floats) -> int:
        """Count the sets' units that a flow of this row leaves unfilled."""
        with self._lock:
            return self._flowing.total - self._network.ship(supplies(row, self._flowing.total))

    def _flow(self, row: Floats, possible: Mask) -> Entries:
        """Maximise a row's flow. Unfilled units go to the likeliest possible member."""
        network = self._network
        with self._lock:
            network.ship(supplies(row, self._flowing.total))
            units, unfilled = network.edges(), self._flowing.mass - network.units_received()
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
    order = np.argsort(-units, kind="stable")
    spare, over = np.maximum(units[order] - 1, 0), int(units.sum()) - total
    units[order] -= np.minimum(np.maximum(over - np.cumsum(spare) + spare, 0), spare)
    units[order[0]] -= min(over, 0)
