"""Contexts: the beliefs in them, how a query changes these, and which contexts are merged or share a flow.

The belief of a context c is b_c(z), the probability of the reader's state z after the last request, given c and all
queries so far. Her next request follows the row h_c(x) = sum_z b_c(z) P[z, x], and leads to the state step[z, x]. At an
OFF step with the query S + R the belief changes:

    r_c = h_c restricted to the sources that are not sensitive, normalised,
    b_c(y) <- sum of b_c(z) P[z, x] w_c(R | x) over the z and x with step[z, x] = y, normalised,

where w_c(R | x) is the probability with which the client really draws R: units of the integer encoder over their sum.
These functions work on floats and on fractions (arrays of dtype object).

**Errors.** Nothing is subtracted. A computed belief is, up to one common factor, the exact one times 1 + d(z), and its
*spread* is a bound on log max(1 + d) - log min(1 + d). Multiplying by exact weights and summing with exact non-negative
coefficients never enlarge a spread (a sum of terms in [a, b] times exact ones lies in [a, b] times the exact sum), and
common factors leave it as it is. So only the roundings of entries count, and they add up.

**Merging.** Contexts with nearly equal beliefs are merged. Let context c take the belief of context a. Both beliefs
allow the same states, and their *Hilbert distance*, log max_z (b_a(z) / b_c(z)) minus log min_z (b_a(z) / b_c(z)), is
d. Then the belief of a is that of c times factors whose logarithms lie within d of each other: a computed belief of c
with a spread larger by d. Later steps treat this error like any other. So the stated rounding holds after every past,
however rare, and not only on average.

**Sharing a flow.** Let m_k(x) be the smallest r_c(x) over the contexts c of a group k, and let e be **one public number
for the step** with sum_x m_k(x) >= 1 - e for every group. With r_k = m_k / sum m_k, every context of the group has
r_c >= (1 - e) r_k, so

    r_c = (1 - e) r_k + e v_c,

and the client may use (1 - e) times the flow of r_k and send e v_c to the full set N. The law of the query is then
(1 - e) mu + e [N] in every context, of every group: with an e of each context's own it would not be the same. The price
is at most e |N| messages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onoff.model.powers import UNIT, gamma, times
from onoff.types import Floats, Mask

FLOOR = 2.0**-900  # possible entries below are raised to it, so that none underflows
ALIKE = 2.0**-42  # rows within this distance are merged whenever they are met
SPARE = 512  # contexts beyond the number of states; above, the nearest beliefs are merged however far apart


def restricted(rows: NDArray[Any], open_sources: Mask) -> NDArray[Any]:
    """r_c: the rows given that the request is not sensitive, over the open sources only."""
    kept = rows[:, open_sources]
    result: NDArray[Any] = kept / kept.sum(axis=1, keepdims=True)
    return result


def conditioned(beliefs: NDArray[Any], units: NDArray[Any], totals: NDArray[Any]) -> NDArray[Any]:
    """The beliefs given the query too, with w_c(R | x) = units / totals for the request x that led to each state."""
    weights = beliefs * (units / totals)
    result: NDArray[Any] = weights / weights.sum(axis=1, keepdims=True)
    return result


def spread_of_a_move(terms: int) -> float:
    """Bound what a step adds to the spread of a belief if at most `terms` pairs (z, x) lead into one state.

    An entry meets as many roundings in a sum of products, and three in `conditioned`: terms + 3 factors of at least
    1 - u and at most 1 + u.
    """
    return 2 * (terms + 4) * UNIT


def spread_of_a_row(terms: int) -> float:
    """Bound the spread of a restricted row minus the spread of its belief, which has at most `terms` states."""
    return 2 * (terms + 2) * UNIT


def error_of(spread: float, n: int) -> float:
    """Bound |computed - exact| / exact of a normalised row, and so the total variation: e^spread - 1.

    A bound of 1 or more says nothing. The last term is there because the floats of a row do not quite sum to 1.
    """
    return math.expm1(min(spread, 1.0)) * (1 + 2.0**-40) + gamma(n + 2)


def raised(laws: Floats, possible: Mask) -> Floats:
    """Undo underflow in laws: what is possible has at least the probability FLOOR.

    That changes the joint law of all that is hidden and all queries by FLOOR at most for each state and source, far
    less than rounding up a stated rounding adds to it (`onoff.model.bounds.sum_up`).
    """
    result: Floats = np.where(possible, np.maximum(laws, FLOOR), 0.0)
    return result


@dataclass(frozen=True, eq=False)
class Contexts:
    """Beliefs with their supports and spreads; `place[c]` is the index, after the merge, of the context that was c."""

    beliefs: Floats
    possible: Mask
    spreads: Floats
    place: NDArray[np.intp]


def merged(beliefs: Floats, possible: Mask, spreads: Floats) -> Contexts:
    """Merge nearly equal beliefs, and the nearest ones while there are too many.

    Only beliefs of one support are merged: the distance of others is infinite.
    """
    home, spread = np.arange(len(beliefs)), spreads.copy()  # home[c]: whose belief the context c takes

    def merge(a: int, b: int, distance: float) -> None:
        home[home == b] = a
        spread[a] = max(spread[a], spread[b] + distance)

    for cluster in _clusters(beliefs, possible):
        for number, c in enumerate(cluster):
            others = cluster[:number][home[cluster[:number]] == cluster[:number]]
            apart = distances(beliefs[others], beliefs[c])
            if apart.min(initial=np.inf) <= ALIKE:
                merge(int(others[apart.argmin()]), int(c), float(apart.min()))
    most = beliefs.shape[1] + SPARE
    while len(kept := np.unique(home)) > most and (pair := _nearest(beliefs, possible, kept)):
        merge(*pair)
    return Contexts(beliefs[kept], possible[kept], spread[kept], np.searchsorted(kept, home))


def _clusters(beliefs: Floats, possible: Mask) -> list[NDArray[np.intp]]:
    """Divide contexts of one support into clusters, so that nearly equal contexts are in one cluster.

    Two laws within d of each other differ in every entry by a factor from e^-d to e^d, since both sum to 1. So do
    their weighted sums of entries: sorted by such a sum, nearly equal laws are neighbours.
    """
    _, support = np.unique(np.packbits(possible, axis=1), axis=0, return_inverse=True)
    mark = times(beliefs, 1.5 + np.sin(np.arange(beliefs.shape[1])))
    order = np.lexsort((mark, support.ravel()))
    apart = np.diff(mark[order]) > 2 * math.expm1(ALIKE) * mark[order][:-1]
    ends = np.flatnonzero(apart | (np.diff(support.ravel()[order]) > 0)) + 1
    return [np.sort(cluster) for cluster in np.split(order, ends) if len(cluster) > 1]


def distances(rows: Floats, row: Floats) -> Floats:
    """Hilbert's distance of a row from rows of the same support, rounded up; 0 if they are equal to the bit."""
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
    """Group contexts one after the other: each joins the group that it fits best, if e stays at most `allowed`."""
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
