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

**Merging.** Rows that are equal, or as good as equal, are kept once. Let contexts a and b be given the row of a. Redraw
the request of b's readers so that its law is a's row: it stays as it was except with probability TV(row of a, row of
b), and from then on everything is as before. So the joint law of what is hidden and all queries stays within P(b) TV of
a process for which the common row is right. Contexts exclude each other: the largest TV of a step, its *charge*, bounds
what all its merges cost together. It is an average over pasts, not a bound given each of them, and it is part of the
rounding of the next step.

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

FLOOR = 2.0**-900  # possible entries below are raised to it, so that none underflows: part of the rounding
ALIKE = 2.0**-42  # rows this near are merged whenever they are met
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

    The last term covers that the floats of a row do not quite sum to 1.
    """
    return math.expm1(spread) * (1 + 2.0**-40) + gamma(n + 2)


def raised(rows: Floats, possible: Mask) -> tuple[Floats, float]:
    """The rows without underflow, and a bound on the total variation that this costs each of them."""
    low = possible & (rows < FLOOR)
    result: Floats = np.where(low, FLOOR, np.where(possible, rows, 0.0))
    return result, 2 * rows.shape[1] * FLOOR if low.any() else 0.0


@dataclass(frozen=True, eq=False)
class Contexts:
    """Rows with their supports and spreads; `place[c]` is the index, after the merge, of the context that was c."""

    rows: Floats
    possible: Mask
    spreads: Floats
    place: NDArray[np.intp]
    charge: float


def merged(rows: Floats, possible: Mask, spreads: Floats) -> Contexts:
    """Merge rows that are as good as equal, and the nearest ones while there are more than can be kept."""
    alike = _alike(rows, possible, spreads)
    return _fewer(alike, rows.shape[1] + SPARE)


def _alike(rows: Floats, possible: Mask, spreads: Floats) -> Contexts:
    """Merge rows that are equal, or within ALIKE of each other.

    The common row must allow what each of them allows. So rows with larger supports are looked at first, and a later
    one joins them only if its support is within theirs.
    """
    n = rows.shape[1]
    place = np.empty(len(rows), dtype=np.intp)
    kept: list[int] = []
    charge = 0.0
    seen: dict[bytes, int] = {}
    for c in np.argsort(-possible.sum(axis=1), kind="stable"):
        key = rows[c].tobytes() + possible[c].tobytes()
        if key in seen:  # to the bit: nothing is lost but what separates their exact rows
            home = seen[key]
            charge = max(charge, _charge(0.0, spreads[[kept[home], c]], n))
        else:
            distances = np.abs(rows[kept] - rows[c]).sum(axis=1) / 2
            fits = (distances <= ALIKE) & (possible[kept] | ~possible[c]).all(axis=1)
            if fits.any():
                home = int(np.where(fits, distances, 2).argmin())
                charge = max(charge, _charge(float(distances[home]), spreads[[kept[home], c]], n))
            else:
                home = len(kept)
                kept.append(int(c))
            seen[key] = home
        place[c] = home
    order = np.argsort(kept)  # contexts stay in the order they came
    first = np.array(kept, dtype=np.intp)[order]
    return Contexts(rows[first], possible[first], spreads[first], np.argsort(order)[place], charge)


def _charge(distance: float, spreads: Floats, n: int) -> float:
    """A bound on the total variation of the exact rows behind two computed ones."""
    return distance + sum(error_of(float(spread), n) for spread in spreads if spread) + (2.0**-50 * n) * (distance > 0)


def _fewer(found: Contexts, most: int) -> Contexts:
    """Merge the nearest pair until at most `most` are left. The common row allows what either allows."""
    rows, possible, spreads, place, charge = found.rows, found.possible, found.spreads, found.place, found.charge
    moved = np.zeros(len(rows))  # how far a kept row may be from those that it already stands for
    n = rows.shape[1]
    while len(rows) > most:
        a, b, distance = _nearest(rows)
        rows, possible, spreads = rows.copy(), possible.copy(), spreads.copy()
        cost = _charge(distance, spreads[[a, b]], n) + 2 * n * FLOOR + max(moved[a], moved[b])
        possible[a] |= possible[b]
        rows[a] = np.where(possible[a] & (rows[a] < FLOOR), FLOOR, rows[a])
        moved[a] = cost
        charge = max(charge, found.charge + cost)
        keep = np.arange(len(rows)) != b
        place = np.where(place == b, a, place)
        place = place - (place > b)
        rows, possible, spreads, moved = rows[keep], possible[keep], spreads[keep], moved[keep]
    return Contexts(rows, possible, spreads, place, charge)


def _nearest(rows: Floats) -> tuple[int, int, float]:
    """The pair a < b of rows with the least total variation."""
    best = (0, 1, np.inf)
    for a in range(len(rows) - 1):
        distances = np.abs(rows[a + 1 :] - rows[a]).sum(axis=1) / 2
        b = int(distances.argmin())
        if distances[b] < best[2]:
            best = (a, a + 1 + b, float(distances[b]))
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
