"""The command `onoff`, and `python -m onoff`.

The first thing is what Ctrl-C does while the rest is imported: it ends the process, silently, as it ends any program
that has not asked for more. `onoff.apps.cli.main` asks for more once the commands are there.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a job in the background ignores it, and goes on so
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from onoff.apps.cli.main import main

if __name__ == "__main__":
    main()
