"""What the queries of whole streams tell about what is hidden: all of them enumerated, or many sampled.

G_t is what is hidden up to t: requests made ON, and of each OFF step which sensitive source was asked for, or none.
Shown for every step is I(G_t; Q_t | Q_0..Q_{t-1}), promised to be 0, and beside it what nobody promises: the bits
that the queries *before* a hidden request tell about it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onoff.audit.everyday.clients import Client, Decoys, Exhibit, Naive
from onoff.audit.models import TooLarge
from onoff.audit.setting import start_law
from onoff.errors import OnoffError

if TYPE_CHECKING:
    from onoff.model.chain import Chain


@dataclass(frozen=True)
class Told:
    """One step of all streams.

    `bits` is what its query tells about all that is hidden, given the queries before. `before` is what the queries
    before it tell about its own hidden part; None where it has none. `messages` is the expected size of the query.
    `distance` is the largest total variation, over pasts, between the law of the query and the stated one, and
    `average` its mean. `stated` is the mean of all roundings stated since the last ON step, and `stated_most` the most
    of them. These four are None for clients that state nothing. `margins` are those of `bits`, `before` and `messages`
    (95 %), 0 where streams were enumerated. Steps count from 1.
    """

    step: int
    private: bool
    bits: float
    before: float | None
    messages: float
    distance: float | None = None
    average: float | None = None
    stated: float | None = None
    stated_most: float | None = None
    margins: tuple[float, float, float] = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Streams:
    """What all streams of a client tell, by `method`; `holds` is None for a client that promises nothing."""

    client: str
    method: str
    steps: tuple[Told, ...]
    holds: bool | None
    faults: tuple[str, ...] = ()

    @property
    def bits(self) -> float:
        """The most that a query tells about what is hidden, given the queries before it."""
        return max(step.bits for step in self.steps)


def audit(
    chain: Chain,
    statuses: Sequence[bool],
    client: Client,
    sensitive: Sequence[int] = (),
    start: NDArray[np.float64] | None = None,
    *,
    streams: int = 100,
    seed: int = 1,
    advance: Callable[[], None] = lambda: None,
) -> Streams:
    """Audit a client on streams of `chain` with these statuses; `start` is the law of the first request.

    All streams if they are few enough, else as many as `streams` says. `advance` is called after each sampled one. (A
    client that was made for another chain states nothing about this one: then `holds` means nothing.)
    """
    from onoff.audit.everyday.enumeration import by_enumeration
    from onoff.audit.everyday.sampled import sampled_exhibit, sampled_leaky

    if not statuses or not statuses[0]:
        raise OnoffError("the first step must be ON: a client starts with the full set")
    hidden = tuple(sorted(set(sensitive)))
    first = start_law(chain) if start is None else start
    try:
        return by_enumeration(chain, statuses, client, hidden, first)
    except TooLarge:
        pass
    if isinstance(client, Exhibit):
        return sampled_exhibit(chain, statuses, client, hidden, first, streams, seed, advance)
    if isinstance(client, Naive | Decoys):
        return sampled_leaky(chain, statuses, client, hidden, first, streams, seed, advance)
    raise TooLarge(f"{client.name}: too many streams to enumerate: take fewer steps, or a smaller chain")
