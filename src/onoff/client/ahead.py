"""The next OFF step of the promise `past`, prepared in a thread between requests.

What is prepared is a function of the rows, and these are one of the queries so far. When it is begun, and how long it
takes, depends on public things: the rows, the machine, and the moments at which queries left and answers came. A
request that comes earlier waits for it *before its source is looked at*. From the end of that wait on it counts as made
like any other: its query leaves a whole delay later at the earliest, so the draw does not show.

What a caller does with a message may slow the thread down, and that could show. So a message is held back until the
next step is prepared, but for no longer than `HELD` seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onoff.everyday import Everyday, Step

HELD = 0.5  # seconds: most chains of a hundred sources take less


@dataclass(frozen=True)
class Prepared:
    """A step, the digest of its law, and its line for the record if one is kept."""

    step: Step
    law: str
    line: bytes | None


class NothingAhead:
    """The side of a client whose next step needs no preparation: between requests it does nothing."""

    def look_ahead(self) -> None:
        return

    async def hold(self) -> None:
        return

    def close(self) -> None:
        return


class Ahead:
    """One step ahead. `prepare` makes it from the rows and the number of the step."""

    def __init__(self, prepare: Callable[[Everyday, int], Prepared]) -> None:
        self._prepare = prepare
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="onoff-prepare")
        self._number = -1
        self._made: asyncio.Future[Prepared] | None = None

    def begin(self, rows: Everyday, number: int) -> asyncio.Future[Prepared]:
        """Begin to prepare step `number`, unless that was begun before. What failed is tried again."""
        if self._made is None or self._number != number or _failed(self._made):
            self._forget()
            self._number = number
            self._made = asyncio.get_running_loop().run_in_executor(self._worker, self._prepare, rows, number)
        return self._made

    async def prepared(self, rows: Everyday, number: int) -> Prepared:
        """What was prepared for step `number`. A caller that gives up waiting does not stop the thread."""
        return await asyncio.shield(self.begin(rows, number))

    async def hold(self) -> None:
        """Wait until what was begun is prepared, but not for long."""
        if self._made is not None:
            await asyncio.wait({self._made}, timeout=HELD)

    def close(self) -> None:
        """Begin nothing more. What runs in the thread ends by itself, and nobody is told."""
        self._forget()
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _forget(self) -> None:
        """Let go of what was begun: the loop may be closed when the thread is done, and an error is for nobody."""
        if self._made is not None and not self._made.cancel() and not self._made.cancelled():
            self._made.exception()
        self._made = None


def _failed(made: asyncio.Future[Prepared]) -> bool:
    return made.done() and (made.cancelled() or made.exception() is not None)
