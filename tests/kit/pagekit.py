"""What tests of the page's worlds share: a small chain, and waiting for what happens in the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from onoff import Chain

CHAIN = Chain([[0.8, 0.15, 0.05], [0.1, 0.6, 0.3], [0.5, 0.0, 0.5]], ["a", "b", "c"])
FULL = (0, 1, 2)


async def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Let others go on until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.01)
