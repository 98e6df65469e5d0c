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

    `bound` (promise both) and `everyday` (promise past, without sensitive sources) hold for every chain in the 95 %
    region and every private request; they are proved, and often say nothing. `estimate` and `everyday_estimate` are
    averages over requests, exceeded by 5 % of the chains that the counts leave plausible (drawn from their Dirichlet
    posterior); None where that would take long. Rounding, which a client states, comes on top.
    """

    lag: int
    bound: float
    estimate: float | None
    everyday: float
    everyday_estimate: float | None


def misfits(
    chain: Chain, counts: Counts, smoothing: float, lags: Sequence[int], rng: np.random.Generator
) -> tuple[Misfit, ...]:
    """At each lag, for both promises: the bound over the region, and the estimate."""
    radii, most = row_radii(chain, counts), max(lags, default=0)
    bounds, everyday = region_bound(chain, radii, most), everyday_region_bound(chain, radii, most)
    plausible = _drawn(chain, counts, smoothing, rng)
    rows = [float(times(_usual(true), np.abs(true.P - chain.P).sum(axis=1) / 2)) for true in plausible]
    step = float(np.quantile(rows, LEVEL)) if rows else None
    return tuple(
        Misfit(
            lag,
            float(bounds[lag - 1].max()),
            _exceeded_rarely(chain, plausible, lag) if plausible else None,
            float(everyday[lag - 1].max()),
            None if step is None else min(1.0, (2 * lag - 1) * step),
        )
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
    contraction = _contraction(chain, radii)
    apart, walk, found = radii.copy(), chain.P, []  # at lag 1 the walk is the row itself
    for _ in range(most):
        step = times(walk, radii)
        further = np.minimum(1.0, contraction * apart + step)
        found.append(np.minimum(1.0, (apart + step + further) * (1 + 1e-9)))
        apart, walk = further, times(walk, chain.P)
    return np.array(found).reshape(most, n)


def everyday_region_bound(chain: Chain, radii: Floats, most: int) -> Floats:
    """What the everyday misfit is at most if rows are off by at most `radii`: [t - 1, i], for OFF steps up to `most`.

    At OFF step t after the private request i, the law of the query given what is hidden and asked before is on average
    within d_t + d_{t-1} of the stated one, with d_t the sum over s <= t of E eps(X_{s-1}), X_0 = i, d_0 = 0
    (`onoff.audit.streams`). Under a chain of the region X_s is within e of its fitted twin, so that its mean of
    eps is at most sum over x of P̂^s[i, x] radii[x] + e (max radii - min radii), and never above max radii.
    """
    n = chain.n
    contraction = _contraction(chain, radii)
    top, span = float(radii.max()), float(radii.max() - radii.min())
    apart, walk = np.zeros(n), np.eye(n)
    total, found = np.zeros(n), []
    for _ in range(most):
        step = times(walk, radii)
        before, total = total, total + np.minimum(top, step + span * apart)
        found.append(np.minimum(1.0, (total + before) * (1 + 1e-9)))
        apart, walk = np.minimum(1.0, contraction * apart + step), times(walk, chain.P)
    return np.array(found).reshape(most, n)


def _contraction(chain: Chain, radii: Floats) -> float:
    """The largest distance between two rows of any chain in the region, at most."""
    between = np.array([np.abs(chain.P - row).sum(axis=1) / 2 for row in chain.P])
    apart = np.minimum(1.0, between + radii[:, None] + radii[None, :])
    return float(apart[~np.eye(chain.n, dtype=bool)].max())


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
