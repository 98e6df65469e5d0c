"""SIGTERM and a terminal that is closed (SIGHUP), for commands that have temporary directories or processes."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interrupt_on_signals() -> Iterator[None]:
    """End the command on SIGTERM and SIGHUP just as on Ctrl-C: what is temporary is deleted first.

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
