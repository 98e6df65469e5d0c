"""Fitting a chain to 100 million events in Parquet, in 4 GB; plain pandas on a tenth of them; MSNBC with --msnbc FILE.

The log is made here (about 1 GB; --directory says where, --events how many). Every contender runs in a process of its
own, whose time, processor time and peak memory are shown.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

import duckdb
import numpy as np

from common import dirichlet, show

SOURCES, STEPS = 100, 50

PANDAS = """
import sys, duckdb, pandas as pd
log = duckdb.read_parquet(sys.argv[1]).df()
log = log.sort_values(["user", "time"], kind="stable")
last = log.groupby("user").source.shift()
counts = pd.crosstab(last, log.source)
print(int(counts.to_numpy().sum()))
"""
FIT = """
import sys, onoff
report = onoff.fit(sys.argv[1], ram=sys.argv[2], memory="auto" if sys.argv[3:] else 1).report
print(report.transitions)
"""


def make(file: Path, events: int) -> None:
    """A log in the order of time, in which all users take turns: each makes 50 steps of one chain of 100 sources."""
    rng = np.random.default_rng(1)
    P = dirichlet(SOURCES, 0.1).P
    edges = (np.minimum(P.cumsum(axis=1), 1 - 1e-12) + np.arange(SOURCES)[:, None]).ravel()
    edges[SOURCES - 1 :: SOURCES] = np.arange(1, SOURCES + 1)
    users = events // STEPS
    state = rng.integers(SOURCES, size=users)
    who = rng.permutation(users) * 7919
    with duckdb.connect(str(file.with_suffix(".database"))) as database:
        database.execute("SET enable_progress_bar = false")
        database.execute("CREATE TABLE log (who BIGINT, moment BIGINT, source SMALLINT)")
        for step in range(STEPS):
            state = np.searchsorted(edges, state + rng.random(users), side="right") % SOURCES
            moment = step * 1000 * users + np.arange(users) + 1_700_000_000_000
            database.register("step", {"who": who, "moment": moment, "state": state})
            database.execute("INSERT INTO log SELECT who, moment, state FROM step")
        cells = "who AS user, epoch_ms(moment) AS time, 'page ' || source AS source"
        database.execute(f"COPY (SELECT {cells} FROM log ORDER BY moment) TO '{file}' (FORMAT parquet)")
    file.with_suffix(".database").unlink()


def measured(code: str, *arguments: str) -> tuple[str, float, float, float]:
    """What a Python process printed, and its seconds, processor seconds and peak memory in GB."""
    start = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    printed = child.stdout.read().strip()
    _, status, used = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"the process ended with status {status}")
    return printed, time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=100_000_000)
    parser.add_argument("--ram", default="2GB", help="DuckDB's share")
    parser.add_argument("--directory", help="where the log is made, and deleted")
    parser.add_argument("--msnbc", help="msnbc990928.zip of the UCI repository")
    options = parser.parse_args()
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        for events, name, code in (
            (options.events // 10, "pandas, counts only", PANDAS),
            (options.events // 10, "onoff fit", FIT),
            (options.events, "onoff fit", FIT),
        ):
            file = Path(directory) / "log.parquet"
            maker = get_context("spawn").Process(target=make, args=(file, events))  # its memory is not that of a fit
            maker.start()
            maker.join()
            printed, *figures = measured(code, str(file), options.ram)
            rows.append([name, f"{events:,}", f"{int(printed):,}", *figures])
    for memory in ((), ("auto",)) if options.msnbc else ():
        printed, *figures = measured(FIT, options.msnbc, options.ram, *memory)
        name = " ".join(("onoff fit --memory", *memory) if memory else ("onoff fit",))
        rows.append([f"{name}, MSNBC", "4,698,794", f"{int(printed):,}", *figures])
    headings = ["what", "events", "transitions", "seconds", "processor seconds", "peak GB"]
    show("Fitting (target: 100 million events within 4 GB)", headings, rows)


if __name__ == "__main__":
    main()
