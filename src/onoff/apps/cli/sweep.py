"""`onoff sweep`: what privacy costs over a grid of chains, lags and schemes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onoff.apps.cli.options import AsJson, Dask, Jobs, parse_lags
from onoff.apps.cli.printing import print_json
from onoff.apps.cli.shape import STUDY
from onoff.apps.ending import ended_in_order
from onoff.apps.tone import aside
from onoff.errors import FOUND, ClusterError, OnoffError
from onoff.extras import need
from onoff.foreign import plain
from onoff.schemes import AUTO, SCHEMES, listed

if TYPE_CHECKING:
    from onoff.apps.sweep import Row, Sweep
    from onoff.model.chain import Chain

MOST_SHOWN = 40
NUMBER = r"[0-9.]+(?:e-?[0-9]+)?"


def register(app: typer.Typer) -> None:
    app.command(
        rich_help_panel=STUDY,
        epilog="Example: onoff sweep chain.csv --symmetric 30:0.1,0.5 --lags 1-10 --out sweep.parquet",
    )(ended_in_order()(sweep))


def sweep(
    out: Annotated[Path, typer.Option(metavar="FILE", help="The table: .parquet. Finished cells are in FILE.cells.")],
    chains: Annotated[list[Path] | None, typer.Argument(metavar="CHAIN", help="Chain files, .json or .csv.")] = None,
    symmetric: Annotated[
        list[str] | None, typer.Option(metavar="N:ALPHA,...", help="Also symmetric chains, one for each alpha.")
    ] = None,
    dirichlet: Annotated[
        list[str] | None, typer.Option(metavar="N:CONCENTRATION:SEED", help="Also a random chain with Dirichlet rows.")
    ] = None,
    lags: Annotated[str, typer.Option(help="Steps since privacy was last ON: 3, or 1-10, or 1,2,5.")] = "1-10",
    scheme: Annotated[list[str] | None, typer.Option(help=f"{listed(AUTO, *SCHEMES)}; once for each.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw the costs: .png, .svg or .pdf.")] = None,
    gap: Annotated[float, typer.Option(help="How far above the proved bound is near enough for the optimum.")] = 1e-6,
    time_limit: Annotated[float | None, typer.Option(metavar="SECONDS", help="Time for each cell.")] = None,
    jobs: Jobs = None,
    dask: Dask = None,
    as_json: AsJson = False,
) -> None:
    """Compute the costs of a grid of chains, lags and schemes (default: paper and optimal), as one table.

    Finished cells are kept when you stop with Ctrl-C, and not computed again. A cell that fails is a row with its
    error; the exit code is then 1.
    """
    from contextlib import closing

    from onoff.apps import terminal as report
    from onoff.apps.plots import check_picture
    from onoff.apps.sweep import Grid, Sweep
    from onoff.files import check_file

    need("logs", "a table in Parquet")
    if out.suffix != ".parquet":
        raise OnoffError(f"{out}: the table ends in .parquet")
    check_file(out)
    if plot is not None:
        check_picture(plot)
    found = _files(chains or []) | _symmetric(symmetric or []) | _dirichlet(dirichlet or [])
    grid = Grid(found, parse_lags(lags), tuple(dict.fromkeys(scheme or ("paper", "optimal"))), gap, time_limit)
    results = Sweep(grid, out.with_name(out.name + ".cells"))
    kept = len(results.results)
    try:
        with report.progress("cells")(len(results.cells)) as advance:
            for _ in range(kept):
                advance()
            with closing(results.run(jobs, dask)) as finished:
                for _ in finished:
                    advance()
    except (KeyboardInterrupt, ClusterError):
        _write(results, out, plot)
        aside(f"stopped: {len(results.results)} of {len(results.cells)} cells are finished")
        raise
    failed = _write(results, out, plot)
    aside(f"cells (plans and pairs of bounds): {len(results.cells)}, {kept} of them kept from before")
    if as_json:
        print_json({"file": out, "cells": len(results.cells), "kept": kept, "rows": results.rows()})
    else:
        _print(results)
        print(out)
    if failed:
        raise typer.Exit(FOUND)


def _write(results: Sweep, out: Path, plot: Path | None) -> int:
    """Write the rows that there are, print every error, and return how many rows have one."""
    from onoff.apps.plots import MOST_PICTURES, plot_sweep
    from onoff.apps.sweep import write_parquet

    rows = results.rows()
    write_parquet(rows, out)
    if plot is not None:
        plot_sweep(rows, plot)
        if len(results.grid.chains) > MOST_PICTURES:
            aside(f"{plot}: shows the first {MOST_PICTURES} of {len(results.grid.chains)} chains")
    failed = [row for row in rows if row["error"] is not None]
    for row in failed:
        aside(plain(f"failed: {row['chain']}, lag {row['lag']}, {row['scheme']}: {row['error']}"))
    return len(failed)


def _print(results: Sweep) -> None:
    """Print the first rows. All of them are in the file."""
    from onoff.apps.terminal import percent, print_table

    rows = [row for row in results.rows() if row["error"] is None]
    proved: dict[tuple[str, int], float] = {}  # each plan proves a bound on all schemes; the best one counts
    for row in rows:
        place = row["chain"], row["lag"]
        proved[place] = max(proved.get(place, 0.0), row["lower_bound"])
    cells = []
    for row in rows[:MOST_SHOWN]:
        bound = proved[row["chain"], row["lag"]]
        above = percent(max(0.0, row["cost"] / bound - 1))
        costs = (f"{row['cost']:.4f}", f"{bound:.4f}", above, f"{row['seconds']:.2f}")
        cells.append((row["chain"], str(row["lag"]), _scheme(row), *costs))
    more = f", the first {MOST_SHOWN} of {len(rows)}" if len(rows) > MOST_SHOWN else ""
    headings = ("chain", "lag", "scheme", "cost", "lower bound of all schemes", "cost above it", "seconds")
    print_table(f"messages per request{more}", headings, cells)


def _scheme(row: Row) -> str:
    """What was asked for and, if there was no time for it, what was made instead."""
    return row["scheme"] if row["made"] == row["scheme"] else f"{row['scheme']} (made: {row['made']})"


def _files(files: list[Path]) -> dict[str, Chain]:
    from onoff.model.chain import Chain

    found = {str(file): Chain.load(file) for file in files}
    names = [file.name for file in map(Path, found)]
    return {  # the name alone, where it is the only one
        Path(file).name if names.count(Path(file).name) == 1 else file: chain for file, chain in found.items()
    }


def _symmetric(options: list[str]) -> dict[str, Chain]:
    from onoff.model.chain import Chain

    found = {}
    for text in options:
        match = re.fullmatch(rf"([0-9]{{1,4}}):({NUMBER}(?:,{NUMBER})*)", text)
        if match is None:
            raise typer.BadParameter(f"{text!r} is not a list of symmetric chains: write 30:0.1 or 30:0.1,0.5")
        for alpha in match[2].split(","):
            found[f"symmetric {match[1]}:{alpha}"] = Chain.symmetric(int(match[1]), _float(alpha))
    return found


def _dirichlet(options: list[str]) -> dict[str, Chain]:
    from onoff.apps.sweep import dirichlet

    found = {}
    for text in options:
        match = re.fullmatch(rf"([0-9]{{1,4}}):({NUMBER}):([0-9]{{1,9}})", text)
        if match is None:
            raise typer.BadParameter(f"{text!r} is not a random chain: write N:CONCENTRATION:SEED, such as 30:5:1")
        found[f"dirichlet {text}"] = dirichlet(int(match[1]), _float(match[2]), int(match[3]))
    return found


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number") from None
