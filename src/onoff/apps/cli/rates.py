"""`onoff rates`: what a request costs at each lag."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from onoff.apps.cli.options import AsJson, parse_lags, parse_sources
from onoff.apps.cli.printing import print_json
from onoff.apps.cli.shape import PLAN
from onoff.apps.tone import aside
from onoff.errors import OnoffError

Found = TypeVar("Found")


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=PLAN, epilog="Example: onoff rates examples/reader.csv --lags 1-10 --plot rates.png")(
        rates
    )


def rates(
    chain: Annotated[Path, typer.Argument(metavar="CHAIN", help="A chain file, .json or .csv.")],
    lags: Annotated[str, typer.Option(help="Steps since privacy was last ON: 3, or 1-10, or 1,2,5.")] = "1-10",
    as_json: AsJson = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw the costs: .png, .svg or .pdf.")] = None,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time to look for the optimum of each lag.")
    ] = 60.0,
    promise: Annotated[
        str, typer.Option(metavar="both|past", help="past: the everyday mode, which needs no next request; simulated.")
    ] = "both",
    sensitive: Annotated[
        str | None, typer.Option(metavar="A,B", help="With --promise past: sources that are always hidden.")
    ] = None,
    streams: Annotated[int, typer.Option(min=2, help="With --promise past: how many streams are simulated.")] = 40,
) -> None:
    """Show what a request costs at each lag: everything, the paper's scheme, the optimum, its gap, the outer bound.

    With --promise past: messages per request over the steps since ON, beside the announced mode and asking openly.
    """
    from onoff.apps import plots
    from onoff.apps import terminal as report
    from onoff.model.chain import Chain

    wanted = parse_lags(lags)
    if plot is not None:
        plots.check_picture(plot)
    if promise == "past":
        from onoff.apps import everydayrates

        found = everydayrates.everyday_rates(
            Chain.load(chain), wanted, parse_sources(sensitive), streams=streams, time_limit=time_limit,
            bar=report.progress("simulating"),
        )  # fmt: skip
        draw = partial(everydayrates.plot_everyday_rates, name=chain.name)
        _present(found, everydayrates.print_everyday_rates, draw, as_json, plot)
        return
    if promise != "both":
        raise OnoffError(f"the promise is {promise!r}: choose --promise both or past")
    if sensitive is not None:
        raise OnoffError("--sensitive needs --promise past")
    rows = report.rates(Chain.load(chain), wanted, report.progress("computing rates"), time_limit)
    _present(rows, report.print_rates, plots.plot_rates, as_json, plot)


def _present(
    found: Found,
    show: Callable[[Found], None],
    draw: Callable[[Found, Path], None],
    as_json: bool,
    plot: Path | None,
) -> None:
    """Print what was found as JSON, or else for people by `show`, and draw it if there is a file for that."""
    if as_json:
        print_json(found)
    else:
        show(found)
    if plot is not None:
        draw(found, plot)
        aside(f"drawn: {plot}")
