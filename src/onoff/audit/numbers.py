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
LONG = 2**40  # a list of numbers with a bound of this or more never comes twice
FINE_BOUND, FINE = 2**46, 2**44  # numbers below bounds of this or more do not agree to 44 digits, whatever the bounds


class Numbers:
    """The random numbers of all draws: none comes twice, and number / bound is uniform.

    The test is a bet. A gambler states chances r of the part of the range in which the next number lies, from those so
    far, and its capital is multiplied by r / p, where p is the exact probability of the part. Whatever it states, the
    expected factor is 1: the mean capital of all gamblers ever exceeds 1 / a with probability a at most (Ville).
    """

    def __init__(self, others: Sequence[Journal] = ()) -> None:
        self._lists: dict[Any, str] = {}
        for i, journal in enumerate(others, 1):
            for step in journal.steps:
                for key in self._keys(step):
                    self._lists.setdefault(key, f"step {step.step} of the other journal {i}")
        self._gamblers = [_Gambler(parts, after) for parts, after in ((2, 1), (4, 1), (16, 1), (4, 4))]
        self._rejected = False

    def check(self, step: Step) -> Iterator[Finding]:
        for key in self._keys(step):
            before = self._lists.setdefault(key, f"step {step.step}")
            if before != f"step {step.step}":
                yield Finding("numbers", f"its random numbers are those of {before}", step.step)
                break
        for bound, number in step.numbers or ():
            for gambler in self._gamblers:
                gambler.bet(bound, number)
        capital = sum(exp(gambler.capital) for gambler in self._gamblers) / len(self._gamblers)
        if capital >= 1 / FALSE_ALARM and not self._rejected:
            self._rejected = True
            rate = f"false alarms: {FALSE_ALARM:g}"
            yield Finding(
                "numbers", f"the random numbers up to here are not uniform ({rate})", step.step, amount=1 / capital
            )

    @staticmethod
    def _keys(step: Step) -> Iterator[Any]:
        """What no other step may have: its list of numbers, and what a number is as a fraction of its bound."""
        numbers = step.numbers or ()
        if any(bound >= LONG for bound, _ in numbers):
            yield hash(numbers), len(numbers)
        for bound, number in numbers:
            if bound >= FINE_BOUND:
                yield number * FINE // bound


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
