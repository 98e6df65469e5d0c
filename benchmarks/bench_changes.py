"""How many bytes a client downloads if it asks only for what is newer, beside the same client that is sent everything.

    .venv/bin/python benchmarks/bench_changes.py [--steps 500] [--length 4096]

The reader of `examples/reader.csv` makes the same requests, ON and OFF in turn as in the demonstration, of a real
server. Before each request every source has changed with some probability. The rival is the client without a cache
(cache=0): every member of a set is sent whole, as before there was one. Both draw the same sets. Mirroring is the
client that is ON all the time; asking openly is counted. Bytes are those of whole answers.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from common import show
from onoff import Chain, Planner, connect, plan
from onoff.apps.demo.reader import statuses
from onoff.client.status import Totals
from onoff.plans.store import PlanStore
from onoff.server.run import LocalServer

CHANCES = (1.0, 0.5, 0.2, 0.05)  # that a source changes before a request
TARGETS = (0.0, 0.4, 0.7, 0.9)  # what the bytes must at least fall by
READER = Path(__file__).parents[1] / "examples" / "reader.csv"
LAGS = (1, 2, 3, 5, 8)


class World:
    """One server whose messages change, and plans for the reader."""

    def __init__(self, directory: Path, chain: Chain, steps: int, length: int) -> None:
        self.directory, self.chain, self.length = directory, chain, length
        rng = np.random.default_rng(1)
        path = chain.simulate(steps, rng)
        self.items = [(chain.names[x], on) for x, on in zip(path, statuses(steps, rng), strict=True)]
        store = PlanStore(chain, directory / "plans")
        for lag in LAGS:
            store.save(plan(chain, lag))

    def versions(self, chance: float) -> Iterator[dict[str, bytes]]:
        """What is published before each request."""
        rng = np.random.default_rng(2)
        while True:
            yield {name: rng.bytes(self.length) for name in self.chain.names if rng.random() < chance}

    def played(self, chance: float, name: str, promise: str, on: bool | None = None, **options: Any) -> tuple[int, int]:
        """The bytes of all answers to the reader, and how many members they had. `on` replaces all statuses."""
        place = self.directory / f"{name}-{chance}"
        place.mkdir()
        items = [(source, private if on is None else on) for source, private in self.items]

        async def play(url: str) -> tuple[int, int]:
            draws = np.random.default_rng(3)
            with Planner(self.chain, self.directory / "plans", background=False) as planner:
                client = connect(
                    self.chain, server=url, journal=place / "journal", plans=planner, promise=promise, delay=0.0,
                    first_ever=True, randbelow=lambda most: int(draws.integers(most)), **options,
                )  # fmt: skip
                members = 0
                published = self.versions(chance)
                async with client:
                    async for message in client.play(items):
                        members += len(message.query)
                        if changed := next(published):
                            server.publish(changed)
                    return Totals.of(client.journal.steps()).bytes, members

        first = {source: np.random.default_rng(9).bytes(self.length) for source in self.chain.names}
        with LocalServer(place, first, self.length) as server:
            return asyncio.run(play(server.url))

    def openly(self, chance: float) -> float:
        """The bytes of messages that a reader needs who asks for each request alone, if it is newer."""
        published, number = self.versions(chance), dict.fromkeys(self.chain.names, 0)
        last: dict[str, int] = {}
        needed = 0
        for source, _ in self.items:
            needed += last.get(source) != number[source]
            last[source] = number[source]
            for changed in next(published):
                number[changed] += 1
        return float(needed * self.length)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--length", type=int, default=4096)
    options = parser.parse_args()
    rows, compared = [], []
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        world = World(Path(name), Chain.load(READER), options.steps, options.length)
        for chance, target in zip(CHANCES, TARGETS, strict=True):
            before, members = world.played(chance, "before", "both", cache=0)
            now, same = world.played(chance, "now", "both")
            assert members == same, "both draw the same sets"
            mirror, _ = world.played(chance, "mirror", "past", on=True)
            past, _ = world.played(chance, "past", "past")
            saved = 1 - now / before
            verdict = "reached" if saved >= target - 1e-3 else "MISSED"
            per = [size / options.steps / 1000 for size in (before, now)]
            rows.append([chance, *per, f"{100 * saved:.1f} %", f"{100 * target:.0f} %", verdict])
            sizes = [world.openly(chance), past, now, mirror]
            compared.append([chance, *(size / options.steps / 1000 for size in sizes), mirror / now, mirror / past])
    title = f"kB per request, {options.steps} requests of the example reader, messages of {options.length} bytes"
    show(title, ["chance of a change", "all resent", "changed only", "less", "needed", ""], rows)
    headings = ["chance of a change", "openly", "past", "both", "mirroring", "mirroring / both", "mirroring / past"]
    show("kB per request, changed only", headings, compared)


if __name__ == "__main__":
    main()
