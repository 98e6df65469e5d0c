"""What the request may be in every context: the rows that encoders are compared with.

Promise `both`: p(x | last, next) is proportional to P^lag[last, x] P[x, next]. Floats are whole multiples of powers of
two, so P = A / 2^s with integers A, and the weights A^lag[last, x] A[x, next] are integers: no rounding, no division.

Promise `past`: h(x) = p(X_t = x | last hidden request, Q_0..Q_{t-1}), plain Bayes in floats (`Past`). Everything is a
sum of products of non-negative numbers: computed rows are the exact ones times factors whose largest and smallest have
a ratio of e^spread at most, and only the roundings of single entries add to the spread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import expm1
from operator import mul
from typing import TYPE_CHECKING

import numpy as np

from onoff.audit.law import COARSE, Finding, Law, check_columns, distance
from onoff.types import Floats, Mask, Units

if TYPE_CHECKING:
    from onoff.model.chain import Chain

DIGITS = 256  # leading binary digits of the entries of a walk
UNIT = 2.0**-53
TINY = 2.0**-900  # possible entries of rows below it are raised to it, so that none underflows
NOWHERE = -1  # the context of a reader for whom the record has none


def chain_integers(chain: Chain) -> list[tuple[int, ...]]:
    """The columns of A, where P = A / 2^s."""
    ratios = [[p.as_integer_ratio() for p in row] for row in chain.P.tolist()]
    unit = max(below for row in ratios for _, below in row)
    return list(zip(*[[above * (unit // below) for above, below in row] for row in ratios], strict=True))


class Walk:
    """Posterior weights at lags that grow from step to step, in integers of bounded length.

    Every entry of a walk keeps its DIGITS leading digits. Nothing is subtracted, so after `lag` steps a computed weight
    w' has (1 - e) w <= w' <= w with e = lag 2^(1-DIGITS), and normalised rows are off by e / (1 - e) at most.
    """

    def __init__(self, chain: Chain) -> None:
        self._columns = chain_integers(chain)
        self._last, self._lag, self._vector = -1, 0, [0]

    def weights(self, last: int, next: int, lag: int) -> list[int]:
        """w'_0..w'_{n-1}; 0 exactly where the request is impossible."""
        if last != self._last or lag < self._lag:
            self._last, self._lag, self._vector = last, 0, [int(x == last) for x in range(len(self._columns))]
        while self._lag < lag:
            self._vector = _shortened([sum(map(mul, self._vector, column)) for column in self._columns])
            self._lag += 1
        return list(map(mul, self._vector, self._columns[next]))

    @staticmethod
    def error(lag: int) -> Fraction:
        """A bound on the total variation between the exact row and the one of `weights`."""
        return Fraction(2 * lag, 2 ** (DIGITS - 1))


def _shortened(vector: list[int]) -> list[int]:
    """The entries rounded down to DIGITS leading digits, and divided by a common power of two."""
    spare = min(entry.bit_length() for entry in vector if entry) - DIGITS
    cut = [entry.bit_length() - DIGITS for entry in vector]
    rounded = [entry >> k << k if k > 0 else entry for entry, k in zip(vector, cut, strict=True)]
    return [entry >> spare for entry in rounded] if spare > 0 else rounded


@dataclass(eq=False)
class Past:
    """Readers of the promise `past` before a step: `row` is the law of their request, given all queries so far.

    `origin` is the client's context in which they were at the step before or, if their request s there was hidden,
    -1 - s. Which context they are in now is stated by the law of this step. An entry is above 0 where the graph of the
    chain says so. A context may come to stand for unequal rows that are near each other; then its encoder fits one of
    them, and `fits` says whether it has always fitted this one.
    """

    origin: int
    row: Floats
    spread: float = 0.0
    fits: bool = True

    def weights(self, open_sources: Mask) -> list[int]:
        """The row over the open sources as integers; their error, and that of the row, is in `error`."""
        row = np.where(open_sources, self.row, 0.0)
        return [int(weight) for weight in np.ldexp(row / row.sum(), 62)]

    @property
    def error(self) -> Fraction:
        """A bound on the total variation between the exact row and the one of `weights`."""
        n = len(self.row)
        return Fraction(expm1(self.spread + 4 * (n + 2) * UNIT)) + Fraction(n, 2**60)

    def moved(self, home: int, chances: Floats, P: Floats) -> Past:
        """After an OFF step in the context `home`: h(y) <- sum_x h(x) w(q | x) P[x, y] / Z, with chances[x] = w(q | x).

        That is the probability with which the client sends the set q for the request x; 0 for those that are not open.
        """
        seen = chances > 0
        if seen.sum() == 1:  # then the row is one of the chain's, whatever it was before
            return Past(home, P[int(seen.argmax())], 0.0, self.fits)
        with np.errstate(all="ignore"):  # BLAS leaves flags behind that mean nothing (numpy issue 24067)
            row = (self.row * chances) @ P
        possible = np.asarray((P[seen] > 0).any(axis=0))
        row = np.where(possible, np.maximum(row / row.sum(), TINY), 0.0)
        return Past(home, row, self.spread + 2 * (len(row) + 8) * UNIT, self.fits)


def home(origin: int, place: Sequence[int], joined: Sequence[int]) -> int:
    """The client's context of readers now: place[c] after the context c, joined[s] after the hidden request s."""
    known, at = (place, origin) if origin >= 0 else (joined, -1 - origin)
    return known[at] if at < len(known) else NOWHERE


