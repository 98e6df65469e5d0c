"""How streams of requests begin, and the people who are replayed."""

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


def request_law(chain: Chain) -> Floats:
    """How often each source is asked for in the long run. Raises `NotUnique` where that depends on the beginning."""
    return np.bincount(chain.last, chain.stationary(), chain.n).astype(np.float64)


def start_law(chain: Chain, uniform: bool = False) -> Floats:
    """The law of the first request: stationary; uniform if asked for, or if that is not unique or leaves sources out.

    Otherwise nothing would be said of streams that start with some source.
    """
    law = np.ones(chain.n)
    with suppress(NotUnique):
        found = request_law(chain)
        law = law if uniform or not found.all() else found
    scaled: Floats = law / law.sum()
    return scaled


@dataclass(frozen=True)
class Split:
    """People to attack, and the habits that were learned from `training` others.

    `clients` are told by how many requests they remember, `servers` by name. `start` is the law of the first request.
    `cut` sequences end early, before a source or a step that the client's chain does not have.
    """

    clients: dict[int, Chain]
    servers: dict[str, Chain]
    start: Floats
    attacked: list[NDArray[np.intp]]
    training: int
    cut: int = 0


def lags_of(statuses: Sequence[bool]) -> list[int]:
    """For every step, how many steps ago privacy was last ON: 0 while ON."""
    return list(accumulate(statuses, lambda lag, private: 0 if private else lag + 1, initial=0))[1:]
