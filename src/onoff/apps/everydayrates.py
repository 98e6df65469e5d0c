"""What the everyday mode costs, by simulation: messages per request over the steps since privacy was last ON.

A stream starts with a request made ON, drawn from the law in which the chain settles, and goes on OFF. What a step
costs depends on the queries before it, so streams are simulated with the engine that a client uses; the cost of a step
given its past is exact, and only pasts are sampled. With sensitive sources nobody needs to go ON again, and what counts
is the mean over the steps of the long run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from onoff.apps.terminal import print_table
from onoff.audit.setting import start_law
from onoff.errors import OnoffError
from onoff.everyday import Everyday, Step
from onoff.plans.making import plan
from onoff.types import Bar, Floats, Query

if TYPE_CHECKING:
    from onoff.model.chain import Chain
    from onoff.plans.lengths import Weighing

LONG, SETTLED = 60, 5  # steps of a stream with sensitive sources, and the first that counts as the long run


@dataclass(frozen=True)
class EverydayRate:
    """Messages per request `step` steps after ON: the mean over streams, within +- `margin` (95 %).

    `bound` is the mean of what any scheme with the same rows costs at least. `announced` is the cost of the announced
    mode at this lag, None if it was not computed.
    """

    step: int
    past: float
    margin: float
    bound: float
    announced: float | None
    openly: int
    everything: int


@dataclass(frozen=True)
class EverydayRates:
    """The costs at each step, and for sensitive sources the mean of steps 5 to 60 with its margin."""

    streams: int
    sensitive: tuple[str, ...]
    rows: tuple[EverydayRate, ...]
    long_run: tuple[float, float] | None


def everyday_rates(
    chain: Chain,
    steps: Sequence[int],
    sensitive: Sequence[int | str] = (),
    *,
    streams: int = 40,
    seed: int = 1,
    announced: bool = True,
    time_limit: float | None = None,
    bar: Bar,
) -> EverydayRates:
    """Simulate; `announced` computes the announced mode too, with `time_limit` seconds for each lag."""
    if not steps or min(steps) < 1:
        raise OnoffError("the everyday mode starts one step after ON: give steps from 1 on")
    if streams < 2:
        raise OnoffError(f"{streams} streams have no spread: simulate at least 2")
    start = Everyday.start(chain, sensitive)
    length = max(*steps, LONG if start.sensitive else 1)
    costs, bounds = np.empty((streams, length)), np.empty((streams, length))
    with bar(streams + (len(steps) if announced else 0)) as advance:
        for number in range(streams):
            for t, (step, _) in enumerate(stream(start, length, Random(f"{seed}/{number}"))):
                costs[number, t], bounds[number, t] = step.cost, step.lower_bound
            advance()
        rows = []
        for after in steps:
            other = None
            if announced:
                other = plan(chain, after, time_limit=time_limit).cost
                advance()
            here = costs[:, after - 1]
            mean, bound = float(here.mean()), float(bounds[:, after - 1].mean())
            rows.append(EverydayRate(after, mean, margin(here), bound, other, 1, chain.n))
    settled = costs[:, SETTLED - 1 : LONG].mean(axis=1) if start.sensitive else None
    long_run = None if settled is None else (float(settled.mean()), margin(settled))
    return EverydayRates(streams, tuple(chain.names[s] for s in start.sensitive), tuple(rows), long_run)


def stream(start: Everyday, length: int, rng: Random, weighing: Weighing | None = None) -> Iterator[tuple[Step, Query]]:
    """The steps of one stream of OFF requests after ON, with the sets that were drawn.

    With a weighing laws are cheap in bytes, as those of a client that is given lengths.
    """
    chain, state, gaps = start.chain, start, [1] * start.chain.n
    request = rng.choices(range(chain.n), start_law(chain).tolist())[0]
    context = state.context(request, None, private=True)
    for _ in range(length):
        request = rng.choices(range(chain.n), chain.P[request].tolist())[0]
        step = state.prepare(None if weighing is None else weighing.after(gaps))
        query = step.draw(request, context, rng.randrange)
        yield step, query
        gaps = [1 if source in query else gap + 1 for source, gap in enumerate(gaps)]
        state = state.advance(step, query)
        context = state.context(request, context, private=False)


def margin(values: Floats) -> float:
    """The 95 % margin of the mean, by Student's t: streams are independent."""
    from scipy.stats import t

    return float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def print_everyday_rates(found: EverydayRates) -> None:
    """Print the costs as a table, and the long run in a sentence."""
    title = f"messages per request, steps after ON, mean of {found.streams} simulated streams (± 95 %)"
    headings = ["step", "asking openly", "past", "lower bound", "both", "everything"]
    rows = [
        [str(row.step), str(row.openly), f"{row.past:.2f} ± {row.margin:.2f}", f"{row.bound:.2f}",
         "" if row.announced is None else f"{row.announced:.2f}", str(row.everything)]
        for row in found.rows
    ]  # fmt: skip
    print_table(title, headings, rows)
    if found.long_run is not None:
        mean, around = found.long_run
        print(
            f"with {', '.join(found.sensitive)} always hidden: {mean:.2f} ± {around:.2f} messages per request in the "
            f"long run (steps {SETTLED} to {LONG}), never ON again"
        )
        print("(the promise both hides no source that is asked for OFF)")


def plot_everyday_rates(found: EverydayRates, file: Path, name: str = "") -> None:
    """Draw the cost over the steps since ON."""
    from matplotlib.figure import Figure

    from onoff.apps.plots import save_costs

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    steps = [row.step for row in found.rows]
    axes.plot(steps, [row.everything for row in found.rows], color="gray", linestyle=":", label="everything")
    if all(row.announced is not None for row in found.rows):
        announced = [float(row.announced or 0.0) for row in found.rows]
        axes.plot(steps, announced, color="#0072bd", marker="s", markersize=4, label="promise both")
    costs, margins = [row.past for row in found.rows], [row.margin for row in found.rows]
    axes.errorbar(steps, costs, margins, color="#228b22", marker="o", markersize=4, capsize=2, label="promise past")
    if found.long_run is not None:
        axes.axhline(found.long_run[0], color="#228b22", alpha=0.4, linewidth=4, label="everyday, long run")
    axes.plot(steps, [row.openly for row in found.rows], color="black", linestyle="--", label="asking openly")
    title = f"promise past, mean of {found.streams} streams (bars: ± 95 %)"
    save_costs(figure, axes, file, f"{name}: {title}" if name else title)
