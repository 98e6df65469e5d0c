"""A certified upper bound where the streams are too many to enumerate.

In every context of every step s, let the law of the query be within d_s of one fixed law (total variation, on average
over `next`). Then the stream is within d = d_1 + ... + d_t of one whose queries are independent of X_B, and
I(X_B; Q_1..Q_t) <= h(d) + d log2 |X_B| for d <= 1/2. docs/explanation/audit-streams.md has the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from math import inf, log, log1p, log2
from typing import TYPE_CHECKING

import numpy as np

from onoff.audit.models import Model
from onoff.audit.setting import BITS, MISSING, ONE, Leakage, Promise, encoder_of, fixed_matrix, lags_of, some_encoder
from onoff.model.bounds import up

if TYPE_CHECKING:
    from onoff.model.chain import Chain


def by_bound(
    chain: Chain,
    statuses: Sequence[bool],
    model: Model,
    promise: Promise | None = None,
    advance: Callable[[], None] = lambda: None,
) -> Leakage:
    """A certified upper bound at every t, from the encoders of every context of the lags that occur."""
    lags = lags_of(statuses)
    found: dict[int, Fraction] = {}
    for lag in sorted(set(lags)):
        found[lag] = step_distance(chain, model, lag)
        advance()
    bits, hidden, distance, holds = [], 1, Fraction(0), True
    for lag, most in zip(lags, allowed_by(chain, statuses, promise), strict=True):
        distance += found[lag]
        hidden += lag == 0
        bits.append(information_bound(distance, chain.n, hidden))
        holds &= distance <= most + Fraction(MISSING)
    allowed = None if promise is None else float(most)
    return Leakage(model.name, "bound", tuple(bits), holds, distance=float(distance), allowed=allowed)


def step_distance(chain: Chain, model: Model, lag: int) -> Fraction:
    """The most, over `last`, of the total variation between the laws of (next, query) and of (next) x (one fixed law).

    The fixed law is what the encoder of some context sums to: a plan's own law, if the plan is one. All probabilities
    are rounded down, so what is missing from their sums bounds their error; it is added.
    """
    n, P = chain.n, fixed_matrix(chain)
    power = np.eye(n, dtype=int).astype(object) * ONE
    for _ in range(lag):
        power = np.array([[sum(row * column) >> BITS for column in P.T] for row in power], dtype=object)
    some = some_encoder(chain, model, lag)
    sums = (some.weights if lag else some.weights[:1]).sum(axis=0).tolist()
    common = {query: mass * ONE // sum(sums) for query, mass in zip(some.sets, sums, strict=True)}
    worst = 0
    for last in range(n):
        apart, joint_mass, ideal_mass = 0, 0, 0
        for following in range(n):
            encoder = encoder_of(model, last, following, lag)
            if encoder is None:
                continue
            law = dict.fromkeys(encoder.sets, 0)
            reached = 0
            for request in range(n):
                path = int(power[last, request]) * int(P[request, following]) >> BITS
                used = np.flatnonzero(encoder.weights[request])
                weights = encoder.weights[request, used].tolist()
                for column, weight in zip(used.tolist(), weights, strict=True):
                    law[encoder.sets[column]] += path * weight // sum(weights)
                reached += path
            ideal = {query: reached * mass >> BITS for query, mass in common.items()}
            apart += sum(abs(law.get(query, 0) - ideal.get(query, 0)) for query in {*law, *ideal})
            joint_mass += sum(law.values())
            ideal_mass += sum(ideal.values())
        worst = max(worst, apart + (ONE - joint_mass) + (ONE - ideal_mass))
    return Fraction(worst, 2 * ONE)


def allowed_by(chain: Chain, statuses: Sequence[bool], promise: Promise | None) -> list[Fraction]:
    """The sum of the stated roundings after every step; infinite (2^60) without a promise.

    Roundings are stated for the chain as its floats say. Here every row is divided by its exact sum, 1 up to s: a walk
    of `lag` steps changes its weight by a factor within ((1 - s) / (1 + s))^lag, and a row by half of that at most.
    """
    if promise is None:
        return [Fraction(1 << 60)] * len(statuses)
    slack = max(abs(1 - sum(map(Fraction, row), Fraction(0))) for row in chain.P.tolist())
    stated = cache(promise)
    allowed, total = [], Fraction(0)
    for lag in lags_of(statuses):
        total += Fraction(stated(lag)) + (((1 + slack) / (1 - slack)) ** lag - 1) / 2
        allowed.append(total)
    return allowed


def information_bound(distance: Fraction, n: int, hidden: int) -> float:
    """h(d) + d log2 |X_B| bits, rounded up, where X_B is `hidden` requests.

    It is the most that a stream within d of an independent one tells.
    """
    most = hidden * log2(n)
    if distance == 0:
        return 0.0
    if distance > Fraction(1, 2):
        return inf if distance > 1 << 50 else most
    d = up(distance)
    bits = d * log2(1 / d) - (1 - d) * log1p(-d) / log(2) + d * most  # no term is negative: nothing cancels
    return min(most, bits * (1 + 2.0**-48))  # more than a dozen roundings lose


def stated(name: str, chain: Chain, statuses: Sequence[bool], promise: Promise) -> Leakage:
    """The bound that follows from what a client states; nothing is checked."""
    hidden, bits = 1, []
    for private, most in zip(statuses, allowed_by(chain, statuses, promise), strict=True):
        hidden += private
        bits.append(information_bound(most, chain.n, hidden))
    return Leakage(name, "bound as stated, not checked", tuple(bits), allowed=float(most))
