"""A quick certificate, without flows, that a law is realisable in a context with a little more mass on the full set."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from onoff.model.powers import sparse_times
from onoff.schemes.law import Law
from onoff.types import Floats, Mask

EVERY = 4  # rounds of scaling between two looks at the certificate


class Screen:
    """Sinkhorn scaling f[x, q] = a_x b_q on the memberships x in q, over-relaxed, for many rows p at once.

    Certificate: the row sums of f are p, and every column sum is at least 1 - `slack` of the mass of its set. Then
    ship (1 - slack) mass(q) to each set out of f, and what is left of p, of total `slack`, to the full set: the law
    (1 - slack) law + slack {full set} realises p. The iteration is in single precision; the certificate is computed
    in double, with a tenth of the slack to spare, which is far above the error of any sum in it.
    """

    def __init__(self, law: Law, slack: float) -> None:
        self.slack = slack
        share = (law.mass / law.total)[:, None]
        self._double = csr_array(law.member, dtype=np.float64), csr_array(law.member.T, dtype=np.float64), share
        self._single = tuple(part.astype(np.float32) for part in self._double)
        self._hit = sparse_times(self._single[1], self._single[2])

    def passes(
        self, rows: Floats, start: NDArray[np.float32] | None = None, rounds: int = 32
    ) -> tuple[Mask, NDArray[np.float32]]:
        """Which rows are certified, and the scalings a / p that did it; `start` is a scaling to begin with."""
        exact = np.ascontiguousarray(rows.T)  # contexts are columns: products with sparse matrices from the left
        passed = np.zeros(len(rows), dtype=bool)
        scaling = np.zeros(rows.shape, dtype=np.float32)
        active = np.arange(len(rows))
        p = exact.astype(np.float32)
        with np.errstate(all="ignore"):  # a failed scaling (nan, inf) certifies nothing
            a = p / self._hit if start is None else p * start[:, None]
            for _ in range(0, rounds, EVERY):
                a, fill = self._scale(p, a)
                likely = np.flatnonzero(fill >= 1 - 0.8 * self.slack)
                sure = likely[self._certified(exact[:, active[likely]], a[:, likely])]
                scaling[active[sure]] = (a[:, sure] / p[:, sure]).T
                passed[active[sure]] = True
                left = ~passed[active]
                active, a, p = active[left], a[:, left], p[:, left]
                if not len(active):
                    break
        return passed, scaling

    def _scale(self, p: NDArray[Any], a: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Some rounds from `a`: a scaling with exact rows, and its least column sum in shares of the mass."""
        sets, sources, mass = self._single
        for _ in range(EVERY):
            reach = sparse_times(sets, a)
            new = p / sparse_times(sources, mass / reach)
            a = a * np.where(p > 0, new / a, 0) ** np.float32(1.5)
        return new, (sparse_times(sets, new) / reach).min(axis=0)

    def _certified(self, p: Floats, a: NDArray[Any]) -> Mask:
        sets, sources, mass = self._double
        b = mass / sparse_times(sets, a.astype(np.float64))
        a = p / sparse_times(sources, b)
        result: Mask = (b * sparse_times(sets, a) >= mass * (1 - 0.9 * self.slack)).all(axis=0)
        return result
