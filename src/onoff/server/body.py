"""Reading a request's body: at most so many bytes, within so many seconds."""

from __future__ import annotations

import asyncio
import time

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from onoff.server.problems import Problem

# What is too long is read to its end, up to here, before it is refused: a sender that is cut off while sending sees
# a broken connection instead of the reason.
_PATIENCE_BYTES = 4 * 2**20


class BodyReader:
    """Reads bodies, and gives up on those that are not complete after `seconds` (or a quarter more).

    One timer serves all bodies that are being read. A timer for each (`asyncio.timeout`) costs as much as all the rest
    of a query.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began: dict[asyncio.Task[object], float] = {}
        self._late: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def read(self, receive: Receive, limit: int) -> bytes:
        """The whole body, or a `Problem` if it is longer than `limit` or not complete in time."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a body is read in a task")
        self._began[task] = time.monotonic()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds / 4, self._give_up)
        try:
            return await _read(receive, limit)
        except asyncio.CancelledError:
            if task not in self._late:
                raise
            task.uncancel()
            detail = f"The body was not complete within {self._seconds:g} seconds."
            raise Problem(408, "slow-body", detail, {"Connection": "close"}) from None
        finally:
            del self._began[task]
            self._late.discard(task)

    def _give_up(self) -> None:
        """Cancel the reading of what is late, and look again while anything is being read."""
        now = time.monotonic()
        for task, began in self._began.items():
            if now - began >= self._seconds and task not in self._late:
                self._late.add(task)
                task.cancel()
        self._timer = None
        if self._began:
            self._timer = asyncio.get_running_loop().call_later(self._seconds / 4, self._give_up)


async def _read(receive: Receive, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientDisconnect
        part = event.get("body", b"")
        size += len(part)
        if size <= limit:
            parts.append(part)
        else:
            parts.clear()
        if not event.get("more_body", False):
            break
        if size > limit + _PATIENCE_BYTES:
            raise _too_large(limit, {"Connection": "close"})
    if size > limit:
        raise _too_large(limit, {})
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limit: int, headers: dict[str, str]) -> Problem:
    return Problem(413, "body-too-large", f"At most {limit} bytes are needed here.", headers)
