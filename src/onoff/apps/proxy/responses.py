"""How a step is answered: status, body and type of the origin, a local ETag, and no power for what the body says.

A body comes from an untrusted origin but is served from ours, where our own page and its switch live. So every answer
carries a policy under which a browser treats it as a page of nowhere: no scripts, forms or frames. Nothing is loaded,
and links that it has are those of a foreign page, which `guard` refuses.
"""

from __future__ import annotations

import asyncio
import hashlib
import re

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from onoff.apps.proxy.queue import NotBegun, QueueClosed, QueueFull
from onoff.client.message import Message
from onoff.errors import ContextError, OnoffError, RefusedByServer, TransportError
from onoff.files import told

RETRY_SECONDS = 5  # for those who come to a full queue; who asks again after a step makes another one
KEPT = "Your request is kept. It is sent again, unchanged, before the next one."
NOT_BEGUN = "Your request is kept in the queue, and is made before those that come after it."
LARGE = 2**22  # bytes: to hash more takes some milliseconds, which the next query must not wait for
PIECE = 2**20  # bytes of a long body that are handed over at a time
BARE = (204, 205)  # statuses whose answers have no body
# Statuses about a connection or a condition, not about the source. Programs ask again by themselves for some of them,
# which would be a step that the origin has caused.
NOT_OURS = (304, 407, 408, 421, 425)
TYPE = re.compile(r"[\x20-\x7e]{1,200}")
GUARD = {
    "content-security-policy": "default-src 'none'; sandbox; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",  # a program may keep it, and must ask before it uses it again: that is a step
}


class InPieces(Response):
    """A body that is handed over piece by piece: the loop, from which queries leave, is never held up for long."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for start in range(0, max(1, len(self.body)), PIECE):
            piece, more = bytes(self.body[start : start + PIECE]), start + PIECE < len(self.body)
            await send({"type": "http.response.body", "body": piece, "more_body": more})
            if more:
                await asyncio.sleep(0)


async def message_response(message: Message, method: str, held: list[str]) -> Response:
    """The answer to a request. `held` are the values of its If-None-Match."""
    status = message.status
    if message.round == 0:
        return text_response(404, "nothing has been published for this source yet; the step was made")
    if not 200 <= status < 600 or status in NOT_OURS:
        return text_response(
            502, f"the origin answered {status}, which answers nothing that was asked; the step was made"
        )
    stated = message.content_type
    kind = stated if stated is not None and TYPE.fullmatch(stated) else None
    tag = await _tag(status, kind, message.body)
    headers = {
        **GUARD,
        "etag": tag,
        "onoff-step": str(message.step),
        "onoff-status": "on" if message.private else "off",
    }
    if status == 200 and _holds(held, tag):
        return Response(status_code=304, headers=headers)
    if kind is not None:
        headers["content-type"] = kind
    if status in BARE:
        bare = Response(status_code=status, headers=headers)
        bare.raw_headers = [pair for pair in bare.raw_headers if pair[0] != b"content-length"]
        return bare
    headers["content-length"] = str(len(message.body))
    return Response(None, status, headers) if method == "HEAD" else InPieces(message.body, status, headers)


def error_response(error: Exception) -> Response:
    """The answer where a step was not made, or not finished."""
    status, words = 500, "the proxy made a mistake; its log has the details"
    if isinstance(error, OnoffError | OSError):
        words = told(error) if isinstance(error, OSError) else str(error)
    if isinstance(error, TransportError):
        words = error.facts  # what follows is for Python
    if isinstance(error, QueueFull | QueueClosed):
        status = 503
    elif isinstance(error, ContextError):
        status, words = 409, f"{words}; no step was made"
    elif isinstance(error, TransportError | NotBegun):
        late = isinstance(error, NotBegun)
        cause = error.__cause__ if late else error
        if isinstance(cause, TransportError):
            status = 502 if isinstance(cause, RefusedByServer) else 504
        words = f"{words if words.endswith(('.', '?', '!')) else words + '.'} {NOT_BEGUN if late else KEPT}"
    return text_response(status, words, {"retry-after": str(RETRY_SECONDS)} if status == 503 else None)


def text_response(status: int, words: str, headers: dict[str, str] | None = None) -> Response:
    """An answer of the proxy itself: a sentence. Addresses and files at its start stay as they are."""
    text = (words[:1].upper() + words[1:] if words.partition(" ")[0].isalpha() else words) + "\n"
    return Response(text, status, {**GUARD, **(headers or {})}, "text/plain")


async def _tag(status: int, kind: str | None, body: bytes) -> str:
    """A strong ETag: a hash of all that is answered. A long body is hashed beside the loop that queries leave from."""

    def digest() -> str:
        whole = hashlib.sha256(f"{status} {kind}\n".encode())
        whole.update(body)
        return f'"{whole.hexdigest()[:32]}"'

    return digest() if len(body) < LARGE else await asyncio.to_thread(digest)


def _holds(held: list[str], tag: str) -> bool:
    """Whether If-None-Match names this tag; weak ones count (RFC 9110, 13.1.2)."""
    tags = [part.strip().removeprefix("W/") for value in held for part in value.split(",")]
    return "*" in tags or tag in tags
