"""What every plan offers, whatever its scheme."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import fields
from os import PathLike
from typing import Any, Protocol, runtime_checkable

from onoff.errors import PlanError, is_whole
from onoff.model.chain import Chain
from onoff.schemes.clocks import RandBelow

MAX_LAG = 10**6


@runtime_checkable
class Plan(Protocol):
    """How queries are drawn at one lag and every larger one (a plan for lag L is exactly private at all lags >= L).

    `name` is "SCHEME, lag LAG" and, for a table, a hash of it: journals keep it, so that an audit finds the very plan.
    `cost` is the expected download per request: messages, or the unit of `lengths`; `at_most` is what it counts with
    beside that of another plan, the same unless it is estimated. `lower_bound` is proved for every scheme, and `gap` is
    cost / lower_bound - 1. `rounding` is a proved bound on the total variation, per step, between the law of the query
    in any context and one fixed law; `rounding_at` gives it for a larger lag.
    """

    @property
    def scheme(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def chain(self) -> Chain: ...
    @property
    def n(self) -> int: ...
    @property
    def lag(self) -> int: ...
    @property
    def lengths(self) -> tuple[float, ...] | None: ...
    @property
    def cost(self) -> float: ...
    @property
    def at_most(self) -> float: ...
    @property
    def lower_bound(self) -> float: ...
    @property
    def gap(self) -> float: ...
    @property
    def rounding(self) -> float: ...
    def rounding_at(self, lag: int) -> float: ...
    def draw(
        self, request: int, last: int, next: int, lag: int | None = None, randbelow: RandBelow = secrets.randbelow
    ) -> tuple[int, ...]: ...
    def save(self, path: str | PathLike[str]) -> None: ...

    @staticmethod
    def load(path: str | PathLike[str]) -> Plan:
        """Read a plan of any scheme; `PlanError` if the file fails its own checks."""
        from onoff.plans.file import read

        return read(path)


def serving_lag(plan: Plan, lag: int | None) -> int:
    """The lag to serve: the plan's own by default, never a smaller one."""
    if lag is None:
        return plan.lag
    check_lag(lag)
    if lag < plan.lag:
        raise PlanError(
            f"a plan for lag {plan.lag} is not private at the smaller lag {lag}: use one for lag {lag} or less"
        )
    return lag


def checked_lengths(lengths: Sequence[float] | None, n: int) -> tuple[float, ...] | None:
    """Message lengths as a tuple of positive finite floats, or None."""
    if lengths is None:
        return None
    if isinstance(lengths, str | bytes | Mapping):
        raise PlanError("lengths must be a sequence of numbers, in the order of the chain's sources")
    try:
        checked = tuple(float(length) for length in lengths)
    except (TypeError, ValueError, OverflowError) as error:
        raise PlanError(f"lengths must be a sequence of numbers: {error}") from None
    if len(checked) != n:
        raise PlanError(f"{len(checked)} lengths were given for {n} sources")
    for x, length in enumerate(checked):
        if not 1e-300 < length < 1e300:
            raise PlanError(f"the length of source {x} is {length!r}: a positive number is needed")
    return checked


def check_lag(lag: object) -> None:
    """Lags are whole numbers; beyond the limit the error bounds of floats would mean nothing."""
    if not is_whole(lag) or lag > MAX_LAG:
        raise PlanError(f"the lag is {lag!r}: a whole number from 0 to {MAX_LAG} is needed")


def rebuild(plan: Any) -> tuple[Any, ...]:
    """How to pickle or copy a plan: from its fields, without what it has computed meanwhile."""
    return type(plan), tuple(getattr(plan, field.name) for field in fields(plan))


def check_basics(plan: Plan) -> None:
    """What every plan must satisfy to be built at all."""
    check_lag(plan.lag)
    checked_lengths(plan.lengths, plan.n)
    if not (math.isfinite(plan.lower_bound) and plan.lower_bound > 0):
        raise PlanError(f"the lower bound is {plan.lower_bound!r}: a positive number is needed")
