"""Contexts whose rows are nearly alike share one flow.

Let m_k(x) be the smallest r_c(x) over the contexts c of a group k, and let e be **one public number for the step** with
sum_x m_k(x) >= 1 - e for every group. With r_k = m_k / sum m_k, every context of the group has r_c >= (1 - e) r_k, so

    r_c = (1 - e) r_k + e v_c,

and the client may use (1 - e) times the flow of r_k and send e v_c to the full set N. The law of the query is then
(1 - e) mu + e [N] in every context, of every group: with an e of each context's own it would not be the same. After
any query but N all contexts of a group have the same row. The price is at most e |N| messages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onoff.types import Floats


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
