"""`onoff demo` and `onoff reproduce`: see it work, and see the paper's figures again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onoff.apps.cli.shape import STUDY


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=STUDY, epilog="Example: onoff demo --steps 500")(demo)
    app.command(rich_help_panel=STUDY, epilog="Example: onoff reproduce --out figures")(reproduce)


def reproduce(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to put the files; made if it is not there.")],
) -> None:
    """Redraw Figure 2 of the paper as PNG and SVG, with its numbers as CSV."""
    from onoff.apps import figures

    for file in figures.reproduce(out):
        print(file)


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
