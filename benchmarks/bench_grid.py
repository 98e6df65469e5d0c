"""How far a plan is above the bound of a larger lag that it serves, for several grids of lags.

    .venv/bin/python benchmarks/bench_grid.py [--msnbc FILE] [--last 55]

A plan serves every larger lag exactly, but a plan of that lag may cost less. The *excess* at a lag is the cost of the
cheapest plan of the grid up to that lag, over the outer bound of the lag, less 1. `--msnbc` takes a chain file, as
`onoff fit` writes it. As in the planner a grid ends where its cost is within 0.1 % of the bound at a far lag.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path

from joblib import parallel_config

from common import dirichlet, show
from onoff import Chain, plan
from onoff.model.bounds import outer_bound
from onoff.model.posterior import Posterior
from onoff.plans.planner import FAR, WORTH, coarse, grid

READER = Path(__file__).parent.parent / "examples" / "reader.csv"


class Costs:
    """The costs of the plans of one chain and their CPU seconds, each made once, and the outer bounds."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.made: dict[int, tuple[float, float]] = {}
        self.bounds: dict[int, float] = {}

    def cost(self, lag: int) -> float:
        if lag not in self.made:
            start = time.process_time()
            with parallel_config(backend="sequential"):  # in one process, whose CPU time is all there is
                found = plan(self.chain, lag)
            self.made[lag] = found.cost, time.process_time() - start
        return self.made[lag][0]

    def bound(self, lag: int) -> float:
        if lag not in self.bounds:
            self.bounds[lag] = outer_bound(Posterior(self.chain, lag))
        return self.bounds[lag]


def fibonacci(_: Costs, last: int) -> Iterator[int]:
    """What the planner makes first: 1, 2, 3, 5, 8, 13, ..."""
    yield from takewhile(lambda lag: lag <= last, coarse())


def fine(_: Costs, last: int) -> Iterator[int]:
    """Every lag up to 8, then a fifth further each time."""
    lag = 1
    while lag <= last:
        yield lag
        lag = max(lag + 1, round(1.2 * lag)) if lag >= 8 else lag + 1


def adaptive(costs: Costs, last: int) -> Iterator[int]:
    """What the planner makes: the next lag whose bound is lower by 1 %. Bounds never rise and are cheap, plans not."""
    yield from takewhile(lambda lag: lag <= last, grid(costs.bound))


GRIDS: dict[str, Callable[[Costs, int], Iterator[int]]] = {
    "1, 2, 3, 5, 8, 13, ...": fibonacci, "1 to 8, then x 1.2": fine, "the planner's: 1 %": adaptive,
}  # fmt: skip


def measured(costs: Costs, choose: Callable[[Costs, int], Iterator[int]], last: int) -> list[object]:
    """Plans, their CPU seconds, the largest excess, the lag where it is, the mean excess over the lags 1 to `last`."""
    floor = costs.bound(FAR)
    lags = []
    for lag in choose(costs, last):
        lags.append(lag)
        if costs.cost(lag) <= floor * (1 + WORTH):
            break
    excess = {
        lag: min(costs.cost(each) for each in lags if each <= lag) / costs.bound(lag) - 1 for lag in range(1, last + 1)
    }
    worst = max(excess, key=lambda lag: excess[lag])
    seconds = sum(costs.made[lag][1] for lag in lags)
    return [len(lags), seconds, f"{excess[worst]:.1%}", worst, f"{sum(excess.values()) / last:.2%}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--msnbc", type=Path)
    parser.add_argument("--last", type=int, default=55)
    options = parser.parse_args()
    plan(dirichlet(4, 5), 1)  # load the libraries before any clock runs
    chains = {"examples/reader.csv": Chain.load(READER)}
    if options.msnbc:
        chains["MSNBC"] = Chain.load(options.msnbc)
    chains |= {f"Dirichlet({c})": dirichlet(30, c) for c in (5, 1, 0.3, 0.1)}
    chains["symmetric(0.8)"] = Chain.symmetric(10, 0.8)
    rows: list[list[object]] = []
    for name, chain in chains.items():
        costs = Costs(chain)
        rows += [[name, chain.n, grid, *measured(costs, choose, options.last)] for grid, choose in GRIDS.items()]
    headings = ["chain", "n", "grid", "plans", "CPU s", "largest excess", "at lag", f"mean, lags 1-{options.last}"]
    show("Excess over the bound of the lag", headings, rows)


if __name__ == "__main__":
    main()
