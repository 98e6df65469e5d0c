"""The demonstration: a reader of eight news channels who switches privacy ON and OFF, simulated in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from onoff.chain import Chain
from onoff.limits import Bounds, bounds
from onoff.schemes.paper import PaperScheme, paper

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
    expected: float
    inner: float
    outer: float
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
    """Play the requests through the paper's scheme. A simulation: the seed makes it repeatable, never a secret."""
    rng = np.random.default_rng(seed)
    chain = reader()
    requests = [int(x) for x in chain.simulate(steps, rng)]
    private = statuses(steps, rng)
    schemes: dict[int, tuple[PaperScheme, float, Bounds]] = {}
    downloaded, expected, inner, outer, delivered = 0, 0.0, 0.0, 0.0, True
    for t, (request, lag, last) in enumerate(_with_lag(requests, private)):
        if lag not in schemes:
            made = paper(chain.posterior(lag))
            schemes[lag] = made, float(made.cost), bounds(made.posterior)
        scheme, cost, both = schemes[lag]
        if lag == 0:
            query: tuple[int, ...] = tuple(range(chain.n))
        else:
            query = _draw(scheme, request, last, requests[t + 1], rng)
        expected += cost
        inner += float(both.inner)
        outer += float(both.outer)
        downloaded += len(query)
        delivered &= request in query
        progress()
    return Simulation(steps, sum(private), downloaded, steps * chain.n, expected, inner, outer, delivered)


def _with_lag(requests: list[int], private: list[bool]) -> Iterator[tuple[int, int, int]]:
    """Each request with the lag and the last private request at that time."""
    lag, last = 0, requests[0]
    for request, status in zip(requests, private, strict=True):
        lag, last = (0, request) if status else (lag + 1, last)
        yield request, lag, last


def _draw(scheme: PaperScheme, request: int, last: int, next: int, rng: np.random.Generator) -> tuple[int, ...]:
    """A query from w(q | x, u) = p(q, x | u) / p(x | u); everything, where rounding left that request no mass."""
    contexts = scheme.posterior.contexts
    context = int(np.flatnonzero((contexts == (last, next)).all(axis=1))[0])
    options = [(z, float(mass)) for z, x, mass in scheme.joint(context) if x == request]
    if not options:
        return tuple(range(scheme.posterior.n))
    weights = np.array([mass for _, mass in options])
    return tuple(sorted(set(options[int(rng.choice(len(options), p=weights / weights.sum()))][0])))
