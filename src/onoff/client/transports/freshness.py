"""What a web server says about keeping its answer: RFC 9111, for the private cache of one reader.

Headers alone decide, and no clock of the reader's, which may be wrong: the age of an answer is what `Age` says
(RFC 9111, 4.2.3, allows it). It is counted from when the answer was asked for.
"""

from __future__ import annotations

import re
from urllib.request import parse_http_list

import httpx

from onoff.client.transports.origins import moment
from onoff.durations import HOUR


def is_storable(headers: httpx.Headers) -> bool:
    """False if the word `no-store` is anywhere in Cache-Control, as it is if a server forgets the commas."""
    return "no-store" not in re.findall("[a-z-]+", headers.get("cache-control", "").lower())


def freshness(headers: httpx.Headers) -> float | None:
    """For how many seconds after it was asked for an answer counts as the newest; None if it must not be stored.

    This is max-age, or else Expires - Date, minus Age. What other directives say concerns shared caches, or stale
    answers. If one of these is broken, or said twice and differently, the answer is stale (RFC 9111, 4.2.1).
    """
    if not is_storable(headers):
        return None
    control = headers.get("cache-control", "").lower()
    directives = [part.partition("=") for part in parse_http_list(control)]
    if any(name == "no-cache" for name, _, _ in directives) or "*" in headers.get("vary", ""):
        return 0.0
    given = {value for name, _, value in directives if name == "max-age"}
    lifetime = _seconds(",".join(given)) if given else _until_expiry(headers)
    age = _seconds(headers.get("age", "0"))
    if lifetime is None or age is None:
        return 0.0
    return min(max(lifetime - age, 0.0), HOUR)


def _until_expiry(headers: httpx.Headers) -> float | None:
    expires, date = moment(headers.get("expires", "")), moment(headers.get("date", ""))
    return None if expires is None or date is None else (expires - date).total_seconds()


def _seconds(text: str) -> float | None:
    """A number of seconds, which may be quoted; None if it is anything else, or has more digits than any sense."""
    found = re.fullmatch(r'("?)([0-9]{1,10})\1', text)
    return None if found is None else float(found[2])
