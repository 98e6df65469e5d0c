"""Theorem 1 of the paper: what its scheme needs at most (inner) and what every scheme needs at least (outer).

With them the closed forms for the symmetric chain (Corollary 2 and the remark of Appendix B), the paper's slips mended,
and arithmetic that rounds in the safe direction, so that bounds stay bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from onoff.errors import ChainError
from onoff.model import powers as products
from onoff.model.chain import Chain
from onoff.model.posterior import ExactPosterior, Posterior, Rows
from onoff.types import is_whole

BATCH = 2**24  # posterior entries sorted at a time: 128 MB, whatever n is
Number = TypeVar("Number", float, Fraction)


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
        """The rate R^I that the paper's scheme reaches."""
        return 1 / self.inner

    @property
    def outer_rate(self) -> float:
        """The rate R^O that no scheme exceeds."""
        return 1 / self.outer


def bounds(posterior: Posterior | ExactPosterior | Chain, lag: int | None = None) -> Bounds:
    """Both bounds: of a posterior, or of a chain at a lag, as `plan` takes them. Fractions in, fractions out.

        bounds(chain, 3).outer == bounds(chain.posterior(3)).outer

    Rows are looked at one after the other, in O(n^2) memory.
    """
    if isinstance(posterior, Chain) and lag is not None:
        posterior = Posterior(posterior, lag)
    elif not isinstance(posterior, Posterior | ExactPosterior) or lag is not None:
        raise ChainError("bounds are those of a posterior, or of a chain and a lag: bounds(chain, 3)")
    n = posterior.n
    smallest: list[NDArray[Any]] = []
    waiting: list[NDArray[Any]] = []
    tops: list[NDArray[Any]] = []
    for _, rows in posterior.blocks():
        tops.append(rows.max(axis=0))
        waiting.append(rows)
        if sum(map(len, waiting)) * n >= BATCH:
            smallest, waiting = _merged(smallest, waiting, n), []
    smallest = _merged(smallest, waiting, n) if waiting else smallest
    peaks: NDArray[Any] = np.max(tops, axis=0)
    lam: NDArray[Any] = np.array([np.sort(values) for values in smallest]).sum(axis=0)
    theta = thetas(lam)
    inner = (theta * np.arange(1, n + 1)).sum()
    return Bounds(inner=inner, outer=peaks.sum(), lam=lam, theta=theta, peaks=peaks)


def _merged(kept: list[NDArray[Any]], blocks: list[NDArray[Any]], n: int) -> list[NDArray[Any]]:
    """For every source the (up to) n smallest values of p(x | u) seen so far, in any order."""
    columns = np.ascontiguousarray(np.concatenate(blocks).T)
    result = []
    for x, column in enumerate(columns):
        values = column
        if kept:
            few = column[column < kept[x].max()] if len(kept[x]) == n else column
            values = np.concatenate([kept[x], few])
        if len(values) > n:
            values = np.sort(values)[:n] if values.dtype == object else np.partition(values, n - 1)[:n]
        result.append(values)
    return result


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
    """A float not below the sum of the terms."""
    return math.nextafter(math.fsum(terms), math.inf)


def down(value: Fraction) -> float:
    """The largest float not above the value."""
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, -math.inf)


def up(value: Fraction) -> float:
    """The smallest float not below the value."""
    return -down(-value)


def sigma(which: int, n: int, alpha: Number, lag: int) -> Number:
    """The paper's sigma_1..sigma_5 (Appendix B): p(j | i, k) by which of i, j, k are equal.

    1: i = j = k.  2: i = j != k.  3: i != j = k.  4: i = k != j.  5: all different. With r = (n alpha - 1) / (n - 1),
    P^k has (1 + (n-1) r^k) / n on its diagonal and (1 - r^k) / n elsewhere. A `Fraction` alpha is answered in kind.
    """
    r = (n * alpha - 1) / (n - 1)
    stay, leave = 1 + (n - 1) * r**lag, 1 - r**lag
    back, away = 1 + (n - 1) * r ** (lag + 1), 1 - r ** (lag + 1)
    if which == 1:
        return alpha * stay / back
    if which == 2:
        return (1 - alpha) * stay / ((n - 1) * away)
    if which == 3:
        return alpha * leave / away
    if which == 4:
        return (1 - alpha) * leave / ((n - 1) * back)
    if which == 5:
        return (1 - alpha) * leave / ((n - 1) * away)
    raise ValueError(f"sigma_{which} does not exist: 1 to 5 do")


def symmetric_outer(n: int, alpha: Number, lag: int) -> Number:
    """1/R^O = n max sigma: sigma_1 for alpha >= 1/n, else sigma_2 (even lag) or sigma_5 (odd lag).

    With two sources i, j, k cannot all differ; sigma_4 then takes the place of sigma_5.
    """
    _check(n, alpha, lag)
    if n * alpha >= 1:
        return n * sigma(1, n, alpha, lag)
    if lag % 2 == 0:
        return n * sigma(2, n, alpha, lag)
    return n * sigma(5 if n > 2 else 4, n, alpha, lag)


def symmetric_inner(n: int, alpha: Number, lag: int) -> Number:
    """1/R^I: n - n (n-1) sigma_4 for alpha >= 1/n, else with sigma_3 (even lag) or sigma_1 and sigma_3 (odd).

    With two sources the bound is always reached (Corollary 1), even if alpha = 0 leaves some sigma undefined.
    """
    _check(n, alpha, lag)
    if n == 2:
        return symmetric_outer(n, alpha, lag)
    if n * alpha >= 1:
        return n * sigma(4, n, alpha, lag) * (1 - n) + n
    if lag % 2 == 0:
        return n * sigma(3, n, alpha, lag) * (1 - n) + n
    return sigma(3, n, alpha, lag) * (2 * n - n * n) - n * sigma(1, n, alpha, lag) + n


def _check(n: int, alpha: Number, lag: int) -> None:
    if not (is_whole(n, 2) and is_whole(lag, 1) and isinstance(alpha, Real) and 0 <= alpha <= 1):
        raise ChainError(
            f"n={n!r}, alpha={alpha!r}, lag={lag!r}: whole numbers n >= 2 and lag >= 1 and 0 <= alpha <= 1 are needed"
        )


def is_symmetric(chain: Chain) -> bool:
    """Whether P is one value on a permutation and one value elsewhere, to the bit, and all contexts are possible."""
    values, counts = np.unique(chain.P, return_counts=True)
    if len(values) == 1:
        return True
    if chain.n < 3 or len(values) != 2 or values[counts.argmax()] == 0:
        return False
    special = values[counts.argmin()] == chain.P
    return bool((special.sum(axis=0) == 1).all() and (special.sum(axis=1) == 1).all())
