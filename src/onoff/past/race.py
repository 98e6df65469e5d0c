"""The race: the next OFF step of the promise `past` where a table would be too large to make in time.

Every source y has a clock E_y (`onoff.schemes.clocks`), and the winner of the row r_z is the source with the largest
r_z(y) / E_y. The winners of all rows are R. A sensitive request takes fresh clocks, an open one clocks for which it
wins its reader's row: averaged over that row, these have the law of fresh clocks. So R, a function of the clocks alone,
has one law, however sloppy the arithmetic. Only the request must be among the winners. So a source within SLACK of a
lead, far more than floats are off, counts as a winner, and the request is added; `rounding` covers the chance that it
was not there.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import ClassVar

import numpy as np

from onoff.model.powers import gamma
from onoff.past.candidates import Candidates
from onoff.schemes import clocks
from onoff.types import Floats, Mask, Query, RandBelow

BLOCK = 64  # rows at a time: they fit into the cache
SLACK = 2.0**-40


@dataclass(frozen=True, eq=False)
class RaceStep:
    """The next OFF step: the winners of a race. Its `cost` is not known; its lower bound stands for it."""

    law: ClassVar[None] = None
    candidates: Candidates

    @cached_property
    def lower_bound(self) -> float:
        """What every law costs that serves the rows: the sensitive sources, and the outer bound, rounded down."""
        peaks = np.max([block.max(axis=0) for block in self._blocks()], axis=0)
        error = self.candidates.relative_error + gamma(len(peaks))
        return len(self.candidates.hidden) + fsum(peaks.tolist()) * (1 - error)

    @property
    def cost(self) -> float:
        return self.lower_bound

    @property
    def rounding(self) -> float:
        return clocks.rounding(self.candidates.chain.n)

    def draw(self, request: int, state: int, randbelow: RandBelow = secrets.randbelow) -> Query:
        """Draw the query for the request of a reader in this state, the one secret act."""
        self.candidates.check(request, state)
        if request in self.candidates.hidden:
            members = self.race(randbelow)
        else:
            opened = self.candidates.open_sources
            place = int(opened[:request].sum())
            members = self._members(clocks.given_request(self.candidates.chain.P[state, opened], place, randbelow))
        members[request] = True
        return tuple(np.flatnonzero(members).tolist())

    def race(self, randbelow: RandBelow) -> Mask:
        """Which sources a sensitive request would ask for: a sample of the law of the query."""
        n = int(self.candidates.open_sources.sum())
        return self._members(clocks.fresh_clocks(n + 1, randbelow)[:n])  # as many random bits as for any other request

    def _members(self, times: Floats) -> Mask:
        members = ~self.candidates.open_sources
        members[~members] = self.winners(times)
        return members

    def winners(self, times: Floats) -> Mask:
        """Which open sources come within SLACK of the lead in some row."""
        speeds = times.min() / times
        won = np.zeros(len(times), dtype=bool)
        for block in self._blocks():
            scores = block * speeds
            lead = scores.max(axis=1, keepdims=True)
            won |= (scores >= lead * (1 - SLACK)).any(axis=0)
        return won

    def _blocks(self) -> Iterator[Floats]:
        live = self.candidates.live
        for start in range(0, len(live), BLOCK):
            yield self.candidates.rows(live[start : start + BLOCK])
