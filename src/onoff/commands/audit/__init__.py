"""`onoff audit`: check the promise without believing the planner."""

from __future__ import annotations

import typer

from onoff.commands.audit import plan


def register(app: typer.Typer) -> None:
    audit = typer.Typer(
        help="Check the promise without believing the planner: what can the server learn?",
        epilog="Example: onoff audit plan chain.csv plans",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    for part in (plan,):
        part.register(audit)
    app.add_typer(audit, name="audit")
