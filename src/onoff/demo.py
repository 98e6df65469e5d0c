"""The demonstration: a reader of eight news channels who switches privacy ON and OFF, simulated in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from onoff.chain import Chain
from onoff.planning import plan
from onoff.plans import Plan
from onoff.schemes.paper import paper

CHANNELS = ("world", "politics", "business", "technology", "science", "health", "sports", "culture")
HABITS = (  # how often each channel (row) was followed by each other (column) in the reader's past
    (9, 8, 5, 3, 2, 3, 4, 2),
    (7, 9, 6, 2, 2, 3, 3, 2),
    (4, 6, 8, 6, 2, 2, 3, 2),
    (3, 2, 5, 9, 6, 2, 3, 2),
    (3, 2, 2, 6, 7, 5, 2, 3),
    (3, 3, 2, 2, 5, 7, 4, 3),
    (4, 3, 3, 3, 2, 4, 9, 3),
    (3, 2, 2, 2, 3, 3, 4, 7),
)
SWITCHING = 0.12  # how often privacy is switched, independently of what is read


@dataclass(frozen=True)
class Simulation:
    """What was downloaded in messages, beside the alternatives for the same requests and statuses."""

    steps: int
    private_steps: int
    downloaded: int
    everything: int
    paper: float
    expected: float
    lower_bound: float
    all_delivered: bool


def reader() -> Chain:
    """The chain of the eight channels."""
    return Chain.from_counts(HABITS, CHANNELS)


def statuses(steps: int, rng: np.random.Generator) -> list[bool]:
    """ON and OFF periods. The first and the last step are ON: the one starts the stream, the other has no next."""
    flips = rng.random(steps) < SWITCHING
    private = [bool(status) for status in np.cumsum(flips) % 2 == 0]
    private[0] = private[-1] = True
    return private


def simulate(steps: int, seed: int, progress: Callable[[], None] = lambda: None) -> Simulation:
    """Play the requests through optimal plans. A simulation: the seed makes it repeatable, never a secret."""
    rng = np.random.default_rng(seed)
    chain = reader()
    requests = [int(x) for x in chain.simulate(steps, rng)]
    private = statuses(steps, rng)
    plans: dict[int, tuple[Plan, float]] = {}
    downloaded, in_paper, expected, least, delivered = 0, 0.0, 0.0, 0.0, True
    for t, (request, lag, last) in enumerate(_with_lag(requests, private)):
        if lag not in plans:
            plans[lag] = plan(chain, lag), float(paper(chain.posterior(lag)).cost)
        made, cost = plans[lag]
        query = made.draw(request, last, requests[(t + 1) % steps], randbelow=lambda k: int(rng.integers(k)))
        in_paper += cost
        expected += made.cost
        least += made.lower_bound
        downloaded += len(query)
        delivered &= request in query
        progress()
    return Simulation(steps, sum(private), downloaded, steps * chain.n, in_paper, expected, least, delivered)


def _with_lag(requests: list[int], private: list[bool]) -> Iterator[tuple[int, int, int]]:
    """Each request with the lag and the last private request at that time."""
    lag, last = 0, requests[0]
    for request, status in zip(requests, private, strict=True):
        lag, last = (0, request) if status else (lag + 1, last)
        yield request, lag, last
