"""What freshness saves where everything is asked for, beside the promise `past`, which spares nothing.

    .venv/bin/python benchmarks/bench_fresh.py [CHAIN ...] [--visits 2222]

A reader makes visits of nine requests, 40 s apart on average (exponential gaps), and hours pass between visits. The
client with the promise `all` asks for every source whose copy is not fresh, whichever is wanted. All copies are fresh
for the same time and no server fails, so they are asked for together. The exact share of requests that ask for them
stands beside that of a simulation with the client's own rule (`Copy`). The means of `past` are those of `onoff costs
--day`: it costs the same in visits as elsewhere.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from common import dirichlet, show
from onoff import Chain
from onoff.apps.costs import Effort
from onoff.apps.day import Usage, compare_day
from onoff.client.cache import Copy

EXAMPLES = Path(__file__).parents[1] / "examples"
REQUESTS, APART, PAUSE = 9, 40.0, 4 * 3600.0
MINUTES = (0, 1, 5, 30)
PRIVATE = (0.2, 0.5)
STREAMS = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("chains", nargs="*", type=Path, metavar="CHAIN")
    parser.add_argument("--visits", type=int, default=2222)
    options = parser.parse_args()

    exact = [exact_share(60.0 * minutes) for minutes in MINUTES]
    simulated = [simulate(60.0 * minutes, options.visits) for minutes in MINUTES]
    rows = [[minutes, share, *means] for minutes, share, means in zip(MINUTES, exact, simulated, strict=True)]
    headings = ["minutes of freshness", "share of requests that ask", "simulated", "mean age of messages (s)"]
    show(f"promise all, visits of {REQUESTS} requests; {options.visits:,} simulated", headings, rows)

    files = [EXAMPLES / "demo.csv", EXAMPLES / "reader.csv", *options.chains]
    chains = {file.stem: Chain.load(file) for file in files} | {"Dirichlet(5)": dirichlet(100, 5.0)}
    rows = [[name, chain.n, *past(chain), *(chain.n * share for share in exact)] for name, chain in chains.items()]
    headings = [*(f"past, {share:.0%} ON" for share in PRIVATE), *(f"all, {minutes} min" for minutes in MINUTES)]
    show("messages a request", ["chain", "n", *headings], rows)


def exact_share(seconds: float) -> float:
    """The share of requests that ask: the first of a visit, and each that comes first after a time of freshness."""
    mean = seconds / APART

    @cache
    def asking(left: int) -> float:
        """How many of the last `left` requests of a visit ask, if the first of them does."""
        within = [math.exp(-mean) * mean**fresh / math.factorial(fresh) for fresh in range(left - 1)]
        return 1 + sum(chance * asking(left - 1 - fresh) for fresh, chance in enumerate(within))

    return asking(REQUESTS) / REQUESTS


def simulate(seconds: float, visits: int) -> tuple[float, float]:
    """The share of requests that ask, and the mean age of the messages, in seconds."""
    held = Copy(0, -math.inf, -math.inf)
    asked, ages = 0, list[float]()
    for moment in reading_times(visits):
        if not held.is_fresh(moment):
            held = Copy(0, moment, moment + seconds)
            asked += 1
        ages.append(moment - held.arrived)
    return asked / len(ages), float(np.mean(ages))


def reading_times(visits: int) -> Iterator[float]:
    rng = np.random.default_rng(1)
    moment = 0.0
    for _ in range(visits):
        for gap in rng.exponential(APART, REQUESTS):
            yield moment
            moment += gap
        moment += PAUSE


def past(chain: Chain) -> list[float]:
    """Messages a request of the promise `past`, for each share of private requests."""
    days = [compare_day(chain, Usage(private=share), effort=Effort(streams=STREAMS)) for share in PRIVATE]
    return [way.cost / day.usage.requests for day in days for way in day.ways if way.name == "past"]


if __name__ == "__main__":
    main()
