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
    """Long-run shares of all sources. Raises `NotUnique` where they depend on the beginning."""
    return np.bincount(chain.last, chain.stationary(), chain.n).astype(np.float64)


def start_law(chain: Chain) -> Floats:
    """Choose the first request's law: stationary; uniform if that is not unique or omits sources.

    Else streams from some source would go unexamined.
    """
    law = np.ones(chain.n)
    with suppress(NotUnique):
        found = request_law(chain)
        law = found if found.all() else law
    scaled: Floats = law / law.sum()
    return scaled


@dataclass(frozen=True)
class Split:
    """People to attack, and the habits that were learned from `training` others.

    `clients` are keyed by how many requests they remember, `servers` by name. `start` is the law of the first request.
    `cut` sequences end early, before a source or step missing in the client's chain.
    """

    clients: dict[int, Chain]
    servers: dict[str, Chain]
    start: Floats
    attacked: list[NDArray[np.intp]]
    training: int
    cut: int = 0


def lags_of(statuses: Sequence[bool]) -> list[int]:
    """Count each step's distance from the last ON step: 0 while ON."""
    return list(accumulate(statuses, lambda lag, private: 0 if private else lag + 1, initial=0))[1:]
