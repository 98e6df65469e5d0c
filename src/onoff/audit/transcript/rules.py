"""What the rules of the client ask of every step, recomputed from the statuses and requests alone.

A step is made ON if it was asked ON, has no next request, or is among the first of its stream: the first one, or two
where something may have been asked before. The lag counts the steps since; `last` is the request of the last ON step,
where the first of two does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onoff.audit.transcript.reading import Step


@dataclass(frozen=True)
class Due:
    """What the rules ask of a step: the `lag` at which it must be made, 0 for ON.

    `last` is the newest request before it that counted as ON.
    """

    lag: int
    last: int


def due(steps: Sequence[Step], full_sets: int = 1, announced: bool = True) -> tuple[Due, ...]:
    """What was due at each step of a journal whose stream had to begin with this many full sets.

    A client that begins with two where one is enough is within the rules. Where requests are not `announced` (the
    everyday mode), an unknown next request makes no step ON.
    """
    if any(step.private for step in steps[1:2]):
        full_sets = 2
    found, lag, last = [], 0, -1
    for number, step in enumerate(steps):
        private = step.asked_private or (announced and step.next is None) or number < full_sets
        lag = 0 if private else lag + 1
        found.append(Due(lag, last))
        if private:
            last = step.request
    return tuple(found)
