"""The front door: a plan for a chain and a lag, by any scheme.

No plan is worse than what is known: the race is always available, and serves where no cheaper table was found in time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING

from onoff.errors import PlanError
from onoff.model.chain import Chain, checked_chain
from onoff.model.posterior import Posterior
from onoff.model.powers import one_thread
from onoff.plans.base import Plan, cheapest, check_lag, checked_lengths
from onoff.plans.race import DRAWS, FIRST_DRAWS, NEAR, race_plan
from onoff.plans.table import TablePlan
from onoff.schemes import AUTO, SCHEMES, Proposal, Task, Tell
from onoff.schemes.law import Law

if TYPE_CHECKING:
    from onoff.schemes.realisation.looking import Spread

COMB_LIMIT = 1000  # sources up to which "auto" makes a table: within minutes on two cores
OPTIMAL_LIMIT = 300  # sources up to which "auto" polishes the comb: the master works on all rows at once


def plan(
    chain: Chain,
    lag: int,
    scheme: str = AUTO,
    *,
    lengths: Sequence[float] | None = None,
    gap: float = 1e-6,
    time_limit: float | None = None,
    progress: Tell | None = None,
    spread: Spread | None = None,
) -> Plan:
    """A plan for this lag and every larger one, as cheap as the scheme (one of `onoff.schemes.SCHEMES`) can make it.

    "everything" always asks for the full set. "paper" is the paper's scheme. "comb" is quick and near the bound.
    "optimal" goes on until its cost is proved to be within `gap` of the least possible, or until `time_limit` seconds
    have passed; the plan states the gap that it reached. "race" needs no table. "auto" is the cheapest of the race, the
    comb and the optimum as far as time and size allow. A scheme that has no table when its time is up leaves the race.
    `lengths` are message lengths: the cost is then in their unit. `progress(cost, lower_bound)` is called as they
    improve. `spread` says who does the parts of the work (`onoff.schemes.Task`): else all cores of this machine.
    """
    if not isinstance(scheme, str) or scheme not in (AUTO, *SCHEMES):
        raise PlanError(f"there is no scheme {scheme!r}: choose one of {', '.join((AUTO, *SCHEMES))}")
    if not (isinstance(gap, Real) and math.isfinite(gap) and gap >= 0):
        raise PlanError(f"the gap is {gap!r}: a number of at least 0 is needed")
    if time_limit is not None and not (isinstance(time_limit, Real) and time_limit > 0):
        raise PlanError(f"the time limit is {time_limit!r}: a positive number of seconds is needed")
    if progress is not None and not callable(progress):
        raise PlanError(f"progress is {progress!r}: a function of cost and lower bound is needed")
    if spread is not None and not callable(spread):
        raise PlanError(f"spread is {spread!r}: a function that does the parts of the work is needed")
    checked_chain(chain)
    check_lag(lag)
    checked = checked_lengths(lengths, chain.n)
    tell = progress or (lambda cost, bound: None)
    deadline = math.inf if time_limit is None else time.monotonic() + time_limit
    task = Task(Posterior(chain, lag), checked, float(gap), deadline, tell, spread)
    if task.posterior.lag == 0 and (scheme == AUTO or SCHEMES[scheme].table):
        scheme = "everything"  # while ON
    with one_thread():
        found = _auto(task) if scheme == AUTO else SCHEMES[scheme].propose(task)
        if found.law is None:
            return race_plan(chain, lag, checked, bound=found.certificate.bound)
        made = _table(chain, task, found, found.law)
        if scheme == AUTO or found.scheme != scheme:
            made = _never_worse(made)
    tell(made.cost, made.lower_bound)
    return made


def _table(chain: Chain, task: Task, found: Proposal, law: Law) -> TablePlan:
    masses, proof = tuple(law.mass.tolist()), found.certificate
    result = TablePlan(found.scheme, chain, task.posterior.lag, law.sets, masses, law.total, proof, task.lengths)
    result.vouch()  # every scheme repairs its law in all contexts, by a flow or by a certificate
    return result


def _never_worse(table: TablePlan) -> Plan:
    """The table, or the race if that is cheaper by more than chance explains (`RacePlan.at_most`).

    A race is looked at only where it may win. A few draws tell whether an estimate of its cost is worth its time.
    """
    if table.lag == 0 or table.cost <= table.lower_bound * (1 + NEAR):
        return table
    for draws in (FIRST_DRAWS, DRAWS):
        race = race_plan(table.chain, table.lag, table.lengths, draws, bound=table.lower_bound)
        if race.cost - 4 * race.standard_error > table.cost:
            return table
    return cheapest([table, race])


def _auto(task: Task) -> Proposal:
    """What the best scheme for this number of sources proposes."""
    n = task.posterior.n
    if COMB_LIMIT >= n > OPTIMAL_LIMIT:
        from onoff.schemes.optimum.sizes import propose

        if (found := propose(task)) is not None:
            return found
    return SCHEMES[best_scheme(n)].propose(task)


def best_scheme(n: int) -> str:
    """The scheme that "auto" takes for n sources."""
    return "race" if n > COMB_LIMIT else "comb" if n > OPTIMAL_LIMIT else "optimal"
