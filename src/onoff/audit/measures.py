"""How much a view tells about a secret: mutual information, total variation, best guess.

A joint law is an array of non-negative weights, a row for each view and a column for each secret; its sum stands for
1. Weights may be floats, or Python integers (dtype object), whose sums and differences are then exact: where a view is
nearly independent of the secret, all that matters happens far below the rounding of floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Joint = NDArray[Any]
LN2 = float(np.log(2.0))
NEAR = 0.01  # below this, phi is a series
BLOCK = 1 << 16  # pairs that are looked at together: bounds the memory


@dataclass(frozen=True)
class Measures:
    """What a view tells about a secret; `information` is in bits.

    `guess` is the chance to guess the secret from the view, `prior_guess` without it. `total_variation` is between the
    joint law and the product of its marginals.
    """

    information: float
    total_variation: float
    prior_guess: float
    guess: float


def measures(joint: Joint) -> Measures:
    """All measures of a joint law."""
    total = joint.sum()
    prior, best = float(joint.sum(axis=0).max() / total), float(joint.max(axis=1).sum() / total)
    return Measures(information(joint), float(total_variation(joint)), prior, best)


def information(joint: Joint) -> float:
    """I(secret; view) = sum of p(s) p(v) phi(r) / ln 2, where r = p(s, v) / (p(s) p(v)) - 1.

    Here phi(r) = (1 + r) ln(1 + r) - r, which is r^2 / 2 near 0 and never negative; the terms -r sum to 0. Nothing
    cancels, so an information of 1e-30 bits is as accurate as one of 1 bit.
    """
    total = joint.sum()
    result = 0.0
    for product, excess in _blocks(joint):
        used = product > 0
        if joint.dtype == object:
            ratio = (excess[used] / product[used]).astype(np.float64)
            weight = (product[used] / (total * total)).astype(np.float64)
        else:
            ratio, weight = excess[used] / product[used], product[used] / total**2
        result += float(np.sum(weight * phi(ratio)))
    return result / LN2


def total_variation(joint: Joint) -> Fraction | float:
    """The total variation between the joint law and the product of its marginals.

    It is a fraction if the weights are integers.
    """
    total = joint.sum()
    distance = sum(np.abs(excess).sum() for _, excess in _blocks(joint))
    return Fraction(distance, 2 * total * total) if joint.dtype == object else float(distance / (2 * total * total))


def _blocks(joint: Joint) -> Any:
    """For blocks of rows: p(v) p(s), and p(v, s) minus that, both times total^2."""
    secrets, total = joint.sum(axis=0), joint.sum()
    rows = max(1, BLOCK // joint.shape[1])
    for first in range(0, len(joint), rows):
        block = joint[first : first + rows]
        product = block.sum(axis=1)[:, None] * secrets
        yield product, block * total - product


def phi(r: NDArray[np.float64]) -> NDArray[np.float64]:
    """(1 + r) ln(1 + r) - r = r^2 / 2 - r^3 / 6 + r^4 / 12 - ..., without cancellation."""
    near = np.abs(r) < NEAR
    small, large = np.where(near, r, 0.0), np.where(near, 1.0, np.maximum(r, -1.0))
    series = np.zeros_like(r)
    for k in range(12, 1, -1):
        series = 1 / (k * (k - 1)) - small * series
    with np.errstate(divide="ignore", invalid="ignore"):
        direct = np.where(large > -1, (1 + large) * np.log1p(large) - large, 1.0)
    return np.where(near, series * small**2, direct)
