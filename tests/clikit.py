"""The command line in this process: what a process of its own would print and return, without loading it all anew."""

from __future__ import annotations

import io
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from subprocess import CompletedProcess
from unittest.mock import patch

from onoff.cli import main


def call(*words, cwd=".") -> CompletedProcess[str]:
    """`onoff WORDS`, called in the directory `cwd`."""
    out, err = io.StringIO(), io.StringIO()
    argv = ["onoff", *map(str, words)]
    with chdir(cwd), patch.object(sys, "argv", argv), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            return CompletedProcess(argv, end.code, out.getvalue(), err.getvalue())
    raise AssertionError("main() always ends by sys.exit")
