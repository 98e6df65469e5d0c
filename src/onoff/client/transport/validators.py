"""What a web server says of the version of a body, and how one asks for it only if it is newer (RFC 9110, 13.1).

The version of a body is a text: `etag "..."`, or else `modified DATE`. It is kept only in forms that can be sent back
as they came, whatever a server sends. An entity tag is compared by the server alone, so a weak one does. A date names a
whole second: it is kept only if the body was sent in a later one (RFC 9110, 8.8.2.2), or a change in the rest of that
second would never be seen. What must not be stored (RFC 9111, 5.2.2.5) has no version. All of this is a function of the
headers of one answer.
"""

from __future__ import annotations

import re
from datetime import datetime
from email.utils import parsedate_to_datetime

import httpx

ETAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e]{0,256}"')
DATE = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT")
TYPE = re.compile(r"[\x20-\x7e]{1,200}")
FIELDS = {"etag": "if-none-match", "modified": "if-modified-since"}


def version_of(headers: httpx.Headers) -> str | None:
    """The version of a body that came with these headers; None if it cannot be asked for by it."""
    directives = re.split(r"[,=\s]+", headers.get("cache-control", "").lower())
    if "no-store" in directives:
        return None
    tag = headers.get("etag", "")
    if ETAG.fullmatch(tag):
        return f"etag {tag}"
    changed, sent = _moment(headers.get("last-modified", "")), _moment(headers.get("date", ""))
    if changed is not None and sent is not None and changed < sent:
        return f"modified {headers['last-modified']}"
    return None


def condition(version: str | None) -> dict[str, str]:
    """The header that asks for what is newer than this version; none if nothing is held."""
    if version is None:
        return {}
    kind, _, value = version.partition(" ")
    return {FIELDS[kind]: value}


def type_of(headers: httpx.Headers) -> str | None:
    """What the server calls a body, if it does so in at most 200 plain characters."""
    found = headers.get("content-type", "")
    return found if TYPE.fullmatch(found) else None


def _moment(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text) if DATE.fullmatch(text) else None
    except ValueError:
        return None
