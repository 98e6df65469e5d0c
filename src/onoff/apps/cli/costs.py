"""`onoff costs`: what privacy costs, for each OFF request after ON or for a whole day."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onoff.apps.cli.options import PLAN, AsJson, Dask, Jobs, parse_lags, parse_sources
from onoff.apps.cli.output import note, print_json, print_table
from onoff.apps.terminal import interrupt_on_signals, progress
from onoff.errors import FOUND, OnoffError
from onoff.schemes import AUTO, SCHEMES, list_names

if TYPE_CHECKING:
    from onoff.apps.costs import Cost, Costs
    from onoff.apps.day import Day
    from onoff.model.chain import Chain


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=PLAN, epilog="Example: onoff costs chain.csv --lags 1-5 --plot costs.png")(
        interrupt_on_signals()(costs)
    )


def costs(
    chains: Annotated[list[Path], typer.Argument(metavar="CHAIN...", help="Chain files, .json or .csv.")],
    lags: Annotated[str, typer.Option(help="Steps since privacy was last ON: 3, or 1-10, or 1,2,5.")] = "1-10",
    promise: Annotated[
        list[str] | None, typer.Option(metavar="past|both", help="The promise, past if not given; once for each.")
    ] = None,
    scheme: Annotated[
        list[str] | None,
        typer.Option(help=f"With --promise both: {list_names(AUTO, *SCHEMES)}; once for each."),
    ] = None,
    sensitive: Annotated[
        str | None, typer.Option(metavar="A,B", help="With the promise past: sources that are always hidden.")
    ] = None,
    lengths: Annotated[
        Path | None,
        typer.Option(metavar="FILE|JOURNAL", help="Also in bytes: JSON {name: bytes}, or what a journal received."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write each cost to a new table once it is known.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw the costs: .png, .svg or .pdf.")] = None,
    streams: Annotated[int, typer.Option(min=2, help="With the promise past: how many streams are simulated.")] = 12,
    gap: Annotated[float, typer.Option(help="How far above the proved bound is near enough for the optimum.")] = 1e-6,
    time_limit: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="Time for each plan, first OFF step and stream.")
    ] = 60.0,
    day: Annotated[
        bool, typer.Option("--day", help="Compare a day of requests with mirroring and asking openly.")
    ] = False,
    requests: Annotated[int, typer.Option(min=1, max=10**6, help="Of a day: requests.")] = 100,
    private: Annotated[float, typer.Option(metavar="SHARE", help="Of a day: the share of private requests.")] = 0.2,
    run: Annotated[float, typer.Option(min=1, help="Of a day: private requests in a row, on average.")] = 3.0,
    mirrored: Annotated[
        int, typer.Option("--mirror", min=1, metavar="N", help="Of a day: how often a mirror fetches all.")
    ] = 24,
    jobs: Jobs = None,
    dask: Dask = None,
    as_json: AsJson = False,
) -> None:
    """Show what an OFF request costs at each lag, or with --day what a day of requests costs.

    Costs of the promise past are exact for the first OFF request, and for later ones the mean of simulated streams.
    Ctrl-C shows what is computed. A cost that could not be computed is a row with its error; the exit code is then 1.
    """
    from onoff.apps.costs import Costs, Effort, read_lengths
    from onoff.apps.costs import costs as compute
    from onoff.apps.day import Usage, compare_day
    from onoff.apps.parallel import use_workers
    from onoff.apps.plots import plot_costs
    from onoff.client.status import snapshot
    from onoff.logs.journals import is_journal

    wanted = parse_lags(lags, least=1)
    found = _files(chains)
    effort = Effort(streams, time_limit, gap)
    promises, schemes = tuple(dict.fromkeys(promise or ("past",))), tuple(dict.fromkeys(scheme or (AUTO,)))
    hidden = parse_sources(sensitive)
    if (scheme and "both" not in promises) or (hidden and promises == ("both",)):
        raise OnoffError("--scheme needs --promise both, and --sensitive needs --promise past")
    if day and len(found) != 1:
        raise OnoffError(f"--day is for one chain, and {len(found)} are given")
    if day and (out is not None or plot is not None):
        raise OnoffError("--day has no --csv and no --plot")
    _check_files(out, plot)
    sizes = None if lengths is None else {name: read_lengths(lengths, chain) for name, chain in found.items()}
    if lengths is not None and is_journal(lengths) and snapshot(lengths).memory.server is not None:
        note("lengths of the messages themselves: an onoff server pads all of them to one length")
    bar = progress("costs")
    if day:
        [(name, chain)] = found.items()
        own = None if sizes is None else sizes[name]
        usage = Usage(requests, private, run, mirrored)
        with use_workers(jobs, dask):
            compared = compare_day(
                chain, usage, both="both" in promises, sensitive=hidden, lengths=own, effort=effort, bar=bar
            )
        (print_json if as_json else _print_day)(compared)
        return
    rows: list[Cost] = []
    work = compute(found, wanted, promises, schemes, sensitive=hidden, lengths=sizes, effort=effort, bar=bar)
    try:
        with use_workers(jobs, dask):
            _collect(work, rows, out)
    finally:  # also if the work is stopped
        if rows:
            places = {name: i for i, name in enumerate((*found, *schemes))}
            rows.sort(key=lambda row: (places[row.chain], row.promise, places.get(row.scheme or "", 0), row.lag))
            result = Costs(hidden, streams, tuple(rows))
            (print_json if as_json else _print)(result)
            if plot is not None:
                plot_costs(rows, plot)
                note(f"drawn: {plot}")
    if any(cost.error is not None for cost in rows):
        raise typer.Exit(FOUND)


def _check_files(out: Path | None, plot: Path | None) -> None:
    """Raise before the work if a file cannot be written."""
    from onoff.apps.plots import check_picture
    from onoff.files import check_file

    if out is not None:
        check_file(out)
        if out.exists():
            raise OnoffError(f"{out}: exists already: give another name, or delete it")
    if plot is not None:
        check_picture(plot)


def _collect(found: Iterator[Cost], rows: list[Cost], out: Path | None) -> None:
    """Append each cost to `rows`, and to the CSV file `out`, as soon as it is known."""
    from onoff.apps.costs import Cost

    with out.open("x", newline="", encoding="utf-8") if out is not None else io.StringIO() as table:
        writer = csv.DictWriter(table, [field.name for field in fields(Cost)], lineterminator="\n")
        writer.writeheader()
        for cost in found:
            rows.append(cost)
            writer.writerow(asdict(cost))
            table.flush()


def _print(found: Costs) -> None:
    """Print a table; a cost that could not be computed has its reason below."""
    rows = [cost for cost in found.costs if cost.error is None]
    several = len({cost.chain for cost in rows}) > 1
    sized = any(cost.everything is not None for cost in rows)
    headings = [*["chain"] * several, "promise", "lag", "messages", "lower bound", "above it", "everything"]
    cells = []
    for cost in rows:
        assert cost.messages is not None
        assert cost.lower_bound is not None
        around = f" ± {cost.margin:.2f}" if cost.margin else ""
        above = f"{100 * max(0.0, cost.messages / cost.lower_bound - 1):.2f} %"
        name = cost.promise if cost.scheme is None else f"{cost.promise} ({cost.scheme})"
        numbers = [f"{cost.messages:.4f}{around}", f"{cost.lower_bound:.4f}", above, str(cost.n)]
        sizes = ["" if size is None else f"{size:,.0f}" for size in (cost.bytes, cost.everything)] if sized else []
        cells.append([*[cost.chain] * several, name, str(cost.lag), *numbers, *sizes])
    title = "expected cost of an OFF request"
    if any(cost.margin for cost in rows):
        title += f" (± 95 % over at most {found.streams} simulated streams, or draws of a race)"
    if rows:
        print_table(title, [*headings, *["bytes", "all bytes"] * sized], cells)
    if found.sensitive:
        print(f"always hidden: {', '.join(found.sensitive)}")
    missed: dict[tuple[str, str, str], list[str]] = {}
    for cost in found.costs:
        if cost.error is not None:
            missed.setdefault((cost.chain, cost.promise, cost.error), []).append(str(cost.lag))
    for (chain, promise, error), lags in missed.items():
        note(f"{chain}, {promise}, lag {', '.join(lags)}: {error}")


def _files(files: list[Path]) -> dict[str, Chain]:
    """Load chains by the names of their files, with directories where two files have the same name."""
    from onoff.model.chain import Chain

    names = [file.name for file in files]
    return {file.name if names.count(file.name) == 1 else str(file): Chain.load(file) for file in files}


def _print_day(found: Day) -> None:
    """Print what a day costs by each way of asking, which way is recommended, and for whom each way is right."""
    usage = found.usage
    title = f"{usage.requests:,} requests a day for {found.sources} sources, {usage.private:.0%} of them private"
    age = f"up to {24 / usage.mirrored:.2g} h old"
    more = {"mirror": f": {usage.mirrored:,} a day, {age}"}
    rows = [(way.label + more.get(way.name, ""), _number(way.cost, way.margin)) for way in found.ways]
    print_table(title, ("", f"{found.unit} a day"), rows)
    openly, best = found.ways[0], next(way for way in found.ways if way.name == found.recommended)
    times = f"{best.cost / openly.cost:,.1f} times" if openly.cost else "more than"
    print(f"Recommended: {best.label}. It costs least of what hides private requests: {times} asking openly.")
    if best.name == "mirror":
        print(f"What you read is then {age}; a mirror that is as fresh as the others costs what ON costs.")
    for way in found.ways:
        print(f"{way.label}: right if {way.right_for}")
    print(
        f"Taken for granted: requests follow the chain, private ones come in runs of {usage.run:g}. Not counted: "
        f"headers. ± is 95 % over {found.streams} simulated streams."
    )
    if not found.sensitive:
        print("--sensitive A,B adds what it costs to hide these sources all the time.")


def _number(value: float, margin: float) -> str:
    """Write a number with its margin, if that is not far below its last digit."""
    digits = 1 if value < 1000 else 0
    shown = f"{value:,.{digits}f}"
    return f"{shown} ± {margin:,.{digits}f}" if margin >= 0.05 * 10.0 ** (1 - digits) else shown
