"""The front door: a plan for a chain and a lag, by any scheme."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from numbers import Real
from typing import Literal, get_args

import numpy as np
from threadpoolctl import ThreadpoolController

from onoff.certificate import Certificate, outer_certificate, unit_of
from onoff.chain import Chain
from onoff.errors import PlanError
from onoff.law import Law, everything
from onoff.plans import Plan, check_lag, checked_lengths
from onoff.posterior import Posterior
from onoff.raceplan import race_plan
from onoff.tableplan import TablePlan

Scheme = Literal["auto", "everything", "paper", "comb", "optimal", "race"]
Progress = Callable[[float, float], None]

COMB_LIMIT = 600  # sources up to which "auto" makes a table
OPTIMAL_LIMIT = 250  # sources up to which "auto" polishes the comb: the master works on all rows at once
PAPER_LIMIT = 250


def plan(
    chain: Chain,
    lag: int,
    scheme: Scheme = "auto",
    *,
    lengths: Sequence[float] | None = None,
    gap: float = 1e-6,
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> Plan:
    """How to ask at this lag and every larger one, as cheaply as the scheme can.

    "everything" always asks for the full set; "paper" is the paper's scheme; "comb" is near the bound at once;
    "optimal" goes on until its cost is proved to be within `gap` of the least possible, or `time_limit` seconds have
    passed (the plan then states the gap it has); "race" needs no table; "auto" takes the comb, then the optimum as far
    as the time carries, and the race where even the comb is too large. `lengths` are message lengths: the cost is then
    in their unit. `progress(cost, lower_bound)` is called as they improve.
    """
    if scheme not in get_args(Scheme):
        raise PlanError(f"there is no scheme {scheme!r}: choose one of {', '.join(get_args(Scheme))}")
    if not (isinstance(gap, Real) and math.isfinite(gap) and gap >= 0):
        raise PlanError(f"the gap is {gap!r}: a number of at least 0 is needed")
    if time_limit is not None and not (isinstance(time_limit, Real) and time_limit > 0):
        raise PlanError(f"the time limit is {time_limit!r}: a positive number of seconds is needed")
    check_lag(lag)
    checked = checked_lengths(lengths, chain.n)
    posterior = Posterior(chain, lag)
    tell = progress or (lambda cost, bound: None)
    if scheme == "race" or (scheme == "auto" and chain.n > COMB_LIMIT and posterior.lag > 0):
        return race_plan(chain, lag, checked)
    deadline = math.inf if time_limit is None else time.monotonic() + time_limit
    with _threads().limit(limits=1, user_api="blas"):  # the matrices are small: more threads only wait
        name, law, certificate = _table(posterior, scheme, checked, gap, deadline, tell)
    sets = tuple(tuple(map(int, np.flatnonzero(row))) for row in law.member)
    result = TablePlan(name, chain, posterior.lag, sets, tuple(law.mass.tolist()), law.total, certificate, checked)
    result.verify(by_maker=True)  # every scheme repairs its law in all contexts, by a flow or by a certificate
    tell(result.cost, result.lower_bound)
    return result


@cache
def _threads() -> ThreadpoolController:
    """Looking for the libraries takes 10 ms: once is enough."""
    import scipy.linalg  # noqa: F401 (what is loaded now is found)

    return ThreadpoolController()


def _table(
    posterior: Posterior, scheme: str, lengths: tuple[float, ...] | None, gap: float, deadline: float, tell: Progress
) -> tuple[str, Law, Certificate]:
    """The scheme that was used, its law and the proof of its lower bound."""
    certificate = outer_certificate(posterior, lengths)
    if scheme == "everything" or posterior.lag == 0:
        return "everything", everything(posterior.n), certificate
    if scheme == "paper":
        return "paper", _paper_law(posterior), certificate
    from onoff.schemes.comb import comb_law
    from onoff.schemes.optimal import optimal_law
    from onoff.schemes.symmetric import symmetric_law
    from onoff.symmetric import is_symmetric

    if scheme != "comb" and lengths is None and is_symmetric(posterior.chain):
        with suppress(TimeoutError):
            found = symmetric_law(posterior, gap, deadline)
            if found is not None:
                return "optimal", *found
    law = None
    if scheme == "comb" or posterior.n > 16:  # below, the optimum takes less time than the comb
        try:
            law = comb_law(posterior, deadline=deadline)
        except TimeoutError:  # what is always at hand, with its honest gap
            return "everything", everything(posterior.n), certificate
        tell(float(law.cost(lengths)), certificate.bound)
        if scheme == "comb" or (scheme == "auto" and posterior.n > OPTIMAL_LIMIT):
            return "comb", law, certificate
    unit = unit_of(lengths)
    weights = np.ones(posterior.n) if lengths is None else np.array(lengths) / unit
    start = law if law is not None else everything(posterior.n)
    best, proof = optimal_law(
        posterior, weights, gap, deadline, start, lambda cost, bound: tell(cost * unit, bound * unit)
    )
    name = "optimal" if best is not start else ("everything" if law is None else "comb")
    return name, best, replace(proof, bound=proof.bound * unit)


def _paper_law(posterior: Posterior) -> Law:
    """The law of the paper's scheme in integers; its floats are repaired like any other law."""
    from onoff.realise import realised
    from onoff.schemes.paper import paper

    if posterior.n > PAPER_LIMIT:
        raise PlanError(
            f"the paper's scheme for {posterior.n} sources needs a table of all n^3 probabilities: up to "
            f"{PAPER_LIMIT} are supported; take the scheme 'comb' or 'race'"
        )
    law = paper(posterior).law()
    member = np.zeros((len(law), posterior.n), dtype=bool)
    for row, query in zip(member, law, strict=True):
        row[list(query)] = True
    return realised(posterior, member, np.array([float(mass) for mass in law.values()]))
