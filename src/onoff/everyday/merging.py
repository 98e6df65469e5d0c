"""Few contexts: rows that are equal, or as good as equal, are kept once.

Let contexts a and b be given the row of a. Redraw the request of b's readers so that its law is a's row: it stays as it
was except with probability TV(row of a, row of b), and from then on everything is as before. So the joint law of what
is hidden and all queries stays within P(b) TV of a process for which the common row is right. Contexts exclude each
other: the largest TV of a step, its *charge*, bounds what all its merges cost together. It is an average over pasts,
not a bound given each of them, and it is part of the rounding of the next step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onoff.everyday.filter import FLOOR, error_of
from onoff.types import Floats, Mask

ALIKE = 2.0**-42  # rows this near are merged whenever they are met
SPARE = 512  # contexts beyond the number of sources; above, the nearest rows are merged however far they are


@dataclass(frozen=True, eq=False)
class Contexts:
    """Rows with their supports and spreads; `place[c]` is where the context that was c before the merge is now."""

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
