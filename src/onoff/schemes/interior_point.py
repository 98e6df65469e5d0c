"""A small interior-point method: central solutions of covering programs, which cut far better than vertices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from onoff.model.powers import times
from onoff.types import Floats

ROUNDS = 60  # at most; a dozen or two suffice


@dataclass(frozen=True)
class Solution:
    """Masses of the columns, multipliers of the rows and of the total mass. Nothing is promised about exactness."""

    masses: Floats
    multipliers: Floats
    total_multiplier: float


def central_point(cost: Floats, hits: Floats, need: Floats, tolerance: float) -> Solution:
    """Minimise cost @ x subject to hits @ x >= need, sum(x) = 1, x >= 0, without crossover.

    Mehrotra's predictor-corrector on dense normal equations: a few hundred rows, a few thousand columns. It ends near
    the analytic centre of the nearly optimal points. Callers repair the masses and prove bounds themselves.
    """
    m, n = hits.shape
    A = np.vstack([hits, np.ones(n)])
    b = np.append(need, 1.0)
    scale = max(1.0, float(np.abs(cost).mean()))
    c = cost / scale
    x = np.full(n, 1.0 / n)
    s = np.maximum(times(hits, x) - need, 1e-2)  # surplus of the rows
    y, y0 = np.full(m, 1.0 / m), 0.0
    z = np.maximum(c - times(hits.T, y), 0.1)
    for _ in range(ROUNDS):
        primal = b - times(A, x)
        primal[:m] += s
        dual = c - (times(hits.T, y) + y0) - z
        complementarity = float(times(x, z) + times(s, y))
        mu = complementarity / (n + m)
        gap = complementarity / max(1e-3, abs(float(times(c, x))))
        if max(gap, np.abs(primal).max(), np.abs(dual).max()) < tolerance:
            break
        try:
            newton = Newton(A, x, z, s, y, primal, dual)
        except np.linalg.LinAlgError:
            break  # numerically at the boundary: what has been reached is as good as it gets
        dx, ds, dy, dz = newton.step(-x * z, -s * y)
        step, dual_step = min(_reach(x, dx), _reach(s, ds)), min(_reach(z, dz), _reach(y, dy[:m]))
        reached = times(x + step * dx, z + dual_step * dz) + times(s + step * ds, y + dual_step * dy[:m])
        aim = float(reached) / (n + m)
        target = max((aim / mu) ** 3, 1e-4) * mu
        dx, ds, dy, dz = newton.step(target - x * z - dx * dz, target - s * y - ds * dy[:m])
        step = 0.99 * min(_reach(x, dx), _reach(s, ds))
        dual_step = 0.99 * min(_reach(z, dz), _reach(y, dy[:m]))
        x, s = x + step * dx, s + step * ds
        y, y0, z = y + dual_step * dy[:m], y0 + dual_step * float(dy[m]), z + dual_step * dz
    return Solution(x, y * scale, y0 * scale)


class Newton:
    """The Newton equations at one point, factored once for both steps of a round."""

    def __init__(self, A: Floats, x: Floats, z: Floats, s: Floats, y: Floats, primal: Floats, dual: Floats) -> None:
        self._A, self._x, self._z, self._s, self._y = A, x, z, s, y
        self._primal, self._dual, self._d = primal, dual, x / z
        scaled = A * np.sqrt(self._d)
        normal = times(scaled, scaled.T)
        normal.flat[:: len(s) + 2] += np.append(s / y, 0.0) + 1e-14 * normal.diagonal()
        self._factor = cho_factor(normal, lower=True, check_finite=False)

    def step(self, rx: Floats, rs: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Find steps of x, s, y and z for complementarity residuals rx (of x z) and rs (of s y)."""
        A, x, z, s, y, m = self._A, self._x, self._z, self._s, self._y, len(self._s)
        rhs = self._primal + times(A, self._d * self._dual - rx / z)
        rhs[:m] += rs / y
        dy = cho_solve(self._factor, rhs, check_finite=False)
        dx = self._d * (times(A.T, dy) - self._dual) + rx / z
        return dx, (rs - s * dy[:m]) / y, dy, (rx - z * dx) / x


def _reach(values: Floats, change: Floats) -> float:
    """Find the largest step <= 1 that keeps the values non-negative."""
    falling = change < 0
    return min(1.0, float((-values[falling] / change[falling]).min())) if falling.any() else 1.0
