"""Rows: the laws of the request in the contexts that must look alike. All that a maker of laws needs to know.

A *context* u is a value of what must stay hidden, and its *row* is p(x | u), the law of the request given u. Laws,
repair, bounds and certificates never ask where rows come from: `Posterior` has those of the announced promise, a
context for every (last, next), and `RowTable` is any few rows as they are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from onoff.types import Floats, Mask


class Rows(Protocol):
    """The rows p(x | u) of all contexts u, over `n` sources.

    The contexts are divided into `groups`: those of one group are nearly alike, so that one repair often serves them
    all, and sources that peak in one group must hardly ever be asked for together (`onoff.schemes.comb`).
    """

    @property
    def n(self) -> int:
        """The number of sources."""

    @property
    def rows(self) -> Floats:
        """All rows, in the order of `blocks`. There may be n^2: prefer `blocks` and `group`."""

    @property
    def peaks(self) -> Floats:
        """max_u p(x | u) for every source x, within twice the relative error of a row. Computed once."""

    @property
    def relative_error(self) -> float:
        """A proved bound on |computed - exact| / exact of every p(x | u) above 2^-1000."""

    @property
    def groups(self) -> int:
        """The number of groups; some may be empty."""

    def group(self, index: int) -> Floats:
        """The rows of one group."""

    def blocks(self) -> Iterator[tuple[Any, Floats]]:
        """All contexts and their rows, some at a time."""

    def supports(self) -> Iterator[Mask]:
        """The distinct sets {x : p(x | u) > 0}, some at a time; one may come again. Decided without floats."""


@dataclass(frozen=True, eq=False)
class RowTable:
    """A few rows, each a group of its own: row u is rows[u], positive exactly where `possible[u]` holds.

    `contexts` are the names of the rows. A positive entry may have underflowed to 0: only `possible` counts.
    """

    contexts: tuple[Hashable, ...]
    rows: Floats
    possible: Mask
    relative_error: float = 0.0

    @property
    def n(self) -> int:
        return int(self.rows.shape[1])

    @cached_property
    def peaks(self) -> Floats:
        peaks: Floats = self.rows.max(axis=0, initial=0.0)
        return peaks

    @property
    def groups(self) -> int:
        return len(self.rows)

    def group(self, index: int) -> Floats:
        return self.rows[index : index + 1]

    def blocks(self) -> Iterator[tuple[tuple[Hashable, ...], Floats]]:
        yield self.contexts, self.rows

    def supports(self) -> Iterator[Mask]:
        yield np.unique(self.possible, axis=0)
