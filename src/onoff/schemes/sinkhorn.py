"""A quick certificate, without flows, that a law is realisable in a context with a little more mass on the full set.

Sinkhorn scaling: f[x, q] = a_x b_q on the memberships x in q, with b_q = mass(q) / sum_{x in q} a_x. Its columns are
the masses. Its rows are a_x T_x with T_x = sum_{q : x in q} b_q, and a is wanted for which they are p(x | u).

**Certificate.** Let a_x T_x (1 - s) <= p(x | u) for every x. Then ship (1 - s) f. Every set q has got (1 - s) mass(q),
no source has sent more than it had, and what is left of p, s in all, goes to the full set. So the law
(1 - s) law + s {full set} realises p.

**Iteration.** With a = p v, the plain step is v <- 1 / T. Its errors shrink by factors between 0 and some theta < 1,
those of a Markov kernel that goes from sources to sets and back. Chebyshev's semi-iteration needs half as many steps.

**Errors.** All terms are positive, so a sum of k of them is off by gamma(k) of itself at most. NaN and infinities
certify nothing: every test of a certificate is one that they fail.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from onoff.extras import has
from onoff.model.powers import gamma, sparse_times
from onoff.schemes.law import Law
from onoff.types import Floats, Mask

COLUMNS = 128  # contexts scaled together: their numbers stay in the processor's cache
FAST, SLOW = 0.7, 0.95  # theta of the first steps, which most contexts need, and of those after them
FIRST = 18  # steps with the theta FAST
ROUNDS = 32  # steps after which a context is left to a flow
KEPT = 0.1  # the least share of a factor that a step leaves: factors stay positive
COMPILED_FROM = 100  # sources from which compiled code pays for its loading, half a second


class Screen(ABC):
    """Certifies rows for one law, with some slack on the full set. `hit` is the probability of each source."""

    def __init__(self, hit: Floats) -> None:
        self._start: Floats = 1 / np.where(hit > 0, hit, 1.0)

    def start(self, row: Floats) -> Floats | None:
        """Find a row's factors v, from which rows near it begin; None if the row is not certified."""
        passed, factors = self.scale(row[None], self._start, ROUNDS)
        return factors[0] if passed[0] else None

    def passes(self, rows: Floats, start: Floats | None = None, rounds: int = ROUNDS) -> Mask:
        """True for certified rows."""
        return self.scale(rows, self._start if start is None else start, rounds)[0]

    @abstractmethod
    def scale(self, rows: Floats, start: Floats, rounds: int) -> tuple[Mask, Floats]:
        """Iterate from `start`. Return which rows are certified, and their factors."""


def screen_of(law: Law, slack: float) -> Screen:
    """Choose the quickest screen at hand. The choice affects only the time: rows it leaves get a flow."""
    if law.n >= COMPILED_FROM and has("fast"):
        from onoff.schemes.sinkhorn_compiled import CompiledScreen

        return CompiledScreen(law, slack)
    return NumpyScreen(law, slack)


def unsure(screen: Screen, group: Floats) -> NDArray[np.intp]:
    """Find uncertified rows of a group. They are near each other, so all begin at their mean."""
    return np.flatnonzero(~screen.passes(group, screen.start(group.mean(axis=0))))


class NumpyScreen(Screen):
    """Certifies rows for one law; `slack` is s above."""

    def __init__(self, law: Law, slack: float) -> None:
        self._mass: Floats = (law.mass / law.total)[:, None]
        self._to_sets = csr_array(law.member.astype(np.float64))
        self._to_sources = csr_array(self._to_sets.T)
        longest = max(int(law.member.sum(axis=0).max()), int(law.member.sum(axis=1).max()))
        self._most = 1 / ((1 - slack) * (1 + 4 * gamma(longest + 4)))
        super().__init__(sparse_times(self._to_sources, self._mass)[:, 0])

    def scale(self, rows: Floats, start: Floats, rounds: int) -> tuple[Mask, Floats]:
        parts = [self._scale(rows[i : i + COLUMNS], start, rounds) for i in range(0, max(1, len(rows)), COLUMNS)]
        passed, factors = zip(*parts, strict=True)
        return np.concatenate(passed), np.concatenate(factors)

    def _scale(self, rows: Floats, start: Floats, rounds: int) -> tuple[Mask, Floats]:
        """Scale a few rows side by side. A certified row leaves the others at once."""
        passed, factors = np.zeros(len(rows), dtype=bool), np.zeros(rows.shape)
        left, p = np.arange(len(rows)), np.ascontiguousarray(rows.T)
        v = before = np.repeat(start[:, None], len(rows), axis=1)
        rho = 1.0
        with np.errstate(all="ignore"):
            for step in range(rounds + 1):
                reach = sparse_times(self._to_sets, p * v)
                T = sparse_times(self._to_sources, self._mass / reach)
                good = np.where(p == 0, 0.0, v * T).max(axis=0) <= self._most
                good &= ((reach > 0) & (reach < np.inf)).all(axis=0)  # else some set gets nothing
                passed[left[good]] = True
                factors[left[good]] = v[:, good].T
                if good.all():
                    break
                if good.any():
                    left, p, v, before, T = left[~good], *(each[:, ~good] for each in (p, v, before, T))
                rho, plain, now, then = chebyshev(step, rho)
                v, before = np.maximum(plain / T + now * v + then * before, KEPT * v), v
        return passed, factors


def chebyshev(step: int, rho: float) -> tuple[float, float, float, float]:
    """Compute the next rho, and the weights of plain step, factors and previous ones in Chebyshev's step."""
    theta, steps = (FAST, step) if step < FIRST else (SLOW, step - FIRST)
    shrink = (theta / (2 - theta)) ** 2 / (2 if steps == 1 else 4)
    rho = 1.0 if steps == 0 else 1 / (1 - shrink * rho)
    return rho, rho * 2 / (2 - theta), -rho * theta / (2 - theta), 1 - rho
