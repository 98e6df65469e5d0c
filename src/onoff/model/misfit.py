"""If the true chain is not the one used: how far the queries of a step can be from private.

P is the true chain, P̂ the one that the client uses. At lag d, after the private request i and before the request k,
the request has the law p(x) = P^d[i, x] P[x, k] / P^(d+1)[i, k]; the client's encoder is made for p̂, the same of P̂. An
encoder turns a law of requests into one of queries and never increases a distance, so the step is off by at most

    D(i) = sum over k of P^(d+1)[i, k] TV(p, p̂)

on average over the next request. Over a stream these add up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onoff.errors import OnoffError
from onoff.types import Floats

if TYPE_CHECKING:
    from onoff.model.chain import Chain

FEW = 10  # transitions for each source: a chain fitted to fewer may be far off
LASTING = 4  # see `requests_until_refit`
NOTHING = 1e-280  # below it quotients of floats mean nothing: the distance is taken to be 1


def is_too_small(transitions: int, n: int) -> bool:
    """Say whether a log with so many transitions is too small for a chain to be relied on."""
    return transitions < FEW * n


def requests_until_refit(transitions: int, n: int) -> int:
    """Estimate for how many requests a chain fitted to so many transitions lasts, if habits stay as they are.

    A fitted chain is not the true one, and a test that goes on finds any difference. With N transitions it loses about
    k / 2N nats a request, with k = n (n - 1) free numbers. Who learns from T requests more, as from the N before, gains
    k / 2 (T / N - ln(1 + T / N)), which is about (n T / 2 N)^2. That is ln 100, the alarm at 1 %, at T = 4.3 N / n.
    """
    return LASTING * transitions // n


def misfit(true: Chain, used: Chain, lag: int) -> Floats:
    """D(i) for every last private request i, rounded up: 0 while ON (lag 0), and 1 at most."""
    check(true, used)
    n = true.n
    if lag == 0:
        return np.zeros(n)
    walk, used_walk = (chain.power(lag) for chain in (true, used))
    result = np.empty(n)
    for last in range(n):
        joint = walk[last][:, None] * true.P  # [request, next]
        guess = used_walk[last][:, None] * used.P
        following, guessed = joint.sum(axis=0), guess.sum(axis=0)
        sure = guessed > NOTHING
        rows = guess[:, sure] / guessed[sure]
        result[last] = np.abs(joint[:, sure] - following[sure] * rows).sum() / 2 + following[~sure].sum()
    # Sums of products of non-negative floats: every entry is off by (lag + 3) (n + 4) 2^-53 of itself at most.
    rounded: Floats = np.minimum(1.0, result + 4 * (lag + 3) * (n + 4) * 2.0**-53)
    return rounded


def aligned(true: Chain, used: Chain) -> Chain:
    """The true chain in the order of the other. Raises `OnoffError` if they do not have the same sources."""
    from onoff.model.chain import Chain

    if sorted(true.names) != sorted(used.names):
        raise OnoffError("the true chain has other sources than the chain: give one with the same names")
    order = [true.index(name) for name in used.names]
    return Chain(true.P[np.ix_(order, order)], used.names)


def check(true: Chain, used: Chain) -> None:
    """Raise `OnoffError` unless both have the same sources in one order, and the client allows all that can happen."""
    if true.names != used.names:
        raise OnoffError("the chains have different sources, or another order of them (`onoff.model.misfit.aligned`)")
    barred = np.argwhere((true.P > 0) & (used.P == 0))
    if len(barred):
        last, request = (used.names[i] for i in barred[0])
        raise OnoffError(
            f"the chain calls it impossible that {request!r} follows {last!r}, but it happens: a client would refuse "
            "such a request; smooth the chain"
        )