class Pasts:
    """All readers of the promise `past` who may be there: after an ON step any source may have been asked for."""

    def __init__(self, chain: Chain, sensitive: Sequence[int]) -> None:
        self._chain, self._sensitive = chain, sensitive
        self._open = np.array([source not in sensitive for source in range(chain.n)])
        self._pasts = [Past(-1 - source, row) for source, row in enumerate(chain.P)]

    def homes(self, place: Sequence[int], joined: Sequence[int]) -> list[tuple[Past, int]]:
        """Readers who may make an open request now, with their contexts; what the others ask for is hidden anew."""
        live = (past for past in self._pasts if past.row[self._open].any())
        return [(past, home(past.origin, place, joined)) for past in live]

    def check(
        self, law: Law, tables: Mapping[int, Units], homes: Sequence[tuple[Past, int]]
    ) -> tuple[list[Finding], Fraction]:
        """Check the encoders of all contexts for all readers: what is wrong, and the largest total variation."""
        by_context: dict[int, list[Past]] = {}
        for past, context in homes:
            by_context.setdefault(context, []).append(past)
        found = [self._check_context(law, tables.get(c), pasts, (c,)) for c, pasts in sorted(by_context.items())]
        wrong = [one for one in found if isinstance(one, Finding)]
        return wrong, max((one for one in found if isinstance(one, Fraction)), default=Fraction(0))

    def _check_context(
        self, law: Law, units: Units | None, here: Sequence[Past], context: tuple[int]
    ) -> Fraction | Finding:
        """The total variation in one context, or what is wrong.

        Rows that come to share a context must be near each other, and the encoder must fit one that it has always
        fitted. Readers of the other rows then count as readers of that one: it changes the joint law of all that is
        hidden and all queries by no more than their distance.
        """
        if units is None:
            return Finding("context", f"some readers are in the context {context[0]}, which has no encoder")
        possible = np.any([past.row > 0 for past in here], axis=0) & self._open
        if (fault := check_columns(law, units, possible, context)) is not None:
            return fault
        sums, rows = units.sum(axis=1).tolist(), [past.weights(self._open) for past in here]
        apart = [distance(sums, row) + past.error for past, row in zip(here, rows, strict=True)]
        for past, off in zip(here, apart, strict=True):
            past.fits = past.fits and off <= COARSE
        met = [row for past, row in zip(here, rows, strict=True) if past.origin != here[0].origin]
        widest = max((distance(rows[0], row) for row in met), default=Fraction(0))
        if widest > COARSE:
            message = f"the context stands for rows that are {float(widest):.1e} apart"
            return Finding("merge", message, context=context, amount=float(widest))
        if not any(past.fits for past in here):
            message = f"the encoder is off by {float(min(apart)):.1e} in total variation for all its readers"
            return Finding("rows", message, context=context, amount=float(min(apart)))
        return min(apart) + widest

    def move(self, position: int, tables: Mapping[int, Units], homes: Sequence[tuple[Past, int]]) -> None:
        """Move on by the set at this position; readers of possible sensitive sources join. Equal rows are kept once."""
        joining = [s for s in self._sensitive if any(past.row[s] for past in self._pasts)]
        chances = {c: units[:, position] / np.maximum(units.sum(axis=1), 1) for c, units in tables.items()}
        kept: dict[tuple[int, bool, bytes], Past] = {}
        for past, home in sorted(homes, key=lambda pair: pair[0].spread):  # of equal ones the largest spread counts
            able = np.where((past.row > 0) & self._open, chances[home], 0.0)
            if able.any():
                moved = past.moved(home, able, self._chain.P)
                kept[home, past.fits, moved.row.tobytes()] = moved
        self._pasts = [*kept.values(), *(Past(-1 - s, self._chain.P[s]) for s in joining)]
