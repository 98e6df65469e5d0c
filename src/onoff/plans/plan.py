"""Plans: what every plan offers, whatever its scheme, and the front door `plan` that makes one for a chain and a lag.

No plan is worse than what is known: the race is always available, and serves where no cheaper table was found in time.
"""

from __future__ import annotations

import math
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from numbers import Real
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

from onoff.errors import PlanError
from onoff.model.bounds import up
from onoff.model.chain import Chain, check_chain
from onoff.model.posterior import Posterior
from onoff.model.powers import one_thread
from onoff.schemes import AUTO, SCHEMES, Proposal, Task, Tell
from onoff.types import PlanName, Query, RandBelow, is_whole

if TYPE_CHECKING:
    from onoff.schemes.law import Law

MAX_LAG = 10**6
COMB_LIMIT = 1000  # sources up to which "auto" makes a table: within minutes on two cores
OPTIMAL_LIMIT = 300  # sources up to which "auto" polishes the comb: the master works on all rows at once
SEARCH = 0.9  # share of a time limit that schemes have; the rest is for the race that serves where they find nothing
NEAR = 1e-3  # a table within this share of the bound is not left for a race


class Plan(ABC):
    """How queries are drawn at one lag and every larger one (a plan for lag L is exactly private at all lags >= L).

    `kind` is "table" or "race": what it draws from. `cost` is the expected number of messages per request, exact for a
    table and an estimate for a race. `lower_bound` is proved for every scheme.
    """

    kind: ClassVar[str]

    if TYPE_CHECKING:  # fields of the one kind, properties of the other

        @property
        def scheme(self) -> str: ...
        @property
        def chain(self) -> Chain: ...
        @property
        def lag(self) -> int: ...
        @property
        def cost(self) -> float: ...
        @property
        def lower_bound(self) -> float: ...
        @property
        def law(self) -> Law: ...  # of a table only

    @abstractmethod
    def rounding_at(self, lag: int) -> float:
        """Bound, per step, the total variation between the law of the query in any context and one common law."""

    @abstractmethod
    def draw(
        self, request: int, last: int, next: int, lag: int | None = None, randbelow: RandBelow = secrets.randbelow
    ) -> Query:
        """Draw the query for `request` in the context (last, next), at the plan's lag or a larger one."""

    @property
    def n(self) -> int:
        """Number of sources."""
        return self.chain.n

    @property
    def identity(self) -> PlanName:
        """Name of this plan, by which an audit finds the very one that was used."""
        return PlanName(self.scheme, self.lag)

    @property
    def name(self) -> str:
        """`identity` as journals keep it."""
        return str(self.identity)

    @property
    def at_most(self) -> float:
        """The cost used to compare plans: `cost` itself if that is exact, a cautious upper estimate otherwise."""
        return self.cost

    @property
    def gap(self) -> float:
        """cost / lower_bound - 1, rounded up; at least 0 up to the rounding of the bound."""
        return excess(self.cost, self.lower_bound)

    @property
    def rounding(self) -> float:
        """`rounding_at` the lag of the plan."""
        return self.rounding_at(self.lag)

    def verify(self) -> None:  # noqa: B027 (a race serves every context)
        """Check every context of a table. Raises `PlanError` if one cannot be drawn from."""

    def prove(self, certificate: Mapping[str, Any], time_limit: float) -> float:
        """Compute anew the lower bound that a stated certificate proves for all schemes at this lag."""
        from onoff.schemes.certificate import Certificate, prove

        return prove(Certificate.from_dict(certificate), Posterior(self.chain, self.lag), time_limit).bound

    def served_lag(self, lag: int | None) -> int:
        """Choose a lag to serve: the plan's own by default, never smaller."""
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
        if not (math.isfinite(self.lower_bound) and self.lower_bound > 0):
            raise PlanError(f"the lower bound is {self.lower_bound!r}: a positive number is needed")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy the plan from its fields, without what it has computed."""
        return type(self), tuple(getattr(self, each.name) for each in fields(self) if each.init)  # type: ignore[arg-type]


def cheapest(plans: Sequence[Plan]) -> Plan:
    """Choose a plan for a lag: the cheapest, and of equally cheap ones the one with the largest lag."""
    return min(plans, key=lambda plan: (plan.at_most, -plan.lag))


def excess(cost: float, bound: float) -> float:
    """Compute how far a cost is above a bound, as a share of it: rounded up, at least 0."""
    return max(0.0, up(Fraction(cost) / Fraction(bound) - 1))


def check_lag(lag: object) -> None:
    """Raise `PlanError` unless the lag is a whole number, not so large that error bounds of floats mean nothing."""
    if not is_whole(lag) or lag > MAX_LAG:
        raise PlanError(f"the lag is {lag!r}: a whole number from 0 to {MAX_LAG} is needed")


def plan(
    chain: Chain,
    lag: int,
    scheme: str = AUTO,
    *,
    gap: float = 1e-6,
    time_limit: float | None = None,
    progress: Tell | None = None,
) -> Plan:
    """Make a plan for this lag and larger ones, as cheap as the scheme (one of `onoff.schemes.SCHEMES`) can.

    "everything" always asks for the full set. "paper" is the paper's scheme. "comb" is quick and near the bound.
    "optimal" continues until its cost is proved to be within `gap` of the least possible, or until `time_limit` seconds
    have passed; the plan states the gap that it reached. "race" needs no table. "auto" takes the cheapest of race,
    comb and optimum as far as time and size allow. A scheme without a table when time is up leaves the race.
    `progress(cost, lower_bound)` is called as they improve. Long work is divided by joblib among the cores of this
    machine, or among the workers of `joblib.parallel_config`.
    """
    if not isinstance(scheme, str) or scheme not in (AUTO, *SCHEMES):
        raise PlanError(f"there is no scheme {scheme!r}: choose one of {', '.join((AUTO, *SCHEMES))}")
    if not (isinstance(gap, Real) and math.isfinite(gap) and gap >= 0):
        raise PlanError(f"the gap is {gap!r}: a number of at least 0 is needed")
    if time_limit is not None and not (isinstance(time_limit, Real) and time_limit > 0):
        raise PlanError(f"the time limit is {time_limit!r}: a positive number of seconds is needed")
    check_chain(chain)
    check_lag(lag)
    from onoff.plans.race import race_plan
    from onoff.plans.table import TablePlan

    tell = progress or (lambda cost, bound: None)
    begun, limit = time.monotonic(), math.inf if time_limit is None else float(time_limit)
    deadline = begun + limit
    task = Task(Posterior(chain, lag), float(gap), begun + SEARCH * limit, tell)
    if task.posterior.lag == 0 and (scheme == AUTO or SCHEMES[scheme].kind == "table"):
        scheme = "everything"  # while ON
    with one_thread():
        found = _auto(task) if scheme == AUTO else SCHEMES[scheme].propose(task)
        if found.law is None:
            return race_plan(chain, lag, bound=found.certificate.bound, deadline=deadline)
        table = TablePlan(found.scheme, chain, task.posterior.lag, found.law, found.certificate)
        table.vouch()  # every scheme repairs its law in all contexts, by a flow or by a certificate
        made = _never_worse(table, deadline) if scheme == AUTO or found.scheme != scheme else table
    tell(made.cost, made.lower_bound)
    return made


def _never_worse(table: Plan, deadline: float) -> Plan:
    """Return the table, or the race if cheaper by more than chance explains (`RacePlan.at_most`).

    A race is tried only where it may win. A few draws tell whether an estimate of its cost is worth its time.
    """
    from onoff.plans.race import DRAWS, FIRST_DRAWS, race_plan

    if table.lag == 0 or table.cost <= table.lower_bound * (1 + NEAR):
        return table
    for draws in (FIRST_DRAWS, DRAWS):
        race = race_plan(table.chain, table.lag, draws, bound=table.lower_bound, deadline=deadline)
        if race.cost - 4 * race.standard_error > table.cost:
            return table
        if time.monotonic() > deadline:
            break
    return cheapest([table, race])


def _auto(task: Task) -> Proposal:
    """Propose by the best scheme for so many sources."""
    n = task.posterior.n
    if COMB_LIMIT >= n > OPTIMAL_LIMIT:
        from onoff.schemes.optimum import by_symmetry

        if (found := by_symmetry(task)) is not None:
            return found
    return SCHEMES[best_scheme(n)].propose(task)


def best_scheme(n: int) -> str:
    """Name the scheme of "auto" for n sources."""
    return "race" if n > COMB_LIMIT else "comb" if n > OPTIMAL_LIMIT else "optimal"
