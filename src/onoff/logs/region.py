"""Which chains a log leaves possible, and how much any of them can leak if the fitted one is used.

The region. Let row i of the true chain be P_i, one of k, and c_ij of its N_i transitions lead to j. For any law m of
sequences the ratio m(c_i) / Π_j P_ij^c_ij is a bet against P_i: it ever reaches k / 0.05 with probability at most
0.05 / k (Ville's inequality), however many transitions there happen to be. So with 95 % probability, for all rows at
once,

    KL(c_i / N_i || P_i) <= (ln(k / 0.05) - ln m(c_i) - N_i H(c_i / N_i)) / N_i,

where m is the mean of two Dirichlet mixtures, Dirichlet(1/2) and Dirichlet(1/n). By Pinsker's inequality each row of
every chain in the region is within e_i of the fitted row. All users are assumed to have the same chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from onoff.errors import NotUnique
from onoff.model.chain import Chain
from onoff.model.misfit import misfit
from onoff.model.powers import times
from onoff.types import Floats, Units

LEVEL = 0.95
LAGS = (1, 10)
DRAWS = ((50, 50), (20, np.inf))  # of chains, up to so many states
MOST_FOR_BOTH = 100  # sources: n^3 for each chain


@dataclass(frozen=True)
class Misfit:
    """How far one OFF step at this lag may be from private, in total variation, if the true chain is another one.

    `both` and `past` (without sensitive sources) are bounds for these promises that hold for every chain in the 95 %
    region and every private request; they are proved, and often say nothing. The estimates are averages over requests,
    exceeded by 5 % of the chains that the counts leave plausible (drawn from their Dirichlet posterior). For the
    promise both there is none where it would take long, and with memory there is nothing. Rounding, which a client
    states, comes on top.
    """

    lag: int
    both: float | None
    both_estimate: float | None
    past: float
    past_estimate: float


def misfits(chain: Chain, counts: Units, rng: np.random.Generator) -> tuple[Misfit, ...]:
    """Bound and estimate the misfit at `LAGS`, for each promise; counts[z, j] are transitions from state z to j."""
    both, past = region_bounds(chain, row_radii(chain, counts), max(LAGS))
    law, steps, announced = _stationary_or_uniform(chain), [], []
    for rows in _draw_rows(chain, counts, rng):
        steps.append(float(times(law, np.abs(rows - chain.P).sum(axis=1) / 2)))
        if chain.depth == 1 and chain.n <= MOST_FOR_BOTH:
            true = Chain(rows, chain.names)
            announced.append([float(times(law, misfit(true, chain, lag))) for lag in LAGS])
    step, estimates = np.quantile(steps, LEVEL), np.quantile(announced, LEVEL, axis=0) if announced else None
    return tuple(
        Misfit(
            lag,
            float(both[lag - 1].max()) if chain.depth == 1 else None,
            None if estimates is None else float(estimates[place]),
            float(past[lag - 1].max()),
            float(min(1.0, (2 * lag - 1) * step)),
        )
        for place, lag in enumerate(LAGS)
    )


def row_radii(chain: Chain, counts: Units) -> Floats:
    """Compute e_i: no row of a chain in the region is further, in total variation, from the fitted one. 1 if unseen."""
    total = counts.sum(axis=1)
    seen = np.maximum(total, 1)[:, None]
    shares = counts / seen
    entropy = -(shares * np.log(np.where(counts > 0, shares, 1.0))).sum(axis=1)
    mixed = np.logaddexp(_mixture(counts, 0.5), _mixture(counts, 1 / chain.n)) - np.log(2)
    apart = (np.log(len(counts) / (1 - LEVEL)) - mixed - total * entropy) / seen[:, 0]
    from_shares = np.abs(shares - chain.P).sum(axis=1) / 2
    radii: Floats = np.where(total > 0, np.minimum(1.0, from_shares + np.sqrt(np.maximum(apart, 0) / 2)), 1.0)
    return radii


def _mixture(counts: Units, strength: float) -> Floats:
    """Compute ln of the probability of sequences with these counts, if the row is drawn from Dirichlet(strength)."""
    from scipy.special import gammaln

    n, total = counts.shape[1], counts.sum(axis=1)
    cells = (gammaln(counts + strength) - gammaln(strength)).sum(axis=1)
    result: Floats = gammaln(n * strength) - gammaln(total + n * strength) + cells
    return result


def region_bounds(chain: Chain, radii: Floats, most: int) -> tuple[Floats, Floats]:
    """Bound the misfit if rows are off by at most `radii`, for the promises both and past: [lag - 1, i] up to `most`.

    Let X_0 = i, let X_t follow a chain of the region, e_t be the distance of its law from the fitted P̂^t[i], and
    a_t = sum over x of P̂^t[i, x] radii[x]. With c the largest distance between two rows, e_{t+1} <= c e_t + a_t.

    both: D(i) (`onoff.model.misfit`) at lag t is at most (e_t + a_t) + e_{t+1}.
    past: the law of the query at OFF step t, given what is hidden and asked before, is on average within d_t + d_{t-1}
    of the stated one, with d_t the sum over s < t of E radii(X_s), d_0 = 0 (theorem of docs/explanation/misfit.md). A
    mean of radii is at most a_s + e_s (max radii - min radii), and never above max radii.
    """
    n, contraction = len(chain.P), _contraction(chain, radii)
    top, span = float(radii.max()), float(radii.max() - radii.min())
    apart, walk, total = np.zeros(n), np.eye(n), np.zeros(n)
    both, past = np.empty((most, n)), np.empty((most, n))
    for t in range(most):
        mean = times(walk, radii)
        before, total = total, total + np.minimum(top, mean + span * apart)
        apart, walk = np.minimum(1.0, contraction * apart + mean), times(walk, chain.moves)
        mean = times(walk, radii)
        both[t] = apart + mean + np.minimum(1.0, contraction * apart + mean)
        past[t] = total + before
    return np.minimum(1.0, both * (1 + 1e-9)), np.minimum(1.0, past * (1 + 1e-9))


def _contraction(chain: Chain, radii: Floats) -> float:
    """Bound the largest distance between two rows of any chain in the region."""
    between = np.array([np.abs(chain.moves - row).sum(axis=1) / 2 for row in chain.moves])
    apart = np.minimum(1.0, between + radii[:, None] + radii[None, :])
    return float(apart[~np.eye(len(between), dtype=bool)].max())


def _draw_rows(chain: Chain, counts: Units, rng: np.random.Generator) -> Iterator[Floats]:
    """Yield the rows of chains that the counts leave plausible."""
    weight = chain.P * np.maximum(counts.sum(axis=1, keepdims=True), 1)
    for _ in range(next(draws for draws, most in DRAWS if len(weight) <= most)):
        drawn = rng.standard_gamma(weight)
        yield drawn / drawn.sum(axis=1, keepdims=True)


def _stationary_or_uniform(chain: Chain) -> Floats:
    """Return the stationary law, or all alike if there are several."""
    try:
        return chain.stationary()
    except NotUnique:
        return np.full(chain.n, 1 / chain.n)
