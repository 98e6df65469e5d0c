"""What every mode costs on the loaded chain, in messages per request over the steps since privacy was last ON."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import numpy as np

from onoff.apps.costs import simulate
from onoff.apps.day import MOST_STEPS, SETTLED
from onoff.errors import OnoffError
from onoff.model.bounds import bounds
from onoff.model.chain import Chain
from onoff.plans.plan import Plan, plan
from onoff.schemes.paper import LIMIT as PAPER_LIMIT
from onoff.schemes.paper import paper
from onoff.types import Floats

STEPS = range(1, 9)
SECONDS = 2.0  # for each optimum of the announced mode
STREAMS = 12  # simulated ones of the everyday mode
STREAMS_LOCKED = 4  # of 60 steps each


@dataclass(frozen=True)
class Costs:
    """Costs at steps 1, 2, ... after ON, as far as they are known.

    `past` is the everyday mode, simulated. `locked` is the same with the sensitive sources, and `long_run` what that
    costs on average if privacy is never switched ON. `paper` and `both` are the announced mode: the paper's scheme, and
    the cheapest plan found, which no scheme beats by more than `gap`.
    """

    openly: int
    everything: int
    past: tuple[float, ...] = ()
    locked: tuple[float, ...] = ()
    long_run: float | None = None
    paper: tuple[float, ...] = ()
    both: tuple[float, ...] = ()
    gap: float = 0.0


async def costs(chain: Chain, sensitive: tuple[int, ...], known: Costs | None = None) -> AsyncIterator[Costs]:
    """The costs, more and more of them. What is `known` for other sensitive sources is not computed again."""
    found = known or Costs(1, chain.n)
    found = replace(found, locked=(), long_run=None)
    if not found.past:
        found = replace(found, past=_mean(await _simulated(chain, (), STREAMS, len(STEPS))))
        yield found
    if sensitive:
        streams = await _simulated(chain, sensitive, STREAMS_LOCKED, MOST_STEPS)
        found = replace(found, locked=_mean(streams), long_run=float(streams[:, SETTLED - 1 :].mean()))
        yield found
    for step in STEPS[len(found.both) :]:
        made = await asyncio.to_thread(plan, chain, step, time_limit=SECONDS)
        cost = await asyncio.to_thread(_paper, chain, step)
        found = _with(replace(found, paper=(*found.paper, cost)), made)
        yield found


async def _simulated(chain: Chain, sensitive: tuple[int, ...], streams: int, steps: int) -> Floats:
    """The cost of each step of each stream. Who stops waiting stops the simulation, too."""
    stopped = threading.Event()

    def run() -> Floats:
        rows = []
        for number in range(streams):
            if stopped.is_set():
                raise OnoffError("nobody waits for these costs any more")
            rows.append(simulate(chain, sensitive, steps, f"1/{number}").expected.sum(axis=1))
        return np.array(rows)

    try:
        return await asyncio.to_thread(run)
    except asyncio.CancelledError:
        stopped.set()
        raise


def _mean(streams: Floats) -> tuple[float, ...]:
    return tuple(streams.mean(axis=0)[: len(STEPS)].tolist())


def _paper(chain: Chain, lag: int) -> float:
    """The cost of the paper's scheme, or the bound on it where that takes too long."""
    posterior = chain.posterior(lag)
    return float(paper(posterior).cost if chain.n <= PAPER_LIMIT else bounds(posterior).inner)


def _with(found: Costs, made: Plan) -> Costs:
    """The costs with those of one plan more."""
    best, gap = made.cost, made.gap
    if found.both and found.both[-1] < best:  # time was short: a plan serves larger lags, too
        bound, best = best / (1 + gap), found.both[-1]
        gap = best / bound - 1
    return replace(found, both=(*found.both, best), gap=max(found.gap, gap))
