"""Streams of requests and statuses, the clients that are audited on them, and what an audit finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from onoff.audit.measures import Measures
from onoff.audit.models import Encoder, Everything, Model, Planned
from onoff.errors import ContextError, NotUnique, OnoffError
from onoff.types import Query

if TYPE_CHECKING:
    from onoff.model.chain import Chain
    from onoff.plans.plan import Plan

BITS = 512
ONE = 1 << BITS
MISSING = 2.0**-300  # of the probability 1, at most: what rounding down to units may lose
Units = NDArray[Any]  # probabilities as integers in units of 2^-BITS
Promise = Callable[[int], float]  # the stated total variation of a step at this lag

AnyPlan = TypeVar("AnyPlan", bound="Plan")


def serving(plans: Iterable[AnyPlan], lag: int) -> AnyPlan | None:
    """The plan that a client uses at a lag: the cheapest that fits, of equals the one for the largest lag.

    A race, whose cost is estimated, counts with what it is at most.
    """
    fitting = [plan for plan in plans if plan.lag <= lag]
    return min(fitting, key=lambda plan: (plan.at_most, -plan.lag), default=None)


def required(plans: Iterable[AnyPlan], lag: int) -> AnyPlan:
    """As `serving`, but raises `OnoffError` if there is none."""
    found = serving(plans, lag)
    if found is None:
        raise OnoffError(f"there is no plan for lag {lag} or less: give one, or make it")
    return found


@dataclass(frozen=True)
class Plans:
    """A client of n sources with these tables; while ON it asks for everything."""

    name: str
    n: int
    plans: Sequence[Planned]

    def encoder(self, last: int, next: int, lag: int) -> Encoder:
        return self._at(lag).encoder(last, next, lag)

    def likelihood(self, query: Query, lag: int) -> NDArray[np.float64]:
        return self._at(lag).likelihood(query, lag)

    def rounding_at(self, lag: int) -> float:
        """What the plans state."""
        return required((model.plan for model in self.plans), lag).rounding_at(lag) if lag else 0.0

    def _at(self, lag: int) -> Model:
        if lag == 0:
            return Everything(self.n)
        plan = required((model.plan for model in self.plans), lag)
        return next(model for model in self.plans if model.plan is plan)


@dataclass(frozen=True)
class Leakage:
    """The `bits` that a client's stream tells at t = 1, 2, ..., by `method`. Estimates are within +- `margin` (95 %).

    `distance` is the total variation that was found (of the whole stream to an independent one) and `allowed` what the
    client's statement allows; None if it promises nothing. `whole` measures X_B at the end, `single` each private
    request by its step, and the one after the end. `bias` is what sampling alone adds to the plug-in value; it is
    already subtracted. `fault` says what is wrong with how queries are drawn, `tested` what else was
    looked at and is in order.
    """

    scheme: str
    method: str
    bits: tuple[float, ...]
    holds: bool = True
    margin: tuple[float, ...] = ()
    bias: tuple[float, ...] = ()
    distance: float | None = None
    allowed: float | None = None
    whole: Measures | None = None
    single: dict[int, Measures] = field(default_factory=dict)
    fault: str | None = None
    tested: str | None = None


def parse_statuses(text: str) -> tuple[bool, ...]:
    """`1001100`: 1 where privacy is ON."""
    if not text or set(text) - {"0", "1"}:
        raise OnoffError(f"the statuses are {text!r}: write 1 for ON and 0 for OFF, such as 1001100")
    if text[0] != "1":
        raise OnoffError(f"the statuses {text!r} start with OFF: a client makes its first request ON, so start with 1")
    return tuple(status == "1" for status in text)


def lags_of(statuses: Sequence[bool]) -> list[int]:
    """The lag of every step, how many steps ago privacy was last ON: 0 while ON."""
    lags, lag = [], 0
    for private in statuses:
        lag = 0 if private else lag + 1
        lags.append(lag)
    return lags


def start_law(chain: Chain, uniform: bool = False) -> NDArray[np.float64]:
    """The law of the first request: uniform if asked for or if `stationary_start` is False, else stationary."""
    law = np.full(chain.n, 1 / chain.n) if uniform or not stationary_start(chain) else chain.stationary()
    scaled: NDArray[np.float64] = law / law.sum()
    return scaled


def stationary_start(chain: Chain) -> bool:
    """Whether streams can start in the stationary law: there is only one, and every source has a chance in it.

    Otherwise nothing would be said of streams that start with some source.
    """
    try:
        return bool(chain.stationary().all())
    except NotUnique:
        return False


def fixed_matrix(chain: Chain) -> Units:
    """P in units, rounded down; each row of floats is divided by its exact sum."""
    rows = [[Fraction(p) for p in row] for row in chain.P.tolist()]
    return np.array([[int(ONE * p / sum(row)) for p in row] for row in rows], dtype=object)


def encoder_of(model: Model, last: int, following: int, lag: int) -> Encoder | None:
    """That of a context; None if the context is impossible."""
    try:
        return model.encoder(last, following, lag)
    except ContextError:
        return None


def some_encoder(chain: Chain, model: Model, lag: int) -> Encoder:
    """That of some possible context: how many sets there are."""
    found = (encoder_of(model, last, following, lag) for last in range(chain.n) for following in range(chain.n))
    return next(encoder for encoder in found if encoder is not None)
