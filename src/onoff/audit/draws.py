"""Whether the sets of OFF steps were drawn as the plans say: a bet against the client that is fair if they were.

Given the requests, the set of each step follows its row of the plan's encoder, independently of all others. A gambler
starts with capital 1 and before each step may choose any other distribution r; when the set q comes, with probability
p(q) by the plan, the capital is multiplied by r(q) / p(q). By the plan its expectation stays 1 whatever is chosen, so
it ever reaches 1 / a with probability at most a (Ville's inequality): exactly, for logs of any length, without tables
or simulation. Several gamblers share the capital; each looks for one kind of mistake and learns from the steps
before. A set that the plan never draws wins everything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from onoff.audit.models import Encoder, Model, Query
from onoff.audit.rules import due
from onoff.audit.transcripts import Step
from onoff.errors import ContextError, OnoffError, PlanError
from onoff.products import times

FALSE_ALARM = 1e-4
CAUTION = 4.0  # draws that a gambler imagines to have seen as the plan says, in each of its cells
PARTS = 8  # into which the range of the random numbers is cut
CONTEXTS_KEPT = 1024
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DrawTest:
    """`tested` steps against their plans; `untested` are those whose plan is not at hand or does not serve their lag.

    If all were drawn as the plans say, p_value <= a has probability at most a. `impossible` are steps whose set the
    plan never draws in their context; `hint` is what the winning gambler looked at.
    """

    tested: int
    untested: int
    impossible: tuple[int, ...]
    p_value: float
    hint: str
    false_alarm: float

    @property
    def rejected(self) -> bool:
        return self.p_value <= self.false_alarm


@dataclass(frozen=True)
class Drawn:
    """One draw: set number `index`, by the plan with chances as its weight; the context, and the place before."""

    step: Step
    last: int
    lag: int
    sizes: NDArray[np.intp]
    weights: NDArray[np.int64]
    index: int
    before: int

    @cached_property
    def p(self) -> Floats:
        chances: Floats = self.weights / self.weights.sum()
        return chances

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
        return np.eye(self.sizes.max() + 1)[:, self.sizes]

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


def gamblers() -> list[Gambler]:
    """One for each kind of mistake."""
    return [
        Gambler("the sets", lambda drawn: None),
        Gambler("the sizes of the sets", lambda drawn: None, lambda drawn: drawn.by_size),
        Gambler("the sets by request", lambda drawn: drawn.step.request),
        Gambler("the sets by last private request", lambda drawn: drawn.last),
        Gambler("the sets by next request", lambda drawn: drawn.step.next),
        Gambler("the sets by lag", lambda drawn: drawn.lag),
        Gambler("the random numbers", lambda drawn: None, lambda drawn: drawn.parts),
        Gambler("the random numbers by the one before", lambda drawn: drawn.before, lambda drawn: drawn.parts),
    ]


def draws(steps: Sequence[Step], models: Mapping[str, Model], false_alarm: float = FALSE_ALARM) -> DrawTest:
    """Test the sets in a journal against its plans, `models` by name; contexts are recomputed from what was asked."""
    if not 0 < false_alarm < 1:
        raise OnoffError(f"the rate of false alarms is {false_alarm}: a probability between 0 and 1 is needed")
    table = gamblers()
    tested = untested = 0
    impossible: list[int] = []
    most = 0.0
    for drawn in _drawn(steps, models):
        if drawn is None:
            untested += 1
            continue
        tested += 1
        if drawn.weights[drawn.index] == 0:
            impossible.append(drawn.step.step)
            continue
        for gambler in table:
            gambler.bet(drawn)
        most = max(most, _mean([gambler.log_capital for gambler in table]))
    best = max(table, key=lambda gambler: gambler.log_capital)
    hint = "sets that the plan never draws" if impossible else best.hint
    p_value = 0.0 if impossible else math.exp(-most)
    return DrawTest(tested, untested, tuple(impossible), p_value, hint, false_alarm)


def _drawn(steps: Sequence[Step], models: Mapping[str, Model]) -> Iterator[Drawn | None]:
    """The draw of every OFF step; None where the plan is not at hand or does not serve the context."""

    @lru_cache(maxsize=CONTEXTS_KEPT)
    def encoder(plan: str, last: int, following: int, lag: int) -> tuple[Encoder, dict[Query, int], NDArray[np.intp]]:
        found = models[plan].encoder(last, following, lag)
        return found, {query: i for i, query in enumerate(found.sets)}, np.array([len(query) for query in found.sets])

    before = 0
    for step, owed in zip(steps, due(steps), strict=True):
        if owed.lag == 0:
            continue
        try:
            rows, places, sizes = encoder(step.plan, owed.last, step.next, owed.lag)
        except (KeyError, ContextError, PlanError):
            yield None
            continue
        weights, index = rows.weights[step.request], places.get(step.query)
        if index is None:  # a set outside the law: one more, of weight 0
            weights, index, sizes = np.append(weights, 0), len(weights), np.append(sizes, len(step.query))
        drawn = Drawn(step, owed.last, owed.lag, sizes, weights, index, before)
        before = drawn.place
        yield drawn


def _mean(logs: Sequence[float]) -> float:
    """The logarithm of the mean of the exponentials."""
    top = max(logs)
    return top + math.log(sum(math.exp(log - top) for log in logs) / len(logs))
