"""All commands. Numerical libraries are imported inside of them, so that `--help` answers at once."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from onoff.apps.cli import audit, check, client, fit, normalise, page, plan, play, proxy, serve, sweep
from onoff.apps.cli.options import parse_lags, parse_sources
from onoff.errors import OnoffError

app = typer.Typer(
    name="onoff",
    help="ON-OFF privacy: fetch from an untrusted server with perfect privacy that you switch ON and OFF.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

audit.register(app)
check.register(app)
client.register(app)
fit.register(app)
normalise.register(app)
page.register(app)
plan.register(app)
play.register(app)
proxy.register(app)
serve.register(app)
sweep.register(app)

ChainFile = Annotated[Path, typer.Argument(metavar="CHAIN", help="A chain file, .json or .csv.")]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("onoff-privacy"))
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command(epilog="Example: onoff rates examples/reader.csv --lags 1-10 --plot rates.png")
def rates(
    chain: ChainFile,
    lags: Annotated[str, typer.Option(help="Steps since privacy was last ON: 3, or 1-10, or 1,2,5.")] = "1-10",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw the costs: .png, .svg or .pdf.")] = None,
    time_limit: Annotated[float, typer.Option(metavar="SECONDS", help="For the optimum of each lag.")] = 60.0,
    promise: Annotated[
        str, typer.Option(metavar="both|past", help="past: the everyday mode, which needs no next request; simulated.")
    ] = "both",
    sensitive: Annotated[
        str | None, typer.Option(metavar="A,B", help="With --promise past: sources that are always hidden.")
    ] = None,
    streams: Annotated[int, typer.Option(min=2, help="With --promise past: how many are simulated.")] = 40,
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
        if as_json:
            print(json.dumps(asdict(found), indent=2))
        else:
            everydayrates.print_everyday_rates(found)
        if plot is not None:
            everydayrates.plot_everyday_rates(found, plot)
            print(f"drawn: {plot}", file=sys.stderr)
        return
    if promise != "both" or sensitive is not None:
        raise OnoffError("choose --promise both or past; --sensitive needs --promise past")
    rows = report.rates(Chain.load(chain), wanted, report.progress("computing rates"), time_limit)
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        report.print_rates(rows)
    if plot is not None:
        plots.plot_rates(rows, plot)
        print(f"drawn: {plot}", file=sys.stderr)


@app.command(epilog="Example: onoff reproduce --out figures")
def reproduce(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to put the files; made if it is not there.")],
) -> None:
    """Redraw Figure 2 of the paper as PNG and SVG, with its numbers as CSV."""
    from onoff.apps import figures

    for file in figures.reproduce(out):
        print(file)


@app.command(epilog="Example: onoff demo --steps 500")
def demo(
    steps: Annotated[int, typer.Option(min=10, max=100_000, help="How many requests the reader makes.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulated reader.")] = 1,
) -> None:
    """Watch a reader of eight news channels toggle privacy: a real server, and a real client that is killed once."""
    from onoff.apps import terminal as report
    from onoff.apps.demo import demonstrate

    with report.progress("requests made")(steps) as advance:
        made = 0

        def at(step: int) -> None:
            nonlocal made
            for _ in range(step - made):
                advance()
            made = max(made, step)

        result = demonstrate(steps, seed, at)
    report.print_demo(result)
