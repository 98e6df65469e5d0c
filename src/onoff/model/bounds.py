"""Theorem 1 of the paper: what its scheme needs at most (inner) and what every scheme needs at least (outer).

With them comes arithmetic that rounds in the safe direction, so that bounds stay bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onoff.errors import ChainError
from onoff.model import powers as products
from onoff.model.chain import Chain
from onoff.model.posterior import Posterior, Rows, Support


@dataclass(frozen=True, eq=False)
class Bounds:
    """Costs 1/R in messages per request (equations 10 and 11), with the paper's lambda and theta.

    `lam[i-1]` is lambda_i of equation 8 for i = 1..n: the sum over sources of the i-th smallest p(x | u). (There
    are at least n contexts, since every `last` has a successor.) `peaks[x]` is max_u p(x | u); their sum,
    lambda_m, is `outer`. `theta[l-1]` is theta_l of equation 9 with every lambda replaced by min(lambda, 1),
    which changes nothing while all n^2 contexts are possible.
    """

    inner: float
    outer: float
    lam: NDArray[Any]
    theta: NDArray[Any]
    peaks: NDArray[Any]

    @property
    def inner_rate(self) -> float:
        """Rate R^I reached by the paper's scheme."""
        return 1 / self.inner

    @property
    def outer_rate(self) -> float:
        """Rate R^O that no scheme exceeds."""
        return 1 / self.outer


def bounds(posterior: Posterior | Chain, lag: int | None = None) -> Bounds:
    """Compute both bounds of a posterior, or of a chain at a lag, as `plan` takes them. Fractions give fractions.

        bounds(chain, 3).outer == bounds(chain.posterior(3)).outer

    All n^3 probabilities are sorted, as for the paper's scheme; `outer_bound` needs n^2 of them at a time.
    """
    if isinstance(posterior, Chain) and lag is not None:
        posterior = Posterior(posterior, lag)
    elif not isinstance(posterior, Support) or lag is not None:
        raise ChainError("bounds are those of a posterior, or of a chain and a lag: bounds(chain, 3)")
    rows, n = posterior.rows, posterior.n
    peaks, lam = rows.max(axis=0), np.sort(rows, axis=0)[:n].sum(axis=1)
    theta = thetas(lam)
    inner = (theta * np.arange(1, n + 1)).sum()
    return Bounds(inner=inner, outer=peaks.sum(), lam=lam, theta=theta, peaks=peaks)


def outer_bound(rows: Rows) -> float:
    """1/R^O = sum_x max_u p(x | u), rounded down: a proved lower bound on every cost."""
    # Peaks are within twice the error of a row, whatever the order of their operations; the last term is the sum's.
    error = 2 * rows.relative_error + products.gamma(2 * rows.n)
    return math.fsum(rows.peaks) * (1 - error)


def thetas(lam: NDArray[Any]) -> NDArray[Any]:
    """theta_1..theta_n from lambda_1..lambda_n (equation 9)."""
    one = lam[0] * 0 + 1
    return np.diff(np.minimum(lam[:-1], one), prepend=one - one, append=one)


def sum_up(*terms: float) -> float:
    """Bound the sum of the terms by a float."""
    return math.nextafter(math.fsum(terms), math.inf)


def down(value: Fraction) -> float:
    """Round the value down to a float."""
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, -math.inf)


def up(value: Fraction) -> float:
    """Round the value up to a float."""
    return -down(-value)


def is_symmetric(chain: Chain) -> bool:
    """True if P is one value on a permutation and one value elsewhere, to the bit, and all contexts are possible."""
    values, counts = np.unique(chain.P, return_counts=True)
    if len(values) == 1:
        return True
    if chain.n < 3 or len(values) != 2 or values[counts.argmax()] == 0:
        return False
    special = values[counts.argmin()] == chain.P
    return bool((special.sum(axis=0) == 1).all() and (special.sum(axis=1) == 1).all())
