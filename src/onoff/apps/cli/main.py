"""What the command line does with the commands: their errors in one line, and Ctrl-C."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn


def main() -> None:
    """Run the command.

    An error is one line on stderr and exit code 2, Ctrl-C is exit code 130, and neither shows a traceback.
    """
    import warnings

    warnings.filterwarnings("ignore", module="joblib")  # what matters comes back as an error of ours
    try:
        code = _run()
    except KeyboardInterrupt:
        code = 130
    if code == 130:  # Typer turns Ctrl-C into this code
        print("onoff: stopped", file=sys.stderr)
    sys.exit(code)


def _run() -> int:
    """The exit code of the command."""
    import io

    import typer

    from onoff.apps.cli.app import app
    from onoff.errors import OnoffError
    from onoff.files import told

    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # so `onoff.__main__` has it until here
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without our letters is no reason to stop
    try:
        code = app(standalone_mode=False)
    except typer.TyperException as error:
        _fail(error.format_message() if hasattr(error, "format_message") else str(error))
    except OnoffError as error:
        _fail(str(error))
    except OSError as error:
        _fail(told(error))
    except typer.Abort:
        return 130
    return code if isinstance(code, int) else 0


def _fail(message: str) -> NoReturn:
    from onoff.foreign import LONG, plain

    print("onoff: error: " + plain(message, LONG), file=sys.stderr)
    sys.exit(2)
