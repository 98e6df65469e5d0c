"""What every mode costs on the loaded chain, in messages per request over the steps since privacy was last ON."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from onoff.apps.everydayrates import EverydayRates, everyday_rates
from onoff.apps.terminal import Rate, rates
from onoff.errors import OnoffError
from onoff.model.chain import Chain
from onoff.types import Advance, quiet

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
        found = replace(found, past=(await _everyday(chain, (), STREAMS))[0])
        yield found
    if sensitive:
        locked, long_run = await _everyday(chain, sensitive, STREAMS_LOCKED)
        found = replace(found, locked=locked, long_run=long_run)
        yield found
    for step in STEPS[len(found.both) :]:
        [row] = await asyncio.to_thread(rates, chain, [step], quiet, SECONDS)
        found = _with(found, row)
        yield found


async def _everyday(chain: Chain, sensitive: tuple[int, ...], streams: int) -> tuple[tuple[float, ...], float | None]:
    """The costs of the everyday mode, and of the long run. Who stops waiting stops the simulation, too."""
    stopped = threading.Event()

    @contextmanager
    def bar(_: int | None) -> Iterator[Advance]:
        def advance() -> None:
            if stopped.is_set():
                raise OnoffError("nobody waits for these costs any more")

        yield advance

    def simulate() -> EverydayRates:
        return everyday_rates(chain, STEPS, sensitive, streams=streams, announced=False, bar=bar)

    try:
        rows = await asyncio.to_thread(simulate)
    except asyncio.CancelledError:
        stopped.set()
        raise
    return tuple(row.past for row in rows.rows), None if rows.long_run is None else rows.long_run[0]


def _with(found: Costs, row: Rate) -> Costs:
    best, gap = row.optimum, row.gap
    if found.both and found.both[-1] < best:  # time was short: a plan serves larger lags, too
        bound, best = best / (1 + gap), found.both[-1]
        gap = best / bound - 1
    paper = row.inner if row.paper is None else row.paper
    return replace(found, paper=(*found.paper, paper), both=(*found.both, best), gap=max(found.gap, gap))
