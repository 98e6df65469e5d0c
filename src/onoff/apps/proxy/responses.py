"""How a step is answered: status, body and type of the origin, a local ETag, and no power for what the body says.

A body comes from an untrusted origin but is served from ours, where our own page and its switch live. So every answer
carries a policy under which a browser treats it as a page of nowhere: no scripts, forms or frames. Nothing is loaded,
and links that it has are those of a foreign page, which `guard` refuses.

A status after which programs ask again by themselves is not handed on (`onoff.client.queue`). The header
`Onoff-True-Status` and the body have it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from onoff.client.message import Message
from onoff.client.queue import TRUE_STATUS, NotBegun, TurnedAway, explain, safe_status
from onoff.errors import ContextError, RefusedByServer, TransportError
from onoff.text import plain

log = logging.getLogger("onoff.proxy")
PIECE = 2**20  # bytes of a long body that are handed over at a time
UNREAD_BYTES = 2**27  # of all bodies that are being handed over
GUARD = {
    "content-security-policy": "default-src 'none'; sandbox; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",  # a program may keep it, and must ask before it uses it again: that is a step
}


class BodyResponse(Response):
    """Sends a body piece by piece: the loop that sends queries is never held up for long.

    Programs that do not read hold at most `UNREAD_BYTES` together: beyond, the answer that began first is broken off.
    Then, or if a program goes away before it has taken the body, `broken_off` is called, once.
    """

    broken_off: Callable[[], None]
    _under_way: dict[asyncio.Timeout, int] = {}  # noqa: RUF012 (of all answers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        timeout, when_cut = asyncio.timeout(None), scope.setdefault("when_cut", [])
        when_cut.append(self.broken_off)
        try:
            async with timeout:
                self._enter(timeout)
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                for start in range(0, max(1, len(self.body)), PIECE):
                    piece, more = bytes(self.body[start : start + PIECE]), start + PIECE < len(self.body)
                    await send({"type": "http.response.body", "body": piece, "more_body": more})
                    await asyncio.sleep(0)
        except TimeoutError:
            log.warning("an answer that was not read was broken off: others need its room")
            while when_cut:
                when_cut.pop()()
        finally:
            self._under_way.pop(timeout, None)

    def _enter(self, timeout: asyncio.Timeout) -> None:
        self._under_way[timeout] = len(self.body)
        while sum(self._under_way.values()) > UNREAD_BYTES and len(self._under_way) > 1:
            oldest = next(iter(self._under_way))
            del self._under_way[oldest]
            oldest.reschedule(0.0)  # its body ends early, which ends the connection


async def message_response(message: Message, method: str, held: list[str], broken_off: Callable[[], None]) -> Response:
    """Answer a request. `held` are the values of its If-None-Match."""
    status, kind = message.status, message.content_type
    if message.round == 0:
        return text_response(404, "nothing has been published for this source yet; the step was made")
    if safe_status(status) != status:
        words = plain(message.body) if kind == "text/plain" else ""
        return text_response(status, f"{message.error} {words}".rstrip())
    tag = await asyncio.to_thread(_tag, status, kind, message.body)
    made = "on" if message.private else "off"
    headers = {
        **GUARD,
        "etag": tag,
        "age": str(int(message.age)),
        "onoff-step": str(message.step),
        "onoff-status": made,
    }
    if status == 200 and _holds(held, tag):
        return Response(status_code=304, headers=headers)
    if kind is not None:
        headers["content-type"] = kind
    if method == "HEAD":
        return Response(None, status, {**headers, "content-length": str(len(message.body))})
    whole = BodyResponse(message.body, status, headers)
    whole.broken_off = broken_off
    return whole


def error_response(error: Exception) -> Response:
    """Answer where a step was not made or finished."""
    status, cause = 500, error.__cause__ if isinstance(error, NotBegun) else error
    if isinstance(error, TurnedAway):
        status = 503
    elif isinstance(error, ContextError):
        status = 409
    elif isinstance(cause, TransportError):
        status = 502 if isinstance(cause, RefusedByServer) else 504
    return text_response(status, explain(error))


def text_response(status: int, words: str, headers: dict[str, str] | None = None) -> Response:
    """Answer with the proxy's own sentence. Addresses and files at its start stay as they are."""
    text = words[:1].upper() + words[1:] if words.partition(" ")[0].isalpha() else words
    given = safe_status(status)
    if given != status:
        text, headers = f"{text} [status {status}]", {**(headers or {}), TRUE_STATUS: str(status)}
    return Response(f"{text}\n", given, {**GUARD, **(headers or {})}, "text/plain")


def _tag(status: int, kind: str | None, body: bytes) -> str:
    """Compute a strong ETag: a hash of the whole answer. It is taken beside the loop that sends queries.

    A foreign web page may measure how long that loop takes to refuse it, which must not tell a body's length.
    """
    whole = hashlib.sha256(f"{status} {kind}\n".encode())
    whole.update(body)
    return f'"{whole.hexdigest()[:32]}"'


def _holds(held: list[str], tag: str) -> bool:
    """True if If-None-Match names this tag; weak ones count (RFC 9110, 13.1.2)."""
    tags = [part.strip().removeprefix("W/") for value in held for part in value.split(",")]
    return "*" in tags or tag in tags
