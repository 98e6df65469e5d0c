"""The memory of web servers that failed: for which the client waits briefly, and which it leaves alone.

It follows from the numbers of steps and from what servers did, never from the wanted source. The journal keeps it
with each answer, since many clients make one request and end.
"""

from __future__ import annotations

import logging
import re
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from onoff.client.transports import FAILURE_SECONDS

log = logging.getLogger("onoff.client")

SHORT = 5.0  # seconds that a request may take at an origin which did not answer in a step before
SHORT_STEPS = 20  # after so many steps it is asked like any other again
RESTS = (429, 503)  # statuses with which a server may say when it wants to be asked again
DATE = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT")


class Origins:
    """`silent` has the step in which an origin did not answer, `resting` its status and until when it is not asked."""

    def __init__(self) -> None:
        self.silent: dict[str, int] = {}
        self.resting: dict[str, tuple[int, int]] = {}

    def is_short(self, origin: str, step: int) -> bool:
        """True if an origin is asked only once, and has little time: it did not answer lately."""
        return self.silent.get(origin, step) < step <= self.silent.get(origin, step) + SHORT_STEPS

    def seconds(self, origin: str, step: int, share: float) -> float:
        """The time limit of the next request to an origin with this share of the time."""
        return min(share, SHORT) if self.is_short(origin, step) else share

    def note(self, origin: str, step: int, answered: bool) -> None:
        """Note whether an origin has answered all requests of a step, and log it if that has changed."""
        if answered and self.silent.pop(origin, None) is not None:
            log.warning("%s answers again", origin)
        elif not answered and not self.is_short(origin, step):
            if origin not in self.silent:
                log.warning("%s does not answer: its sources fail", origin)
            self.silent[origin] = step

    def note_rest(self, origin: str, status: int, headers: httpx.Headers) -> None:
        """Leave an origin alone for as long as it says, within a limit that is the same for all."""
        seconds = retry_seconds(headers.get("retry-after", "")) if status in RESTS else 0.0
        if seconds > 0:
            self.resting[origin] = status, int(time.time() + min(seconds, FAILURE_SECONDS))

    def rest(self, origin: str) -> int | None:
        """The status with which an origin asked to be left alone until later; None if it may be asked."""
        status, until = self.resting.get(origin, (0, 0))
        if 0 < until - time.time() < 2 * FAILURE_SECONDS:  # more: the clock was set back
            return status
        self.resting.pop(origin, None)
        return None


def moment(text: str) -> datetime | None:
    """Read a date of HTTP; None if it is none."""
    try:
        return parsedate_to_datetime(text) if DATE.fullmatch(text) else None
    except ValueError:
        return None


def retry_seconds(text: str) -> float:
    """How long a Retry-After asks to wait; 0 if it says nothing of use."""
    if re.fullmatch("[0-9]{1,9}", text):
        return float(text)
    found = moment(text)
    return 0.0 if found is None else (found - datetime.now(UTC)).total_seconds()
