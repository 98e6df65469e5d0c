"""`onoff audit`: check the promise without believing the planner."""

from __future__ import annotations

import typer

from onoff.apps.cli.audit import log, people, plan, streams
from onoff.apps.cli.options import AUDIT, App


def register(app: typer.Typer) -> None:
    audit = App(
        help="Check the promise without believing the planner: what can the server learn?",
        epilog="Example: onoff audit plan chain.csv plans",
        invoke_without_command=True,
        callback=_help_by_default,
    )
    for part in (plan, log, streams, people):
        part.register(audit)
    app.add_typer(audit, name="audit", rich_help_panel=AUDIT)


def _help_by_default(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
