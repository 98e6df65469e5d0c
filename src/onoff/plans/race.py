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
from onoff.schemes.clocks import fresh_clocks, given_request, rounding, to_integers
from onoff.schemes.race import Race
from onoff.types import Floats, Query, RandBelow

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

        It is a sum of four parts. The clocks have nearly their law (`clocks.rounding`). The posterior row has a
        relative error, and at a larger lag so do the weights of j. Contexts that are too unlikely are skipped. The last
        part bounds the joint law of context and query; the others hold in every context.
        """
        lag = self.served_lag(lag)
        n = self.n
        terms = products.summands(n)
        row = products.gamma((self.lag - 1) * terms) + 2.0**-52
        earlier = 0.0 if lag == self.lag else products.gamma(max(lag - 2, 0) * terms) + 2.0**-52
        return sum_up(rounding(n), row, earlier, self._race.faint)

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
        return given_request(self._walk[last] * self.chain.P[:, next], request, randbelow)

    def _earlier(self, request: int, last: int, lag: int, randbelow: RandBelow) -> int:
        """Draw where the reader may have been `self.lag` steps ago; the true place would leak."""
        ahead = self._walks.row(last, lag - self.lag) * self._walk[:, request]
        weights = to_integers(ahead)
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
        sizes.append(max(1, len(race.winners(fresh_clocks(chain.n, randbelow)))))
    mean, half = float(np.mean(sizes)), 1.96 * float(np.std(sizes, ddof=1)) / math.sqrt(len(sizes))
    bound = outer_bound(Posterior(chain, lag)) if bound is None else bound
    return RacePlan(chain, lag, mean, (max(mean - half, 1.0), mean + half), bound)
