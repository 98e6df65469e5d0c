"""`onoff fit`: a chain from a log of requests, with a report of what it is worth."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onoff.apps.cli.options import (
    PLAN,
    AsJson,
    LogFormat,
    OneUser,
    SourceColumn,
    TimeColumn,
    TimeFormat,
    UserColumn,
    parse_lags,
)
from onoff.apps.cli.output import note, print_json
from onoff.apps.ending import ended_in_order
from onoff.errors import LogError

if TYPE_CHECKING:
    from onoff.logs.fitting import Fit

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def register(app: typer.Typer) -> None:
    app.command(
        rich_help_panel=PLAN,
        epilog="Example: onoff fit clicks.csv -o chain.json --user visitor --time at --source page --gap 30m",
    )(ended_in_order()(fit))


def fit(
    log: Annotated[
        list[Path],
        typer.Argument(
            metavar="LOG...",
            help="CSV, JSON lines, Parquet, text, a web access log; .gz or .zip, too; or one or more journals.",
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The chain with its counts, .json.")],
    user: UserColumn = None,
    time: TimeColumn = None,
    source: SourceColumn = None,
    one_user: OneUser = False,
    time_format: TimeFormat = None,
    kind: LogFormat = None,
    open_only: Annotated[
        bool, typer.Option("--open-only", help="Of a journal: use requests that were asked OFF alone.")
    ] = False,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Leave this source out of the chain; may be given several times."),
    ] = None,
    gap: Annotated[str | None, typer.Option(help="A longer pause starts a new sequence: 30m, 2h, 90.")] = None,
    top: Annotated[int, typer.Option(min=1, max=1000, help="Keep so many sources; the others become `other`.")] = 100,
    min_count: Annotated[int, typer.Option(min=0, help="Sources with fewer events become `other`, too.")] = 1,
    smoothing: Annotated[float, typer.Option(min=0.0, help="Added to every count.")] = 1.0,
    held_out: Annotated[float, typer.Option(help="Share of users that test the chain and do not shape it.")] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="Chooses the held-out users and the bootstrap samples.")] = 1,
    lags: Annotated[str, typer.Option(help="Show the cost at these lags: 3, or 1-10, or 1,2,5.")] = "1-10",
    bootstrap: Annotated[int | None, typer.Option(min=0, help="Samples for intervals of the cost; 0 for none.")] = None,
    engine: Annotated[str, typer.Option(help="duckdb, in this process, or spark.")] = "duckdb",
    spark: Annotated[
        str | None, typer.Option(metavar="MASTER", help="Count with Spark there: local[*], spark://HOST:7077.")
    ] = None,
    memory: Annotated[str, typer.Option(help="What DuckDB may use; the rest goes to a temporary directory.")] = "2GB",
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the report as JSON.")] = None,
    as_json: AsJson = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw the costs: .png, .svg or .pdf.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite --out and --report if they are there.")] = False,
) -> None:
    """Fit a chain to a log of requests, and say what it is worth and what privacy will cost."""
    from onoff.apps.progress import progress
    from onoff.logs import fitting

    wanted, pause = parse_lags(lags, least=1), None if gap is None else parse_gap(gap)
    _check_files(log, out, report, plot, force)
    result = fitting.fit(
        *log,
        user=user,
        time=time,
        source=source,
        one_user=one_user,
        time_format=time_format,
        kind=kind,
        open_only=open_only,
        without=without or (),
        gap=pause,
        top=top,
        min_count=min_count,
        smoothing=smoothing,
        held_out=held_out,
        seed=seed,
        lags=wanted,
        replicates=bootstrap,
        engine="spark" if spark is not None else engine,
        spark=spark or "local[*]",
        memory=memory,
        progress=progress,
    )
    _deliver(result, out, report, plot, open_only, as_json)


def _check_files(logs: list[Path], out: Path, report: Path | None, plot: Path | None, force: bool) -> None:
    """Refuse files that cannot be written, or that would overwrite one another, before the log is read."""
    from onoff.apps.plots import check_picture
    from onoff.files import check_file

    if out.suffix.lower() != ".json":
        raise LogError(f"{out}: a chain with its counts is written as JSON; give a name that ends in .json")
    for file in filter(None, (out, report)):
        check_file(file)
        if file.exists() and not force:
            raise LogError(f"{file}: exists already: give another name, or --force to overwrite it")
    if plot is not None:
        check_picture(plot)
    files = [os.path.realpath(file) for file in (*logs, out, report, plot) if file is not None]
    if len(set(files)) < len(files):
        raise LogError(
            "the same file twice, or one would overwrite the other: LOG, --out, --report and --plot are different files"
        )


def _deliver(result: Fit, out: Path, report: Path | None, plot: Path | None, open_only: bool, as_json: bool) -> None:
    """Write the chain and the report, print what they are worth, and draw the costs."""
    from onoff.apps.cli import showfit as showing
    from onoff.files import write_atomically

    for words in result.report.notes:
        note(words)
    result.save(out)
    if report is not None:
        write_atomically(report, result.to_json().encode() + b"\n")
    if as_json:
        print_json(result.report)
    else:
        showing.print_fit(result.report, out, open_only)
    if plot is not None:
        showing.plot_costs(result.report, plot, out)
        note(f"drawn: {plot}")


def parse_gap(text: str) -> float:
    """`90`, `90s`, `30m`, `2h` or `1d` in seconds."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([smhd]?)\s*", text)
    if match is None or float(match[1]) == 0:
        raise typer.BadParameter(f"{text!r} is not a length of time: write 30m, 2h, 1d or a number of seconds")
    return float(match[1]) * UNITS[match[2]]
