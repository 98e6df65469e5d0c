"""A long work and its terminal: its progress, and its end.

A bar shows progress, or, where stderr is no terminal, a line every few seconds. SIGTERM and a terminal that is
closed (SIGHUP) end it as Ctrl-C does.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

from onoff.types import Advance, Bar, quiet

EVERY = 5.0  # seconds between two lines; work that takes less says nothing
SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def progress(title: str) -> Bar:
    """Choose the bar or the lines for a work with this title; nothing if the command is quiet."""
    if not logging.getLogger("onoff").isEnabledFor(logging.INFO):
        return quiet
    return partial(_bar if sys.stderr.isatty() else _lines, title)


@contextmanager
def _bar(title: str, total: int | None) -> Iterator[Advance]:
    """Show a progress bar, gone when the work is done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bars:
        task = bars.add_task(title, total=total)
        yield lambda: bars.advance(task)


@contextmanager
def _lines(title: str, total: int | None) -> Iterator[Advance]:
    """Print "onoff: TITLE: 3 of 10 after 15 s" every EVERY seconds until the work is done."""
    stream, start, stopped, done = sys.stderr, time.monotonic(), threading.Event(), 0

    def advance() -> None:
        nonlocal done
        done += 1

    def report() -> None:
        while not stopped.wait(EVERY):
            so_far = f"{done} of {total}" if total is not None else f"{done}" if done else "at work"
            print(f"onoff: {title}: {so_far} after {time.monotonic() - start:.0f} s", file=stream, flush=True)

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield advance
    finally:
        stopped.set()
        thread.join()


@contextmanager
def interrupt_on_signals() -> Iterator[None]:
    """End the command on SIGTERM and SIGHUP just as on Ctrl-C: temporary files are deleted first.

    Asyncio, for one, ends its tasks in order for Ctrl-C alone. Where Ctrl-C is ignored, as in a job in the background,
    the command exits with 128 and the number of the signal. A second signal ends it at once, since work in a library
    may be long. A signal that was ignored before (nohup) stays ignored.
    """
    ours = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_DFL]

    def end(number: int, _: FrameType | None) -> None:
        restore()
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            sys.exit(128 + number)
        signal.raise_signal(signal.SIGINT)

    def restore() -> None:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)

    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        restore()
