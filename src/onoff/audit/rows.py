"""What the request may be in every context: the rows that encoders are compared with.

Promise `both`: p(x | last, next) is proportional to P^lag[last, x] P[x, next]. Floats are whole multiples of powers of
two, so P = A / 2^s with integers A, and the weights A^lag[last, x] A[x, next] are integers (`Walk`).

Promise `past`: h(x) = p(X_t = x | last hidden request, Q_0..Q_{t-1}), plain Bayes in floats (`Pasts`). Everything is a
sum of products of non-negative numbers: computed rows are the exact ones times factors whose largest and smallest have
a ratio of e^spread at most, and only the roundings of single entries add to the spread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import expm1
from operator import mul
from typing import NamedTuple

import numpy as np

from onoff.audit.law import COARSE, Finding, Law, check_encoder, distance
from onoff.types import Floats, Mask, Units

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


class Row(NamedTuple):
    """The law of the request of some readers of the promise `past`, given all queries so far.

    An entry is above 0 where the graph of the chain says so.
    """

    chances: Floats
    spread: float = 0.0

    def weights(self, open_sources: Mask) -> list[int]:
        """The row over the open sources as integers; their error, and that of the row, is in `error`."""
        row = np.where(open_sources, self.chances, 0.0)
        return [int(weight) + (weight > 0) for weight in np.ldexp(row / row.sum(), 62).tolist()]

    @property
    def error(self) -> Fraction:
        """A bound on the total variation between the exact row and the one of `weights`."""
        n = len(self.chances)
        return Fraction(expm1(self.spread + 4 * (n + 2) * UNIT)) + Fraction(n, 2**60)

    def moved(self, asked: Floats, P: Floats) -> Row:
        """After an OFF step: h(y) <- sum_x h(x) w(q | x) P[x, y] / Z, where asked[x] = w(q | x).

        That is the probability with which the client sends the set q for the request x; 0 for those that are not open.
        """
        seen = asked > 0
        if seen.sum() == 1:  # then the row is one of the chain's, whatever it was before
            return Row(P[int(seen.argmax())])
        with np.errstate(all="ignore"):  # BLAS leaves flags behind that mean nothing (numpy issue 24067)
            row = (self.chances * asked) @ P
        possible = np.asarray((P[seen] > 0).any(axis=0))
        row = np.where(possible, np.maximum(row / row.sum(), TINY), 0.0)
        return Row(row, self.spread + 2 * (len(row) + 8) * UNIT)


def home(origin: int, place: Sequence[int], joined: Sequence[int]) -> int:
    """The context of readers now: place[c] after the context c, joined[s] after the hidden request s (origin -1-s)."""
    known, at = (place, origin) if origin >= 0 else (joined, -1 - origin)
    return known[at] if at < len(known) else NOWHERE


class Pasts:
    """All readers of the promise `past` who may be there: after an ON step any source may have been asked for.

    Their rows are kept by origin: the client's context at the step before or, if the request s there was hidden, -1-s.
    """

    def __init__(self, P: Floats, sensitive: Sequence[int]) -> None:
        self._P, self._sensitive = P, sensitive
        self._open = np.array([source not in sensitive for source in range(len(P))])
        self._rows = {-1 - source: Row(row) for source, row in enumerate(P)}

    def change(self, P: Floats, source: int) -> None:
        """Another chain serves from here on, after a query of this one source: every reader has its new row."""
        self._P = P
        self._rows = dict.fromkeys(self._rows, Row(P[source]))

    def check(
        self, law: Law, tables: Mapping[int, Units], place: Sequence[int], joined: Sequence[int]
    ) -> tuple[list[Finding], Fraction]:
        """Move all readers into the contexts of this step, and check the encoders: what is wrong, and the rounding.

        Contexts in which every request is hidden end here. The rounding is the largest total variation of a context.
        """
        self._joining = [s for s in self._sensitive if any(row.chances[s] for row in self._rows.values())]
        here: dict[int, list[Row]] = {}
        for origin, row in self._rows.items():
            if row.chances[self._open].any():
                here.setdefault(home(origin, place, joined), []).append(row)
        self._rows, wrong, rounding = {}, [], Fraction(0)
        for context in sorted(here):
            found = self._check_context(law, tables.get(context), here[context], context)
            if isinstance(found, Finding):
                wrong.append(found)
            else:
                rounding = max(rounding, found)
        return wrong, rounding

    def _check_context(self, law: Law, units: Units | None, here: list[Row], context: int) -> Fraction | Finding:
        """The total variation in one context, or what is wrong.

        Rows that come to share a context must be near each other. Their readers then count as readers of the one with
        the largest support, of equals the first: that changes the joint law of all that is hidden and all queries by no
        more than the distance of the rows.
        """
        if units is None:
            return Finding("context", f"some readers are in the context {context}, which has no encoder")
        row = max(here, key=lambda row: np.count_nonzero(row.chances))
        possible = np.any([row.chances > 0 for row in here], axis=0)
        row = self._rows[context] = Row(np.where(possible, np.maximum(row.chances, TINY), 0.0), row.spread)
        weights = row.weights(self._open)
        apart = max(distance(other.weights(self._open), weights) + other.error for other in here) - row.error
        if apart > COARSE:
            return Finding("merge", f"the context stands for rows that are {float(apart):.1e} apart", None, (context,))
        return check_encoder(law, units, weights, row.error + apart, (context,))

    def move(self, position: int, tables: Mapping[int, Units]) -> None:
        """Move on by the set at this position; readers of possible sensitive sources join."""
        rows = {}
        for context, row in self._rows.items():
            units = tables[context]
            chances = units[:, position] / np.maximum(units.sum(axis=1), 1)
            asked = np.where((row.chances > 0) & self._open, chances, 0.0)
            if asked.any():
                rows[context] = row.moved(asked, self._P)
        self._rows = rows | {-1 - s: Row(self._P[s]) for s in self._joining}
