"""How planning time, plan size, draw time and memory grow with n; and whether processes beat one after the other.

    .venv/bin/python benchmarks/bench_scale.py [--quick]

Every row is measured in a process of its own, so that its memory is its own. `--quick` leaves the largest out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from statistics import median

import numpy as np
from joblib import parallel_config

from common import dirichlet, peak_gigabytes, show, timed
from onoff import plan
from onoff.apps.workers import compute

LAG = 1
CASES: dict[str, tuple[int, ...]] = {
    "optimal": (10, 20, 40, 80),
    "comb": (50, 100, 200),
    "race": (100, 300, 1000),
}
QUICK: dict[str, tuple[int, ...]] = {"optimal": (10, 20, 40), "comb": (25, 50, 100), "race": (100, 300)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("SCHEME", "N"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one[0], int(options.one[1]))))
        return
    growth(QUICK if options.quick else CASES)
    against_one_after_the_other(20 if options.quick else 30)


def one(scheme: str, n: int) -> list[float]:
    """CPU seconds of planning, sets, kilobytes on disk, milliseconds of a draw, megabytes beyond the libraries."""
    chain, small = dirichlet(n, 5), dirichlet(4, 5)
    plan(small, LAG, scheme).draw(0, 0, 0)  # load the libraries before any clock runs
    before, start = peak_gigabytes(), time.process_time()
    with parallel_config(backend="sequential"):  # in one process, whose CPU time is all there is
        made = plan(chain, LAG, scheme)
    seconds = time.process_time() - start
    with tempfile.TemporaryDirectory() as directory:
        made.save(Path(directory) / "plan.json")
        kilobytes = (Path(directory) / "plan.json").stat().st_size / 1e3
    rng = np.random.default_rng(1)
    times = []
    for _ in range(60):
        request, last, following = (int(x) for x in rng.integers(0, n, 3))
        begin = time.process_time()
        made.draw(request, last, following)
        times.append(1e3 * (time.process_time() - begin))
    return [seconds, len(getattr(made, "sets", ())), kilobytes, median(times), 1024 * (peak_gigabytes() - before)]


def growth(cases: dict[str, tuple[int, ...]]) -> None:
    rows: list[list[object]] = []
    for scheme, sizes in cases.items():
        found = []
        for n in sizes:
            command = [sys.executable, __file__, "--one", scheme, str(n)]
            found.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
            rows.append([scheme, n, *found[-1]])
        rows.append([scheme, "grows as", *(exponent(sizes, values) for values in zip(*found, strict=True))])
    headings = ["scheme", "n", "CPU s to plan", "sets", "kB on disk", "draw ms (CPU)", "MB more"]
    show("Growth with n: Dirichlet(5), lag 1; the last line of a scheme has the fitted exponent", headings, rows)


def exponent(sizes: tuple[int, ...], values: tuple[float, ...]) -> str:
    """The slope of log(value) over log(n)."""
    if min(values) <= 0:
        return ""
    return f"n^{np.polyfit(np.log(sizes), np.log(values), 1)[0]:.1f}"


def against_one_after_the_other(n: int) -> None:
    """Lags 1 to 8 of one chain, three turns: in this process, and in as many processes as there are cores."""
    chain = dirichlet(n, 5)
    cells = {lag: (chain, lag) for lag in range(1, 9)}

    def run(jobs: int | None) -> float:
        with closing(compute(plan, cells, jobs)) as results:
            return timed(lambda: list(results))[1]

    run(None)  # the processes have started
    turns = [(run(1), run(None)) for _ in range(3)]
    alone, together = (median(turn[i] for turn in turns) for i in (0, 1))
    headings = ["n", "lags", "cores", "one after the other, s", "processes, s", "faster"]
    rows = [[n, "1-8", os.cpu_count(), alone, together, f"{alone / together:.2f}x"]]
    show("Planning many lags (medians of 3 turns; target: not slower)", headings, rows)


if __name__ == "__main__":
    main()
