"""Foreign words (from servers, from files, or typing errors of the user) made safe to print.

Escape sequences, NUL, line breaks and marks that change the direction of writing are replaced, and long words are cut.
Tokens are never shown at all (`onoff.client.transports.http`).
"""

from __future__ import annotations

import json
import re

SHORT, LONG = 300, 2000


def plain(words: str | bytes, most: int = SHORT) -> str:
    """One line of at most about `most` printable characters; every other one is shown as `?`."""
    head = words[: 4 * most]
    text = head.decode("utf-8", "replace") if isinstance(head, bytes) else head
    text = " ".join("".join(c if c.isprintable() or c.isspace() else "?" for c in text).split())
    cut = len(text) > most or len(head) < len(words)
    return text[:most] + " ..." if cut else text


def plain_text(body: bytes) -> str:
    """A whole message for a terminal: lines and tabs stay, every other character that is not printable is `?`."""
    text = body.decode("utf-8", "replace").replace("\r\n", "\n")
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def refusal(body: bytes) -> str:
    """What a server says of its refusal: the sentence of a problem document (RFC 9457), or else its words."""
    if len(body) <= 65536 and re.match(rb"\s*\{", body):
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            return plain(body)
        for key in ("detail", "title"):
            if isinstance(document.get(key), str) and document[key].strip():
                return plain(document[key])
    return plain(body)
