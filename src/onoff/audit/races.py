"""Draws of a race, made again from their random numbers.

Every source y has a clock E_y, exponential with mean 1, and in the context u = (i, k) the winner is the source with the
largest score P^lag[i, y] P[y, k] / E_y. The query is the set of all winners, over all contexts. Given the request x in
the context u the client takes T exponential, E_x = p(x | u) T and E_y = p(y | u) T + (a fresh exponential) for the
others: averaged over x the clocks are independent and their law is the same in every context, and so is the law of
whatever is computed from them alone. A larger lag d is served by first drawing where the reader may have been `lag`
steps ago, j with probability in proportion to P^(d-lag)[last, j] P^lag[j, x].

The client computes in floats and counts a source as a winner if it comes within SLACK of the lead. Computed here in
other floats, a score may be off by far less than SLACK / 4: so a source must be in the set, must not, or may be.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from onoff.types import Floats, Query

if TYPE_CHECKING:
    from onoff.model.chain import Chain

FINE, BIASED, WHOLE, GRID = 122, 58, 6, 60  # binary digits of a clock: right of the point, biased, left; looked at
SLACK = 2.0**-18
COMPARED = 124  # sources up to which the client compares all of them; beyond, it may include some unseen
FAINT = 2.0**-800  # contexts less likely than this are not looked at
NEAR = 1e-9  # a draw of the earlier source this near to a border may have gone to either side

Pairs = tuple[tuple[int, int], ...]


class Race:
    """The race of one chain and lag."""

    def __init__(self, chain: Chain, lag: int) -> None:
        self.n, self.lag, self._P = chain.n, lag, chain.P
        self._walk = _power(chain.P, lag)

    def expected(self, request: int, last: int, next: int, lag: int, numbers: Pairs) -> str | tuple[Query, Query]:
        """Run the clocks again: the sources that the set must hold and those that it may hold, or what is wrong."""
        begins = [last]
        if lag > self.lag:
            if not numbers:
                return "a race at a larger lag begins with a number for an earlier source, and there is none"
            found = self._earlier(request, last, lag, numbers[0])
            if isinstance(found, str):
                return found
            begins, numbers = found, numbers[1:]
        size = (self.n + 1) * (WHOLE + BIASED + 1) * 8
        if len(numbers) != 1 or numbers[0][0] != 1 << (8 * size) or not 0 <= numbers[0][1] < numbers[0][0]:
            return f"the clocks of {self.n} sources take one number of {8 * size} bits, and there is another list"
        raw = np.frombuffer(numbers[0][1].to_bytes(size, "little"), dtype="<u8").reshape(self.n + 1, -1)
        *own, common = _exponentials(raw, self._thresholds)
        must, may = {*range(self.n)}, {request}
        for begin in begins:
            won = self._winners(self._clocks(own, common, request, self._walk[begin] * self._P[:, next]))
            must &= set(np.flatnonzero(won >= 1 - 0.75 * SLACK).tolist())
            may |= set(np.flatnonzero(won >= 1 - 1.25 * SLACK).tolist())
        return tuple(sorted(must | {request})), tuple(sorted(may))

    def _earlier(self, request: int, last: int, lag: int, pair: tuple[int, int]) -> str | list[int]:
        """Where the reader may have been, by the first number: one source, or two at a border."""
        weights = _power(self._P, lag - self.lag)[last] * self._walk[:, request]
        bound, number = pair
        total = float(weights.sum()) / 2.0 ** int(np.frexp(weights.max())[1])  # the largest weight has 160 bits
        right = any(abs(bound / 2**160 - total * factor) <= 2.0**-30 * total for factor in (0.5, 1, 2))
        if not right or not 0 <= number < bound:
            return "the bound of the number for the earlier source is not the sum of its weights"
        ends = np.cumsum(weights / weights.sum())
        first, end = np.searchsorted(ends, [number / bound - NEAR, number / bound + NEAR], side="right")
        return [j for j in range(int(first), min(int(end), self.n - 1) + 1) if weights[j] > 0]

    def _clocks(self, own: list[int], common: int, request: int, weights: Floats) -> Floats:
        shares = weights / weights.sum()
        fine = np.array([0.0 if y == request else float(clock) for y, clock in enumerate(own)])
        clocks: Floats = np.maximum((fine + shares * float(common)) / 2.0 ** (FINE - GRID), 1.0)
        return clocks

    def _winners(self, clocks: Floats) -> Floats:
        """For every source how near it comes to the lead in its best context: 1 if it leads."""
        left, right = self._walk / clocks, self._P
        best, most = np.zeros((self.n, self.n)), np.zeros(self.n)
        for y in range(self.n):
            np.maximum(best, np.multiply.outer(left[:, y], right[y]), out=best)
        best[best * clocks.min() < FAINT] = np.inf
        for y in range(self.n):
            most[y] = (np.multiply.outer(left[:, y], right[y]) / best).max()
        return most

    @cached_property
    def _thresholds(self) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        """The probabilities 1 / (1 + exp(2^k)) of the biased digits, times 2^64, from the largest digit on."""
        with localcontext() as context:
            context.prec = 60
            digits = [Decimal(2) ** 64 / (1 + (Decimal(2) ** k).exp()) for k in range(WHOLE - 1, -BIASED - 1, -1)]
            return np.array([int(digit.to_integral_value()) for digit in digits], dtype=np.uint64)


def _exponentials(raw: np.ndarray[tuple[int, int], np.dtype[np.uint64]], thresholds: np.ndarray) -> list[int]:
    """Clocks in units of 2^-FINE: each biased digit from a word of its own, the fair ones from the last word."""
    biased = np.packbits(raw[:, :-1] < thresholds, axis=1)
    digits = np.concatenate([biased, raw[:, -1:].copy().view(np.uint8)], axis=1)
    return [int.from_bytes(row.tobytes(), "big") for row in digits]


def _power(P: Floats, k: int) -> Floats:
    with np.errstate(all="ignore"):
        result: Floats = np.linalg.matrix_power(P, k)
    return result
