"""The command line in this process: what a process of its own would print and return, without loading it all anew.

And in a process of its own, with a terminal on stderr.
"""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen
from unittest.mock import patch

import typer
from typer.core import TyperCommand, TyperGroup

from onoff.apps.cli.app import app, main

ONOFF = Path(sys.executable).with_name("onoff")


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


def interrupted(command: list[object], when: bytes, **environment: str) -> tuple[int, bytes, str]:
    """A process that is sent Ctrl-C once what it shows fits `when`: its exit code, what it has shown and printed."""
    terminal, end = pty.openpty()
    environment, shown = {**os.environ, "TERM": "xterm", **environment}, b""
    with Popen(command, stdout=PIPE, stderr=end, env=environment, text=True) as process:
        os.close(end)
        try:
            while not re.search(when, shown):
                shown += os.read(terminal, 4096)
            process.send_signal(signal.SIGINT)
            with suppress(OSError):  # nobody has its other end any more
                while True:
                    shown += os.read(terminal, 65536)
            printed = process.communicate(timeout=120)[0]
        finally:
            process.kill()
            os.close(terminal)
    return process.returncode, shown, printed
