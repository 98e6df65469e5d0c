"""What the command line does with the commands: their errors in one line, exit codes, and Ctrl-C."""

from __future__ import annotations

import signal
import sys
import time


def main() -> None:
    """Run the command.

    An error is one line on stderr and the exit code of its class (`onoff.errors`), Ctrl-C is exit code 130, and neither
    shows a traceback. With -v a line before it says where an error came from.
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
    from onoff.apps.cli.output import detail, start_log
    from onoff.errors import STOPPED, USAGE, OnoffError
    from onoff.files import told

    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # so `onoff.__main__` has it until here
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without our letters is no reason to stop
    start_log()
    began = time.monotonic()
    try:
        code = app(standalone_mode=False)
    except typer.TyperException as error:
        return _failed(error.format_message() if hasattr(error, "format_message") else str(error), USAGE)
    except OnoffError as error:
        detail(_origin(error))
        return _failed(str(error), error.exit_code)
    except OSError as error:
        detail(_origin(error))
        return _failed(told(error), USAGE)
    except typer.Abort:
        return STOPPED
    finally:
        detail(f"took {time.monotonic() - began:.2f} s")
    return code if isinstance(code, int) else 0


def _origin(error: Exception) -> str:
    """Where an error came from: the place in our code, and the error that it stands for."""
    import traceback

    place = traceback.extract_tb(error.__traceback__)[-1]
    cause = f", after {type(error.__cause__).__name__}" if error.__cause__ is not None else ""
    return f"{type(error).__name__} from {place.name} (line {place.lineno}){cause}"


def _failed(message: str, code: int) -> int:
    """Say what went wrong, and return the exit code."""
    from onoff.foreign import LONG, plain

    print("onoff: error: " + plain(message, LONG), file=sys.stderr)
    return code
