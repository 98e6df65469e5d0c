"""Posterior rows at one lag in exact integers, for audits of plans: no rounding, no division."""

from __future__ import annotations

from functools import cached_property
from operator import mul
from typing import TYPE_CHECKING

from onoff.audit.rows import chain_integers
from onoff.errors import OnoffError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onoff.model.chain import Chain

MOST_BYTES = 2**31  # of all the integers of one lag together
MOST_WORK = 2**38  # products of 64-bit words: minutes


class ExactRows:
    """p(x | i, k) = w_x / sum_y w_y with integers w_x = A^lag[i, x] A[x, k], at one lag.

    A common factor cancels and none is looked for. Walks are computed for each `last` when they are first needed, a
    vector times A `lag` times.
    """

    def __init__(self, chain: Chain, lag: int) -> None:
        self.chain, self.n, self.lag = chain, chain.n, lag
        self._columns = chain_integers(chain)
        bits = lag * max(max(column) for column in self._columns).bit_length()  # of the largest integers
        if self.n**2 * bits // 8 > MOST_BYTES or self.n**3 * lag * bits // 128 > MOST_WORK:
            raise OnoffError(f"lag {lag} is too large for an audit in exact integers of {self.n} sources")
        self._before = [_mask(column) for column in self._columns]  # bit x: next may follow x
        self._walks: dict[int, list[int]] = {}

    def walk(self, last: int) -> list[int]:
        """The row of A^lag."""
        if last not in self._walks:
            vector = [int(x == last) for x in range(self.n)]
            for _ in range(self.lag):
                vector = [sum(map(mul, vector, column)) for column in self._columns]
            self._walks[last] = vector
        return self._walks[last]

    def weights(self, last: int, next: int) -> list[int]:
        """w_0..w_{n-1}; all 0 iff the context is impossible."""
        return list(map(mul, self.walk(last), self._columns[next]))

    def successors(self, source: int) -> list[int]:
        """The row of A."""
        return [column[source] for column in self._columns]

    def support(self, last: int, next: int) -> int:
        """The possible requests as bits; 0 iff the context is impossible."""
        return self._reached[last] & self._before[next]

    @cached_property
    def _reached(self) -> list[int]:
        return [_mask(self.walk(last)) for last in range(self.n)]

    def supports(self) -> list[int]:
        """The supports of possible contexts that contain no other one."""
        found = {self.support(last, next) for last in range(self.n) for next in range(self.n)} - {0}
        least: list[int] = []
        for support in sorted(found, key=int.bit_count):
            if not any(smaller & ~support == 0 for smaller in least):
                least.append(support)
        return least


def _mask(values: Sequence[int]) -> int:
    return sum(1 << x for x, value in enumerate(values) if value)
