"""`onoff audit`: check the promise without believing the planner."""

from __future__ import annotations

import typer

from onoff.commands.audit import transcript


def register(app: typer.Typer) -> None:
    audit = typer.Typer(
        help="What can the server learn? Check the promise without believing the planner.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
    )
    for part in (transcript,):
        part.register(audit)
    app.add_typer(audit, name="audit")
