"""`onoff audit`: check the promise without believing the planner."""

from __future__ import annotations

import typer

from onoff.commands.audit import real


def register(app: typer.Typer) -> None:
    audit = typer.Typer(
        help="Check the promise without believing the planner.",
        epilog="Example: onoff audit real sequences.txt",
        no_args_is_help=True,
    )
    for part in (real,):
        part.register(audit)
    app.add_typer(audit, name="audit")
