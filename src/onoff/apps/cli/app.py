"""All commands. Numerical libraries are imported inside of them, so that `--help` answers at once.

A new command is a module with a function `register`, and a line here. It names its panel of `--help`
(`onoff.apps.cli.options`); if it prints a result, that is a frozen dataclass, and `--json` prints its fields.
"""

from __future__ import annotations

from typing import Annotated

import typer

from onoff.apps.cli import audit, check, costs, fit, plan, proxy, read, serve, status, study, urls
from onoff.apps.cli.options import App, Quiet, Verbose

app = App(
    name="onoff",
    help="ON-OFF privacy: fetch from an untrusted server with perfect privacy that you switch ON and OFF.",
    epilog="onoff COMMAND -h explains a command. Exit codes: 0 done, 1 a check or audit failed, 2 usage, 3 server "
    "unreachable, 4 refused by the server, 5 no message of the source, 6 journal refused, 7 against the client's "
    "rules, 8 nothing is pending, 130 stopped.",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

# In the order in which --help lists them.
for module in (read, status, proxy, urls, fit, check, costs, plan, serve, study, audit):
    module.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("onoff-privacy"))
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    _: Annotated[
        bool, typer.Option("-V", "--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
    quiet: Quiet = False,  # noqa: ARG001 (their callbacks set the level of the log)
    verbose: Verbose = False,  # noqa: ARG001
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
