"""The posterior in fractions: slow, exact, for small n. The oracle that the float path is tested against."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from onoff.model.posterior import Support

if TYPE_CHECKING:
    from onoff.model.chain import Chain


class ExactPosterior(Support):
    """`Posterior` over `fractions.Fraction`: the same names, arrays of dtype object.

    The matrix is taken as the floats say, digit for digit, and every row is divided by its exact sum.
    """

    def __init__(self, chain: Chain, lag: int) -> None:
        super().__init__(chain, lag)
        self._P = np.array([[Fraction(float(p)) for p in row] for row in chain.P], dtype=object)
        self._power = np.array([[Fraction(int(i == j)) for j in range(self.n)] for i in range(self.n)], dtype=object)
        for _ in range(self.lag):
            self._power = self._power @ self._P

    def row(self, last: int, next: int) -> NDArray[Any]:
        """p(. | last, next). Raises `ContextError` if the context is impossible."""
        self.possible(last, next)
        weights = self._power[last] * self._P[:, next]
        row: NDArray[Any] = weights / weights.sum()
        return row

    def blocks(self) -> Iterator[tuple[NDArray[np.intp], NDArray[Any]]]:
        """For each `last`: its possible contexts and their rows."""
        for last in range(self.n):
            block = self.contexts[self.contexts[:, 0] == last]
            yield block, np.array([self.row(last, int(k)) for k in block[:, 1]], dtype=object)

    @cached_property
    def rows(self) -> NDArray[Any]:
        """All rows, in the order of `contexts`."""
        return np.concatenate([rows for _, rows in self.blocks()])
