"""A thousand sources at the bound: the plan that `auto` makes on all cores, and what compiled code gains.

    .venv/bin/python benchmarks/bench_thousand.py [--sizes 1000] [--lags 1,5] [--concentrations 1,5]
        [--only plans|optimum|limit|screens]

`plans`: cost, time and memory of whole plans, beside the bound and the race (targets at n = 1000: 1.001 of the bound,
5 minutes, 2 GB). `optimum`: 300 sources to a gap of 1e-6 (target: 2 minutes). `limit`: 300 sources in 60 seconds.
`screens`: contexts looked at by compiled code and in NumPy, in one process. Plans use compiled code if the extra
`fast` is installed. Every plan is made in a process of its own; memory is what it and its workers have at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from common import dirichlet, show
from onoff import plan
from onoff.extras import has
from onoff.model.posterior import Posterior
from onoff.model.powers import one_thread
from onoff.schemes import sinkhorn
from onoff.schemes.comb import comb_law
from onoff.schemes.law import Law
from onoff.schemes.sinkhorn import unsure

SEED = 77
GROUPS = 8  # of contexts, in which screens are compared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", type=lambda text: [int(n) for n in text.split(",")], default=[1000])
    parser.add_argument("--lags", type=lambda text: [int(lag) for lag in text.split(",")], default=[1, 5])
    parser.add_argument("--concentrations", type=lambda text: [float(c) for c in text.split(",")], default=[5.0, 1.0])
    parser.add_argument("--only", choices=("plans", "optimum", "limit", "screens"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(*json.loads(options.one))))
        return
    if options.only in (None, "screens") and has("fast"):
        screens(options.sizes)
    if options.only in (None, "plans"):
        cells = [
            (n, c, lag, "auto", 900.0) for n in options.sizes for c in options.concentrations for lag in options.lags
        ]
        plans("Plans on all cores (targets at n = 1000: 1.001, 300 s, 2 GB)", cells)
    if options.only in (None, "optimum"):
        plans("The optimum (target: gap 1e-6 in 120 s)", [(300, 5.0, 1, "optimal", 600.0)])
    if options.only in (None, "limit"):
        plans("In 60 seconds (target: the comb)", [(300, 1.0, 1, "auto", 60.0)])


def plans(title: str, cells: list[tuple[int, float, int, str, float]]) -> None:
    rows: list[list[object]] = []
    for n, concentration, lag, scheme, limit in cells:
        found = measured(json.dumps([n, concentration, lag, scheme, limit]))
        above = found["cost"] / found["bound"] - 1
        rows.append([f"Dirichlet({concentration:g})", n, lag, found["scheme"], found["cost"], found["bound"],
                     f"{above:.1e}", found["race"], found["s"], found["GB"], int(found["sets"])])  # fmt: skip
        print(f"n = {n}, Dirichlet({concentration:g}), lag {lag}: {found['s']:.0f} s", file=sys.stderr)
    headings = ["rows", "n", "lag", "scheme", "cost", "bound", "above", "race", "s", "GB", "sets"]
    code = "compiled code" if has("fast") else "without compiled code"
    show(f"{title}: {os.cpu_count()} cores, {code}", headings, rows)


def measured(cell: str) -> dict[str, float]:
    """`one` in a process of its own, with the most memory that it and its workers had at a time, in GB."""
    command = [sys.executable, __file__, "--one", cell]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        most = 0
        while process.poll() is None:
            most = max(most, session_kilobytes(process.pid))
            time.sleep(0.5)
        assert process.stdout is not None
        found: dict[str, float] = json.loads(process.stdout.read())
    return {**found, "GB": most / 1e6}


def session_kilobytes(session: int) -> int:
    """What all processes of a session have in memory, shared pages divided among those who share them."""
    total = 0
    for place in Path("/proc").iterdir():
        try:
            if place.name.isdigit() and int((place / "stat").read_text().rsplit(")", 1)[1].split()[3]) == session:
                lines = (place / "smaps_rollup").read_text().splitlines()
                total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except OSError:
            pass  # it has ended
    return total


def one(n: int, concentration: float, lag: int, scheme: str, limit: float) -> dict[str, float | str]:
    chain = dirichlet(n, concentration, SEED)
    plan(dirichlet(4, 5), 1)  # load the libraries before any clock runs
    start = time.perf_counter()
    made = plan(chain, lag, scheme, time_limit=limit)
    seconds = time.perf_counter() - start
    race = plan(chain, lag, "race").cost
    return {"scheme": made.scheme, "cost": made.cost, "bound": made.lower_bound, "race": race, "s": seconds,
            "sets": float(len(getattr(made, "sets", ())))}  # fmt: skip


def screens(sizes: list[int]) -> None:
    """CPU microseconds for a context of the comb's law, in some groups of contexts."""
    rows: list[list[object]] = []
    for n in sorted({300, *sizes}):
        for concentration in (5.0, 1.0):
            posterior = Posterior(dirichlet(n, concentration, SEED), 1)
            law = comb_law(posterior)
            slack = (law.masses[-1] - n) / (law.total - n)
            spent: dict[str, float] = {}
            for name, least in (("NumPy", sys.maxsize), ("compiled", 0)):
                sinkhorn.COMPILED_FROM = least
                screen = sinkhorn.screen_of(Law(law.member[:-1], law.mass[:-1]), slack)
                unsure(screen, posterior.group(0))  # loaded and warm
                start, seen = time.process_time(), 0
                with one_thread():
                    for group in np.linspace(0, n - 1, GROUPS).astype(int).tolist():
                        unsure(screen, posterior.group(group))
                        seen += len(posterior.group(group))
                spent[name] = 1e6 * (time.process_time() - start) / seen
            rows.append([f"Dirichlet({concentration:g})", n, len(law.mass), spent["NumPy"], spent["compiled"],
                         f"{spent['NumPy'] / spent['compiled']:.1f}x"])  # fmt: skip
    headings = ["rows", "n", "sets", "NumPy, us a context", "compiled, us", "faster"]
    show("Looking at contexts of one law, lag 1, CPU time of one process", headings, rows)


if __name__ == "__main__":
    main()
