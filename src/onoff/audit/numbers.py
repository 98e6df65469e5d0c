"""The random numbers of a journal's draws: none comes twice, and they look uniform.

Numbers come from the operating system and nobody can prove that they are random. What can be found is a generator that
repeats itself, here or in another journal, or that is not uniform, such as one with modulo bias.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp, log
from typing import Any

import numpy as np

from onoff.audit.files import Journal, Step
from onoff.audit.law import Finding

FALSE_ALARM = 1e-4  # of the one test here that has any: whether the numbers are uniform
LONG = 2**40  # numbers below bounds of this or more never come twice
FINE = 2**44  # nor do their leading digits, whatever the bounds, where these are 2^46 or more


class Numbers:
    """The random numbers of all draws: none comes twice, and number / bound is uniform.

    The test is a bet. A gambler states chances r of the part of the range in which the next number lies, from those so
    far, and its capital is multiplied by r / p, where p is the exact probability of the part. Whatever it states, the
    expected factor is 1: the mean capital of all gamblers ever exceeds 1 / a with probability a at most (Ville).
    """

    def __init__(self, others: Sequence[Journal] = ()) -> None:
        self._known: dict[Any, str] = {}
        for i, journal in enumerate(others, 1):
            keys = ((key, step.step) for step in journal.steps for key in _keys(step))
            self._known |= {key: f"step {step} of the other journal {i}" for key, step in keys}
        self._gamblers = [_Gambler(parts, after) for parts, after in ((2, 1), (4, 1), (16, 1), (4, 4))]
        self._rejected = False

    def check(self, step: Step) -> Iterator[Finding]:
        keys = list(_keys(step))
        for before in [self._known[key] for key in keys if key in self._known][:1]:
            yield Finding("numbers", f"its random numbers are those of {before}", step.step)
        self._known |= dict.fromkeys(keys, f"step {step.step}")
        for bound, number in step.numbers or ():
            for gambler in self._gamblers:
                gambler.bet(bound, number)
        capital = sum(exp(gambler.capital) for gambler in self._gamblers) / len(self._gamblers)
        if capital >= 1 / FALSE_ALARM and not self._rejected:
            self._rejected = True
            message = f"the random numbers up to here are not uniform (false alarms: {FALSE_ALARM:g})"
            yield Finding("numbers", message, step.step, amount=1 / capital)


def _keys(step: Step) -> Iterator[Any]:
    """What no other step may have: its long numbers or, if they are very long, their leading digits."""
    for bound, number in step.numbers or ():
        if bound >= LONG:
            yield number * FINE // bound if bound >= 4 * FINE else (bound, number)


class _Gambler:
    """Bets on in which of so many equal parts of its range a number lies, after which part the one before was in."""

    def __init__(self, parts: int, after: int) -> None:
        self.capital = 0.0  # its logarithm
        self._parts, self._after, self._before = parts, after, 0
        self._counts = np.full((after, parts), 0.5)

    def bet(self, bound: int, number: int) -> None:
        if bound < self._parts or not 0 <= number < bound:
            return
        part, counts = number * self._parts // bound, self._counts[self._before]
        first, end = -(-part * bound // self._parts), -(-(part + 1) * bound // self._parts)
        self.capital += log(counts[part] / counts.sum()) - log((end - first) / bound)
        self.capital = min(self.capital, 600.0)  # as large as a float can show
        counts[part] += 1
        self._before = number * self._after // bound
