"""If the true chain is not the one used: how far the queries of a step can be from private.

P is the true chain, P̂ the one that the client uses. Under the promise `both`, at lag d, after the private request i and
before the request k, the request has the law p(x) = P^d[i, x] P[x, k] / P^(d+1)[i, k]; the client's encoder is made for
p̂, the same of P̂. An encoder turns a law of requests into one of queries and never increases a distance, so the step is
off by at most

    D(i) = sum over k of P^(d+1)[i, k] TV(p, p̂)

on average over the next request. Over a stream these add up (`stream_misfit`).

Under the promise `past` the client's encoder in the state z is made for the row of P̂, on the sources that are not
sensitive, but an open request follows the row of P. So the step is off by at most

    eps(z) = TV(P[z, .], P̂[z, .]), both rows on these sources, normalised

whatever was asked before z: one step has one error, and nothing adds up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt, log, log1p, log2
from typing import TYPE_CHECKING

import numpy as np

from onoff.errors import OnoffError
from onoff.model.bounds import sum_up, up
from onoff.model.powers import times
from onoff.types import Floats

if TYPE_CHECKING:
    from onoff.model.chain import Chain

FEW = 10  # transitions for each source: a chain fitted to fewer may be far off
LASTING = 4  # see `requests_until_refit`
NOTHING = 1e-280  # below it quotients of floats mean nothing: the distance is taken to be 1


def is_too_small(transitions: int, n: int) -> bool:
    """True if a log with so many transitions is too small to rely on its chain."""
    return transitions < FEW * n


def requests_until_refit(transitions: int, n: int, states: int = 0) -> int:
    """Estimate how many requests a chain fitted to so many transitions lasts, if habits stay the same.

    A fitted chain is not the true one, and a test that goes on finds any difference. With N transitions it loses about
    k / 2N nats a request, with k = n (n - 1) free numbers. A learner of T more requests, as of the N before, gains
    k / 2 (T / N - ln(1 + T / N)), which is about (n T / 2 N)^2. That is ln 100, the alarm at 1 %, at T = 4.3 N / n.
    With memory there are n - 1 free numbers for each of more than n `states`.
    """
    return LASTING * transitions // isqrt(n * max(n, states))


def misfit(true: Chain, used: Chain, lag: int) -> Floats:
    """Bound D(i) for each last private request i, rounded up: 0 if ON (lag 0), 1 at most."""
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


def align(true: Chain, used: Chain) -> Chain:
    """Order the true chain like the other. Raises `OnoffError` if they do not have the same sources."""
    from onoff.model.chain import Chain

    if sorted(true.names) != sorted(used.names):
        raise OnoffError("the true chain has other sources than the chain: give one with the same names")
    place = [used.index(name) for name in true.names]
    order = np.argsort(place)
    return Chain(true.P[:, order], used.names, true.weight, [[place[x] for x in state] for state in true.states])


def refine(true: Chain, used: Chain) -> tuple[Chain, Chain]:
    """Give both the states of either: splitting a state by what came before changes no habits."""
    from onoff.model.chain import Chain

    if true.states == used.states:
        return true, used
    states = sorted({*true.states, *used.states})

    def split(chain: Chain) -> Chain:
        return Chain([chain.P[chain.state_of(state)] for state in states], chain.names, None, states)

    return split(true), split(used)


def check(true: Chain, used: Chain) -> None:
    """Raise `OnoffError` unless both have the same sources in one order, and the client allows all possible steps."""
    if true.names != used.names:
        raise OnoffError("the chains have different sources, or another order of them (`onoff.model.misfit.align`)")
    true, used = refine(true, used)
    barred = np.argwhere((true.P > 0) & (used.P == 0))
    if len(barred):
        state, request = barred[0]
        after = " -> ".join(repr(used.names[x]) for x in used.states[state])
        raise OnoffError(
            f"the chain calls it impossible that {used.names[request]!r} follows {after}, but it happens: a client "
            "would refuse such a request; smooth the chain"
        )


# Whole streams


@dataclass(frozen=True)
class Misfit:
    """Bounds for every step of a client whose requests follow another chain than its own.

    `distances` is d_t, a bound on the total variation from what the promise demands, of all steps up to t (`both`) or
    of step t (`past`, on average over pasts), for streams that start as said; `anywhere` is the most that it can be.
    `allowed` is the most that the `distance` of a step may be, and `bits` the most that it may tell. `guess` is the
    most that queries made at or after a hidden request add to the chance of guessing it.
    """

    distances: tuple[float, ...]
    anywhere: tuple[float, ...]
    allowed: tuple[float, ...]
    bits: tuple[float, ...]
    guess: float


def information_bound(distance: Fraction, values: float) -> float:
    """Compute h(d) + d log2 |hidden| bits, rounded up: the most told by a stream within d of independence.

    `values` is log2 |hidden|.
    """
    if distance == 0:
        return 0.0
    if distance > Fraction(1, 2):
        return values
    d = up(distance)
    bits = d * log2(1 / d) - (1 - d) * log1p(-d) / log(2) + d * values  # no term is negative: nothing cancels
    return min(values, bits * (1 + 2.0**-48))  # more than a dozen roundings lose


def stream_misfit(
    true: Chain,
    used: Chain,
    both: bool,
    sensitive: Sequence[int],
    statuses: Sequence[bool],
    start: Floats,
    stated: Sequence[float],
    values: Sequence[float],
) -> Misfit:
    """Bound the misfit of a client made for the chain `used`, if requests follow `true`.

    X is the state; streams begin with one request, drawn from `start`.

    Promise `both`: D_s of a step, after the last private request, adds up over the stream with the roundings, of which
    `stated` are the sums: d_t = sum of (D_s + r_s). Promise `past`: of an OFF step d_t = E eps(X_{t-1}) + r_t, where
    `stated` are the r_t, and no past has more than the largest eps + r_t; ON it is 0. In both cases the joint law of
    the hidden and of what is asked is within d_t of one in which they are independent, so h(d_t) + d_t log2 |hidden|
    bits are told at most; `values` are log2 |hidden|. The documentation has the proofs.
    """
    true, used = refine(true, used)
    law = last = np.pad(start, (0, len(true.P) - len(start)))
    mean = worst = Fraction(0)
    lag, columns = 0, []
    for private, rounding, size in zip(statuses, stated, values, strict=True):
        lag = 0 if private else lag + 1
        last = law if both and private else last
        apart = misfit(true, used, lag) if both else row_misfit(true, used, sensitive) * (not private)
        mean = both * mean + Fraction(float(times(last, apart)) * (1 + 2.0**-40))  # more than the mean's roundings lose
        worst = both * worst + Fraction(float(apart.max()))
        now, most = mean + Fraction(rounding), up(worst + Fraction(rounding))
        columns.append((up(now), most, up(2 * now) if both else most, information_bound(now, size)))
        last, law = last if both else law, times(law, true.moves)
    distances, anywhere, allowed, bits = (tuple(one + 0.0 for one in column) for column in zip(*columns, strict=True))
    return Misfit(distances, anywhere, allowed, bits, min(1.0, anywhere[-1] if both else sum_up(*anywhere)))


def row_misfit(true: Chain, used: Chain, sensitive: Sequence[int] = ()) -> Floats:
    """Bound eps(z) above, of chains with the same states; 0 where no open request is possible."""
    rows, others = (np.delete(chain.P, list(sensitive), axis=1) for chain in (true, used))
    found, live = np.zeros(len(rows)), rows.any(axis=1)
    first, second = (part[live] / part[live].sum(axis=1, keepdims=True) for part in (rows, others))
    found[live] = np.abs(first - second).sum(axis=1) / 2 + (true.n + 4) * 2.0**-51
    return found
