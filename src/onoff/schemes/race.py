"""The race: which sources win in some context, as one fixed function of n exponential clocks.

With clocks E_y ~ Exp(1), sigma(u) = argmin_y E_y / p(y | u) couples the posterior rows of all contexts, and the image
of sigma is a query that holds the request. Since p(y | i, k) is proportional to P^lag[i, y] P[y, k], the winner of the
context (i, k) is the y with the largest score left[i, y] right[y, k] / E_y.

Privacy needs no exact ties. The clocks, averaged over the request, have the same law in every context. The winners are
computed from the clocks alone, never from the context. So their law is the same in every context, however sloppy the
arithmetic. Only the request must be among them, and a source within SLACK of the lead counts as a winner too, far
more than any rounding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onoff.model import powers as products
from onoff.schemes import Proposal, Task

SLACK = 2.0**-18  # relative; the error of a score in single precision is below 11 * 2^-24
FAINT = 2.0**-900  # contexts of less (scaled) weight are left out; their probability is part of the rounding
SEEDS = 24  # sources that are compared in all contexts first
BUDGET = 100  # scores looked at, in units of n^2, before the undecided sources are simply included
BLOCK = 64  # rows compared at a time: they fit into the cache

Floats = NDArray[np.floating]
Indices = NDArray[np.intp]


def propose(task: Task) -> Proposal:
    """Propose no table: only the bound is proved."""
    from onoff.schemes.certificate import outer_certificate

    return Proposal("race", None, outer_certificate(task.posterior))


class Race:
    """The winners for one chain and lag. Rows and columns are scaled so that single precision is enough."""

    def __init__(self, P: NDArray[np.float64], walk: NDArray[np.float64]) -> None:
        self.n = len(P)
        # Rows and columns are balanced, but no factor is let go below 2^-40 of the largest entry of its line: else one
        # source that is hardly ever reached would push all others down to nothing.
        joint = products.product(walk, P)
        by_column = np.maximum(joint.mean(axis=0), 2.0**-40 * P.max(axis=0))
        by_column[by_column == 0] = 1.0
        by_row = np.maximum((joint / by_column).mean(axis=1), 2.0**-40 * walk.max(axis=1))
        right, left = P / by_column, walk / by_row[:, None]
        right /= right.max()
        left /= left.max()
        weight = products.product(left, right)
        live = weight >= FAINT
        small = bool(live.any()) and float(weight[live].min()) >= self.n * 2.0**-33
        kind = np.float32 if small else np.float64
        # The probability of all faint contexts of one `last`: each is below FAINT times the factors undone, n 2^80.
        self.faint = 0.0 if live.all() else 2.0**-780
        self._left: Floats = np.ascontiguousarray(left.T.astype(kind))  # [y, i]
        self._right: Floats = right.astype(kind)  # [y, k]
        self._start: Floats = np.where(live, 2 * np.finfo(kind).tiny, np.inf).astype(kind)
        self._typical = left.mean(axis=0) * right.mean(axis=1)
        self._left_max, self._right_max = self._left.max(axis=1), self._right.max(axis=1)

    def winners(self, clocks: NDArray[np.float64]) -> list[int]:
        """Sources within SLACK of the lead in some context that is not faint; sorted.

        Float multiplication is monotone, so comparing a source only where the largest score of its row or column
        reaches the smallest lead gives bit for bit what comparing it everywhere would. When the budget is spent, the
        undecided sources are included: still a function of the clocks alone, still a superset.
        """
        keep = self._start.dtype.type(1 - SLACK)
        speed = (clocks.min() / clocks).astype(self._start.dtype)
        order = np.argsort(-self._typical * speed, kind="stable")
        best = self._leads(order[:SEEDS], speed)
        potential = self._left_max * speed * self._right_max
        cuts = best.min(axis=1) * keep, best.min(axis=0) * keep
        found, undecided = list(order[:SEEDS]), []
        work = due = 0
        for y in sorted(order[SEEDS:], key=lambda y: -potential[y]):
            if work >= due:
                cuts, due = (best.min(axis=1) * keep, best.min(axis=0) * keep), work + 3 * best.size
            if potential[y] < cuts[0].min():
                break
            if work > BUDGET * best.size:
                undecided.append(int(y))
                continue
            scores, where = self._challenge(y, speed[y], *cuts)
            current = best[where]
            work += scores.size
            if (scores >= current * keep).any():
                found.append(y)
                best[where] = np.maximum(current, scores)
        cuts = best.min(axis=1) * keep, best.min(axis=0) * keep
        return sorted(undecided + [int(y) for y in found if self._wins(y, speed[y], best, cuts, keep)])

    def _leads(self, sources: Indices, speed: Floats) -> Floats:
        """Find the largest score of these sources by context."""
        best = self._start.copy()
        columns = self._left[sources] * speed[sources, None]
        buffer = np.empty((BLOCK, self.n), dtype=best.dtype)
        for start in range(0, self.n, BLOCK):
            part = best[start : start + BLOCK]
            for y, column in zip(sources, columns[:, start : start + BLOCK], strict=True):
                scores = np.multiply(column[:, None], self._right[y], out=buffer[: len(part)])
                np.maximum(part, scores, out=part)
        return best

    def _wins(
        self, y: np.intp, speed: np.floating, best: Floats, cuts: tuple[Floats, Floats], keep: np.floating
    ) -> bool:
        """True if y comes near the final lead; its most promising rows first."""
        for most in (16, self.n):
            scores, where = self._challenge(y, speed, *cuts, most)
            if (scores >= best[where] * keep).any():
                return True
        return False

    def _challenge(
        self, y: np.intp, speed: np.floating, row_cut: Floats, column_cut: Floats, most: int | None = None
    ) -> tuple[Floats, Indices | tuple[Indices, ...]]:
        """Score y in the contexts where it can come near the lead (or in `most` rows of them); say which."""
        column, line = self._left[y] * speed, self._right[y]
        rows = np.flatnonzero(column * self._right_max[y] >= row_cut)
        if most and most < len(rows):
            rows = rows[np.argpartition(row_cut[rows] / column[rows], most)[:most]]
        lines = np.flatnonzero(column[rows].max(initial=0) * line >= column_cut)
        if 3 * len(lines) > self.n:  # whole rows are faster to gather than most of their entries
            return np.multiply.outer(column[rows], line), rows
        return np.multiply.outer(column[rows], line[lines]), np.ix_(rows, lines)
