"""`onoff page`, `demo` and `reproduce`: see the promise hold, and see the paper's figures again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onoff.apps.cli.options import STUDY, AsJson
from onoff.apps.terminal import interrupt_on_signals, progress
from onoff.errors import FOUND

SEED = 10  # of a reader of whom a naive client betrays what it does in the long run


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=STUDY, epilog="Example: onoff page --chain chain.csv")(page)
    app.command(rich_help_panel=STUDY, epilog="Example: onoff demo --steps 500")(interrupt_on_signals()(demo))
    app.command(rich_help_panel=STUDY, epilog="Example: onoff reproduce --out pictures")(reproduce)


def page(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 8701,
    chain: Annotated[Path | None, typer.Option(metavar="FILE", help="A chain file; without it, the demo's.")] = None,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True,
) -> None:
    """Open a page over a real server and client: click requests, switch privacy, watch what the server believes."""
    import asyncio

    from onoff.apps.demo.reader import reader
    from onoff.apps.page.app import run
    from onoff.model.chain import Chain

    loaded, title = (reader(), "a reader of eight news channels") if chain is None else (Chain.load(chain), chain.name)

    def say(url: str) -> None:
        print(f"the page is at {url} (Ctrl-C stops everything)", flush=True)

    asyncio.run(run(loaded, title, port, show, say))


def reproduce(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the files go; made if it is not there.")] = Path(
        "figures"
    ),
) -> None:
    """Redraw Figure 2 of the paper as PNG and SVG, with its numbers as CSV."""
    from onoff.apps import plots

    for file in plots.reproduce(out):
        print(file)


def demo(
    steps: Annotated[int, typer.Option(min=10, max=100_000, help="How many requests the reader makes.")] = 150,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulated reader.")] = SEED,
    as_json: AsJson = False,
) -> None:
    """See what a server learns: a real server and real clients, ours beside what people do today."""
    from onoff.apps.cli.output import print_json
    from onoff.apps.demo.run import demonstrate, introduce, narrate

    if not as_json:
        print(introduce(steps), flush=True)
    result = demonstrate(steps, seed, progress("demonstration"))
    if as_json:
        print_json(result)
    else:
        print(narrate(result))
    if result.findings:
        raise typer.Exit(FOUND)
