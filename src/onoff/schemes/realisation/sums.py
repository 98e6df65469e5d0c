"""Sums over the members of every set, and over the sets of every source, for many columns of numbers at once.

Along a comb each set differs from the one before by two sources, however large it is. With Z the 0/1 matrix of sets
(rows) and sources, D its differences from row to row and L the lower triangle of ones, Z = L D. So

    Z a = L (D a)    and    Z' b = D' (L' b) :

products with a matrix that has few entries, and running sums. Sets of 10 or 50 sources take no longer than sets of 2.
Where neighbours differ by more than their size, Z itself is used. Combs, mixtures and repairs keep neighbours together
(`onoff.schemes.law.merged`), and so do the files of plans.
"""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from onoff.model.powers import gamma, sparse_times
from onoff.types import Floats, Mask

RUNNING = 3.0  # what two running sums take of a set, in entries of a sparse product


class Sums:
    """Z a and Z' b in one precision. Rows of zeros are added to Z until its rows form `shape`, a rectangle.

    A running sum along the rectangle's rows and one along its last column meet isqrt(rows) roundings instead of rows.
    """

    def __init__(self, member: Mask, dtype: type[np.floating[Any]]) -> None:
        sets, n = member.shape
        width = isqrt(max(sets - 1, 0)) + 1
        self.shape = -(-sets // width), width
        self.rows = self.shape[0] * width
        table = np.zeros((self.rows, n), dtype=np.int8)
        table[:sets] = member
        steps = np.diff(table, axis=0, prepend=np.int8(0))
        self._running = np.count_nonzero(steps) + RUNNING * sets < np.count_nonzero(member)
        used = csr_array(steps if self._running else table)
        self._to_sets = used.astype(dtype)
        self._to_sources = csr_array(self._to_sets.T)
        self._entries = np.asarray(abs(used).sum(axis=0), dtype=np.float64)[:, None]
        longest = max((int(np.diff(each.indptr).max()) for each in (self._to_sets, self._to_sources)), default=0)
        self._error = gamma(longest + sum(self.shape) + 4)

    def of_members(self, a: NDArray[Any]) -> NDArray[Any]:
        """Z a: for every set (row) the sum of `a` over its sources."""
        sums = sparse_times(self._to_sets, a)
        if self._running:
            self._run(sums)
        return sums

    def of_sets(self, b: NDArray[Any]) -> NDArray[Any]:
        """Z' b: for every source (row) the sum of `b` over its sets. `b` is overwritten."""
        if self._running:
            self._run(b[::-1])
        return sparse_times(self._to_sources, b)

    def error_of_members(self, a: Floats) -> Floats:
        """A bound on |computed - exact| of `of_members(a)` in double precision, for each column; `a` is non-negative.

        Every sum adds some of the entries of D a, each at most once, whose sizes sum to at most `_entries` @ a.
        """
        bound: Floats = self._error * (self._entries * a).sum(axis=0) * (1 + 2.0**-20)
        return bound

    def error_of_sets(self, total: Floats) -> Floats:
        """The same for `of_sets(b)`, for each source and column, where `total` is the sum of each column of b >= 0."""
        bound: Floats = self._error * self._entries * total * (1 + 2.0**-20)
        return bound

    def _run(self, values: NDArray[Any]) -> None:
        """Running sums of the rows, in place."""
        lines = values.reshape(*self.shape, values.shape[1])
        for j in range(1, self.shape[1]):
            np.add(lines[:, j], lines[:, j - 1], out=lines[:, j])
        for i in range(1, self.shape[0]):
            np.add(lines[i, -1], lines[i - 1, -1], out=lines[i, -1])
        np.add(lines[1:, :-1], lines[:-1, -1:], out=lines[1:, :-1])
