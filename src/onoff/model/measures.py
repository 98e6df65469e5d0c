"""Measures of leakage: divergence, information and total variation, without cancellation.

A joint law is an array of whole numbers, a row for each view and a column for each secret; its sum stands for 1. Sums
and differences are exact: where a view is nearly independent of the secret, all that matters happens far below the
rounding of floats.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onoff.types import Floats

Joint = NDArray[Any]  # of Python integers
LN2 = float(np.log(2.0))
TIE = 1e-9  # beliefs that differ by less are equal: what is between them is rounding
NEAR = 0.01  # below this, phi is a series
BLOCK = 1 << 16  # pairs that are looked at together: bounds the memory


def divergence(belief: Floats, before: Floats) -> float:
    """Sum b log2(b / a) in bits, without cancellation: the terms a phi(b / a - 1), each of which is not negative."""
    used = before > 0
    return float(np.sum(before[used] * phi(belief[used] / before[used] - 1)) / LN2)


def accuracy(beliefs: Floats, truth: NDArray[np.intp]) -> float:
    """Share of requests that the likeliest source guesses right; of k equally likely ones each counts 1/k."""
    if not len(truth):
        return 0.0
    likeliest = beliefs >= beliefs.max(axis=1, keepdims=True) - TIE
    return float(np.mean(likeliest[np.arange(len(truth)), truth] / likeliest.sum(axis=1)))


def phi(r: Floats) -> Floats:
    """(1 + r) ln(1 + r) - r = r^2 / 2 - r^3 / 6 + r^4 / 12 - ..., which is never negative, without cancellation."""
    near = np.abs(r) < NEAR
    small, large = np.where(near, r, 0.0), np.where(near, 1.0, np.maximum(r, -1.0))
    series = np.zeros_like(r)
    for k in range(12, 1, -1):
        series = 1 / (k * (k - 1)) - small * series
    with np.errstate(divide="ignore", invalid="ignore"):
        direct = np.where(large > -1, (1 + large) * np.log1p(large) - large, 1.0)
    return np.where(near, series * small**2, direct)


def information(joint: Joint) -> float:
    """I(secret; view) = sum of p(s) p(v) phi(r) / ln 2 bits, where r = p(s, v) / (p(s) p(v)) - 1.

    The terms -r of phi sum to 0. Nothing cancels: an information of 1e-30 bits is as accurate as one of 1 bit.
    """
    square, result = int(joint.sum()) ** 2, 0.0
    for independent, excess in _blocks(joint):
        used = independent > 0
        weights, ratios = independent[used] / square, excess[used] / independent[used]
        result += float(np.sum(weights.astype(np.float64) * phi(ratios.astype(np.float64))))
    return result / LN2


def total_variation(joint: Joint) -> Fraction:
    """Total variation between the joint law and the product of its marginals."""
    return Fraction(sum(np.abs(excess).sum() for _, excess in _blocks(joint)), 2 * joint.sum() ** 2)


def _blocks(joint: Joint) -> Iterator[tuple[Joint, Joint]]:
    """For blocks of rows: p(v) p(s), and p(v, s) - p(v) p(s), times total^2."""
    secrets, total = joint.sum(axis=0), joint.sum()
    rows = max(1, BLOCK // joint.shape[1])
    for first in range(0, len(joint), rows):
        block = joint[first : first + rows]
        independent = block.sum(axis=1)[:, None] * secrets
        yield independent, block * total - independent
