"""The front door of `onoff audit joint`: one client, whole streams, by the strongest method that fits.

The audit is given plans as objects. It asks for their encoders, and it draws from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onoff.audit.joint.continuity import stated
from onoff.audit.joint.mistaken import Mistaken, mistaken
from onoff.audit.joint.sampled import by_draws
from onoff.audit.joint.strongest import audit
from onoff.audit.models import Decoys, Everything, Model, Naive, TooLarge, has_table, planned
from onoff.audit.plan import drawing, races
from onoff.audit.plan.rows import ExactRows
from onoff.audit.setting import Leakage, Plans, lags_of, required, start_law
from onoff.errors import OnoffError
from onoff.model.misfit import aligned, check
from onoff.types import Progress, Query, silent

if TYPE_CHECKING:
    from collections.abc import Callable

    from onoff.model.chain import Chain
    from onoff.plans.plan import Plan

WITHOUT_PLANS = ("everything", "naive", "decoys")


@dataclass(frozen=True)
class Effort:
    """How much is drawn and sampled where nothing exact fits.

    `draws` are made of a race in every context and `tried` of plans beside their encoders; `streams` are sampled.
    """

    draws: int = 400
    tried: int = 20_000
    streams: int = 2000
    seed: int = 1


USUAL = Effort()


def lags_needed(statuses: Sequence[bool]) -> list[int]:
    """The lags of the OFF steps: a client needs a plan for the smallest of them."""
    return sorted(set(lags_of(statuses)) - {0})


def audit_joint(
    chain: Chain,
    statuses: Sequence[bool],
    scheme: str,
    plans: Sequence[Plan] = (),
    *,
    uniform: bool = False,
    decoys: int | None = None,
    effort: Effort = USUAL,
    progress: Progress = silent,
) -> Leakage:
    """What the queries of a client tell about requests made ON and after t, at every step t.

    The client is one of `WITHOUT_PLANS`, or one that draws from `plans`; `scheme` is then what it is called. Streams
    begin with the stationary law, or anywhere if `uniform`. `decoys` are asked for beside the wanted source.
    """
    start = start_law(chain, uniform)
    if scheme in WITHOUT_PLANS:
        return _without_plans(chain, statuses, scheme, start, decoys, effort, progress)
    lags = lags_needed(statuses)
    for plan in plans:
        if plan.chain != chain:
            raise OnoffError(f"the plan {plan.name!r} is for another chain: give plans for the chain that is audited")
    if plans and not any(map(has_table, plans)):
        return _raced(chain, statuses, scheme, plans, start, effort, progress)
    tables = Plans(scheme, chain.n, list(planned(plans).values()))
    with progress(f"checking {scheme}")(len(lags) + 1) as advance:
        found = audit(chain, statuses, tables, start, tables.rounding_at, advance=advance)
    return _drawn(found, chain, plans, lags, effort, progress) if found.holds else found


def audit_mistaken(
    chain: Chain,
    true: Chain,
    statuses: Sequence[bool],
    scheme: str,
    plans: Sequence[Plan],
    *,
    uniform: bool = False,
) -> Mistaken:
    """What a client with plans for `chain` tells if its requests follow the chain `true`: a bound, and the value.

    Sources may stand in another order in `true`.
    """
    true = true_chain(chain, true)
    if not all(map(has_table, plans)):
        raise OnoffError("a race has no table that could be enumerated: choose another --scheme; its bound is the same")
    tables = Plans(scheme, chain.n, list(planned(plans).values()))
    return mistaken(true, chain, statuses, tables, start_law(true, uniform), tables.rounding_at)


def true_chain(chain: Chain, true: Chain) -> Chain:
    """The chain `true` with the sources in the order of `chain`. Raises `OnoffError` if it does not fit."""
    true = aligned(true, chain)
    check(true, chain)
    return true


def _without_plans(
    chain: Chain,
    statuses: Sequence[bool],
    scheme: str,
    start: NDArray[np.float64],
    decoys: int | None,
    effort: Effort,
    progress: Progress,
) -> Leakage:
    n = chain.n
    if scheme == "everything":
        return audit(chain, statuses, Everything(n), start, lambda lag: 0.0)
    few = max(1, min(3, n - 2)) if decoys is None else decoys
    model: Model = Naive(n) if scheme == "naive" else Decoys(n, few)
    with progress(f"sampling {scheme}")(effort.streams) as advance:
        return audit(chain, statuses, model, start, streams=effort.streams, seed=effort.seed, advance=advance)


def _drawn(
    found: Leakage, chain: Chain, plans: Sequence[Plan], lags: Sequence[int], effort: Effort, progress: Progress
) -> Leakage:
    """What was found of a scheme's encoders, and whether `draw` follows them at the lags that occur."""
    served: dict[int, list[int]] = {}
    for lag in lags:
        served.setdefault(plans.index(required(plans, lag)), []).append(lag)
    for index, its in served.items():
        rows, draws = [ExactRows(chain, lag) for lag in its], effort.tried // len(served)
        below = Random(effort.seed).randrange
        with progress(f"drawing {found.scheme}")(min(draws, drawing.most(rows))) as advance:
            fault = drawing.check(plans[index], rows, chain.names, draws, below, advance)
        if fault is not None:
            return replace(found, holds=False, fault=fault.message)
    return found


def _raced(
    chain: Chain,
    statuses: Sequence[bool],
    scheme: str,
    plans: Sequence[Plan],
    start: NDArray[np.float64],
    effort: Effort,
    progress: Progress,
) -> Leakage:
    """A race has no table: it is drawn from. Where its streams are too many, what it states is all there is."""
    lags = lags_needed(statuses)

    def rounding_at(lag: int) -> float:
        return required(plans, lag).rounding_at(lag) if lag else 0.0

    def draw(request: int, last: int, following: int, lag: int, below: Callable[[int], int]) -> Query:
        return required(plans, lag).draw(request, last, following, lag, below)

    with progress("drawing races")(len(lags)) as advance:
        try:
            drawn = effort.draws, effort.seed, advance
            found = by_draws(scheme, chain, statuses, draw, start, rounding_at, *drawn)
        except TooLarge:
            found = stated(scheme, chain, statuses, rounding_at)
    return _one_law(found, chain, plans, lags, effort, progress) if lags and found.holds else found


def _one_law(
    found: Leakage, chain: Chain, plans: Sequence[Plan], lags: Sequence[int], effort: Effort, progress: Progress
) -> Leakage:
    """Whether the race draws from one law in all contexts: of its own lag, of the next, and of the largest that occurs.

    An estimate of what streams tell needs many more draws to notice a small mistake, and fits few sources only.
    """
    below = Random(effort.seed).randrange
    for plan in plans:
        its = [lag for lag in lags if required(plans, lag) is plan]
        if not its:
            continue
        rows = [ExactRows(chain, lag) for lag in sorted({plan.lag, plan.lag + 1, its[-1]})]
        with progress("drawing races")(effort.tried) as advance:
            sample = races.draws(plan, rows, effort.tried, below, advance)
        if sample.undecodable is not None:
            return replace(found, holds=False, fault="a request was sent in a set without it")
        uneven = races.same_law(sample)
        if uneven is not None:
            shares = f"{uneven.here:.3f} of the draws at lag {uneven.place.lag}, {uneven.overall:.3f} of all"
            return replace(found, holds=False, fault=f"{uneven.event} in {shares} (error rate {races.RATE:g})")
    return replace(found, tested=f"one law in all contexts, by {effort.tried} draws (error rate {races.RATE:g})")
