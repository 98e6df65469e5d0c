"""What the request may be in every context: the rows that encoders are compared with.

Promise `both`: p(x | last, next) is proportional to P^lag[last, x] P[x, next]. Floats are whole multiples of powers of
two, so P = A / 2^s with integers A, and the weights A^lag[last, x] A[x, next] are integers: no rounding, no division.

Promise `past`: h(x) = p(X_t = x | last hidden request, Q_0..Q_{t-1}), plain Bayes in floats (`Pasts`). Everything is a
sum of products of non-negative numbers: computed rows are the exact ones times factors whose largest and smallest have
a ratio of e^spread at most, and only the roundings of single entries add to the spread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import expm1
from operator import mul
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

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


@dataclass(frozen=True, eq=False)
class Pasts:
    """The state of the promise `past` before a step: a row for every hidden request that may have been the last one.

    Row k is of readers whose last hidden request was `sources[k]`, if that was made at the step before (`contexts[k]`
    is NOWHERE then), or who were in the client's context `contexts[k]` at the step before. Which context they are in
    now is stated by the law of this step: `homes`. Supports are decided from the graph of the chain. Rows of one
    context are kept once if they are equal to the bit, and else all are kept.

    A context may come to stand for unequal rows, if these are near each other. Then its encoder fits one of them, and
    `fits[k]` says whether it has always fitted row k.
    """

    chain: Chain
    sensitive: tuple[int, ...]
    rows: Floats
    possible: Mask
    spreads: Floats
    sources: NDArray[np.int64]
    contexts: NDArray[np.int64]
    fits: Mask

    @classmethod
    def after_on(cls, chain: Chain, sensitive: tuple[int, ...]) -> Pasts:
        """After a step that counts as ON: any source may have been asked for, and the row is that of the chain."""
        n = chain.n
        places = np.arange(n), np.full(n, NOWHERE), np.ones(n, dtype=bool)
        return cls(chain, sensitive, chain.P, chain.P > 0, np.zeros(n), *places)

    @cached_property
    def open_sources(self) -> Mask:
        """The sources that are not sensitive."""
        mask = np.ones(self.chain.n, dtype=bool)
        mask[list(self.sensitive)] = False
        return mask

    @cached_property
    def live(self) -> Mask:
        """The rows in which an open request is possible; the others end at this step."""
        return np.asarray((self.possible & self.open_sources).any(axis=1))

    def homes(self, place: Sequence[int], joined: Sequence[int]) -> NDArray[np.int64]:
        """The client's context of every row now: place[c] after the context c, joined[s] after the request s."""
        return np.where(self.contexts == NOWHERE, _at(joined, self.sources), _at(place, self.contexts))

    def origin(self, k: int) -> tuple[str, int]:
        """Where the readers of row k were at the step before: in a context, or at a hidden request."""
        fresh = self.contexts[k] == NOWHERE
        return ("request", int(self.sources[k])) if fresh else ("context", int(self.contexts[k]))

    def weights(self, k: int) -> list[int]:
        """Row k over the open sources as integers; their error, and that of the row, is in `error`."""
        row = np.where(self.open_sources, self.rows[k], 0.0)
        return [int(weight) for weight in np.ldexp(row / row.sum(), 62)]

    def error(self, k: int) -> Fraction:
        """A bound on the total variation between the exact row k and the one of `weights`."""
        n = self.chain.n
        return Fraction(expm1(float(self.spreads[k]) + 4 * (n + 2) * UNIT)) + Fraction(n, 2**60)

    def after_off(self, homes: NDArray[np.int64], drawn: Mapping[int, tuple[Units, Units]], fits: Mask) -> Pasts:
        """After an OFF step the rows move on by h(y) <- sum_x r(x) w(q | x) P[x, y] / Z.

        drawn[c] are the units of every request x on the set that was sent, and on all sets, in the encoder of context
        c: w(q | x) is their quotient. Sensitive requests that some row allows join with their rows of the chain.
        """
        n, P, still = self.chain.n, self.chain.P, np.flatnonzero(self.live)
        units = np.array([drawn[int(homes[k])][0] for k in still]).reshape(-1, n)
        totals = np.array([drawn[int(homes[k])][1] for k in still]).reshape(-1, n)
        seen = self.possible[still] & self.open_sources & (units > 0)
        beliefs = np.where(seen, self.rows[still] * (units / np.maximum(totals, 1)), 0.0)
        there = seen.any(axis=1)
        still, seen, beliefs = still[there], seen[there], beliefs[there]
        with np.errstate(all="ignore"):  # BLAS leaves flags behind that mean nothing (numpy issue 24067)
            rows = (beliefs / beliefs.sum(axis=1, keepdims=True)) @ P
            possible = (seen.astype(np.float32) @ (P > 0).astype(np.float32)) > 0  # counts below 2^24 are exact
        rows = np.where(possible, np.maximum(rows / rows.sum(axis=1, keepdims=True), TINY), 0.0)
        known = seen.sum(axis=1) == 1  # then the row is one of the chain's, whatever it was before
        rows[known] = P[seen[known].argmax(axis=1)]
        spreads = np.where(known, 0.0, self.spreads[still] + 2 * (n + 8) * UNIT)
        joining = np.array([s for s in self.sensitive if self.possible[:, s].any()], dtype=np.int64)
        moved = Pasts(
            self.chain, self.sensitive, np.concatenate([rows, P[joining]]), np.concatenate([possible, P[joining] > 0]),
            np.concatenate([spreads, np.zeros(len(joining))]), np.concatenate([self.sources[still], joining]),
            np.concatenate([homes[still], np.full(len(joining), NOWHERE)]),
            np.concatenate([fits[still], np.ones(len(joining), dtype=bool)]),
        )  # fmt: skip
        return moved._merged()

    def _merged(self) -> Pasts:
        """Rows of one context that are equal to the bit are kept once."""
        known: dict[tuple[int, bool, bytes], int] = {}
        spreads, kept = self.spreads.copy(), []
        for k in range(len(self.rows)):
            fresh = self.contexts[k] == NOWHERE
            key = (int(self.contexts[k]), bool(self.fits[k]), self.rows[k].tobytes() + self.possible[k].tobytes())
            first = k if fresh else known.setdefault(key, k)
            spreads[first] = max(spreads[first], spreads[k])
            kept += [k] if first == k else []
        return Pasts(
            self.chain, self.sensitive, self.rows[kept], self.possible[kept], spreads[kept],
            self.sources[kept], self.contexts[kept], self.fits[kept],
        )  # fmt: skip


def _at(numbers: Sequence[int], index: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers at these places; NOWHERE where there is none."""
    known = np.array([*numbers, NOWHERE], dtype=np.int64)
    return known[np.where((index >= 0) & (index < len(numbers)), index, len(numbers))]
