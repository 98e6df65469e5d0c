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
from typing import Any

import numpy as np

from onoff.audit.law import UNCHECKED, Finding, Pairs
from onoff.types import Floats, Query

FINE, BIASED, WHOLE, GRID = 122, 58, 6, 60  # binary digits of a clock: right of the point, biased, left; looked at
SLACK = 2.0**-18
COMPARED = 124  # sources up to which the client compares all of them; beyond, it may include some unseen
FAINT = 2.0**-800  # contexts less likely than this are not looked at


class Race:
    """The race of one chain and lag."""

    def __init__(self, P: Floats, lag: int) -> None:
        self.n, self.lag, self._P = len(P), lag, P
        self._walk = _power(P, lag)

    def check(self, query: Query, numbers: Pairs, request: int, context: tuple[int, int, int]) -> Finding | None:
        """Find what is wrong with a draw in the context (lag, last, next), if anything."""
        due = self._run(numbers, request, *context)
        if isinstance(due, str):
            return Finding("draw", due, context=context)
        must, may = due
        if must <= set(query) <= may:
            return None
        if must <= set(query) and self.n > COMPARED:
            return Finding(UNCHECKED, "a race of many sources may include some that it did not compare")
        message = "the clocks give this set, and another one was asked for"
        return Finding("draw", message, context=context, query=tuple(sorted(must)))

    def _run(self, numbers: Pairs, request: int, lag: int, last: int, next: int) -> str | tuple[set[int], set[int]]:
        """Run the clocks again: the sources that the set must hold and those that it may hold, or what is wrong."""
        if lag > self.lag:
            weights = _power(self._P, lag - self.lag)[last] * self._walk[:, request]
            (bound, number), numbers = numbers[0] if numbers else (1, 1), numbers[1:]
            total = float(weights.sum()) / 2.0 ** int(np.frexp(weights.max())[1])  # the largest weight has 160 bits
            off = min(abs(min(bound, 2**200) / 2**160 - total * factor) for factor in (0.5, 1, 2))
            if off > 2.0**-30 * total or not 0 <= number < bound:
                return "the source of an earlier step is not drawn below the sum of its weights"
            last = int(np.searchsorted(np.cumsum(weights), number / bound * weights.sum(), side="right"))
        size = (self.n + 1) * (WHOLE + BIASED + 1) * 8
        if len(numbers) != 1 or numbers[0][0] != 1 << (8 * size) or not 0 <= numbers[0][1] < numbers[0][0]:
            return f"the clocks of {self.n} sources take one number of {8 * size} bits, and there is another list"
        *own, common = self._exponentials(numbers[0][1].to_bytes(size, "little"))
        own[request] = 0.0
        weights = self._walk[last] * self._P[:, next]
        near = self._lead(np.maximum((np.array(own) + weights / weights.sum() * common) * 2.0**GRID, 1.0))
        must, may = (np.flatnonzero(near >= 1 - share * SLACK).tolist() for share in (0.75, 1.25))
        return {request, *must}, {request, *may}

    def _lead(self, clocks: Floats) -> Floats:
        """For every source how near it comes to the lead in its best context: 1 if it leads."""
        left, best, near = self._walk / clocks, np.zeros((self.n, self.n)), np.zeros(self.n)
        for y in range(self.n):
            np.maximum(best, np.multiply.outer(left[:, y], self._P[y]), out=best)
        best[best * clocks.min() < FAINT] = np.inf
        for y in range(self.n):
            near[y] = (np.multiply.outer(left[:, y], self._P[y]) / best).max()
        return near

    def _exponentials(self, raw: bytes) -> list[float]:
        """Clocks of 65 words of 64 bits: each biased digit has a word of its own, the fair ones have the last."""
        words: Any = np.frombuffer(raw, dtype="<u8").reshape(self.n + 1, -1)
        biased = np.packbits(words[:, :-1] < self._thresholds, axis=1)
        digits = np.concatenate([biased, words[:, -1:].copy().view(np.uint8)], axis=1)
        return [int.from_bytes(row.tobytes(), "big") / 2**FINE for row in digits]

    @cached_property
    def _thresholds(self) -> Any:
        """The probabilities 1 / (1 + exp(2^k)) of the biased digits, times 2^64, from the largest digit on."""
        with localcontext() as context:
            context.prec = 60
            digits = [Decimal(2) ** 64 / (1 + (Decimal(2) ** k).exp()) for k in range(WHOLE - 1, -BIASED - 1, -1)]
            return np.array([int(digit.to_integral_value()) for digit in digits], dtype=np.uint64)


def _power(P: Floats, k: int) -> Floats:
    with np.errstate(all="ignore"):  # BLAS leaves flags behind that mean nothing (numpy issue 24067)
        return np.asarray(np.linalg.matrix_power(P, k))
