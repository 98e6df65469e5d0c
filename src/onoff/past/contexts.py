"""Contexts: their rows, how rows move on, when two contexts become one, and when they share a flow.

The row of a context c is h_c(x) = P(X_t = x | c, Q_0..Q_{t-1}). At an OFF step with the query S + R it moves on by

    r_c = h_c restricted to the sources that are not sensitive, normalised,
    h_c(y) <- sum_x r_c(x) w_c(R | x) P[x, y] / sum_x r_c(x) w_c(R | x),

where w_c(R | x) is the probability with which the client really draws R: units of the integer encoder over their sum,
never the integer joint itself. These functions work on floats and on fractions (arrays of dtype object).

**Errors.** Nothing is subtracted. A computed row is, up to one common factor, the exact one times 1 + d(x), and its
*spread* is a bound on log max(1 + d) - log min(1 + d). Restricting, multiplying by exact weights and summing with
exact non-negative coefficients never enlarge a spread (a sum of terms in [a, b] times exact ones lies in [a, b]
times the exact sum), and common factors leave it as it is. So only the roundings of entries count, and they add up.

**Merging.** Contexts whose rows are as good as equal are kept once. Let context b be given the row of a. Both allow the
same requests, and *Hilbert's distance* of their rows, log max_x (h_a(x) / h_b(x)) - log min_x (h_a(x) / h_b(x)), is d.
Then the row of a is that of b times factors whose logarithms lie within d of each other: it is a computed row of b
whose spread is larger by d. From there on it counts as any other error of a row. So what is stated holds after every
past, however rare, and not on average only.

**Sharing a flow.** Let m_k(x) be the smallest r_c(x) over the contexts c of a group k, and let e be **one public number
for the step** with sum_x m_k(x) >= 1 - e for every group. With r_k = m_k / sum m_k, every context of the group has
r_c >= (1 - e) r_k, so

    r_c = (1 - e) r_k + e v_c,

and the client may use (1 - e) times the flow of r_k and send e v_c to the full set N. The law of the query is then
(1 - e) mu + e [N] in every context, of every group: with an e of each context's own it would not be the same. After
any query but N all contexts of a group have the same row. The price is at most e |N| messages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onoff.model.powers import UNIT, counts, gamma, times
from onoff.types import Floats, Mask

FLOOR = 2.0**-900  # possible entries below are raised to it, so that none underflows
ALIKE = 2.0**-42  # rows within this distance are merged whenever they are met
SPARE = 512  # contexts beyond the number of sources; above, the nearest rows are merged however far they are


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

    From 1 on it only says that nothing is known. The last term covers that the floats of a row do not quite sum to 1.
    """
    return math.expm1(min(spread, 1.0)) * (1 + 2.0**-40) + gamma(n + 2)


def raised(rows: Floats, possible: Mask) -> Floats:
    """The rows without underflow: what is possible has at least the probability FLOOR.

    That changes the joint law of all that is hidden and all queries by 2 n FLOOR at most, far less than rounding up a
    stated rounding adds to it (`onoff.model.bounds.sum_up`).
    """
    result: Floats = np.where(possible, np.maximum(rows, FLOOR), 0.0)
    return result


@dataclass(frozen=True, eq=False)
class Contexts:
    """Rows with their supports and spreads; `place[c]` is the index, after the merge, of the context that was c."""

    rows: Floats
    possible: Mask
    spreads: Floats
    place: NDArray[np.intp]


def merged(rows: Floats, possible: Mask, spreads: Floats) -> Contexts:
    """Merge rows that are as good as equal, and the nearest ones while there are more than can be kept.

    Only rows of one support are merged: the distance of others is infinite.
    """
    home, spread = np.arange(len(rows)), spreads.copy()  # home[c]: whose row the context c takes

    def merge(a: int, b: int, distance: float) -> None:
        home[home == b] = a
        spread[a] = max(spread[a], spread[b] + distance)

    for c in range(1, len(rows)):
        others = np.flatnonzero((home[:c] == np.arange(c)) & (possible[:c] == possible[c]).all(axis=1))
        apart = distances(rows[others], rows[c])
        if apart.min(initial=np.inf) <= ALIKE:
            merge(int(others[apart.argmin()]), c, float(apart.min()))
    while len(kept := np.unique(home)) > rows.shape[1] + SPARE and (pair := _nearest(rows, possible, kept)):
        merge(*pair)
    return Contexts(rows[kept], possible[kept], spread[kept], np.searchsorted(kept, home))


def distances(rows: Floats, row: Floats) -> Floats:
    """Hilbert's distance of a row from others that allow the same, rounded up; 0 if they are equal to the bit."""
    ratios = rows[:, row > 0] / row[row > 0]
    low, high = ratios.min(axis=1), ratios.max(axis=1)
    with np.errstate(over="ignore"):  # very far apart
        apart = np.log1p((high - low) / low) * (1 + 2.0**-40) + 4 * UNIT
    found: Floats = np.where((low == 1) & (high == 1), 0.0, apart)
    return found


def _nearest(rows: Floats, possible: Mask, kept: NDArray[np.intp]) -> tuple[int, int, float] | None:
    """The two kept contexts that are nearest to each other, and their distance; None if all supports differ."""
    best: tuple[int, int, float] | None = None
    for place, a in enumerate(kept.tolist()):
        others = kept[place + 1 :][(possible[kept[place + 1 :]] == possible[a]).all(axis=1)]
        apart = distances(rows[others], rows[a])
        if len(others) and (best is None or apart.min() < best[2]):
            best = a, int(others[apart.argmin()]), float(apart.min())
    return best


@dataclass(frozen=True, eq=False)
class Sharing:
    """`rows[k]` is r_k, and `group[c]` the group of context c. `e` is rounded up."""

    rows: Floats
    group: NDArray[np.intp]
    e: float


def shared(rows: Floats, allowed: float) -> Sharing:
    """Groups of contexts, each joining the group it fits best if e stays at most `allowed`; in the order they come."""
    least = np.empty_like(rows)
    group = np.empty(len(rows), dtype=np.intp)
    count = 0
    for c, row in enumerate(rows):
        common = np.minimum(least[:count], row).sum(axis=1)
        best = int(common.argmax()) if count else 0
        if count and common[best] >= 1 - allowed:
            least[best] = np.minimum(least[best], row)
        else:
            best, count = count, count + 1
            least[best] = row
        group[c] = best
    least = least[:count]
    totals = least.sum(axis=1)
    if count == len(rows):
        return Sharing(rows, group, 0.0)
    e = max(0.0, 1 - float(totals.min())) + 2.0**-50 * rows.shape[1]
    return Sharing(least / totals[:, None], group, e)
