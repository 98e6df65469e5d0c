"""What public things tell about the next request, in every context: rows, and how they move on.

The row of a context c is h_c(x) = P(X_t = x | c, Q_0..Q_{t-1}). At an OFF step with the query S + R it moves on by

    r_c = h_c restricted to the sources that are not sensitive, normalised,
    h_c(y) <- sum_x r_c(x) w_c(R | x) P[x, y] / sum_x r_c(x) w_c(R | x),

where w_c(R | x) is the probability with which the client really draws R: units of the integer encoder over their sum,
never the integer joint itself. The functions work on floats and on fractions (arrays of dtype object).

Errors. Nothing is subtracted. A computed row is, up to one common factor, the exact one times 1 + d(x), and its
*spread* is a bound on log max(1 + d) - log min(1 + d). Restricting, multiplying by exact weights and summing with
exact non-negative coefficients never enlarge a spread (a sum of terms in [a, b] times exact ones lies in [a, b]
times the exact sum), and common factors leave it as it is. So only the roundings of entries count, and they add up.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onoff.model.powers import UNIT, counts, gamma, times
from onoff.types import Floats, Mask

FLOOR = 2.0**-900  # possible entries below are raised to it, so that none underflows: part of the rounding


def restricted(rows: NDArray[Any], open_sources: Mask) -> NDArray[Any]:
    """r_c: the rows given that the request is not sensitive, over the open sources only."""
    kept = rows[:, open_sources]
    result: NDArray[Any] = kept / kept.sum(axis=1, keepdims=True)
    return result


def conditioned(rows: NDArray[Any], units: NDArray[Any], totals: NDArray[Any]) -> NDArray[Any]:
    """P(X_t = x | c, the query) from r_c(x) and w_c(R | x) = units / totals; impossible requests have 0 units."""
    weights = rows * (units / totals)
    result: NDArray[Any] = weights / weights.sum(axis=1, keepdims=True)
    return result


def moved(beliefs: NDArray[Any], P: NDArray[Any]) -> NDArray[Any]:
    """The rows of the next step; `P` has a row for each source that beliefs are about."""
    rows = times(beliefs, P)
    result: NDArray[Any] = rows / rows.sum(axis=1, keepdims=True)
    return result


def reached(beliefs: Mask, edges: Mask) -> Mask:
    """Where the rows of the next step are positive: from the graph of the chain, since floats underflow."""
    return counts(beliefs, edges) > 0


def spread_of_a_move(n: int) -> float:
    """How much a move adds to the spread of a row.

    An entry meets one rounding in `restricted`, three in `conditioned`, n products and sums and one division in
    `moved`: n + 5 factors of at least 1 - u and at most 1 + u.
    """
    return 2 * (n + 6) * UNIT


def error_of(spread: float, n: int) -> float:
    """A bound on |computed - exact| / exact of a normalised row, and so on the total variation: e^spread - 1.

    The last term covers that the floats of a row do not quite sum to 1.
    """
    return math.expm1(spread) * (1 + 2.0**-40) + gamma(n + 2)


def raised(rows: Floats, possible: Mask) -> tuple[Floats, float]:
    """The rows without underflow, and a bound on the total variation that this costs each of them."""
    low = possible & (rows < FLOOR)
    result: Floats = np.where(low, FLOOR, np.where(possible, rows, 0.0))
    return result, 2 * rows.shape[1] * FLOOR if low.any() else 0.0
