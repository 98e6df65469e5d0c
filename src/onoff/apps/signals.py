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

    Asyncio, for one, ends its tasks in order for Ctrl-C alone. Where Ctrl-C is ignored, the command exits with 128 and
    the number of the signal. A second signal ends it at once, since work in a library may be long. A signal that was
    ignored before (nohup) stays ignored. If a library swallows the exception, the command ends so after its work.
    """
    ours = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    received = 0

    def end(number: int, _: FrameType | None) -> None:
        nonlocal received
        received = number
        restore()
        stop()

    def stop() -> None:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a job in the background
            sys.exit(128 + received)
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
    if received:
        stop()
