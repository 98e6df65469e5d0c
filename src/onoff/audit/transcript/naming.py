"""Whether the versions that queries name follow the requests.

What a client holds is a function of earlier queries and answers. So given the requests before step t and the queries up
to it, the versions say nothing about the request. It has the law

    pi(x)  in proportion to  P[request before, x] * Pr[the client sends this set | x]

whatever servers have answered, what was forgotten for want of room, or when a cache was switched off. The test is a
bet, as in `draws`: a gambler states other chances r before the request is looked at, and its capital is multiplied by
r(x) / pi(x). It learns which requests come too often: those whose versions are named, are left out, grow or fall back.
If the client keeps its rules, the capital ever exceeds 1 / a with probability at most a (Ville's inequality).

With announced requests a set depends on the next request, too. There only those ON steps count that follow an ON step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onoff.audit.transcript.gambling import CAUTION
from onoff.audit.transcript.reading import Line, Step
from onoff.types import Floats

if TYPE_CHECKING:
    from onoff.audit.transcript.rules import Due
    from onoff.model.chain import Chain

FALSE_ALARM = 1e-4
NEVER, NO_LONGER, AS_BEFORE, NEWER, OLDER = KINDS = range(5)  # how the version of a source is named
Kinds = Iterator[tuple[int, NDArray[np.intp]]]  # steps, and for each source of which kind it is there


def naming_findings(
    stream: Sequence[Line], steps: Sequence[Step], laws_of_requests: Mapping[int, Floats], n: int
) -> list[str]:
    """A finding if requests are told by the versions that a stream names. `laws_of_requests` are pi, by step."""
    if _evidence(kinds_of_versions(stream, n), [step.request for step in steps], laws_of_requests) < -log(FALSE_ALARM):
        return []
    return [f"the versions that queries name follow the requests (false alarms at most {100 * FALSE_ALARM:g} %)"]


def _evidence(kinds_of_steps: Kinds, requests: Sequence[int], laws: Mapping[int, Floats]) -> float:
    """The logarithm of the most that the gambler had, who learns which kinds of sources are requested too often."""
    seen, expected = np.full(len(KINDS), CAUTION), np.full(len(KINDS), CAUTION)
    capital = most = 0.0
    for step, kinds in kinds_of_steps:
        law = laws.get(step)
        if law is None or law[requests[step]] == 0:
            continue  # what cannot have been drawn is a finding of its own
        odds, request = (seen / expected)[kinds], requests[step]
        capital += log(odds[request] / float((odds * law).sum()))
        most = max(most, capital)
        seen[kinds[request]] += 1
        np.add.at(expected, kinds, law)
    return most


def kinds_of_versions(stream: Sequence[Line], n: int) -> Kinds:
    """For every step of a stream whose lines say so: how its version of each source compares with the one before."""
    before, done = np.zeros(n, dtype=np.int64), -1
    for line in stream:
        if line.held is None or line.step <= done:
            continue
        done, now = line.step, np.zeros(n, dtype=np.int64)
        sources = list(line.sources)
        now[sources] = np.minimum(line.held, 2**62)
        cases = [(now == 0) & (before == 0), now == 0, now == before, now > before]
        yield line.step, np.select(cases, [NEVER, NO_LONGER, AS_BEFORE, NEWER], OLDER)
        before[sources] = np.where(now[sources] > 0, now[sources], before[sources])


def announced_requests(chain: Chain, steps: Sequence[Step], dues: Sequence[Due]) -> dict[int, Floats]:
    """The law of every request made ON right after another one made ON, given those before it."""
    found: dict[int, Floats] = {}
    for before, step, earlier, owed in zip(steps, steps[1:], dues, dues[1:], strict=False):
        if earlier.lag == owed.lag == 0:
            found[step.step] = chain.P[before.request] / chain.P[before.request].sum()
    return found
