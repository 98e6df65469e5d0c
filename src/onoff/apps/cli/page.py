"""`onoff page`: see the promise hold, in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onoff.apps.cli.options import STUDY


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=STUDY, epilog="Example: onoff page --chain chain.csv")(page)


def page(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 8701,
    chain: Annotated[Path | None, typer.Option(metavar="FILE", help="A chain file; without it, the demo's.")] = None,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True,
) -> None:
    """Open a page over a real server and client: click requests, switch privacy, watch what the server believes."""
    from onoff.apps.demo import reader
    from onoff.apps.page.process import run
    from onoff.model.chain import Chain

    loaded, title = (reader(), "a reader of eight news channels") if chain is None else (Chain.load(chain), chain.name)
    run(loaded, title, port, show, lambda url: print(f"the page is at {url} (Ctrl-C stops everything)", flush=True))
