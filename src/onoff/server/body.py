"""Reading the body of a request, with a limit of bytes and of seconds."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from onoff.server.deadlines import Deadlines
from onoff.server.problems import Problem

# What is too long is read to its end, up to here, before it is refused: a sender that is cut off while sending sees
# a broken connection instead of the reason.
_PATIENCE_BYTES = 4 * 2**20


class BodyReader:
    """Reads bodies, and gives up on those that are not complete after `seconds` (or a quarter more)."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._deadlines = seconds, Deadlines(seconds / 4)

    async def read(self, receive: Receive, limit: int) -> bytes:
        """The whole body, or a `Problem` if it is longer than `limit` or not complete in time."""
        task = self._deadlines.begin(self._seconds)
        try:
            return await _read(receive, limit)
        except asyncio.CancelledError:
            if not self._deadlines.cancelled(task):
                raise
            detail = f"The body was not complete within {self._seconds:g} seconds."
            raise Problem(408, "slow-body", detail, {"Connection": "close"}) from None
        finally:
            self._deadlines.end(task)


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
