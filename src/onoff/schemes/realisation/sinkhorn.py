"""A quick certificate, without flows, that a law is realisable in a context with a little more mass on the full set.

Sinkhorn scaling: f[x, q] = a_x b_q on the memberships x in q, with b_q = mass(q) / sum_{x in q} a_x. Its columns are
the masses. Its rows are a_x T_x with T_x = sum_{q : x in q} b_q, and a is wanted for which they are p(x | u).

**Certificate.** Let a_x T_x (1 - s) <= p(x | u) for every x. Then ship (1 - s) f. Every set q has got (1 - s) mass(q),
no source has sent more than it had, and what is left of p, s in all, goes to the full set. So the law
(1 - s) law + s {full set} realises p.

**Iteration.** With u = log(a / p), the plain step is u <- -log T. Its errors shrink by factors between 0 and some
theta < 1, those of a Markov kernel that goes from sources to sets and back. Chebyshev's semi-iteration needs half as
many steps. It begins in single precision, where rows are still far off. Certificates are in double precision, and the
bounds on the errors of all sums in them are subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onoff.schemes.law import Law
from onoff.schemes.realisation.sums import Sums
from onoff.types import Floats, Mask

COLUMNS = 128  # contexts scaled together: their numbers stay in the processor's cache
FAST, SLOW = 0.7, 0.95  # theta of the first steps, which most contexts need, and of those after them
ROUNDS = 32  # steps after which a context is left to a flow
FIRST = 18  # steps in the first stage; it ends when few contexts are left, which then go on together
FEW = 0.1
ROUGH = 6e-5  # errors below which single precision does not help


class Screen:
    """Certifies rows for one law. `slack` is s above; a tenth of it is kept for roundings of single operations."""

    def __init__(self, law: Law, slack: float) -> None:
        self.slack = slack
        self._log_slack = -float(np.log1p(-0.9 * slack))
        self._double = Sums(law.member, np.float64)
        self._single = Sums(law.member, np.float32)
        self._sets = len(law.mass)
        self._mass = np.zeros((self._double.rows, 1))
        self._mass[: self._sets, 0] = law.mass / law.total
        hit = self._double.of_sets(self._mass.copy())
        with np.errstate(divide="ignore"):
            self._start = np.where(hit > 0, -np.log(hit), 0.0)

    def start(self, row: Floats) -> Floats | None:
        """The u of a row, for rows near it to begin with; None if it is not certified."""
        passed, found = self._scaled(row[None], None, ROUNDS)
        return found[0] if passed[0] else None

    def passes(self, rows: Floats, start: Floats | None = None, rounds: int = ROUNDS) -> Mask:
        """Which rows are certified."""
        return self._scaled(rows, start, rounds)[0]

    def _scaled(self, rows: Floats, start: Floats | None, rounds: int) -> tuple[Mask, Floats]:
        """Which rows are certified, and their u."""
        begin = self._start if start is None else start[:, None]
        passed = np.zeros(len(rows), dtype=bool)
        found = np.zeros(rows.shape)
        late: list[int] = []
        states: list[_State] = []
        with np.errstate(all="ignore"):  # a failed scaling (nan, inf) certifies nothing
            for first in range(0, len(rows), COLUMNS):
                some = np.arange(first, min(first + COLUMNS, len(rows)))
                state = _State.of(rows[some], begin)
                chebyshev = self._approach(state, min(rounds, FIRST))
                sure = self._scale(state, chebyshev, min(rounds, FIRST) - chebyshev.count, FEW)
                passed[some[sure]] = True
                found[some] = state.u.T
                late += some[~sure].tolist()
                states.append(state.only(~sure))
            if late and rounds > FIRST:
                state = _State.joined(states)
                sure = self._scale(state, _Chebyshev(SLOW, state.u), rounds - FIRST, 0.0)
                passed[np.array(late)[sure]] = True
                found[late] = state.u.T
        return passed, found

    def _approach(self, state: _State, steps: int) -> _Chebyshev:
        """Steps in single precision, until most columns are as near as that can bring them."""
        p, mass = state.p.astype(np.float32), self._mass.astype(np.float32)
        chebyshev = _Chebyshev(FAST, state.u.astype(np.float32))
        for _ in range(steps):
            u = chebyshev.u
            reach = self._single.of_members(p * np.exp(u))
            np.maximum(reach, np.float32(1e-7), out=reach)  # differences of sums may fall below 0
            plain = -np.log(self._single.of_sets(np.divide(mass, reach, out=reach)))
            chebyshev.go(plain)
            if np.median(state.most(u - plain)) <= ROUGH:
                break
        state.u = chebyshev.in_double(self._start)
        return chebyshev

    def _scale(self, state: _State, chebyshev: _Chebyshev, steps: int, few: float) -> Mask:
        """Steps in double precision, until at most a share `few` of the columns is not certified. Returns which are."""
        sure = np.zeros(state.p.shape[1], dtype=bool)
        for _ in range(steps):
            plain, good = self._certified(state)
            sure |= good
            if np.count_nonzero(~sure) <= few * len(sure):
                break
            state.u = chebyshev.go(plain)
        return sure

    def _certified(self, state: _State) -> tuple[Floats, Mask]:
        """The u of a plain step, and for which columns the certificate holds as things are."""
        sums = self._double
        a = state.p * np.exp(state.u)
        b = sums.of_members(a)
        b[self._sets :] = 1.0
        np.divide(self._mass, b, out=b)
        T = sums.of_sets(b)
        plain = -np.log(T)
        good: Mask = state.most(state.u - plain) <= self._log_slack
        if good.any():  # the same with all errors: sets may get less, sources may send more
            p, a, T = state.p[:, good], a[:, good], T[:, good]
            reach = sums.of_members(a)[: self._sets]
            total = (self._mass[: self._sets] / reach).sum(axis=0)
            less = 1 - sums.error_of_members(a) / reach.min(axis=0)
            sent = a * (T + sums.error_of_sets(total))
            most = (sent / np.where(p > 0, p, np.inf)).max(axis=0)
            good[good] = less >= (1 - 0.95 * self.slack) * most
        return plain, good


class _Chebyshev:
    """Chebyshev's semi-iteration for a step whose errors shrink by factors in [0, theta]."""

    def __init__(self, theta: float, u: NDArray[Any]) -> None:
        self._sigma, self._omega = theta / (2 - theta), 2 / (2 - theta)
        self._rho, self.count = 1.0, 0
        self.u = self._before = u

    def go(self, plain: NDArray[Any]) -> NDArray[Any]:
        """The next u, if a plain step from the last one led to `plain`."""
        shrink = self._sigma**2 / (2 if self.count == 1 else 4)
        self._rho = 1.0 if self.count == 0 else 1 / (1 - shrink * self._rho)
        self.count += 1
        following = (self._rho * self._omega) * plain
        following += (self._rho * (1 - self._omega)) * self.u
        following += (1 - self._rho) * self._before
        self._before, self.u = self.u, following
        return following

    def in_double(self, otherwise: Floats) -> Floats:
        """Go on in double precision; what is no number becomes `otherwise`."""
        self.u, self._before = (
            np.where(np.isfinite(u), u, otherwise).astype(np.float64) for u in (self.u, self._before)
        )
        return self.u


@dataclass
class _State:
    """Rows as columns, the entries that are positive (None if all are), and u."""

    p: Floats
    used: Mask | None
    u: Floats

    @classmethod
    def of(cls, rows: Floats, u: Floats) -> _State:
        p = np.ascontiguousarray(rows.T)
        used = p > 0
        return cls(p, None if used.all() else used, np.broadcast_to(u, p.shape).copy())

    @classmethod
    def joined(cls, states: list[_State]) -> _State:
        p, u = (np.concatenate(parts, axis=1) for parts in zip(*((s.p, s.u) for s in states), strict=True))
        return cls(p, None if all(s.used is None for s in states) else p > 0, u)

    def only(self, columns: Mask) -> _State:
        used = None if self.used is None else self.used[:, columns]
        return _State(self.p[:, columns], used, self.u[:, columns])

    def most(self, values: NDArray[Any]) -> NDArray[Any]:
        """The largest value of each column, where rows are positive."""
        result: NDArray[Any] = (values if self.used is None else np.where(self.used, values, -np.inf)).max(axis=0)
        return result
