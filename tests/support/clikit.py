"""The command line in this process: what a process of its own would print and return, without loading it all anew.

And in a process of its own, with a terminal on stderr.
"""

from __future__ import annotations

import io
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from subprocess import CompletedProcess, Popen
from unittest.mock import patch

import typer
from typer.core import TyperCommand, TyperGroup

from onoff.apps.cli.app import app, main


def leaves(command: TyperGroup, before: str = "") -> Iterator[tuple[str, TyperCommand]]:
    """All commands that are no groups, with their names."""
    for name, part in command.commands.items():
        if isinstance(part, TyperGroup):
            yield from leaves(part, f"{before}{name} ")
        else:
            yield f"{before}{name}", part


COMMANDS = dict(leaves(typer.main.get_command(app)))


def call(*words, cwd=".", check=False, encoding="utf-8") -> CompletedProcess[str]:
    """`onoff WORDS`, called in the directory `cwd`; messages are bytes, so that the output has a buffer."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding, write_through=True) for _ in range(2))
    argv = ["onoff", *map(str, words)]
    with chdir(cwd), patch.object(sys, "argv", argv), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            printed = [stream.buffer.getvalue().decode(encoding) for stream in (out, err)]
            done = CompletedProcess(argv, end.code, *printed)
            assert not check or done.returncode == 0, done.stderr
            return done
    raise AssertionError("main() always ends by sys.exit")


def interrupt(process: Popen[str], terminal: int, when: bytes) -> bytes:
    """All that a process shows on a terminal that is sent Ctrl-C once that fits `when`."""
    shown = b""
    while not re.search(when, shown):
        shown += os.read(terminal, 4096)
    process.send_signal(signal.SIGINT)
    return shown + rest_of(terminal)


def rest_of(terminal: int) -> bytes:
    """All that is still shown on a terminal, until nobody has its other end."""
    shown = b""
    while True:
        try:
            shown += os.read(terminal, 65536)
        except OSError:
            return shown
