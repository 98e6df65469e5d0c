"""Draws and those who bet on them: each gambler looks for one kind of mistake and learns from the steps before.

A draw is a set that came, among sets with known chances p by the plan. A gambler states other chances r before the set
is looked at, and its capital is multiplied by r(q) / p(q). By the plan it does not expect to gain.

For a table p is the row of the encoder. A race has no table; there p is a bag: the set that came and fresh draws of the
race in the same context, shuffled. By the plan each member of the bag is equally likely to be the one that came, so the
bet is fair whatever the law is, as long as r is computed from the bag without knowing which one that was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from onoff.audit.transcript.reading import Step
from onoff.model.powers import times
from onoff.types import Floats, Query

CAUTION = 4.0  # draws that a gambler imagines to have seen as the plan says, in each of its cells
PARTS = 8  # into which the range of the random numbers is cut
TEMPER = 0.5  # sources come together: their odds count half when they are multiplied


@dataclass(frozen=True)
class Drawn:
    """One draw in the context (last, step.next) at a lag: of all `sets` that could come, number `index` came.

    By the plan the chance of a set is in proportion to its entry in `weights`. For a table these are the units of the
    request, and `table` has those of all requests in this context. For a race they count the members of the bag, and
    `table` is None. `other` gives the weights of `step.request` in another context (last, next, lag) of the same plan,
    or None if it is impossible there. `previous` is the request before.
    """

    step: Step
    last: int
    lag: int
    sizes: NDArray[np.intp]
    weights: NDArray[np.int64]
    index: int
    before: int
    sets: Sequence[Query] = ()
    n: int = 0
    table: NDArray[np.int64] | None = None
    other: Callable[[int, int, int], NDArray[np.int64] | None] = lambda last, next, lag: None
    likeliest: int | None = None  # the likeliest request after this one, by the chain
    previous: int = -1
    replay: Callable[[Callable[[int], int]], Query] | None = None  # what a race draws with these numbers

    @cached_property
    def p(self) -> Floats:
        chances: Floats = self.weights / self.weights.sum()
        return chances

    @cached_property
    def places(self) -> dict[Query, int]:
        return {query: i for i, query in enumerate(self.sets)}

    def surely(self, query: Query | None) -> Floats | None:
        """The chances of a client that sends just this set; None if it is not among those that can come."""
        place = None if query is None else self.places.get(query)
        return None if place is None else np.eye(1, len(self.weights), place)[0]

    def interval(self, bits: bool = False) -> tuple[float, float]:
        """The part of [0, 1) in which the random number lay. The sets of a table lie there one after the other.

        With `bits` the whole is the power of two above the range. Generators draw so many bits and reject what is
        beyond the range, so equal bits are the same share of that power, and not of ranges that differ.
        """
        end, unit = int(self.weights[: self.index + 1].sum()), self._unit(bits)
        return (end - int(self.weights[self.index])) / unit, end / unit

    def within(self, low: float, high: float, bits: bool = False) -> Floats | None:
        """The chances of each set if the random number is uniform between `low` and `high`; None where that is none."""
        ends = np.cumsum(self.weights) / self._unit(bits)
        starts = np.concatenate([[0.0], ends[:-1]])
        overlap: Floats = np.maximum(np.minimum(ends, high) - np.maximum(starts, low), 0.0)
        return overlap / overlap.sum() if overlap.sum() > 0 else None

    def _unit(self, bits: bool) -> int:
        total = int(self.weights.sum())
        return 1 << total.bit_length() if bits else total

    @cached_property
    def parts(self) -> Floats:
        """The share of each set (column) in each part of the range of the random number, where sets lie in order."""
        ends = np.cumsum(self.weights)
        cuts = np.arange(PARTS + 1) * ends[-1] // PARTS
        overlap = np.minimum(ends, cuts[1:, None]) - np.maximum(ends - self.weights, cuts[:-1, None])
        share: Floats = np.maximum(overlap, 0) / np.maximum(self.weights, 1)
        return share

    @property
    def by_size(self) -> Floats:
        """Which sets (columns) have each size."""
        return np.eye(max(self.sizes.max(), self.n) + 1)[:, self.sizes]

    @cached_property
    def member(self) -> NDArray[np.bool_]:
        """Which sources (columns) each set has."""
        held = np.zeros((len(self.sets), self.n), dtype=bool)
        for i, query in enumerate(self.sets):
            held[i, list(query)] = True
        return held

    @property
    def place(self) -> int:
        """The part that holds most of the drawn set."""
        return int(self.parts[:, self.index].argmax())


@dataclass
class Gambler:
    """Believes that some sets come more often than the plan says, all sets of a cell alike.

    `cells` gives the share of each set (column) in each cell; without it every set of every plan is a cell. In a
    situation, told by its key, the odds of a cell are (seen + CAUTION) / (expected + CAUTION) so far.
    """

    hint: str
    key: Callable[[Drawn], Hashable]
    cells: Callable[[Drawn], Floats] | None = None
    log_capital: float = 0.0
    _tally: dict[Hashable, tuple[Floats, Floats]] = field(default_factory=dict)

    def bet(self, drawn: Drawn) -> None:
        """Stake everything on the odds learned so far, then learn from the draw."""
        if self.cells is None:
            seen, expected = self._seen_and_expected((drawn.step.plan, self.key(drawn)), len(drawn.p))
            odds = seen / expected
            seen[drawn.index] += 1
            expected += drawn.p
        else:
            cells = self.cells(drawn)
            seen, expected = self._seen_and_expected(self.key(drawn), len(cells))
            odds = times(seen / expected, cells)
            seen += cells[:, drawn.index]
            expected += times(cells, drawn.p)
        self.log_capital += math.log(odds[drawn.index] / times(odds, drawn.p))

    def _seen_and_expected(self, key: Hashable, cells: int) -> tuple[Floats, Floats]:
        return self._tally.setdefault(key, (np.full(cells, CAUTION), np.full(cells, CAUTION)))


@dataclass
class Leaning:
    """Believes that some sources are in more sets than the plan says: for races, whose sets are too many to count.

    The odds of a set are the product, tempered, over all sources, of how often each was in the sets, or was not,
    against how often it was in the bags.
    """

    hint: str
    key: Callable[[Drawn], Hashable]
    log_capital: float = 0.0
    _tally: dict[Hashable, tuple[Floats, Floats]] = field(default_factory=dict)

    def bet(self, drawn: Drawn) -> None:
        """Stake everything on the odds learned so far, then learn from the draw."""
        held = np.hstack([drawn.member, ~drawn.member]).astype(np.float64)
        start = np.full(2 * drawn.n, CAUTION)
        seen, expected = self._tally.setdefault(self.key(drawn), (start, start.copy()))
        logs = TEMPER * times(held, np.log(seen / expected))
        odds = np.exp(logs - logs.max())
        seen += held[drawn.index]
        expected += times(drawn.p, held)
        self.log_capital += math.log(odds[drawn.index] / times(odds, drawn.p))


def gamblers() -> list[Gambler]:
    """One for each kind of mistake in drawing from a table."""
    return [
        Gambler("the sets", lambda drawn: None),
        Gambler("the sizes of the sets", lambda drawn: None, lambda drawn: drawn.by_size),
        Gambler("the sets by request", lambda drawn: drawn.step.request),
        Gambler("the sets by last private request", lambda drawn: drawn.last),
        Gambler("the sets by next request", lambda drawn: drawn.step.next),
        Gambler("the sets by lag", lambda drawn: drawn.lag),
        Gambler("the random numbers", lambda drawn: None, lambda drawn: drawn.parts),
        Gambler("the random numbers by the one before", lambda drawn: drawn.before, lambda drawn: drawn.parts),
        Gambler("the random numbers by request", lambda drawn: drawn.step.request, lambda drawn: drawn.parts),
    ]


def racers() -> list[Gambler | Leaning]:
    """One for each kind of mistake in drawing a race."""
    return [
        Gambler("the sizes of the sets of races", lambda drawn: None, lambda drawn: drawn.by_size),
        Leaning("the sources in the sets of races", lambda drawn: None),
        Leaning("the sources in the sets of races by request", lambda drawn: drawn.step.request),
        Leaning("the sources in the sets of races by last private request", lambda drawn: drawn.last),
        Leaning("the sources in the sets of races by next request", lambda drawn: drawn.step.next),
    ]
