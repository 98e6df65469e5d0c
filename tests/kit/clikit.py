"""The command line in this process: what a process of its own would print and return, without loading it all anew."""

from __future__ import annotations

import io
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from subprocess import CompletedProcess
from unittest.mock import patch

from onoff.apps.cli.main import main


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
