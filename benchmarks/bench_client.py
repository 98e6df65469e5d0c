"""What a step costs the client itself: drawing, the journal's two transactions, the state machine; no network."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from common import dirichlet, show
from onoff import Chain, Client, Planner, plan
from onoff.client.transport import Answer, Content
from onoff.plans.store import PlanStore

STEPS = 300


class NoNetwork:
    """A transport that answers at once: what is left is the client."""

    def __init__(self, chain: Chain) -> None:
        self.names = chain.names
        self.fingerprint = "no network"

    async def connect(self) -> None:
        pass

    async def fetch(self, stream: str, step: int, sources: tuple[int, ...]) -> Answer:  # noqa: ARG002 (the protocol's)
        return Answer(tuple(Content(200, b"x" * 4096, step) for _ in sources), 4096 * len(sources))

    async def close(self) -> None:
        pass


async def steps(chain: Chain, directory: Path) -> list[float]:
    """Milliseconds of each OFF step at lag 1 (every second step is ON)."""
    rng = np.random.default_rng(1)
    path = [int(x) for x in chain.simulate(2 * STEPS + 2, rng)]
    times = []
    with Planner(chain, directory) as planner:
        planner.wait(1, 120)
        async with Client(chain, NoNetwork(chain), directory / "journal", planner, delay=0, first_ever=True) as client:
            for t in range(2 * STEPS):
                start = time.perf_counter()
                await client.get(chain.names[path[t]], chain.names[path[t + 1]], private=t % 2 == 0)
                if t % 2:
                    times.append(1e3 * (time.perf_counter() - start))
    return times


def sync_time(directory: Path) -> float:
    """Milliseconds of one write with fsync: two of them are in every step."""
    times = []
    with (directory / "probe").open("wb", buffering=0) as stream:
        for _ in range(50):
            start = time.perf_counter()
            stream.write(b"x" * 4096)
            os.fsync(stream.fileno())
            times.append(1e3 * (time.perf_counter() - start))
    return median(times)


def main() -> None:
    rows = []
    places = {"disk": None, "memory": "/dev/shm"} if Path("/dev/shm").is_dir() else {"disk": None}
    for place, parent in places.items():
        for n in (8, 30, 100):
            with tempfile.TemporaryDirectory(dir=parent) as name:
                directory, chain = Path(name), dirichlet(n, 5)
                PlanStore(chain, directory).save(plan(chain, 1))
                times = asyncio.run(steps(chain, directory))
                spread = f"{np.quantile(times, 0.05):.2f}-{np.quantile(times, 0.95):.2f}"
                rows.append([place, n, median(times), spread, sync_time(directory)])
    show(
        "A step of the client without network; a step has two synchronous writes (target: median 5 ms)",
        ["journal on", "n", "median ms", "5-95 %", "one fsync, ms"],
        rows,
    )


if __name__ == "__main__":
    main()
