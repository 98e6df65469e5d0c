"""Reading a request's body: at most so many bytes, within so many seconds."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from onoff.server.problems import Problem

# What is too long is read to its end, up to here, before it is refused: a sender that is cut off while sending sees
# a broken connection instead of the reason.
_PATIENCE_BYTES = 4 * 2**20


async def read_body(receive: Receive, limit: int, seconds: float) -> bytes:
    """The whole body, or a `Problem` if it is longer than `limit` or not complete in time."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
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
    except TimeoutError:
        detail = f"The body was not complete within {seconds:g} seconds."
        raise Problem(408, "slow-body", detail, {"Connection": "close"}) from None
    if size > limit:
        raise _too_large(limit, {})
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limit: int, headers: dict[str, str]) -> Problem:
    return Problem(413, "body-too-large", f"At most {limit} bytes are needed here.", headers)
