"""Single rows of P^lag, for lags that grow by one from draw to draw.

While a client stays OFF, `last` is the same and the lag grows, so it needs one row of P^lag at each step. To compute
all of P^lag anew takes n^3 products. The row alone is the row before times P, which takes n^2.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from onoff.model import powers as products
from onoff.model.posterior import SAFE, Posterior
from onoff.types import Floats

if TYPE_CHECKING:
    from onoff.model.chain import Chain

MOST_STEPS = 4096  # beyond, a walk from the start would take seconds
KEPT = 16  # sources `last` whose walks are continued


class Walks:
    """Rows of P^k. Each is walked the same way, so that it is the same to the bit whatever was asked for before.

    The relative error is that of `powers.power`: k - 1 products, each summed in the same blocks.
    """

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self._power = lru_cache(maxsize=2)(chain.power)
        self._reached: dict[int, tuple[int, Floats]] = {}

    def row(self, last: int, k: int) -> Floats:
        """Row `last` of P^k, for k from 1 on. By repeated squaring if the walk would be very long."""
        if k > MOST_STEPS:
            far: Floats = self._power(k)[last]
            return far
        row: Floats = self.chain.P[last]
        steps, reached = self._reached.get(last, (1, row))
        steps, row = (steps, reached) if steps <= k else (1, row)
        for _ in range(steps, k):
            row = products.product(row[None], self.chain.P)[0]
        while len(self._reached) >= KEPT:
            self._reached.pop(next(iter(self._reached)), None)
        self._reached[last] = k, row
        return row


class WalkedPosterior(Posterior):
    """`Posterior` for draws: its rows come from `walks`, unless the lag is far or probabilities might underflow."""

    def __init__(self, chain: Chain, lag: int, walks: Walks) -> None:
        super().__init__(chain, lag)
        self._walks = walks
        least = math.log2(chain.P[self.edges].min())
        # If every source may follow every other, an entry of P^lag is an average of entries of P.
        smallest = least * (2 if self.edges.all() else self.lag + 1)
        self._walked = 1 <= lag <= MOST_STEPS and smallest >= math.log2(SAFE)

    @property
    def scaled(self) -> bool:
        return not self._walked and super().scaled

    def row(self, last: int, next: int) -> Floats:
        """p(. | last, next): n^2 products for every lag since the one that was last asked for with this `last`."""
        if not self._walked:
            return super().row(last, next)
        self.possible(last, next)
        weights = self._walks.row(last, self.lag) * self.chain.P[:, next]
        result: Floats = weights / np.sum(weights)
        return result
