"""Lengths of time, as people write them."""

from __future__ import annotations

import re

from onoff.errors import OnoffError

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
HOUR = 3600.0  # a message counts as the newest for no longer, whoever says so: a server cannot freeze a source


def parse_duration(given: str | float) -> float:
    """Convert `30s`, `5m`, `2h`, `1d` or a number of seconds to seconds. Raises `OnoffError` if it is none of these."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([smhd]?)\s*", str(given))
    if found is None:
        raise OnoffError(f"{str(given)!r} is not a length of time: write 30s, 5m, 2h, 1d or a number of seconds")
    return float(found[1]) * UNITS[found[2]]


def parse_fresh(given: str | float) -> float:
    """Convert the time for which messages count as the newest. Raises `OnoffError` if it is more than an hour."""
    seconds = parse_duration(given)
    if seconds > HOUR:
        raise OnoffError(f"messages are fresh for at most an hour, not for {given}")
    return seconds
