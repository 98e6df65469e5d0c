"""Closed forms for the symmetric chain (Corollary 2 and the remark of Appendix B), with the paper's slips mended.

With r = (n alpha - 1) / (n - 1), P^k has (1 + (n-1) r^k) / n on its diagonal and (1 - r^k) / n elsewhere. Every
function accepts a float or a `Fraction` for alpha and answers in kind.
"""

from __future__ import annotations

from fractions import Fraction
from numbers import Real
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from onoff.model.chain import Chain

from onoff.errors import ChainError
from onoff.types import is_whole

Number = TypeVar("Number", float, Fraction)


def sigma(which: int, n: int, alpha: Number, lag: int) -> Number:
    """The paper's sigma_1..sigma_5 (Appendix B): p(j | i, k) by which of i, j, k are equal.

    1: i = j = k.  2: i = j != k.  3: i != j = k.  4: i = k != j.  5: all different.
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
