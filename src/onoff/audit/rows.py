"""Probabilities of the request in every context: rows to compare encoders with.

Promise `both`: p(x | last, next) is proportional to P^lag[last, x] P[x, next]. Floats are whole multiples of powers of
two, so P = A / 2^s with integers A, and the weights A^lag[last, x] A[x, next] are integers (`Walk`).

Promise `past`: b(z) = p(the reader's state is z | last hidden state, Q_0..Q_{t-1}), plain Bayes in floats (`Pasts`).
The row is sum_z b(z) P[z, x]. Of a Markov chain the state is the last request. Everything is a sum of products of
non-negative numbers. So a computed law is the exact one times factors, of which the largest is at most e^spread times
the smallest, and only the roundings of entries add to the spread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import expm1
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from onoff.audit.law import COARSE, Finding, Law, check_encoder, distance
from onoff.types import Floats, Units

if TYPE_CHECKING:
    from onoff.audit.habits import Recorded

DIGITS = 256  # leading binary digits of the smallest entry of a walk
UNIT = 2.0**-53
TINY = 2.0**-900  # possible entries of rows below it are raised to it, so that none underflows
NOWHERE = -1  # the context of a reader for whom the record has none


class Walk:
    """Posterior weights at lags that grow from step to step, in integers of bounded length.

    Every entry of a walk keeps DIGITS leading digits or more. Nothing is subtracted, so after `lag` steps a computed
    weight w' has (1 - e) w <= w' <= w with e = lag 2^(1-DIGITS), and normalised rows are off by e / (1 - e) at most.
    """

    def __init__(self, P: Floats) -> None:
        ratios = [[p.as_integer_ratio() for p in row] for row in P.tolist()]
        unit = max(below for row in ratios for _, below in row)
        self.rows = [[above * (unit // below) for above, below in row] for row in ratios]  # A
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


class Belief(NamedTuple):
    """The law of the state of some readers of the promise `past`, given all queries so far; of what `spread`.

    An entry is above 0 where the graph of the chain says so.
    """

    chances: Floats
    spread: float = 0.0

    @property
    def error(self) -> Fraction:
        """A bound on the total variation between what `Pasts` compares in integers and the exact law.

        The same holds for the law of the next request, a sum over states.
        """
        size = len(self.chances)
        return Fraction(expm1(self.spread + 8 * (size + 2) * UNIT)) + Fraction(size, 2**60)


def home(origin: int, place: Sequence[int], joined: Sequence[int]) -> int:
    """The context of readers now: place[c] after the context c, joined[z] after a hidden request to z (origin -1-z)."""
    known, at = (place, origin) if origin >= 0 else (joined, -1 - origin)
    return known[at] if at < len(known) else NOWHERE


class Pasts:
    """All readers of the promise `past` who may be there, after an ON step that led to one of these states.

    Beliefs are kept by origin: the client's context at the step before or, if the request there was hidden and led to
    the state z, -1-z. `chain` may become another one of the same states where all beliefs are points.
    """

    def __init__(self, chain: Recorded, sensitive: Sequence[int], states: Units) -> None:
        self.chain = chain
        self._open = np.array([source not in sensitive for source in range(chain.P.shape[1])])
        self._beliefs = self._points(states)

    def _points(self, states: Units) -> dict[int, Belief]:
        return {-1 - z: Belief(np.eye(1, len(self.chain.P), z)[0]) for z in states.tolist()}

    @property
    def states(self) -> Units:
        """The states in which readers may be."""
        return np.flatnonzero(np.any([belief.chances > 0 for belief in self._beliefs.values()], axis=0))

    def _ways(self, belief: Belief) -> tuple[Units, Units, Floats]:
        """The next moves of open readers: from which states, by which requests, with which chances."""
        states, requests = np.nonzero((belief.chances > 0)[:, None] & (self.chain.P > 0) & self._open)
        return states, requests, np.maximum(belief.chances[states] * self.chain.P[states, requests], TINY)

    def check(
        self, law: Law, tables: Mapping[int, Units], place: Sequence[int], joined: Sequence[int]
    ) -> tuple[list[Finding], Fraction]:
        """Move all readers into the contexts of this step, and check the encoders: what is wrong, and the rounding.

        Contexts in which every request is hidden end here. The rounding is the largest total variation of a context.
        """
        states = self.states
        hidden = self.chain.step[states][(self.chain.P[states] > 0) & ~self._open]
        self._joining = self._points(np.unique(hidden))
        here: dict[int, list[Belief]] = {}
        for origin, belief in self._beliefs.items():
            if len(self._ways(belief)[0]):
                here.setdefault(home(origin, place, joined), []).append(belief)
        self._beliefs = {}
        found = [self._check_context(law, tables.get(context), here[context], context) for context in sorted(here)]
        wrong = [one for one in found if isinstance(one, Finding)]
        return wrong, max((one for one in found if isinstance(one, Fraction)), default=Fraction(0))

    def _check_context(self, law: Law, units: Units | None, here: list[Belief], context: int) -> Fraction | Finding:
        """The total variation in one context, or what is wrong.

        Beliefs that come to share a context must be near each other. Their readers then count as readers of the first:
        given an open request, this changes the joint law of all that is hidden and all queries by at most the distance
        of the beliefs.
        """
        if units is None:
            return Finding("context", f"some readers are in the context {context}, which has no encoder")
        belief, *others = here
        self._beliefs[context] = belief
        states = self._marginal(0, belief) if others else []
        apart = max((distance(self._marginal(0, other), states) + other.error for other in others), default=Fraction(0))
        if apart > COARSE:
            return Finding("merge", f"the context stands for laws that are {float(apart):.1e} apart", None, (context,))
        return check_encoder(law, units, self._marginal(1, belief), belief.error + apart, (context,))

    def _marginal(self, by: int, belief: Belief) -> list[int]:
        """The law of the state (`by` 0), or of the next request (1), given that the request is open, as integers."""
        *ends, chances = self._ways(belief)
        law = np.bincount(ends[by], chances, self.chain.P.shape[by])
        return [int(weight) + (weight > 0) for weight in np.ldexp(law / law.sum(), 62).tolist()]

    def move(self, position: int, tables: Mapping[int, Units]) -> None:
        """Update beliefs by the set at this position; add readers of sensitive sources.

            b(y) <- sum of b(z) P[z, x] w(q | x) over the z and x with step[z, x] = y, normalised

        with the probability w(q | x) that the client sends this set for the request x. A known state is known exactly.
        """
        beliefs = {}
        for context, belief in self._beliefs.items():
            units = tables[context]
            asked = units[:, position] / np.maximum(units.sum(axis=1), 1)
            states, requests, chances = self._ways(belief)
            moved = np.bincount(self.chain.step[states, requests], chances * asked[requests], len(belief.chances))
            if moved.any():
                exact = np.count_nonzero(moved) == 1
                law: Floats = np.where(moved > 0, np.maximum(moved / moved.sum(), TINY), 0.0).astype(np.float64)
                spread = 0.0 if exact else belief.spread + 2 * (len(moved) + 8) * UNIT
                beliefs[context] = Belief(law, spread)
        self._beliefs = beliefs | self._joining
