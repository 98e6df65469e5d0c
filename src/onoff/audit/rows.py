"""Probabilities of the request in every context, in integers: rows to compare encoders with.

Floats are whole multiples of powers of two, so a chain P is A / 2^s with integers A.

Promise `both`: p(x | last, next) is proportional to A^lag[last, x] A[x, next] (`Walk`).

Promise `past`: the public state are the last sets, as many as the chain remembers requests. The *candidates* are the
states that requests of theirs may have led to. The row of the candidate z is A[z, x] for the sources x that are not
sensitive, exactly (`Candidates`).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from operator import mul
from typing import TYPE_CHECKING

import numpy as np

from onoff.types import Floats, Mask, Query, Units

if TYPE_CHECKING:
    from onoff.audit.habits import Recorded

DIGITS = 256  # leading binary digits of the smallest entry of a walk
# Beyond so many sources, with more than so many rows or numbers in more than two rows, a race is run.
MANY, SEVERAL, NUMBERS = 100, 40, 20_000


def integers(P: Floats) -> list[list[int]]:
    """P times a power of two."""
    ratios = [[p.as_integer_ratio() for p in row] for row in P.tolist()]
    unit = max((below for row in ratios for _, below in row), default=1)
    return [[above * (unit // below) for above, below in row] for row in ratios]


class Walk:
    """Posterior weights at lags that grow from step to step, in integers of bounded length.

    Every entry of a walk keeps DIGITS leading digits or more. Nothing is subtracted, so after `lag` steps a computed
    weight w' has (1 - e) w <= w' <= w with e = lag 2^(1-DIGITS), and normalised rows are off by e / (1 - e) at most.
    """

    def __init__(self, P: Floats) -> None:
        self.rows = integers(P)  # A
        self._columns = list(zip(*self.rows, strict=True))
        self._last, self._lag, self._vector = -1, 0, [0]

    def vector(self, last: int, lag: int) -> list[int]:
        """The row of A^lag, up to a common factor."""
        if last != self._last or lag < self._lag:
            self._last, self._lag, self._vector = last, 0, [int(x == last) for x in range(len(self._columns))]
        while self._lag < lag:
            vector = [sum(map(mul, self._vector, column)) for column in self._columns]
            spare = max(0, min(entry.bit_length() for entry in vector if entry) - DIGITS)
            self._vector, self._lag = [entry >> spare for entry in vector], self._lag + 1
        return self._vector

    def weights(self, last: int, next: int, lag: int) -> list[int]:
        """w'_0..w'_{n-1}; 0 exactly where the request is impossible."""
        return list(map(mul, self.vector(last, lag), self._columns[next]))

    @staticmethod
    def error(lag: int) -> Fraction:
        """A bound on the total variation between the exact row and the one of `weights`."""
        return Fraction(2 * lag, 2 ** (DIGITS - 1))


class Candidates:
    """The states that may be the reader's after these sets, and their rows: all that decides a law."""

    def __init__(self, chain: Recorded, sensitive: Sequence[int], sets: Sequence[Query]) -> None:
        states = chain.states_after(sets)
        self.chain, self.states = chain, tuple(states.tolist())
        self.is_open: Mask = np.array([source not in sensitive for source in range(chain.P.shape[1])])
        self.live: Units = states[chain.P[states][:, self.is_open].any(axis=1)]  # those with a row

    @property
    def is_race(self) -> bool:
        """True if the set is that of a race, which has no table of sets."""
        n, rows = len(self.is_open), len(self.live)
        return n > MANY and rows > 2 and (rows > SEVERAL or rows * n > NUMBERS)

    @cached_property
    def rows(self) -> Floats:
        """The rows of the live states over the sources that are not sensitive."""
        weights = self.chain.P[self.live][:, self.is_open]
        found: Floats = weights / weights.sum(axis=1, keepdims=True)
        return found

    @cached_property
    def weights(self) -> dict[int, list[int]]:
        """The same exactly, by state, over all sources, each up to a factor."""
        weights = integers(np.where(self.is_open, self.chain.P[self.live], 0.0))
        return dict(zip(self.live.tolist(), weights, strict=True))
