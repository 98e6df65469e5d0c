"""Deadlines for what strangers can delay: a body that does not arrive, an answer that is not read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class Deadlines:
    """Cancels tasks that are late, at most `tick` seconds after their deadline.

    One timer serves all tasks. A timer for each (`asyncio.timeout`) costs as much as all the rest of a query.
    """

    def __init__(self, tick: float) -> None:
        self._tick = tick
        self._due: dict[asyncio.Task[object], float] = {}
        self._late: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, seconds: float) -> asyncio.Task[object]:
        """Give the current task this many seconds. It must call `end` whatever happens."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("deadlines are for tasks")
        self._due[task] = time.monotonic() + seconds
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._tick, self._look)
        return task

    def end(self, task: asyncio.Task[object]) -> None:
        """Take the deadline of the current task away."""
        del self._due[task]
        self._late.discard(task)

    def cancelled(self, task: asyncio.Task[object]) -> bool:
        """Whether the `CancelledError` that the task has caught is ours; if so, it is taken back."""
        if task not in self._late:
            return False
        task.uncancel()
        return True

    def cut(self, chosen: Callable[[asyncio.Task[object]], bool]) -> None:
        """Cancel the chosen tasks now."""
        for task in self._due:
            if chosen(task):
                self._cancel(task)

    def _cancel(self, task: asyncio.Task[object]) -> None:
        if task not in self._late:
            self._late.add(task)
            task.cancel()

    def _look(self) -> None:
        """Cancel what is late, and look again while anything is under way."""
        now = time.monotonic()
        for task, due in self._due.items():
            if now >= due:
                self._cancel(task)
        self._timer = asyncio.get_running_loop().call_later(self._tick, self._look) if self._due else None
