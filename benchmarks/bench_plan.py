"""Planning: the optimum against the paper's own program, the comb, symmetric chains, real data; drawing.

    .venv/bin/python benchmarks/bench_plan.py [--msnbc FILE] [--large] [--sparse]

`--msnbc` takes the MSNBC page-view sequences (UCI) as a zip or text file; `--large` adds the comb for 500 sources.
`--sparse` prints nothing but the comb beside the race on chains whose requests are followed by three sources in ten.
"""

from __future__ import annotations

import argparse
import sys
import time
import zipfile
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from common import dirichlet, peak_gigabytes, show, timed
from onoff import Chain, Plan, plan

sys.path.append(str(Path(__file__).parent.parent / "tests" / "support"))
from oracles import paper_program


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--msnbc", type=Path)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--sparse", action="store_true")
    options = parser.parse_args()
    plan(dirichlet(4, 5), 1)  # load the libraries before any clock runs
    if options.sparse:
        sparse()
        return
    against_the_program()
    rows = [
        measured("optimal", "Dirichlet(5)", dirichlet(n, 5), 1, "optimal", f"1e-6 in {limit} s")
        for n, limit in ((30, 3), (60, 20), (100, 90))
    ]
    rows.append(measured("optimal", "symmetric .5/n", Chain.symmetric(30, 0.5 / 30), 1, "optimal", "1e-6 in 2 s"))
    for lag, gap, limits in ((1, "0.5 %", (8, 45)), (5, "2.5 %", (15, 60))):
        for n, limit in zip((100, 200), limits, strict=True):
            for concentration in (1, 5):
                name = f"Dirichlet({concentration})"
                rows.append(measured("comb", name, dirichlet(n, concentration), lag, "comb", f"{gap} in {limit} s"))
    if options.large:
        rows.append(measured("comb", "Dirichlet(5)", dirichlet(500, 5), 1, "comb", "1 %, under 8 GB"))
    if options.msnbc:
        rows.append(real(options.msnbc))
    headings = ["scheme", "chain", "n", "lag", "cost", "bound", "gap", "seconds", "sets", "peak GB", "to reach"]
    show("Planning", headings, rows)
    drawing()


def against_the_program() -> None:
    """n = 8: the paper's program by SciPy's HiGHS, and the same value by row-and-column generation."""
    rows = []
    for n in (6, 7, 8):
        chain = dirichlet(n, 5)
        value, slow = timed(lambda chain=chain: paper_program(chain.posterior(1).rows))  # type: ignore[misc]
        runs = [timed(lambda chain=chain: plan(chain, 1, "optimal")) for _ in range(7)]  # type: ignore[misc]
        fast = median(seconds for _, seconds in runs)
        rows.append([n, value, runs[0][0].cost, slow, fast, f"{slow / fast:.0f}x"])
    headings = ["n", "program", "ours", "SciPy seconds", "ours (median of 7)", "faster (target at n=8: 1000x)"]
    show("The paper's linear program", headings, rows)


def sparse() -> None:
    """Three entries in ten, none on the diagonal: the comb, the outer bound and the race."""
    rows: list[list[object]] = []
    cases = [("exponential", n, lag) for n in (80, 200) for lag in (1, 3)]
    for weights, n, lag in [*cases, ("uniform", 80, 1), ("uniform", 80, 3), ("uniform", 200, 1)]:
        rng = np.random.default_rng(77)
        drawn = rng.exponential(size=(n, n)) if weights == "exponential" else rng.random((n, n))
        P = drawn * (rng.random((n, n)) < 0.3)
        np.fill_diagonal(P, 0)
        chain = Chain(P / P.sum(axis=1, keepdims=True))
        made, seconds = timed(lambda chain=chain, lag=lag: plan(chain, lag, "comb"))  # type: ignore[misc]
        race = plan(chain, lag, "race").cost
        above, sets = f"{100 * made.gap:.2f} %", len(getattr(made, "sets", ()))
        rows.append([weights, n, lag, made.cost, made.lower_bound, above, seconds, sets, race, "3 %"])
    headings = ["weights", "n", "lag", "comb", "bound", "above it", "seconds", "sets", "race", "to reach"]
    show("Sparse chains", headings, rows)


def measured(what: str, name: str, chain: Chain, lag: int, scheme: str, target: str) -> list[object]:
    made, seconds = timed(lambda: plan(chain, lag, scheme))
    sets = len(getattr(made, "sets", ()))
    gap = f"{made.gap:.2e}" if made.gap < 1e-5 else f"{100 * made.gap:.3f} %"
    return [what, name, chain.n, lag, made.cost, made.lower_bound, gap, seconds, sets, peak_gigabytes(), target]


def real(file: Path) -> list[object]:
    """MSNBC: all lags from 1 to 40."""
    chain = msnbc(file)
    plans, seconds = timed(lambda: [plan(chain, lag) for lag in range(1, 41)])
    worst = max(plans, key=lambda made: made.gap)
    last: Plan = plans[-1]
    gap = f"{worst.gap:.1e}"
    return [
        "auto",
        "MSNBC",
        17,
        "1-40",
        last.cost,
        last.lower_bound,
        gap,
        seconds,
        "",
        peak_gigabytes(),
        "1e-6 in 10 s",
    ]


def page_views(file: Path) -> list[NDArray[np.intp]]:
    """What each visitor looked at."""
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as archive:
            text = archive.read(archive.namelist()[0]).decode()
    else:
        text = file.read_text()
    return [np.array(line.split(), dtype=np.intp) - 1 for line in text.splitlines()[7:]]


def msnbc(file: Path) -> Chain:
    """The chain of the page views: counts of transitions, plus one."""
    counts = np.zeros((17, 17))
    for pages in page_views(file):
        np.add.at(counts, (pages[:-1], pages[1:]), 1)
    return Chain.from_counts(counts)


def drawing() -> None:
    """The time of a draw with a plan in memory, over random contexts and requests."""
    rows: list[list[object]] = []
    rng = np.random.default_rng(3)
    for n, lag, scheme, target in (
        (100, 1, "optimal", "median 1 ms"),
        (100, 5, "comb", "median 1 ms"),
        (1000, 1, "race", "set-up 60 s, median 150 ms, 2 GB"),
    ):
        chain = dirichlet(n, 5)
        made, setup = timed(lambda chain=chain, lag=lag, scheme=scheme: plan(chain, lag, scheme))  # type: ignore[misc]
        made.draw(0, 0, 0)
        times = []
        for _ in range(200 if n <= 100 else 60):
            request, last, following = (int(x) for x in rng.integers(0, n, 3))
            start = time.perf_counter()
            made.draw(request, last, following)
            times.append(1e3 * (time.perf_counter() - start))
        low_high = f"{np.quantile(times, 0.05):.2f}-{np.quantile(times, 0.95):.2f}"
        rows.append(
            [scheme, n, lag, setup, median(times), low_high, made.cost, made.lower_bound, peak_gigabytes(), target]
        )
    headings = [
        "scheme",
        "n",
        "lag",
        "set-up s",
        "draw ms",
        "5-95 %",
        "cost",
        "outer bound",
        "peak GB so far",
        "to reach",
    ]
    show("Drawing, Dirichlet(5) rows", headings, rows)


if __name__ == "__main__":
    main()
