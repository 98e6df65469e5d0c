"""Runs `onoff proxy` again and again: a process that has loaded everything, forked anew for each proxy.

Each line on its stdin is the words of a command, as JSON; it answers with the number of the process. What the proxies
print goes to its own stderr.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys

from onoff.apps.cli.app import main as command_line

LOADED = (  # what a proxy would load at its start
    "onoff.apps.cli.app", "onoff.apps.proxy.app", "onoff.client.connect", "onoff.past.state",
    "onoff.logs.follow", "onoff.client.transports.web",
)  # fmt: skip


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them: they are killed
    for name in LOADED:
        importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        words = json.loads(line)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            sys.argv[1:] = words
            try:
                command_line()
            except SystemExit as end:
                os._exit(end.code or 0)
        print(json.dumps(child), file=answers, flush=True)


if __name__ == "__main__":
    main()
