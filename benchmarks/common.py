"""What every benchmark shares: seeded chains, a stopwatch, a table."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

from onoff import Chain

Result = TypeVar("Result")


def dirichlet(n: int, concentration: float, seed: int = 1) -> Chain:
    """A random dense chain whose rows are Dirichlet(concentration)."""
    return Chain(np.random.default_rng(seed).dirichlet(np.full(n, concentration), n))


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """The result of `work` and the seconds it took."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def peak_gigabytes() -> float:
    """The largest memory this program has had so far.

    Linux counts it anew for each program. `getrusage` would add what the process was before it became this program: of
    one that was spawned, the memory of its parent.
    """
    status = Path("/proc/self/status")
    if status.exists():
        [peak] = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(peak) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def show(title: str, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; right-aligned but for the first column."""
    table = Table(title=title, title_justify="left")
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="right" if i else "left")
    for row in rows:
        table.add_row(*(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row))
    Console(width=120).print(table)
