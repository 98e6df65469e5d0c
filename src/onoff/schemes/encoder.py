"""The integer encoder: with how many units each request goes to each set, in every context.

Of the D units of a law, H = n + `held` units of the full set N, which is the last set, are held out. The others flow: a
maximal integer flow from the supplies floor((D - H) r(x)) into the sets, one for each group of contexts whose rows are
nearly alike. The few units that the flow leaves unfilled go to the likeliest possible member of their set, so that
every column is full. Then each context c of the group shares out the H units of N such that the units of x come as near
to D r_c(x) as integers can, with at least one unit for every possible request, however unlikely. So

    the column of every set sums to its mass, in every context, exactly,

and the rows are D r_c up to a few units, which `Encoders.off_by` counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from onoff.errors import PlanError
from onoff.schemes.flow import Network, in_time, supplies
from onoff.schemes.law import Law
from onoff.types import Floats, Mask, RandBelow, Units

Entries = tuple[Units, Units, Units]  # requests, sets (by their positions in the law) and units, sorted by both


@dataclass(frozen=True, eq=False)
class Encoders:
    """The encoder of context c is the flow of its group k = group[c], with `extra[c]` more units for the full set N.

    The flow of request x in group k is the slice starts[k n + x] : starts[k n + x + 1] of `sets` and `units`, sorted
    by set. The last entry of every slice is that of N, possibly with 0 units. `totals[c, x]` are all units of x.
    """

    starts: NDArray[np.intp]
    sets: Units
    units: Units
    group: NDArray[np.intp]
    extra: Units
    totals: Units

    @property
    def groups(self) -> int:
        """Number of groups of contexts with their own flow."""
        return (len(self.starts) - 1) // int(self.extra.shape[1])

    def entries(self, context: int) -> Entries:
        """List a context's entries above 0: joint integer weights of request and set."""
        n = self.extra.shape[1]
        first = int(self.group[context]) * n
        starts = self.starts[first : first + n + 1]
        units = self.units[starts[0] : starts[-1]].copy()
        units[starts[1:] - starts[0] - 1] += self.extra[context]
        used = np.flatnonzero(units)
        requests = np.repeat(np.arange(n), np.diff(starts))
        return requests[used], self.sets[starts[0] : starts[-1]][used], units[used]

    def draw(self, context: int, request: int, randbelow: RandBelow) -> int:
        """Draw a set with probability units / sum(units) of the request, exactly, from one random number."""
        row = int(self.group[context]) * self.extra.shape[1] + request
        inside = slice(self.starts[row], self.starts[row + 1])
        units = self.units[inside].copy()
        units[-1] += self.extra[context, request]
        return int(self.sets[inside][draw_index(units, randbelow)])

    def column(self, index: int) -> Units:
        """Find each request's units (column) on one set, by context (row)."""
        n = self.extra.shape[1]
        units = np.zeros(len(self.starts) - 1, dtype=np.int64)
        at = np.flatnonzero(self.sets == index)
        units[np.searchsorted(self.starts, at, side="right") - 1] = self.units[at]
        found: Units = units.reshape(-1, n)[self.group]
        if index == self.sets[-1]:
            found += self.extra
        return found

    def off_by(self, rows: Floats) -> float:
        """Bound the total variation, over contexts, between the units of the requests and D r_c."""
        total = float(self.totals[0].sum())
        # D r_c is rounded in floats: by half a unit in all.
        return float(np.abs(self.totals - total * rows).sum(axis=1).max() / 2 + 1) / total


class LawEncoder:
    """Makes the encoders of one law, until a deadline. Its network is built once; threads may share it."""

    def __init__(self, law: Law, held: int = 0, deadline: float = inf) -> None:
        self.law, self._out, self._deadline = law, law.n + held, deadline
        flowing = law.mass.copy()
        flowing[-1] -= self._out
        self._flowing = Law(law.member, flowing)
        self._network = Network(self._flowing)
        self._lock = Lock()  # a flow and its reading belong together

    def encode(
        self, rows: Floats, possible: Mask, shared: Floats | None = None, group: NDArray[np.intp] | None = None
    ) -> Encoders:
        """Encode contexts whose rows are r_c, positive exactly where `possible` holds.

        `shared[k]` is the row that the contexts c with group[c] = k share a flow for; without it each has its own.
        """
        n, count = self.law.n, len(self.law.mass)
        shared, group = (rows if shared is None else shared), (np.arange(len(rows)) if group is None else group)
        allowed = np.ones(shared.shape, dtype=bool)
        np.logical_and.at(allowed, group, possible)
        cells, parts = [np.arange(1, n * len(shared) + 1) * count - 1], [np.zeros(n * len(shared), dtype=np.int64)]
        for k, (row, mask) in enumerate(zip(shared, allowed, strict=True)):
            in_time(self._deadline)
            source, column, units = self._flow(row, mask)
            cells.append((k * n + source) * count + column)
            parts.append(units)
        cell = np.concatenate(cells)
        order = np.argsort(cell)
        cell = cell[order]
        first = np.flatnonzero(np.diff(cell, prepend=-1))  # units of one request on one set are added up
        cell, units = cell[first], np.add.reduceat(np.concatenate(parts)[order], first)
        starts = np.searchsorted(cell, np.arange(n * len(shared) + 1) * count)
        sums: Units = np.add.reduceat(units, starts[:-1]).reshape(-1, n)[group]
        missing = np.floor(self.law.total * rows - sums).astype(np.int64)
        extra = np.where(possible, np.maximum(missing, 1), 0)
        for given in extra:
            _sum_to(given, self._out)
        return Encoders(starts, cell % count, units, group, extra, sums + extra)

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
