"""What a step costs the client itself: drawing, the journal's two transactions, the state machine; no network.

    .venv/bin/python benchmarks/bench_client.py [--steps 300] [--long 1000]

Both promises are in the same run. Another table compares steps in which nothing changed with those that download and
write everything. The time of "past" is that until the caller has the message, which includes preparing
the next step. The last table shows how flat it is over `--long` steps of one journal with two sensitive sources.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from common import dirichlet, peak_gigabytes, show
from onoff import Chain, Planner, connect, plan
from onoff.client.cache import CACHE
from onoff.client.transports import Answer, Content
from onoff.plans.store import PlanStore

BODY = b"x" * 4096
PLACES = {"disk": None, "memory": "/dev/shm"} if Path("/dev/shm").is_dir() else {"disk": None}


class NoNetwork:
    """A transport that answers at once: what is left is the client. With `still` nothing ever changes."""

    def __init__(self, chain: Chain, still: bool = False) -> None:
        self.names = chain.names
        self.fingerprint = "no network"
        self._still = still

    async def connect(self) -> None:
        pass

    async def fetch(
        self,
        stream: str,  # noqa: ARG002 (the protocol's)
        step: int,
        sources: tuple[int, ...],  # noqa: ARG002
        held: tuple[str | None, ...],
    ) -> Answer:
        version = "still" if self._still else None
        contents = tuple(
            Content(200, b"", unchanged=True) if known else Content(200, BODY, step, version=version, size=len(BODY))
            for known in held
        )
        return Answer(contents, sum(content.size for content in contents))

    async def close(self) -> None:
        pass


async def announced(chain: Chain, directory: Path, steps: int) -> list[float]:
    """Milliseconds of each OFF step at lag 1 (every second step is ON), for the promise "both"."""
    path = [int(x) for x in chain.simulate(2 * steps + 2, np.random.default_rng(1))]
    times = []
    with Planner(chain, directory) as planner:
        while planner.is_working:  # plans for lag 1 and a little further
            time.sleep(0.1)
        settings = {"transport": NoNetwork(chain), "promise": "both", "plans": planner, "delay": 0, "first_ever": True}
        async with connect(chain, journal=directory / "journal", **settings) as client:  # type: ignore[arg-type]
            for t in range(2 * steps):
                start = time.perf_counter()
                await client.get(chain.names[path[t]], chain.names[path[t + 1]], private=t % 2 == 0)
                if t % 2:
                    times.append(1e3 * (time.perf_counter() - start))
    return times


async def past(chain: Chain, directory: Path, steps: int, sensitive: tuple[int, ...] = ()) -> list[float]:
    """Milliseconds of each OFF step for the promise "past": never ON after the first, or ON at every tenth step."""
    path = [int(x) for x in chain.simulate(steps + 1, np.random.default_rng(1))]
    times = []
    options = {"delay": 0.0, "first_ever": True, "promise": "past", "sensitive": sensitive}
    async with connect(chain, transport=NoNetwork(chain), journal=directory / "journal", **options) as client:  # type: ignore[arg-type]
        for t, source in enumerate(path):
            private = t == 0 or (not sensitive and t % 10 == 0)
            start = time.perf_counter()
            await client.get(chain.names[source], private=private)
            if not private:
                times.append(1e3 * (time.perf_counter() - start))
    return times


async def full_sets(chain: Chain, directory: Path, steps: int, still: bool, cache: int) -> list[float]:
    """Milliseconds of each ON step, which asks for everything; nothing is prepared."""
    options = {"delay": 0.0, "first_ever": True, "promise": "past", "ahead": False, "cache": cache}
    times = []
    async with connect(chain, transport=NoNetwork(chain, still), journal=directory / "journal", **options) as client:  # type: ignore[arg-type]
        for source in chain.simulate(steps + 1, np.random.default_rng(1)):
            start = time.perf_counter()
            await client.get(chain.names[int(source)], private=True)
            times.append(1e3 * (time.perf_counter() - start))
    return times[1:]


def unchanged(steps: int) -> None:
    """Show what a step costs that downloads nothing, beside one that downloads everything and writes it down."""
    chain, rows = dirichlet(100, 5), []
    for place, parent in PLACES.items():
        for name, still, cache in (
            ("no cache, as before there was one", False, 0),
            ("everything changes", False, CACHE),
            ("nothing changes", True, CACHE),
        ):
            with tempfile.TemporaryDirectory(dir=parent) as directory:
                times = asyncio.run(full_sets(chain, Path(directory), steps, still, cache))
                spread = f"{np.quantile(times, 0.05):.2f}-{np.quantile(times, 0.95):.2f}"
                rows.append([place, name, median(times), spread, sync_time(Path(directory))])
    show(
        f"A full-set step of 100 sources of {len(BODY)} bytes, without network and without preparing the next one",
        ["journal on", "", "median ms", "5-95 %", "one fsync, ms"],
        rows,
    )


def flat(steps: int) -> None:
    """Show the first and the last tenth of a long journal."""
    chain, rows = dirichlet(17, 1), []
    with tempfile.TemporaryDirectory() as name:
        before = peak_gigabytes()
        times = asyncio.run(past(chain, Path(name), steps, (0, 1)))
        tenth = max(1, steps // 10)
        size = (Path(name) / "journal").stat().st_size / steps
        rows.append([steps, median(times[:tenth]), median(times[-tenth:]), peak_gigabytes() - before, round(size)])
    headings = ["steps", "median ms, first tenth", "last tenth", "memory grown, GB", "bytes of the journal per step"]
    show("One journal of the promise past, n = 17, 2 sensitive sources", headings, rows)


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
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--long", type=int, default=1000)
    options = parser.parse_args()
    rows = []
    for place, parent in PLACES.items():
        for n in (8, 30, 100):
            for promise, run in (("both", announced), ("past", past)):
                with tempfile.TemporaryDirectory(dir=parent) as name:
                    directory, chain = Path(name), dirichlet(n, 5)
                    PlanStore(chain, directory).save(plan(chain, 1))
                    times = asyncio.run(run(chain, directory, options.steps))
                    spread = f"{np.quantile(times, 0.05):.2f}-{np.quantile(times, 0.95):.2f}"
                    rows.append([place, n, promise, median(times), spread, sync_time(directory)])
    show(
        "An OFF step of the client without network, preparing the next one included; it has two synchronous writes",
        ["journal on", "n", "promise", "median ms", "5-95 %", "one fsync, ms"],
        rows,
    )
    unchanged(options.steps)
    flat(options.long)


if __name__ == "__main__":
    main()
