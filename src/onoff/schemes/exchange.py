"""Exchanges: a law at the outer bound whose sources move, at no cost, to where contexts need them.

Divide the mass of a law into cells of equal size. Ask for source x in cells that make up M_x = max_u p(x | u),
whichever these are: the cost is sum_x M_x, the outer bound. Most choices are not realisable. Where the rows of sparse
chains are nearly alike for each `next`, every set must meet the support of every context, and sets of sources that
happen to come together miss many.

So sources change cells. A context u scales its sources by weights a_x (as in `onoff.schemes.sinkhorn`). Cell t gives
the share a_x / S_t of its mass to its member x. S_t is the sum of a over the members, and over a dummy that
stands for mass without a taker. Weights are high for sources that u cannot place, and S is low in cells that u cannot
fill. The value of x in a cell is the sum of such shares over the contexts. What is lost with a member is more, above
all if its share is nearly all of the cell. A source moves from the cell where it is missed least to where its value is
most. The scaling goes on while sources move.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onoff.model.powers import one_thread, times
from onoff.schemes.flow import in_time
from onoff.schemes.law import Member, end_to_end, merge_sets
from onoff.types import Floats

STEPS = 200  # with each number of cells: after that hardly anything changes
CELLS = 320  # at least; two for each source if that is more
SCALINGS = 2  # of each context in a step
DUMMY = 0.02  # weight of the dummy, as a share of the mean S
ALONE = 5.0  # what the fourth power of a share counts in a loss: a member that is alone is needed
MOVING = 0.5  # share of the sources that may move in a step: if all may, they move to and fro
HIGHEST = 12.0  # logarithm of the highest weight of a source
WHOLE = 1e-3  # the part of a source in its last cell is at least this from 0 and 1 while values are computed

Singles = NDArray[np.float32]


class Exchange:
    """Cells and the sources in them: `_held[x, t]` is 1, 0 or, in one cell of each source, a part.

    A move exchanges two numbers of a row, so that each source keeps its length. Floats of single precision only decide
    who moves.
    """

    def __init__(self, lengths: Floats, rng: np.random.Generator) -> None:
        self._lengths, self._rng = lengths, rng
        self._held: Singles = np.zeros((len(lengths), len(lengths)), dtype=np.float32)
        self._rows: Singles = np.zeros((0, len(lengths)), dtype=np.float32)
        self._scale: Singles = self._rows.copy()
        begin = 0
        whole, part = self._sizes()
        part = np.clip(part, WHOLE, 1 - WHOLE)
        for x in rng.permutation(len(lengths)):
            place = np.arange(begin, begin + whole[x] + 1) % self.cells
            self._held[x, place[:-1]] = 1
            if whole[x] < self.cells:
                self._held[x, place[-1]] = part[x]
            begin += whole[x] + int(rng.random() < part[x])

    @property
    def cells(self) -> int:
        """Number of cells."""
        return int(self._held.shape[1])

    def add(self, rows: Floats) -> None:
        """Take more contexts into account."""
        self._rows = np.concatenate([self._rows, rows.astype(np.float32)])
        self._scale = np.concatenate([self._scale, np.zeros(rows.shape, dtype=np.float32)])

    def settle(self, deadline: float) -> None:
        """Move sources, in more and more cells. Raises `TimeoutError` if time runs out."""
        with one_thread():
            while True:
                for _ in range(STEPS):
                    in_time(deadline)
                    self.step()
                if self.cells >= max(CELLS, 2 * len(self._lengths)):
                    return
                self._halve()

    def step(self) -> int:
        """Move sources, at most one to or from a cell. Returns how many moved."""
        value, loss = self._values()
        held, every = self._held, np.arange(len(self._lengths))
        to = np.where(held < 1, value, -np.inf).argmax(axis=1)
        away = np.where(held > 0, loss, np.inf).argmin(axis=1)
        gain = (value[every, to] - loss[every, away]) * (held[every, away] - held[every, to])
        gain[(held[every, away] <= held[every, to]) | (self._rng.random(len(every)) > MOVING)] = 0
        used = np.zeros(self.cells, dtype=bool)
        moves = 0
        for x in np.argsort(-gain):
            if gain[x] <= 0:
                break
            pair = [to[x], away[x]]
            if not used[pair].any():
                used[pair] = True
                held[x, pair] = held[x, pair[::-1]]
                moves += 1
        return moves

    def law(self) -> tuple[Member, Floats]:
        """List sets and masses. In a cell the parts of sources lie end to end, modulo the cell."""
        part = self._sizes()[1]
        sets, masses = [], []
        for held in self._held.T:
            parts = np.flatnonzero((held > 0) & (held < 1))
            within, mass = end_to_end(part[parts])
            member = np.repeat((held == 1)[None], len(mass), axis=0)
            member[:, parts] = within
            sets.append(member)
            masses.append(mass / self.cells)
        return merge_sets(np.concatenate(sets), np.concatenate(masses))

    def _sizes(self) -> tuple[NDArray[np.intp], Floats]:
        """Compute each source's number of whole cells, and its part of one more."""
        whole = np.minimum(np.floor(self._lengths * self.cells), self.cells).astype(np.intp)
        return whole, self._lengths * self.cells - whole

    def _halve(self) -> None:
        """Halve each cell. A part becomes a larger part of the first, or all of it and a part of the second."""
        x, t = np.nonzero((self._held > 0) & (self._held < 1))
        self._held = np.repeat(self._held, 2, axis=1)
        whole, part = self._sizes()
        part = np.clip(part, WHOLE, 1 - WHOLE)
        more = whole[x] > np.count_nonzero(self._held == 1, axis=1)[x]
        self._held[x, 2 * t] = np.where(more, 1, part[x])
        self._held[x, 2 * t + 1] = np.where(more, part[x], 0)

    def _values(self) -> tuple[Singles, Singles]:
        """Compute each source's gain for a cell, and the loss without it, over all contexts."""
        for _ in range(SCALINGS):
            weight, sums = self._weights()
            placed = times(np.float32(1 / self.cells) / sums, self._held.T)
            self._scale = np.minimum(-np.log(np.maximum(placed, np.float32(1e-12))), np.float32(HIGHEST))
        weight, sums = self._weights()
        inverse = 1 / sums
        value = times(weight.T, inverse)
        square, squared = weight**2, inverse**2
        loss: Singles = value + np.float32(0.5) * times(square.T, squared)
        loss += np.float32(ALONE) * times((square**2).T, squared**2)
        return value, loss

    def _weights(self) -> tuple[Singles, Singles]:
        """Compute each context's weights a, and S by cell."""
        weight = self._rows * np.exp(self._scale)
        sums: NDArray[Any] = times(weight, self._held)
        return weight, sums + np.float32(DUMMY) * sums.mean(axis=1, keepdims=True)
