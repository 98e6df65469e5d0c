"""Privacy switched because of the request: what statuses and queries then tell about the private requests.

The promise needs statuses that do not depend on the requests. A user who goes ON exactly for some sources breaks that,
whatever the queries are. Here all streams of such a user are enumerated, and those of a user who goes ON as often but
by chance. The client is the same: the first request is ON, and the lag counts from the last ON.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from onoff.audit.joint.enumeration import kernel
from onoff.audit.models import Everything, Model, TooLarge, planned
from onoff.audit.setting import BITS, Plans, start_law
from onoff.errors import OnoffError
from onoff.model.powers import contracted, times
from onoff.types import Floats

if TYPE_CHECKING:
    from onoff.model.chain import Chain
    from onoff.plans.plan import Plan

CELLS = 20_000_000  # of a view, a target, a last and a current request
Views = dict[tuple[int, bool], Floats]  # (lag, whether the target was ON) -> [view, target, last, current]


@dataclass(frozen=True)
class Switching:
    """What the server learns about the request of `step` if it was made ON, which has the chance `frequency`.

    `bits`, to 12 decimals, is the mean divergence of its belief, given all statuses and queries, from the law of the
    request; `guess` the chance to guess the request, `prior_guess` without statuses and queries.
    """

    step: int
    frequency: float
    bits: float
    prior_guess: float
    guess: float


@dataclass(frozen=True)
class User:
    """What a server learns of somebody who goes ON "if sensitive" or "by chance".

    It sees the "statuses", or them "and queries".
    """

    user: str
    seen: str
    steps: tuple[Switching, ...]


def audit_switching(chain: Chain, sources: Collection[int], plans: Sequence[Plan], steps: int = 3) -> tuple[User, ...]:
    """What is learned of a user who goes ON exactly for these sources, and of one who goes ON as often by chance.

    The client draws from `plans`, which must serve every lag below `steps`. The promise covers the second user only.
    """
    start = start_law(chain)
    tables = Plans("ours", chain.n, list(planned(plans).values()))
    views: dict[str, Model] = {"statuses": Everything(chain.n), "and queries": tables}
    users = {"if sensitive": sensitive_user(chain, sources), "by chance": chance_user(chain, sources, start)}
    return tuple(
        User(user, seen, switching(chain, model, chances, start, steps))
        for user, chances in users.items()
        for seen, model in views.items()
    )


def sensitive_user(chain: Chain, sources: Collection[int]) -> Floats:
    """The chance of going ON for each request: 1 for the listed sources, 0 for the others."""
    if not 0 < len(set(sources)) < chain.n:
        raise OnoffError(f"{len(set(sources))} of {chain.n} sources are sensitive: name at least 1, and not all")
    chances = np.zeros(chain.n)
    chances[list(sources)] = 1.0
    return chances


def chance_user(chain: Chain, sources: Collection[int], start: Floats) -> Floats:
    """The same frequency of ON, whatever the request."""
    return np.full(chain.n, float(times(start, sensitive_user(chain, sources))))


def switching(chain: Chain, model: Model, chances: Floats, start: Floats, steps: int) -> tuple[Switching, ...]:
    """For each step from the second: what all statuses and queries up to the end tell about it, if it was ON.

    `chances[x]` is the probability that privacy is ON for the request x. With the model `Everything` only the statuses
    can tell anything.
    """
    kernels = cache(lambda lag: kernel(chain, model, lag).astype(np.float64) / 2.0**BITS)
    results, prior = [], start
    for step in range(2, steps + 1):
        prior = times(prior, chain.P)
        views: Views = {(0, False): start.reshape(1, 1, 1, -1)}
        for t in range(1, steps + 1):
            views = _step(views, np.ones(chain.n) if t == 1 else chances, kernels, t == step)
        told = [part.sum(axis=(2, 3)) for (_, on), part in views.items() if on]
        never = Switching(step, 0.0, 0.0, float(prior.max()), float(prior.max()))
        results.append(_measured(step, np.concatenate(told), prior) if told else never)
    return tuple(results)


def _step(views: Views, chances: Floats, kernels: Callable[[int], Floats], is_target: bool) -> Views:
    """One request: ON or OFF, a query, and on to the next."""
    n = len(chances)
    parts: dict[tuple[int, bool], list[Floats]] = {}
    for (lag, was_on), before in views.items():
        state = before
        if is_target:  # the target is the current request
            state = np.zeros((len(before), n, before.shape[2], n))
            state[:, np.arange(n), :, np.arange(n)] = np.moveaxis(before[:, 0], 2, 0)
        on = (state.sum(axis=2) * chances)[:, :, :, None] * np.eye(n)  # the current request becomes the last one
        off = state * (1 - chances)
        for private, part in ((True, on), (False, off)):
            if part.any():
                now = 0 if private else lag + 1
                key = now, (private if is_target else was_on)
                parts.setdefault(key, []).append(_asked(part, kernels(now)))
    return {key: np.concatenate(found) for key, found in parts.items()}


def _asked(state: Floats, kernel: Floats) -> Floats:
    """[view, target, last, current] after a query; views that cannot happen are dropped."""
    views, targets, _, n = state.shape
    if views * len(kernel) * targets * n * n > CELLS:
        raise TooLarge("too many views: take fewer steps, or a smaller chain")
    after = contracted("vzax,qaxy->vqzay", state, kernel).reshape(-1, targets, n, n)
    kept: Floats = after[after.any(axis=(1, 2, 3))]
    return kept


def _measured(step: int, told: Floats, prior: Floats) -> Switching:
    """`told[view, request]`: the probability of both, with the request made ON."""
    frequency = float(told.sum())
    independent = told.sum(axis=1, keepdims=True) * prior
    used = told > 0
    gained = told[used] * np.log2(told[used] / independent[used])
    return Switching(
        step,
        frequency,
        max(0.0, round(float(gained.sum()) / frequency, 12)),
        float(prior.max()),
        min(1.0, float(told.max(axis=1).sum()) / frequency),
    )
