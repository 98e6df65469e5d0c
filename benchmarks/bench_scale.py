"""How cost, planning time, plan size, draw time and memory grow with n, beside the bound; and what processes gain.

    .venv/bin/python benchmarks/bench_scale.py [--quick] [--sizes 50,100,200,300,500,1000] [--schemes comb,race]
        [--time-limit 300] [--concentration 5] [--lag 1] [--dask N] [--only growth|processes|dask]

Every row is measured in a process of its own, so that its memory is its own. A row that did not end in time says so.
`--quick` leaves the largest out. `--dask N` divides one comb of N sources among one and two workers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
from joblib import parallel_config

from common import dirichlet, peak_gigabytes, show, timed
from onoff import Chain, Plan, plan
from onoff.apps.parallel import compute, use_workers

SCHEMES = ("comb", "optimal", "race")
SIZES = (50, 100, 200, 300, 500, 1000)
MOST = {"optimal": 300}  # sources beyond which nobody waits for it
GRACE = 60  # seconds beyond the time limit before a process is killed: rounds are not interrupted
HEADINGS = ("cost", "bound", "above, %", "CPU s", "s", "sets", "kB", "load, ms", "first draw", "draw, ms", "MB more")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sizes", type=lambda text: tuple(map(int, text.split(","))), default=SIZES)
    parser.add_argument("--schemes", type=lambda text: tuple(text.split(",")), default=SCHEMES)
    parser.add_argument("--time-limit", type=float, default=300.0, metavar="SECONDS", help="for each row")
    parser.add_argument("--concentration", type=float, default=5.0, help="of the Dirichlet rows")
    parser.add_argument("--lag", type=int, default=1)
    parser.add_argument("--dask", type=int, default=1000, metavar="N", help="sources of the plan that is divided")
    parser.add_argument("--only", choices=("growth", "processes", "dask"))
    parser.add_argument("--one", nargs=2, metavar=("SCHEME", "N"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one[0], int(options.one[1]), options)))
        return
    if options.quick:
        options.sizes, options.time_limit, options.dask = (50, 100), 60.0, 100
    if options.only in (None, "growth"):
        growth(options)
    if options.only in (None, "processes"):
        against_one_after_the_other(20 if options.quick else 30)
    if options.only in (None, "dask"):
        on_a_cluster(options.dask)


def one(scheme: str, n: int, options: argparse.Namespace) -> dict[str, float | str]:
    """What one row of the table says; `made` is the scheme that was made in the time."""
    chain, small = dirichlet(n, options.concentration, 77), dirichlet(4, 5)
    plan(small, 1, scheme).draw(0, 0, 0)  # load the libraries before any clock runs
    before = peak_gigabytes()
    with parallel_config(backend="sequential"):  # in one process, whose CPU time is all there is
        start = time.process_time()
        made, seconds = timed(lambda: plan(chain, options.lag, scheme, time_limit=options.time_limit))
        cpu = time.process_time() - start
    memory = peak_gigabytes() - before
    with tempfile.TemporaryDirectory() as directory:
        made.save(Path(directory) / "a.plan.json")
        kilobytes = sum(file.stat().st_size for file in Path(directory).iterdir()) / 1e3
        loaded, loading = timed(lambda: Plan.load(Path(directory) / "a.plan.json"))
    first, warm = draws(loaded)
    return {
        "made": made.scheme,
        "cost": made.cost,
        "bound": made.lower_bound,
        "above, %": 100 * (made.cost / made.lower_bound - 1),
        "CPU s": cpu,
        "s": seconds,
        "sets": float(len(getattr(made, "sets", ()))),
        "kB": kilobytes,
        "load, ms": 1e3 * loading,
        "first draw": first,
        "draw, ms": warm,
        "MB more": 1024 * memory,
    }


def draws(made: Plan) -> tuple[float, float]:
    """Milliseconds of CPU for the first draw after loading, and the median of those after it."""
    rng = np.random.default_rng(1)
    times = []
    for _ in range(40):
        request, last, following = (int(x) for x in rng.integers(0, made.n, 3))
        begin = time.process_time()
        made.draw(request, last, following)
        times.append(1e3 * (time.process_time() - begin))
    return times[0], median(times[1:])


def growth(options: argparse.Namespace) -> None:
    """The table; progress is told on stderr, a line for each row."""
    rows: list[list[object]] = []
    for scheme in options.schemes:
        sizes = [n for n in options.sizes if n <= MOST.get(scheme, n)]
        found = {n: row for n in sizes if (row := measured(scheme, n, options)) is not None}
        whole = {n: row for n, row in found.items() if scheme == row["made"] or float(row["above, %"]) <= 1e-4}
        rows += [[scheme if n in whole else f"{scheme}: {row['made']}", n, *(row[key] for key in HEADINGS)]
                 for n, row in found.items()]  # fmt: skip
        rows += [[scheme, n, f"not in {options.time_limit:g} s"] for n in sizes if n not in found]
        if len(whole) > 2:
            rows.append([scheme, "grows as", *(exponent(whole, key) for key in HEADINGS)])
    show(f"Growth with n: Dirichlet({options.concentration:g}), seed 77, lag {options.lag}, one process; the last line "
         "of a scheme has the exponents of n", ["scheme", "n", *HEADINGS], rows)  # fmt: skip


def measured(scheme: str, n: int, options: argparse.Namespace) -> dict[str, float | str] | None:
    """`one` in a process of its own; None if it is not finished in time."""
    words = ["--one", scheme, str(n), "--time-limit", str(options.time_limit)]
    words += ["--concentration", str(options.concentration), "--lag", str(options.lag)]
    print(f"{scheme}, n = {n} ...", end=" ", file=sys.stderr, flush=True)
    try:
        done = subprocess.run([sys.executable, __file__, *words], check=True, stdout=subprocess.PIPE, text=True,
                              timeout=options.time_limit + GRACE)  # fmt: skip
    except subprocess.TimeoutExpired:
        print("not in time", file=sys.stderr)
        return None
    row: dict[str, float | str] = json.loads(done.stdout)
    print(f"cost {row['cost']:.3f}, bound {row['bound']:.3f}, {row['s']:.1f} s", file=sys.stderr)
    return row


def exponent(found: dict[int, dict[str, float | str]], key: str) -> str:
    """The slope of log(value) over log(n)."""
    values = [float(row[key]) for row in found.values()]
    if key in ("bound", "above, %") or not min(values) > 0:
        return ""
    return f"n^{np.polyfit(np.log(list(found)), np.log(values), 1)[0]:.1f}"


def against_one_after_the_other(n: int) -> None:
    """Lags 1 to 8 of one chain, three turns: in this process, and in as many processes as there are cores."""
    chain = dirichlet(n, 5)
    calls = [(chain, lag) for lag in range(1, 9)]

    def run(jobs: int | None) -> float:
        with use_workers(jobs):
            return timed(lambda: list(compute(plan, calls)))[1]

    run(None)  # the processes have started
    turns = [(run(1), run(None)) for _ in range(3)]
    alone, together = (median(turn[i] for turn in turns) for i in (0, 1))
    headings = ["n", "lags", "cores", "one after the other, s", "processes, s", "faster"]
    rows = [[n, "1-8", os.cpu_count(), alone, together, f"{alone / together:.2f}x"]]
    show("Planning many lags (medians of 3 turns; target: not slower)", headings, rows)


def on_a_cluster(n: int) -> None:
    """One comb, divided among one and among two workers of one thread each."""
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        print("Dask is not installed: pip install 'onoff-privacy[dask]'")
        return
    chain, small = dirichlet(n, 5, 77), dirichlet(60, 5)
    seconds, rows = {}, []
    for workers in (1, 2):
        local = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)  # type: ignore[no-untyped-call]
        with local as cluster, Client(cluster.scheduler_address) as client:  # type: ignore[no-untyped-call]
            _divided(small, cluster.scheduler_address)  # libraries are loaded everywhere
            before, start = sum(client.run(time.process_time).values()), time.process_time()
            seconds[workers] = timed(lambda where=cluster.scheduler_address: _divided(chain, where))[1]  # type: ignore[misc]
            here, there = time.process_time() - start, sum(client.run(time.process_time).values()) - before
            rows.append([n, workers, seconds[workers], seconds[1] / seconds[workers], here, there])
    headings = ["n", "workers", "s", "times as fast", "CPU s of the command", "CPU s of the workers"]
    show(
        f"One comb divided among workers of one thread, {os.cpu_count()} cores (target at n = 1000: 1.7)",
        headings,
        rows,
    )


def _divided(chain: Chain, address: str) -> None:
    with use_workers(dask=address):
        plan(chain, 1, "comb")


if __name__ == "__main__":
    main()
