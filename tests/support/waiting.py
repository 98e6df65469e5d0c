"""Waiting for what happens elsewhere: in another process or thread, or in other tasks of this loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def within(seconds: float, condition: Callable[[], object], pause: float = 0.02) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(pause)


async def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Let others go on until something is so."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)
