"""The candidates of a step: the states that may be the reader's, and the rows of the chain that a law must serve."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onoff.errors import ContextError
from onoff.model.chain import Chain
from onoff.model.powers import gamma
from onoff.types import Floats, Mask, Query


@dataclass(frozen=True)
class Candidates:
    """The states of a chain that may be the reader's, and the sensitive sources (`hidden`): they determine a law.

    All of it is public.
    """

    chain: Chain
    hidden: Query
    states: Query

    @cached_property
    def open_sources(self) -> Mask:
        """N: the sources that are not sensitive."""
        mask = np.ones(self.chain.n, dtype=bool)
        mask[list(self.hidden)] = False
        return mask

    @cached_property
    def live(self) -> Query:
        """The states with a row: those in which an open request is possible."""
        if not self.hidden:
            return self.states
        return tuple(z for z in self.states if self.chain.P[z, self.open_sources].any())

    def rows(self, states: Query) -> Floats:
        """r_z for some live states, over the open sources."""
        weights = self.chain.P[list(states)]
        if self.hidden:
            weights = weights[:, self.open_sources]
        found: Floats = weights / weights.sum(axis=1, keepdims=True)
        return found

    @property
    def relative_error(self) -> float:
        """A bound on |computed - exact| / exact of every entry of `rows`."""
        return gamma(self.chain.n + 2)

    def check(self, request: int, state: int) -> None:
        """Raise `ContextError` unless a reader may be in this state and make this request, if it is not sensitive."""
        known = state in self.states and request in range(self.chain.n)
        if not (known and (self.chain.P[state, request] or request in self.hidden)):
            raise ContextError(f"the request {request!r} in the state {state!r} is impossible now", request=request)
