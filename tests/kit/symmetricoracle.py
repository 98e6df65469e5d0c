"""Closed forms for the symmetric chain: Corollary 2 and the remark of Appendix B, with the paper's slips mended."""

from __future__ import annotations


def sigma(which, n, alpha, lag):
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


def symmetric_outer(n, alpha, lag):
    """1/R^O = n max sigma: sigma_1 for alpha >= 1/n, else sigma_2 (even lag) or sigma_5 (odd lag).

    With two sources i, j, k cannot all differ; sigma_4 then takes the place of sigma_5.
    """
    if n * alpha >= 1:
        return n * sigma(1, n, alpha, lag)
    if lag % 2 == 0:
        return n * sigma(2, n, alpha, lag)
    return n * sigma(5 if n > 2 else 4, n, alpha, lag)


def symmetric_inner(n, alpha, lag):
    """1/R^I: n - n (n-1) sigma_4 for alpha >= 1/n, else with sigma_3 (even lag) or sigma_1 and sigma_3 (odd).

    With two sources the bound is always reached (Corollary 1), even if alpha = 0 leaves some sigma undefined.
    """
    if n == 2:
        return symmetric_outer(n, alpha, lag)
    if n * alpha >= 1:
        return n * sigma(4, n, alpha, lag) * (1 - n) + n
    if lag % 2 == 0:
        return n * sigma(3, n, alpha, lag) * (1 - n) + n
    return sigma(3, n, alpha, lag) * (2 * n - n * n) - n * sigma(1, n, alpha, lag) + n
