"""All commands, and what the command line does with them: their errors in one line, exit codes, and Ctrl-C.

A new command is a module with a function `register`, and a line here. It names its panel of `--help`
(`onoff.apps.cli.options`); if it prints a result, that is a frozen dataclass, and `--json` prints its fields. Commands
import numerical libraries inside of functions, so that `--help` answers at once.
"""

from __future__ import annotations

import io
import signal
import sys
import time
import warnings
from typing import Annotated

import typer

from onoff.apps.cli import audit, costs, fit, plan, read, serve, setup, status, study
from onoff.apps.cli.options import App, Quiet, Verbose
from onoff.apps.cli.output import detail, start_log
from onoff.errors import STOPPED, USAGE, OnoffError
from onoff.files import error_sentence
from onoff.text import LONG, plain

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
for module in (setup, read, status, fit, costs, plan, serve, study, audit):
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


def main() -> None:
    """Run the command.

    An error is one line on stderr and the exit code of its class (`onoff.errors`), Ctrl-C is exit code 130, and neither
    shows a traceback.
    """
    warnings.filterwarnings("ignore", module="joblib")  # what matters comes back as an error of ours
    try:
        code = _run()
    except KeyboardInterrupt:
        code = 130
    if code == 130:  # Typer turns Ctrl-C into this code
        print("onoff: stopped", file=sys.stderr)
    sys.exit(code)


def _run() -> int:
    """Run the command, and return its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # so `onoff.__main__` has it until here
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without our letters is no reason to stop
    start_log()
    began = time.monotonic()
    try:
        code = app(standalone_mode=False)
    except typer.TyperException as error:
        return _fail(error.format_message() if hasattr(error, "format_message") else str(error), USAGE)
    except OnoffError as error:
        return _fail(str(error), error.exit_code)
    except OSError as error:
        return _fail(error_sentence(error), USAGE)
    except typer.Abort:
        return STOPPED
    finally:
        detail(f"took {time.monotonic() - began:.2f} s")
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    """Say what went wrong, and return the exit code."""
    print("onoff: error: " + plain(message, LONG), file=sys.stderr)
    return code
