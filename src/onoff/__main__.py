"""The command `onoff`, and `python -m onoff`.

The first thing is what Ctrl-C does while the rest is imported: it ends the process, silently, as it ends any program
that has not asked for more. `onoff.apps.cli.app` asks for more once the commands are there. `_signal` is a part of the
interpreter, while `signal` would load other modules first.
"""

import _signal  # type: ignore[import-not-found]

# A job in the background ignores it, and goes on so.
if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from onoff.apps.cli.app import main

if __name__ == "__main__":
    main()
