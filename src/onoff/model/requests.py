"""Models of requests: a chain, or habits of the second order, with the law of the first request."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onoff.errors import NotUnique
from onoff.types import Floats

if TYPE_CHECKING:
    from onoff.model.chain import Chain


@dataclass(frozen=True, eq=False)
class Requests:
    """X_0 ~ start, X_1 ~ first[X_0], X_t ~ second[X_{t-2}, X_{t-1}]; without `second` a chain, X_t ~ first[X_{t-1}]."""

    start: Floats
    first: Floats
    second: Floats | None = None

    @classmethod
    def of_chain(cls, chain: Chain, start: Floats | None = None) -> Requests:
        law = start_law(chain) if start is None else start
        return cls(law / law.sum(), chain.P)

    def moves(self, t: int) -> Floats:
        """[w, x, y]: p(X_{t+1} = y | X_{t-1} = w, X_t = x); the first axis has length 1 where w does not matter."""
        return self.first[None] if self.second is None or t == 0 else self.second


def start_law(chain: Chain, uniform: bool = False) -> Floats:
    """The law of the first request: stationary; uniform if asked for, or if that is not unique or leaves sources out.

    Otherwise nothing would be said of streams that start with some source.
    """
    law = np.ones(chain.n)
    with suppress(NotUnique):
        found = np.bincount(chain.last, chain.stationary(), chain.n).astype(np.float64)
        law = law if uniform or not found.all() else found
    scaled: Floats = law / law.sum()
    return scaled


@dataclass(frozen=True)
class Split:
    """People to attack, and the `servers`, which learned from `training` others; `chain` is the client's.

    `cut` sequences end early, before a source or a step that the chain does not have.
    """

    chain: Chain
    attacked: list[NDArray[np.intp]]
    training: int
    servers: dict[str, Requests]
    cut: int = 0


def lags_of(statuses: Sequence[bool]) -> list[int]:
    """For every step, how many steps ago privacy was last ON: 0 while ON."""
    return list(accumulate(statuses, lambda lag, private: 0 if private else lag + 1, initial=0))[1:]
