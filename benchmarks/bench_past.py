"""The promise `past`: messages per request beside its bound and the promise `both`, and the time of preparing a step.

    .venv/bin/python benchmarks/bench_past.py [FILE] [--streams 40] [--long 10000]

FILE is a chain (.json or .csv), or a log of sequences like MSNBC's page views (text or zip, a line of numbers for each
visitor): its chain is counts + 1. Without it only random chains are measured.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

from bench_plan import msnbc, page_views
from common import dirichlet, peak_gigabytes, show
from onoff import Chain, plan
from onoff.past import PastState, StepLaw

MSNBC_LEVELS = "10.7 7.9 6.3 5.4 4.7 4.1 3.6 3.4 3.1 2.8 2.6 2.5"
HEALTH_AND_LIVING = (9, 10)  # categories 10 and 11 of 17


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--streams", type=int, default=40)
    parser.add_argument("--long", type=int, default=10_000)
    options = parser.parse_args()
    list(stream(dirichlet(4, 5), 2, 0))  # load the libraries before any clock runs
    cases: list[tuple[str, Chain, tuple[int, ...], int, int, str]] = []
    longest = dirichlet(17, 1)
    if options.file is not None:
        longest = chain = read(options.file)
        name, levels = options.file.stem, MSNBC_LEVELS if chain.n == 17 else ""
        cases.append((name, chain, (), 12, options.streams, levels))
        if chain.n == 17:
            cases.append(
                (f"{name}, 2 sensitive", chain, HEALTH_AND_LIVING, 60, options.streams // 2, "5.0, steps 5-60")
            )
    cases.append(("Dirichlet(5)", dirichlet(30, 5), (), 6, options.streams // 2, "1.0 from step 4"))
    cases.append(("Dirichlet(1)", dirichlet(30, 1), (), 12, options.streams // 4, ""))
    cases.append(("Dirichlet(5)", dirichlet(100, 5), (), 6, options.streams // 8, ""))
    cases.append(("Dirichlet(1)", dirichlet(100, 1), (), 12, options.streams // 8, ""))
    table, times = [], []
    for name, chain, sensitive, steps, count, target in cases:
        costs, time_row = measured(name, chain, sensitive, steps, count, target)
        table.append(costs)
        times.append(time_row)
    headings = ["chain", "n", "messages at step 1, 2, ...", "mean", "over bound", "worst step", "announced, lag 1, 5",
                "to reach"]  # fmt: skip
    show("Messages per request (past protected, nothing announced); over bound: to reach 1.02", headings, table)
    headings = ["chain", "n", "prepare ms", "worst", "worst wall", "draw ms", "advance ms", "contexts", "flows",
                "to reach"]  # fmt: skip
    show("CPU time of a step (one thread), and the mean numbers of contexts and flows", headings, times)
    flat("one request is remembered", longest, options.long)
    trees = [("random, 2", random_tree(100, 1100, 1.0), 1000)]
    if longest.n == 17 and options.file is not None and options.file.suffix == ".zip":
        trees.insert(0, (f"{options.file.stem}, 2", order_two(options.file), 60))
        flat("two requests are remembered", trees[0][1], options.long)
    remembered(trees)
    first_steps()


def read(file: Path) -> Chain:
    return Chain.load(file) if file.suffix in (".json", ".csv") else msnbc(file)


def order_two(file: Path, strength: float = 20.0) -> Chain:
    """Habits that remember two pages: counts after each pair, with the row of the second as `strength` views more."""
    chain, counts = msnbc(file), np.zeros((17, 17, 17))
    for pages in page_views(file):
        np.add.at(counts, (pages[:-2], pages[1:-1], pages[2:]), 1)
    rows = (counts + strength * chain.P) / (counts.sum(axis=2, keepdims=True) + strength)
    pairs = product(range(17), repeat=2)
    return Chain([*chain.P, *rows.reshape(-1, 17)], states=[*((x,) for x in range(17)), *pairs])


def random_tree(n: int, states: int, concentration: float) -> Chain:
    """Random habits with so many states, pairs among them; the rows of pairs are near those of their last source."""
    rng = np.random.default_rng(1)
    pairs = [divmod(int(pair), n) for pair in rng.choice(n * n, states - n, replace=False)]
    rows = rng.dirichlet(np.full(n, concentration), n)
    longer = [rng.dirichlet(n * concentration * rows[last]) for _, last in pairs]
    return Chain([*rows, *longer], states=[*((x,) for x in range(n)), *pairs])


def stream(
    chain: Chain, steps: int, seed: int, sensitive: tuple[int, ...] = (), run: int = 0
) -> Iterator[tuple[PastState, StepLaw, list[float]]]:
    """A private request, uniform, then open ones: each state, step, and seconds. Now and then comes a `run` of private
    ones.

    They are the CPU seconds to prepare, draw and advance, and last those on the wall to prepare. On a busy machine only
    the first three say something about the engine.
    """
    rng = random.Random(seed)
    state = PastState.start(chain, sensitive)
    reader = rng.choice([z for z, home in enumerate(state.joined) if home >= 0])
    context = state.context(reader, None, True)
    for _ in range(steps):
        for _ in range(run if rng.random() < 0.1 else 0):
            reader, state = int(chain.step[reader, rng.randrange(chain.n)]), state.after_full_set()
            context = state.context(reader, None, True)
        request = rng.choices(range(chain.n), chain.P[reader].tolist())[0]
        wall, clock = time.perf_counter(), [time.process_time()]
        step = state.prepare()
        clock.append(time.process_time())
        wall = time.perf_counter() - wall
        query = step.draw(request, context, rng.randrange)
        clock.append(time.process_time())
        after = state.advance(step, query)
        clock.append(time.process_time())
        yield state, step, [*np.diff(clock).tolist(), wall]
        reader = int(chain.step[reader, request])
        context, state = after.context(reader, context, False), after


def measured(
    name: str, chain: Chain, sensitive: tuple[int, ...], steps: int, count: int, target: str
) -> tuple[list[object], list[object]]:
    found = [list(stream(chain, steps, seed, sensitive)) for seed in range(max(2, count))]
    costs = np.array([[step.cost for _, step, _ in one] for one in found])
    bounds = np.array([[step.lower_bound for _, step, _ in one] for one in found])
    seconds = 1e3 * np.array([[clock for *_, clock in one] for one in found])
    late = slice(4, None) if sensitive else slice(None)
    shown = [*costs.mean(axis=0)[:12]] if not sensitive else [*costs.mean(axis=0)[:60:10]]
    line = " ".join(f"{cost:.1f}" for cost in shown)
    scheme = "optimal" if chain.n <= 30 else "comb"
    announced = " ".join(f"{plan(chain, lag, scheme).cost:.1f}" for lag in (1, 5))
    over = f"{costs.sum() / bounds.sum():.4f}"
    worst = f"{(costs / bounds).max():.4f}"
    slow = {17: "20", 100: "200"}.get(chain.n, "")
    flows = np.mean([0 if step.encoders is None else step.encoders.groups for one in found for _, step, _ in one])
    contexts = np.mean([len(state.contexts) for one in found for state, *_ in one])
    label = f"{name} ({len(found)} streams)"
    prepare, draw, advance, wall = (seconds[:, :, i] for i in range(4))
    return (
        [label, chain.n, line, float(costs[:, late].mean()), over, worst, announced, target],
        [label, chain.n, float(np.median(prepare)), float(prepare.max()), float(wall.max()), float(np.median(draw)),
         float(np.median(advance)), float(contexts), float(flows), slow],
    )  # fmt: skip


def remembered(trees: list[tuple[str, Chain, int]]) -> None:
    """Streams of 200 steps with private runs now and then: the time of a step, and how far a law is from its bound.

    The step after a run of private requests is prepared once, before.
    """
    rows: list[list[object]] = []
    for name, chain, target in trees:
        found = list(stream(chain, 200, 1, run=chain.depth + 1))
        most = len(found[0][0].contexts)
        first = max(1e3 * clock[0] for state, _, clock in found if len(state.contexts) == most)
        later = [(1e3 * clock[0], 1e3 * clock[2]) for state, _, clock in found if len(state.contexts) < most]
        contexts = max(len(state.contexts) for state, *_ in found if len(state.contexts) < most)
        over = max(step.cost / step.lower_bound for _, step, _ in found)
        prepare, advance = np.array(later).T
        times = first, float(np.median(prepare)), float(prepare.max()), float(advance.max())
        rows.append([name, chain.n, f"{most}, {contexts}", *times, float(over), target])
    headings = ["habits", "n", "contexts at first, later", "first ms", "later ms", "worst", "advance worst",
                "over bound, worst", "to reach"]  # fmt: skip
    show("Habits with memory: CPU time of a step; over bound: to reach 1.02", headings, rows)


def flat(name: str, chain: Chain, steps: int) -> None:
    """One journal of many steps, never ON again, with two sensitive sources: time, memory and roundings stay flat."""
    rows: list[list[object]] = []
    part: list[tuple[float, int, float, float]] = []
    total = 0.0
    for t, (state, step, clock) in enumerate(stream(chain, steps, 1, HEALTH_AND_LIVING), start=1):
        total += step.rounding
        part.append((1e3 * sum(clock[:3]), len(state.contexts), step.cost, step.rounding))
        if t % (steps // 5) == 0:
            ms, contexts, cost, rounding = np.array(part).T
            rows.append([t, float(np.median(ms)), float(ms.max()), int(contexts.max()), float(cost.mean()),
                         float(rounding.max()), total, peak_gigabytes()])  # fmt: skip
            part = []
    headings = ["steps", "ms a step", "worst", "contexts at most", "messages", "rounding at most", "sum", "peak GB"]
    show(f"One stream of {steps} steps, {chain.n} sources, two of them sensitive; {name}", headings, rows)


def first_steps() -> None:
    """The first OFF step of a thousand sources: 20 likely successors a row, and 1 per cent for all alike."""
    rows: list[list[object]] = []
    for n in (400, 1000):
        rng, P = np.random.default_rng(1), np.full((n, n), 0.01 / n)
        for row in P:
            row[rng.choice(n, 20, replace=False)] += 0.99 * rng.dirichlet(np.ones(20))
        state, clock = PastState.start(Chain(P)), [time.process_time()]
        for drawn in (False, True):
            step = state.prepare(drawn=drawn)
            clock.append(time.process_time())
        rows.append([n, step.cost, step.cost / step.lower_bound, *np.diff(clock).tolist()])
    headings = ["n", "messages", "over bound", "law s", "law and encoders s"]
    show("The first OFF step of chains with many sources, CPU time (to reach, at n = 1000: 120 s)", headings, rows)


if __name__ == "__main__":
    main()
