"""All query streams against all hidden requests: the exact information of a whole stream.

Probabilities are integers in units of 2^-512, and every operation rounds down: what is missing from the sum 1 is the
whole error, and it is checked to be below 2^-300.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onoff.audit.joint.continuity import allowed_by, information_bound
from onoff.audit.measures import Joint, information, measures, total_variation
from onoff.audit.models import Model, TooLarge
from onoff.audit.setting import (
    BITS,
    MISSING,
    ONE,
    Leakage,
    Promise,
    Units,
    encoder_of,
    fixed_matrix,
    lags_of,
    some_encoder,
)
from onoff.errors import OnoffError
from onoff.types import Query

if TYPE_CHECKING:
    from onoff.model.chain import Chain

PAIRS = 2_000_000  # of a query stream and hidden requests: what is enumerated


def by_enumeration(
    chain: Chain,
    statuses: Sequence[bool],
    model: Model,
    start: NDArray[np.float64],
    promise: Promise | None = None,
) -> Leakage:
    """Every t exactly; a promise is checked at every t."""
    bits, holds, distance = [], True, Fraction(0)
    allowed = allowed_by(chain, statuses, promise)
    for (joint, hidden), most in zip(enumerate_streams(chain, statuses, model, start), allowed, strict=True):
        bits.append(information(joint))
        distance = Fraction(total_variation(joint))
        within = bits[-1] <= information_bound(most, chain.n, len(hidden)) + MISSING
        holds &= within and distance <= 2 * most + Fraction(MISSING)
    n, sides = chain.n, len(hidden)
    cube = joint.reshape(len(joint), *[n] * sides)
    single = {
        step: measures(cube.sum(axis=tuple(i + 1 for i in range(sides) if i != axis)))
        for axis, step in enumerate(hidden)
    }
    return Leakage(
        model.name,
        "exact (enumeration)",
        tuple(bits),
        holds,
        distance=float(distance),
        allowed=None if promise is None else float(2 * allowed[-1]),
        whole=measures(joint),
        single=single,
    )


def enumerate_streams(
    chain: Chain, statuses: Sequence[bool], model: Model, start: NDArray[np.float64]
) -> Iterator[tuple[Joint, list[int]]]:
    """After every step Pr[queries so far; X_B] as integers, a row for each stream of queries, with the steps in B.

    The columns run over X_B in lexicographic order. `TooLarge` if there are more than PAIRS pairs.
    """
    n, lags = chain.n, lags_of(statuses)
    hidden = [t for t, lag in enumerate(lags, 1) if lag == 0]
    sizes = {lag: len(some_encoder(chain, model, lag).sets) for lag in set(lags)}
    pairs = n ** (len(hidden) + 1)
    for lag in lags:
        pairs *= sizes[lag]
        if pairs > PAIRS:
            raise TooLarge(f"{model.name}: more than {PAIRS} pairs of queries and hidden requests")
    kernels = {lag: kernel(chain, model, lag) for lag in set(lags)}
    total = sum(map(Fraction, start.tolist()))
    first = np.array([int(ONE * Fraction(p) / total) for p in start.tolist()], dtype=object)
    for t, joint in enumerate(propagate(first, [kernels[lag] for lag in lags], statuses), 1):
        if float((ONE - joint.sum()) / ONE) > MISSING:
            raise OnoffError(f"{model.name}: at lag {lags[t - 1]} a request that happens is given no query")
        yield joint, [*(s for s in hidden if s <= t), t + 1]


def propagate(start: Units, kernels: Sequence[Units], statuses: Sequence[bool]) -> Iterator[Joint]:
    """Pr[queries so far; X_B] after every step, from the law of the first request and the kernel of every step.

    In integers, units of 2^-BITS, or in floats.
    """
    state = start.reshape(1, 1, 1, -1)
    # state[queries, hidden requests before the last, last, current]; before the first step there is no last.
    for kernel, private in zip(kernels, statuses, strict=True):
        state = _asked(_switched_on(state) if private else state, kernel)
        yield state.reshape(len(state), -1)


def kernel(chain: Chain, model: Model, lag: int) -> Units:
    """kernel[query, last, request, next] = P[request, next] p(query | request, last, next), in units, rounded down."""
    n, P = chain.n, fixed_matrix(chain)
    numbers: dict[Query, int] = {}
    cells: list[tuple[int, int, int, int, int]] = []
    for last in range(n):
        for following in range(n):
            encoder = encoder_of(model, last, following, lag)
            if encoder is None:
                continue
            columns = [numbers.setdefault(query, len(numbers)) for query in encoder.sets]
            for request in range(n) if lag else [last]:
                weights = encoder.weights[request].tolist()
                total = sum(weights)
                for column, weight in zip(columns, weights, strict=True):
                    if weight:
                        units = int(P[request, following]) * weight // total
                        cells.append((column, last, request, following, units))
    result = np.zeros((len(numbers), n, n, n), dtype=object)
    for column, last, request, following, units in cells:
        result[column, last, request, following] = units
    return result


def _switched_on(state: Units) -> Units:
    """The current request becomes the last private one; the one before joins the earlier."""
    streams, n = len(state), state.shape[3]
    on = np.zeros((streams, state.shape[1] * state.shape[2], n, n), dtype=state.dtype)
    on[:, :, np.arange(n), np.arange(n)] = state.reshape(streams, -1, n)
    return on


def _asked(state: Units, kernel: Units) -> Units:
    """One query more, one request on; streams that cannot happen are dropped."""
    streams, earlier, n = len(state), state.shape[1], state.shape[3]
    result: Units = np.zeros((streams, len(kernel), earlier, n, n), dtype=state.dtype)
    for request in range(n):
        result += state[:, None, :, :, request, None] * kernel[None, :, None, :, request, :]
    if state.dtype == object:
        result = result >> BITS
    result = result.reshape(streams * len(kernel), earlier, n, n)
    return result[result.reshape(len(result), -1).any(axis=1)]
