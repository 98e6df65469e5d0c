"""All commands. Numerical libraries are imported inside of them, so that `--help` answers at once.

A new command is a module with a function `register`, and a line here. It says to which group of `--help` it belongs
(`onoff.apps.cli.shape`); if it prints a result, it has `--json`, and its fields are in `onoff.apps.cli.fields`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from onoff.apps.cli import (
    audit,
    check,
    client,
    estimate,
    fit,
    normalise,
    page,
    plan,
    play,
    proxy,
    rates,
    serve,
    study,
    sweep,
    urls,
)
from onoff.apps.cli.shape import App, Commands, Quiet, Verbose, chosen_tone
from onoff.apps.tone import speaking

app = App(
    name="onoff",
    cls=Commands,
    help="ON-OFF privacy: fetch from an untrusted server with perfect privacy that you switch ON and OFF.",
    epilog="onoff COMMAND -h explains a command. Exit codes: 0 done, 1 a check or audit failed, 2 usage, 3 server "
    "unreachable, 4 refused by the server, 5 no message of the source, 6 journal refused, 7 against the client's "
    "rules, 8 nothing is pending, 130 stopped.",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

# In the order in which --help lists them.
client.register(app)
play.register(app)
proxy.register(app)
urls.register(app)
fit.register(app)
normalise.register(app)
check.register(app)
estimate.register(app)
rates.register(app)
plan.register(app)
serve.register(app)
page.register(app)
study.register(app)
sweep.register(app)
audit.register(app)


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
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    context.with_resource(speaking(chosen_tone(quiet, verbose)))
    if context.invoked_subcommand is None:
        print(context.get_help())
