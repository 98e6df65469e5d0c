"""How far a long work is, where no bar can be drawn: a line on stderr every few seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onoff.apps.tone import Tone, tone

EVERY = 5.0  # seconds between two lines; work that takes less says nothing


@contextmanager
def ticking(title: str, told: Callable[[], str]) -> Iterator[None]:
    """Print "onoff: TITLE: `told()` after N s" on stderr every EVERY seconds until the work is done, unless quiet."""
    if tone() is Tone.quiet:
        yield
        return
    stream, start, done = sys.stderr, time.monotonic(), threading.Event()

    def tell() -> None:
        while not done.wait(EVERY):
            try:
                print(f"onoff: {title}: {told()} after {time.monotonic() - start:.0f} s", file=stream, flush=True)
            except (OSError, ValueError):
                return  # nobody reads any more; that is no reason to stop the work

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
