"""When something may leave: in time slots that begin where the step before ended.

Between two steps the caller works on its message, and the client draws a query: how long both take may tell which
source was wanted. So a call counts as made at the end of its slot, and its query leaves at the end of a later slot.
Work of less than `delay` seconds does not show; of longer work only the number of slots does. A delay of 0 switches
the slots off.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

EARLY = 0.002  # seconds before a point: a sleep of the loop may end a whole millisecond late, which would show
AWAKE = 0.0003  # seconds before a point, spent awake: a sleep of the thread, on a quiet machine, ends earlier than that
MISSED = 5  # points, if other tasks or threads are busy: the wait for the next one is spent awake, and misses none


class SendClock:
    """The points start + k * delay, k = 1, 2, ... on the clock of the running loop. Everything leaves at a point."""

    def __init__(self) -> None:
        self.start = 0.0

    def restart(self, ended: float | None = None) -> None:
        """Begin anew: a step has ended now, or in an earlier process at `ended`, in seconds since 1970."""
        ago = 0.0 if ended is None else time.time() - ended
        self.start = now() - max(0.0, ago)

    async def after_call(self, called: float, delay: float) -> None:
        """Wait for the first point that is at least one delay after the point at which the call counts as made."""
        if delay > 0:
            await self._until(max(self._point(called, delay) + 1, self._point(now(), delay)), delay)

    async def end_at_point(self, work: Coroutine[Any, Any, Result], called: float, delay: float) -> Result:
        """The result of what is on the wire. If this task is cancelled, the work is so at a point.

        A timeout of the caller's runs from its call on, and the server may let it pass: the connection that ends would
        show the moment of the call, and so what the caller did with the message before.
        """
        working = asyncio.create_task(work)
        try:
            await asyncio.wait({working})
        except asyncio.CancelledError:
            try:
                await self.end_of_call(called, delay)
            finally:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
            raise
        return working.result()

    async def end_of_call(self, called: float, delay: float) -> None:
        """Wait for the point at which a call that is cancelled now counts as ended.

        The point of the call plus the delays that the call took, rounded up.
        """
        if delay > 0:
            await self._until(self._point(called, delay) + math.ceil((now() - called) / delay), delay)

    async def next_point(self, delay: float) -> None:
        """Wait for the first point from now on."""
        if delay > 0:
            await self._until(self._point(now(), delay), delay)

    def _point(self, moment: float, delay: float) -> int:
        return max(1, math.ceil((moment - self.start) / delay))

    async def _until(self, point: int, delay: float) -> None:
        """Wait for a point. If something else kept the loop busy beyond it, wait for the next one.

        A caller in another task may work on the message before: its time must not show.
        """
        for missed in range(MISSED):
            more = 4**missed  # a machine that is busy ends sleeps late
            await asyncio.sleep(max(0.0, self.start + point * delay - EARLY * more - now()))
            # Asleep until the last moment: to wait awake costs processor time.
            time.sleep(max(0.0, self.start + point * delay - AWAKE * more - now()))
            if now() <= self.start + point * delay:
                break
            point = self._point(now(), delay)
        while now() < self.start + point * delay:
            pass


def now() -> float:
    """The time of the running loop."""
    return asyncio.get_running_loop().time()
