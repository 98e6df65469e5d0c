"""Start-up of the command line, and the bounds of a chain of 1000 sources."""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

from common import dirichlet, peak_gigabytes, show, timed
from onoff import bounds


def main() -> None:
    command = Path(sys.executable).with_name("onoff")
    runs = [timed(lambda: subprocess.run([command, "--help"], check=True, capture_output=True))[1] for _ in range(9)]
    python = [timed(lambda: subprocess.run([sys.executable, "-c", ""], check=True))[1] for _ in range(9)]
    show(
        "Start-up, median of 9 (target: 0.5 s)",
        ["what", "seconds"],
        [["onoff --help", statistics.median(runs)], ["python -c ''", statistics.median(python)]],
    )
    rows = []
    for n in (100, 300, 1000):
        posterior = dirichlet(n, 5).posterior(1)
        found, seconds = timed(lambda posterior=posterior: bounds(posterior))  # type: ignore[misc]
        rows.append([n, seconds, float(found.inner), float(found.outer), peak_gigabytes(), n**3 * 8 / 2**30])
    show(
        "Bounds, Dirichlet(5) rows, lag 1 (target: n=1000 without the 8 GB of its rows)",
        ["n", "seconds", "inner", "outer", "peak GB so far", "GB of all rows"],
        rows,
    )


if __name__ == "__main__":
    main()
