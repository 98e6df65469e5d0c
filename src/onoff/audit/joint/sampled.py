"""Clients without a table, such as the race: their encoders are estimated from many draws in every context.

The information of the estimated encoders is too large even for a perfect client: counts are noisy, and noise looks like
dependence. How much noise adds is measured by drawing again from the estimate: if the counts lie e away from the truth,
counts drawn anew lie e + e' away, with e' like e. For small e the information is a quadratic form, so it grows by as
much as sampling added the first time. That is subtracted; the spread of the repetitions, which is at least that of the
first time, gives the margin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from onoff.audit.joint.continuity import allowed_by, information_bound
from onoff.audit.joint.enumeration import propagate
from onoff.audit.measures import information
from onoff.audit.models import TooLarge
from onoff.audit.setting import Leakage, Promise, lags_of
from onoff.model.posterior import Support
from onoff.types import Floats, Query

if TYPE_CHECKING:
    from onoff.model.chain import Chain

PAIRS = 4_000_000
REPETITIONS = 60
ALARM = 3.3  # standard deviations: a private client is accused less than once in 1000 audits


class Draw(Protocol):
    """`draw` of a plan."""

    def __call__(self, request: int, last: int, next: int, lag: int, randbelow: Callable[[int], int], /) -> Query: ...


@dataclass(frozen=True)
class Counts:
    """counts[query, last, request, next] of the draws at one lag, `draws` in every possible context."""

    counts: NDArray[np.int64]
    draws: int

    def kernel(self, P: Floats) -> Floats:
        return self.counts / self.draws * P

    def again(self, rng: np.random.Generator) -> Counts:
        """Counts of as many draws from the estimated law."""
        chances = np.moveaxis(self.counts, 0, -1) / self.draws
        possible = chances.sum(axis=-1) > 0
        counts = np.zeros(chances.shape, dtype=np.int64)
        counts[possible] = rng.multinomial(self.draws, chances[possible])
        return Counts(np.moveaxis(counts, -1, 0), self.draws)


def count(chain: Chain, draw: Draw, lag: int, draws: int, randbelow: Callable[[int], int]) -> Counts:
    """Draw in every context that can happen, with every request that can."""
    n, support = chain.n, Support(chain, lag)
    seen: dict[Query, NDArray[np.int64]] = {}
    for last, following in support.contexts.tolist():
        for request in np.flatnonzero(support.possible(last, following)).tolist():
            for _ in range(draws):
                query = draw(request, last, following, lag, randbelow)
                cell = seen.setdefault(query, np.zeros((n, n, n), dtype=np.int64))
                cell[last, request, following] += 1
    return Counts(np.stack(list(seen.values())), draws)


def by_draws(
    name: str,
    chain: Chain,
    statuses: Sequence[bool],
    draw: Draw,
    start: Floats,
    promise: Promise,
    draws: int = 400,
    seed: int = 1,
    advance: Callable[[], None] = lambda: None,
) -> Leakage:
    """An estimate at every t, with its 95 % interval; `TooLarge` if the streams are too many to enumerate.

    `holds` is False if at some t even ALARM standard deviations below the estimate there is more than is promised.
    """
    lags, n = lags_of(statuses), chain.n
    if (2**n - 1) ** sum(lag > 0 for lag in lags) * n ** (lags.count(0) + 1) > PAIRS:
        raise TooLarge(f"{name}: more than {PAIRS} pairs of queries and hidden requests")
    randbelow, rng = Random(seed).randrange, np.random.default_rng(seed)
    counts: dict[int, Counts] = {}
    for lag in sorted(set(lags) - {0}):
        counts[lag] = count(chain, draw, lag, draws, randbelow)
        advance()
    plain = _information(chain, statuses, counts, start)
    repeated = np.array(
        [
            _information(chain, statuses, {lag: found.again(rng) for lag, found in counts.items()}, start)
            for _ in range(REPETITIONS)
        ]
    )
    bias, deviation = repeated.mean(axis=0) - plain, repeated.std(axis=0, ddof=1)
    bits = plain - bias
    allowed = allowed_by(chain, statuses, promise)
    hidden = np.cumsum(np.array(lags) == 0) + 1
    most = np.array([information_bound(d, n, int(b)) for d, b in zip(allowed, hidden, strict=True)])
    return Leakage(
        name,
        "estimate",
        tuple(bits.tolist()),
        bool((bits - ALARM * deviation <= most).all()),
        margin=tuple((1.96 * deviation).tolist()),
        bias=tuple(bias.tolist()),
        allowed=float(allowed[-1]),
    )


def _information(chain: Chain, statuses: Sequence[bool], counts: dict[int, Counts], start: Floats) -> Floats:
    everything = np.broadcast_to(chain.P, (1, chain.n, chain.n, chain.n))
    kernels = [counts[lag].kernel(chain.P) if lag else everything for lag in lags_of(statuses)]
    return np.array([information(joint) for joint in propagate(start, kernels, statuses)])
