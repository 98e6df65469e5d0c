"""The promise `past`: messages and processor time of OFF steps, beside an older engine on the same readers' paths.

    .venv/bin/python benchmarks/bench_past.py [PART ...] [--old WHEEL] [--log FILE] [--streams 200]

WHEEL has the older engine, which runs in a process of its own; without it "old" repeats the new figures. FILE is a log
that `onoff fit` reads, like MSNBC's page views. The parts are messages, first, later and long.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common import dirichlet, peak_gigabytes, show
from onoff import Chain, fit
from onoff.apps.costs import margin
from onoff.past import PastState

EXAMPLES = Path(__file__).parents[1] / "examples"
ASKED = {300: 20.0, 1000: 50.0, 3000: 200.0}  # milliseconds of the first step, at most
OLD_MOST = 1000  # sources beyond which the older engine's first step takes a minute
LONG = 20_000
RACES = 20  # behind the messages of a step without a table


def main() -> None:
    parts: dict[str, Callable[[Bench], None]] = {"messages": messages, "first": first, "later": later, "long": long}
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", default=parts, metavar="PART")
    parser.add_argument("--old", type=Path, metavar="WHEEL")
    parser.add_argument("--log", type=Path, metavar="FILE")
    parser.add_argument("--streams", type=int, default=200)
    options = parser.parse_args()
    if options.parts == ["engine"]:
        for line in sys.stdin:
            print(json.dumps(walked(*json.loads(line))), flush=True)
        return
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory), options)
        for part in options.parts:
            parts[part](bench)


class Engine:
    """A process that has one of the engines, in which `walked` is called."""

    def __init__(self, library: Path | None) -> None:
        environment = os.environ | ({} if library is None else {"PYTHONPATH": str(library)})
        words, pipe = [sys.executable, __file__, "engine"], subprocess.PIPE
        self.process: Any = subprocess.Popen(words, text=True, env=environment, stdin=pipe, stdout=pipe)

    def walked(self, *arguments: Any) -> Any:
        self.process.stdin.write(json.dumps(arguments) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


class Bench:
    """What the parts share: options, and the libraries of the engines, the older one first."""

    def __init__(self, directory: Path, options: argparse.Namespace) -> None:
        self.directory, self.streams, self.log = directory, options.streams, options.log
        self.libraries: list[Path | None] = [None]
        if options.old is not None:
            self.libraries.insert(0, directory / "old")
            zipfile.ZipFile(options.old).extractall(directory / "old")

    def walked(self, chain: Chain, sensitive: tuple[int, ...], steps: int, streams: int) -> list[NDArray[Any]]:
        """What `walked` finds in each stream, by each engine: the engines take turns."""
        engines = [Engine(library) for library in self.libraries if library is None or chain.n <= OLD_MOST]
        file = str(self.directory / "chain.json")
        chain.save(Path(file))
        found = [[engine.walked(file, sensitive, steps, seed) for engine in engines] for seed in range(streams)]
        for engine in engines:
            engine.process.communicate()  # each ends with its input
        return list(np.array(found).transpose(1, 3, 0, 2))  # of each engine: what, stream, step


def walk(chain: Chain, sensitive: tuple[int, ...], steps: int, seed: int) -> Iterator[tuple[Any, Any, float]]:
    """Requests that follow the chain, OFF after the first ones: each state, its step, and its CPU milliseconds.

    The requests depend on the seed alone, whatever is drawn.
    """
    path, draws = random.Random(seed), random.Random(seed)
    state: Any = PastState.start(chain, sensitive)
    is_old = hasattr(state, "advance")
    reader = path.randrange(chain.n)
    for _ in range(chain.depth - 1):
        reader = int(chain.step[reader, _next(chain, reader, path)])
    own = state.context(reader, None, True) if is_old else reader
    for _ in range(steps):
        request = _next(chain, reader, path)
        begin = time.process_time()
        step = state.prepare()
        query = step.draw(request, own, draws.randrange)
        step.cost  # noqa: B018 (the journal has it; a race computes its bound only now)
        yield state, step, 1e3 * (time.process_time() - begin)
        state = state.advance(step, query) if is_old else state.after(query)
        reader = int(chain.step[reader, request])
        own = state.context(reader, own, False) if is_old else reader


def _next(chain: Chain, state: int, rng: random.Random) -> int:
    return rng.choices(range(chain.n), chain.P[state].tolist())[0]


@lru_cache(maxsize=1)
def load(file: str) -> tuple[Chain, float]:
    """A chain, and the peak of memory then. The libraries are loaded first, before any clock runs."""
    list(walk(dirichlet(4, 5), (), 2, 0))
    return Chain.load(Path(file)), peak_gigabytes()


def walked(file: str, sensitive: list[int], steps: int, seed: int) -> list[list[float]]:
    """Of each step: messages, bound, milliseconds, and the megabytes above what loading the chain took."""
    (chain, before), found = load(file), []
    for _, step, milliseconds in walk(chain, tuple(sensitive), steps, seed):
        grown, rng = 1024 * (peak_gigabytes() - before), random.Random(1)
        cost = step.cost if step.law else np.mean([step.race(rng.randrange).sum() for _ in range(RACES)])
        found.append([float(cost), step.lower_bound, milliseconds, grown])
    return found


def messages(bench: Bench) -> None:
    sticky, likely = 0.9 * np.eye(17) + 0.1 * dirichlet(17, 1).P, 0.01 / 300 + 0.99 * dirichlet(300, 0.05).P
    cases: list[tuple[str, Chain, tuple[int, ...], int, float]] = [
        ("reader.csv", Chain.load(EXAMPLES / "reader.csv"), (), 8, 1),
        ("demo.csv", Chain.load(EXAMPLES / "demo.csv"), (), 12, 5),
        ("Dirichlet(1)", dirichlet(30, 1), (), 12, 1),
        ("Dirichlet(1)", dirichlet(100, 1), (), 12, 0.5),
        ("Dirichlet(1), 3 sensitive", dirichlet(17, 1), (0, 1, 2), 12, 1),
        ("sticky .9, 2 sensitive", Chain(sticky), (0, 1), 12, 1),
        ("Dirichlet(1): first a race", dirichlet(300, 1), (), 6, 0.05),
        ("few likely ones: races", Chain(likely), (), 6, 0.05),
    ]
    if bench.log is not None:
        one, two, three = (fit(bench.log, memory=memory).chain for memory in (1, 2, 3))
        cases += [("log", one, (), 12, 5), ("log, 2 sensitive", one, (9, 10), 12, 1)]
        cases += [("log, memory 2", two, (), 12, 0.2), ("log, memory 3", three, (), 12, 0.05)]
    rows: list[list[object]] = []
    for name, chain, sensitive, steps, share in cases:
        found = bench.walked(chain, sensitive, steps, max(3, int(share * bench.streams)))
        costs, bounds, *_ = found[-1]
        old, new = (each[0].mean(axis=1) for each in (found[0], found[-1]))
        more, around = (100 * value / old.mean() for value in ((new - old).mean(), margin(new - old)))
        asked = "as it is" if chain.n > 100 or chain.depth > 1 else _verdict(more, 2, "%")
        line = " ".join(f"{cost:.1f}" for cost in costs.mean(axis=0))
        rows.append([name, chain.n, len(new), float(old.mean()), float(new.mean()), f"{more:+.2f} ± {around:.2f} %",
                     asked, float(costs.sum() / bounds.sum()), line])  # fmt: skip
    headings = ["chain", "n", "streams", "old", "new", "more (paired)", "asked", "new / bound", "new at step 1, 2, ..."]
    show("Messages of an OFF step after ON, means over steps and streams", headings, rows)


def _verdict(value: float, most: float, unit: str) -> str:
    return f"{most:g} {unit} {'OK' if value <= most else 'MISSED'}"


def first(bench: Bench) -> None:
    rows: list[list[object]] = []
    for n in (8, 100, 300, 1000, 3000):
        found = bench.walked(dirichlet(n, 1), (), 10, 3)
        old, new = (float(np.median(each[2, :, 0])) for each in (found[0], found[-1]))
        _, _, ms, grown = found[-1]
        asked = _verdict(new, ASKED[n], "ms") if n in ASKED else ""
        rows.append([n, old if len(found) > 1 else "", new, asked, float(grown[0, 0]), float(ms[:, 1:].max())])
    headings = ["n", "old ms", "new ms", "asked", "MB (40 at n = 1000)", "slowest of 27 later steps, ms"]
    show("Dirichlet(1): CPU of the first step after ON; memory above loading the chain", headings, rows)


def later(bench: Bench) -> None:
    rows: list[list[object]] = []
    for n in (8, 17, 30, 100):
        found = [each[2] for each in bench.walked(dirichlet(n, 1), (), 20, max(3, bench.streams // 10))]
        old, new = (float(each[:, -1].mean()) for each in (found[0], found[-1]))
        rows.append([n, len(found[0]), old, new, new / old, _verdict(new / old, 0.5, "of it"),
                     *(float(each.mean()) for each in (found[0], found[-1]))])  # fmt: skip
    headings = ["n", "streams", "old, 20th", "new, 20th", "ratio", "asked", "old, all 20", "new, all 20"]
    show("Dirichlet(1): CPU milliseconds to prepare and draw a step, means over streams", headings, rows)


def long(bench: Bench) -> None:
    """The engine, and the laws that a client keeps in a file."""
    from onoff.client.lawstore import LawStore, laws_beside

    rows: list[list[object]] = []
    part: list[list[float]] = []
    store, file = LawStore(bench.directory / "journal"), laws_beside(bench.directory / "journal")
    for number, (state, step, milliseconds) in enumerate(walk(dirichlet(17, 1), (0, 1), LONG, 1), 1):
        begin = time.process_time()
        store.step(state.candidates)
        part.append([milliseconds, 1e3 * (time.process_time() - begin), step.cost, step.rounding])
        if number % (LONG // 5) == 0:
            rows.append([number, *np.mean(part, axis=0).tolist(), file.stat().st_size / 2**20, 1024 * peak_gigabytes()])
            part = []
    headings = ["steps", "ms a step", "with kept laws", "messages", "rounding", "MB of laws", "peak MB"]
    show(
        f"{LONG} OFF steps of one stream, Dirichlet(1), 17 sources, 2 of them sensitive: means of each fifth",
        headings,
        rows,
    )


if __name__ == "__main__":
    main()
