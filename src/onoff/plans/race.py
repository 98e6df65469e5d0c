"""The plan without a table: the race (`onoff.schemes.race`) for one chain and lag, for any number of sources."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import ClassVar

import numpy as np

from onoff.errors import PlanError
from onoff.model import powers as products
from onoff.model.bounds import outer_bound, sum_up
from onoff.model.chain import Chain
from onoff.model.posterior import Posterior, Support, Walks
from onoff.plans.plan import NEAR, Plan
from onoff.schemes.race import FINE, Race, exponentials, total_variation
from onoff.types import Floats, Query, RandBelow

GRID = 60  # binary digits of the clocks that the race looks at
WEIGHT_BITS = 160  # to which posterior weights are taken as integers
DRAWS = 300  # behind the estimate of the cost
FIRST_DRAWS = 16  # behind a first estimate


@dataclass(frozen=True)
class RacePlan(Plan):
    """Queries by the race. `cost` is a Monte-Carlo estimate and `interval` its 95 % interval (normal).

    Given the request x in the context u: T ~ Exp(1), E_x = p(x|u) T, E_y = p(y|u) T + Exp(1) for the others; averaged
    over x ~ p(. | u) these clocks are independent Exp(1), in every context. A larger lag d is served by first drawing
    where the reader may have been `lag` steps ago, j with probability ~ P^(d-lag)[last, j] P^lag[j, x].
    """

    kind: ClassVar[str] = "race"
    scheme: ClassVar[str] = "race"
    chain: Chain
    lag: int
    cost: float
    interval: tuple[float, float]
    lower_bound: float

    def __post_init__(self) -> None:
        self.check()
        if self.lag < 1:
            raise PlanError("a race is for lags of at least 1: while ON, everything is downloaded")
        low, high = self.interval
        if not 0 < low <= self.cost <= high:
            raise PlanError(f"the cost {self.cost!r} does not lie in its interval {self.interval!r}")

    @property
    def at_most(self) -> float:
        """Upper estimate of the cost, used to compare a race with a table: the mean plus four standard errors.

        It is at least NEAR above what is proved for all schemes, since few draws may miss what is rare.
        """
        return max(self.cost + 4 * self.standard_error, self.lower_bound * (1 + NEAR))

    @property
    def standard_error(self) -> float:
        """Standard error of the estimated cost."""
        return (self.interval[1] - self.cost) / 1.96

    def rounding_at(self, lag: int) -> float:
        """Bound, per draw, the total variation between the law of the query in a context and a fixed law.

        It is a sum of five parts. The clocks have nearly their law (`total_variation`). Rounding may carry a
        clock across a point of the grid. A request may miss the winners because its lead vanished on the grid. The
        posterior row has a relative error, and at a larger lag so do the weights of j. Contexts that are too
        unlikely are skipped. The last part bounds the joint law of context and query; the others hold in every
        context.
        """
        lag = self.served_lag(lag)
        n = self.n
        crossing = 3 * n * (2.0 ** (GRID - FINE) + 2.0**-FINE)
        missed = n * 2.0**-GRID
        terms = products.summands(n)
        row = products.gamma((self.lag - 1) * terms) + 2.0**-52
        earlier = 0.0 if lag == self.lag else products.gamma(max(lag - 2, 0) * terms) + 2.0**-52
        return sum_up(total_variation(n), crossing, missed, row, earlier, self._race.faint)

    def draw(
        self, request: int, last: int, next: int, lag: int | None = None, randbelow: RandBelow = secrets.randbelow
    ) -> Query:
        """Draw the query for `request` in the context (last, next), at the plan's lag or a larger one."""
        lag = self.served_lag(lag)
        self._support(lag).check(request, last, next)
        if lag > self.lag:
            last = self._earlier(request, last, lag, randbelow)
        return tuple(sorted({request, *self._race.winners(self._clocks(request, last, next, randbelow))}))

    @cached_property
    def _walk(self) -> Floats:
        return self.chain.power(self.lag)

    @cached_property
    def _race(self) -> Race:
        return Race(self.chain.P, self._walk)

    @cached_property
    def _support(self) -> Callable[[int], Support]:
        return lru_cache(maxsize=4)(partial(Support, self.chain))

    @cached_property
    def _walks(self) -> Walks:
        return Walks(self.chain)

    def _clocks(self, request: int, last: int, next: int, randbelow: RandBelow) -> Floats:
        """Draw the clocks given the request; without a shift if the whole row underflows (a faint context)."""
        fine = exponentials(self.n + 1, randbelow)
        common = fine.pop()
        weights = _integers(self._walk[last] * self.chain.P[:, next])
        total = sum(weights)
        if total:
            fine[request] = 0
            fine = [own + weight * common // total for own, weight in zip(fine, weights, strict=True)]
        return on_grid(fine)

    def _earlier(self, request: int, last: int, lag: int, randbelow: RandBelow) -> int:
        """Draw where the reader may have been `self.lag` steps ago; the true place would leak."""
        ahead = self._walks.row(last, lag - self.lag) * self._walk[:, request]
        weights = _integers(ahead)
        if not sum(weights):  # all underflow: any source that the graph allows
            before = self._support(lag - self.lag).reached[last] & self._support(self.lag).reached[:, request]
            return int(np.flatnonzero(before)[0])
        ends = np.cumsum(np.array(weights, dtype=object))
        return int(np.searchsorted(ends, randbelow(int(ends[-1])), side="right"))


def race_plan(
    chain: Chain,
    lag: int,
    draws: int = DRAWS,
    randbelow: RandBelow = secrets.randbelow,
    bound: float | None = None,
    deadline: float = math.inf,
) -> RacePlan:
    """Estimate the cost of a race from `draws` unconditional races, or FIRST_DRAWS if the deadline passes.

    `bound` is the outer bound, if known.
    """
    race = Race(chain.P, chain.power(lag))
    sizes: list[int] = []
    while len(sizes) < (draws if time.monotonic() < deadline else min(draws, FIRST_DRAWS)):
        sizes.append(max(1, len(race.winners(on_grid(exponentials(chain.n, randbelow))))))
    mean, half = float(np.mean(sizes)), 1.96 * float(np.std(sizes, ddof=1)) / math.sqrt(len(sizes))
    bound = outer_bound(Posterior(chain, lag)) if bound is None else bound
    return RacePlan(chain, lag, mean, (max(mean - half, 1.0), mean + half), bound)


def on_grid(fine: list[int]) -> Floats:
    """Round clocks up to the grid, strictly: never zero."""
    return np.array([float((clock >> (FINE - GRID)) + 1) for clock in fine])


def _integers(weights: Floats) -> list[int]:
    """Scale non-negative floats to integers, the largest of WEIGHT_BITS bits; all 0 if all are 0."""
    top = float(weights.max())
    if top == 0:
        return [0] * len(weights)
    shift = WEIGHT_BITS - math.frexp(top)[1]
    # In two steps: 2^shift itself may not be a float.
    return [int(w) for w in np.ldexp(np.ldexp(weights, shift // 2), shift - shift // 2)]
