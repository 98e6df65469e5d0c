"""What every plan offers, whatever its scheme."""

from __future__ import annotations

import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

from onoff.errors import PlanError
from onoff.model.bounds import outer_bound
from onoff.model.chain import Chain
from onoff.model.posterior import Posterior
from onoff.model.rounding import up
from onoff.types import Lengths, PlanName, Query, RandBelow, is_whole

if TYPE_CHECKING:
    from onoff.schemes.law import Law

MAX_LAG = 10**6


class Plan(ABC):
    """How queries are drawn at one lag and every larger one (a plan for lag L is exactly private at all lags >= L).

    `kind` is "table" or "race": what it draws from. `cost` is the expected download per request, in messages or the
    unit of `lengths`; if `estimated`, it is known up to chance only. `lower_bound` is proved for every scheme.
    """

    kind: ClassVar[str]
    estimated: ClassVar[bool] = False

    if TYPE_CHECKING:  # fields of the one kind, properties of the other

        @property
        def scheme(self) -> str: ...
        @property
        def chain(self) -> Chain: ...
        @property
        def lag(self) -> int: ...
        @property
        def lengths(self) -> Lengths: ...
        @property
        def cost(self) -> float: ...
        @property
        def lower_bound(self) -> float: ...

    @abstractmethod
    def rounding_at(self, lag: int) -> float:
        """A proved bound on the total variation, per step, between the law of the query in any context and one law."""

    @abstractmethod
    def draw(
        self, request: int, last: int, next: int, lag: int | None = None, randbelow: RandBelow = secrets.randbelow
    ) -> Query:
        """The query for `request` in the context (last, next), at the lag of the plan or a larger one."""

    @property
    def n(self) -> int:
        """The number of sources."""
        return self.chain.n

    @property
    def identity(self) -> PlanName:
        """Which plan this is, so that an audit finds the very one that was used."""
        return PlanName(self.scheme, self.lag)

    @property
    def name(self) -> str:
        """`identity` as journals keep it."""
        return str(self.identity)

    @property
    def law(self) -> Law | None:
        """The table, which is sets with their masses; None if there is none."""
        return None

    @property
    def at_most(self) -> float:
        """The cost used to compare plans: `cost` itself if that is exact, a cautious upper estimate otherwise."""
        return self.cost

    @property
    def gap(self) -> float:
        """cost / lower_bound - 1, rounded up; at least 0 up to the rounding of the bound."""
        return excess(self.cost, self.lower_bound)

    def excess_at(self, lag: int) -> float:
        """How far the cost is above the outer bound of a lag that the plan serves, as a share of that bound."""
        return excess(self.cost, outer_bound(Posterior(self.chain, self.served_lag(lag)), self.lengths))

    @property
    def rounding(self) -> float:
        """`rounding_at` the lag of the plan."""
        return self.rounding_at(self.lag)

    @property
    def known_realisable(self) -> bool:
        """Whether every context is known to be one that can be drawn from. A table read from a file is not known."""
        return True

    def verify(self) -> None:  # noqa: B027 (a race can be drawn from in every context)
        """Look at every context, if that is needed. Raises `PlanError` if one cannot be drawn from."""

    def served_lag(self, lag: int | None) -> int:
        """The lag to serve: the plan's own by default, never a smaller one."""
        if lag is None:
            return self.lag
        check_lag(lag)
        if lag < self.lag:
            raise PlanError(
                f"a plan for lag {self.lag} is not private at the smaller lag {lag}: use one for lag {lag} or less"
            )
        return lag

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan to a file, atomically; `load` reads it."""
        from onoff.plans.file import write

        write(path, self)

    @staticmethod
    def load(path: str | PathLike[str]) -> Plan:
        """Read a plan of any scheme. Raises `PlanError` if the file fails its own checks."""
        from onoff.plans.file import read

        return read(path)

    def check(self) -> None:
        """Raise `PlanError` unless the plan satisfies what every plan must."""
        check_lag(self.lag)
        checked_lengths(self.lengths, self.n)
        if not (math.isfinite(self.lower_bound) and self.lower_bound > 0):
            raise PlanError(f"the lower bound is {self.lower_bound!r}: a positive number is needed")

    def __reduce__(self) -> tuple[Any, ...]:
        """How to pickle or copy it: from its fields, without what it has computed meanwhile."""
        return type(self), tuple(getattr(self, each.name) for each in fields(self) if each.init)  # type: ignore[arg-type]


def cheapest(plans: Sequence[Plan]) -> Plan:
    """The plan to use of those that serve a lag: the cheapest, and of equally cheap ones that of the largest lag."""
    return min(plans, key=lambda plan: (plan.at_most, -plan.lag))


def excess(cost: float, bound: float) -> float:
    """How far a cost is above a bound, as a share of the bound: rounded up, and not below 0."""
    return max(0.0, up(Fraction(cost) / Fraction(bound) - 1))


def checked_lengths(lengths: Sequence[float] | None, n: int) -> Lengths:
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
    """Raise `PlanError` unless the lag is a whole number, not so large that error bounds of floats mean nothing."""
    if not is_whole(lag) or lag > MAX_LAG:
        raise PlanError(f"the lag is {lag!r}: a whole number from 0 to {MAX_LAG} is needed")
