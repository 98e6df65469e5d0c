"""Queries that came again: whether the journal knows of them, and whether they follow the requests.

A client sends a query again if the answer was damaged or did not come, and after it was killed. Its journal counts
every sending before it is made, so a log cannot have more. Fewer are in order: some never arrived. Journals of older
versions counted those of one run only, and say nothing of the others.

When a query must be sent again is up to servers and the network, who know queries and no requests. So given the queries
and the earlier requests a repeat says nothing about the request, which has the law pi of `naming`. A gambler learns how
often the queries of each source come. Once it knows how often this one came it states chances r for the request, and
its capital is multiplied by r(x) / pi(x): it ever exceeds 1 / a with probability at most a (Ville's inequality).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from onoff.audit.transcript.reading import Line, Step
from onoff.types import Floats

FALSE_ALARM = 1e-4
MOST = 4  # times that are told apart: what comes more often counts as so many


@dataclass(frozen=True)
class Repeats:
    """How many queries of a stream came again; `findings` are what speaks against them.

    Of them `uncounted` ones are of steps whose sendings the journal does not count.
    """

    lines: int
    findings: tuple[str, ...] = ()
    uncounted: int = 0


NO_REPEATS = Repeats(0)


def repeats(
    stream: Sequence[Line],
    steps: Sequence[Step],
    laws_of_requests: Mapping[int, Floats] | None,
    counted: int | None = 0,
) -> Repeats:
    """The repeats in a stream, judged by its journal, which has `counted` from that step on, or never.

    `laws_of_requests` are pi by their steps; None without a journal.
    """
    sent = Counter(line.step for line in stream)
    count = len(stream) - len(sent)
    if laws_of_requests is None or not count:
        return Repeats(count)
    findings = []
    begin = len(steps) if counted is None else counted
    uncounted = sum(times - 1 for number, times in sent.items() if number < begin)
    unknown = [
        (step.step, sent[step.step], step.attempts)
        for step in steps[begin:]
        if step.attempts is not None and sent[step.step] > step.attempts
    ]
    if unknown:
        number, seen, noted = unknown[0]
        more = sum(seen - noted for _, seen, noted in unknown)
        findings.append(
            f"{more} queries came again, and the journal knows nothing of it: step {number} is there {seen} times, "
            f"and was sent {noted} times"
        )
    if _evidence(sent, steps, laws_of_requests) >= -log(FALSE_ALARM):
        findings.append(f"which queries come again follows the requests (false alarms at most {100 * FALSE_ALARM:g} %)")
    return Repeats(count, tuple(findings), uncounted)


def _evidence(sent: Mapping[int, int], steps: Sequence[Step], laws: Mapping[int, Floats]) -> float:
    """The logarithm of the most that the gambler had."""
    n = max((len(law) for law in laws.values()), default=0)
    seen = np.full((MOST, n), 0.5)  # requests, by how often their query came
    capital = most = 0.0
    for step in steps:
        law = laws.get(step.step)
        if law is None or step.step not in sent or law[step.request] == 0:
            continue  # what cannot have been drawn is a finding of its own
        times = min(sent[step.step], MOST) - 1
        rates = seen[times] / seen.sum(axis=0)
        capital += log(rates[step.request] / float((rates * law).sum()))
        most = max(most, capital)
        seen[times, step.request] += 1
    return most
