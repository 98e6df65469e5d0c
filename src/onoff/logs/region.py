"""Which chains a log leaves possible, and how much any of them can leak if the fitted one is used.

The region. Let row i of the true chain be P_i, and c_ij of its N_i transitions lead to j. For any law m of sequences
the ratio m(c_i) / Π_j P_ij^c_ij is a bet against P_i: it ever reaches n / 0.05 with probability at most 0.05 / n
(Ville's inequality), however many transitions there happen to be. So with 95 % probability, for all rows at once,

    KL(c_i / N_i || P_i) <= (ln(n / 0.05) - ln m(c_i) - N_i H(c_i / N_i)) / N_i,

where m is the mean of two Dirichlet mixtures, Dirichlet(1/2) and Dirichlet(1/n). By Pinsker's inequality each row of
every chain in the region is within e_i of the fitted row. All users are assumed to have the same chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onoff.errors import NotUnique
from onoff.logs.counting import Counts
from onoff.logs.resampling import LEVEL
from onoff.model.chain import Chain
from onoff.model.misfit import misfit
from onoff.model.powers import times
from onoff.types import Floats

DRAWS = ((50, 50), (20, 100))  # of chains, up to so many sources: n^3 for each, so none beyond


@dataclass(frozen=True)
class Misfit:
    """How far one OFF step at this lag may be from private, in total variation, if the true chain is another one.

    `bound` holds for every chain in the 95 % region and every private request; it is proved, and often says nothing.
    `estimate` is the average over requests, exceeded by 5 % of the chains that the counts leave plausible (drawn from
    their Dirichlet posterior); None where that would take long.
    """

    lag: int
    bound: float
    estimate: float | None


def misfits(
    chain: Chain, counts: Counts, smoothing: float, lags: Sequence[int], rng: np.random.Generator
) -> tuple[Misfit, ...]:
    """At each lag: the bound over the region, and the estimate."""
    bounds = region_bound(chain, row_radii(chain, counts), max(lags, default=0))
    plausible = _drawn(chain, counts, smoothing, rng)
    return tuple(
        Misfit(lag, float(bounds[lag - 1].max()), _exceeded_rarely(chain, plausible, lag) if plausible else None)
        for lag in lags
    )


def row_radii(chain: Chain, counts: Counts) -> Floats:
    """e_i: no row of a chain in the region is further from the fitted one, in total variation; 1 without counts."""
    n = chain.n
    total = counts.sum(axis=1)
    seen = np.maximum(total, 1)[:, None]
    shares = counts / seen
    entropy = -(shares * np.log(np.where(counts > 0, shares, 1.0))).sum(axis=1)
    mixed = np.logaddexp(_mixture(counts, 0.5), _mixture(counts, 1 / n)) - np.log(2)
    apart = (np.log(n / (1 - LEVEL)) - mixed - total * entropy) / seen[:, 0]
    from_shares = np.abs(shares - chain.P).sum(axis=1) / 2
    radii: Floats = np.where(total > 0, np.minimum(1.0, from_shares + np.sqrt(np.maximum(apart, 0) / 2)), 1.0)
    return radii


def _mixture(counts: Counts, strength: float) -> Floats:
    """ln of the probability of sequences with these counts, if the row is drawn from Dirichlet(strength)."""
    from scipy.special import gammaln

    n, total = counts.shape[1], counts.sum(axis=1)
    cells = (gammaln(counts + strength) - gammaln(strength)).sum(axis=1)
    result: Floats = gammaln(n * strength) - gammaln(total + n * strength) + cells
    return result


def region_bound(chain: Chain, radii: Floats, most: int) -> Floats:
    """What D(i) (`model.misfit`) is at most if rows are off by at most `radii`: [lag - 1, i], for lags up to `most`.

    With e the distance between P^d[i] and its fitted twin, a = sum over x of P̂^d[i, x] radii[x], and c the largest
    distance between two rows: D <= (e + a) + (c e + a), and the next e is at most c e + a.
    """
    n = chain.n
    between = np.array([np.abs(chain.P - row).sum(axis=1) / 2 for row in chain.P])
    contraction = float(np.minimum(1.0, between + radii[:, None] + radii[None, :])[~np.eye(n, dtype=bool)].max())
    apart, walk, found = radii.copy(), chain.P, []  # at lag 1 the walk is the row itself
    for _ in range(most):
        step = times(walk, radii)
        further = np.minimum(1.0, contraction * apart + step)
        found.append(np.minimum(1.0, (apart + step + further) * (1 + 1e-9)))
        apart, walk = further, times(walk, chain.P)
    return np.array(found).reshape(most, n)


def _drawn(chain: Chain, counts: Counts, smoothing: float, rng: np.random.Generator) -> list[Chain]:
    number = next((draws for draws, most in DRAWS if chain.n <= most), 0)
    total = counts.sum(axis=1, keepdims=True)
    weight = np.where(total > 0, counts + smoothing, np.maximum(chain.P * chain.n * max(smoothing, 1.0), 0))
    chains = []
    for _ in range(number):
        rows = np.where(weight > 0, rng.gamma(np.maximum(weight, 1e-300)), 0.0)
        sums = rows.sum(axis=1, keepdims=True)
        chains.append(Chain(np.where(sums > 0, rows / np.where(sums > 0, sums, 1.0), chain.P), chain.names))
    return chains


def _exceeded_rarely(chain: Chain, plausible: Sequence[Chain], lag: int) -> float:
    return float(np.quantile([times(_usual(true), misfit(true, chain, lag)) for true in plausible], LEVEL))


def _usual(chain: Chain) -> Floats:
    """The stationary law, or all alike if there are several."""
    try:
        return chain.stationary()
    except NotUnique:
        return np.full(chain.n, 1 / chain.n)
