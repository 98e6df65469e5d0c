"""Signs of numbers that were not drawn: long ones that come twice, and a test with an error rate.

No two draws have a long number in common, in this journal and in others of the client (`Repeats`).

A client may draw twice in secret and keep what it likes better. It keeps a thing of chance p with the chance

    p (p[worse things] + p[things no better])

instead. Gamblers bet (`Bets`) that it does so in one of `SHARES` of all steps, and likes larger or smaller numbers (as
modulo bias does), numbers near the middle or far from it, smaller or larger sets, other sets than that of the step
before, or sets that hold the next request. The capital of a gambler is multiplied by the ratio of both chances. For an
honest client the mean of that is 1, so the mean capital of all ever exceeds 1 / a with probability a at most (Ville).

Nothing rests on silence here: that the numbers of the operating system are random is believed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from onoff.audit.files import Journal, Step
from onoff.audit.law import Drawn, Finding, Law
from onoff.types import Query, Units

LONG = 2**40  # numbers below bounds of this or more never come twice
FINE = 2**44  # nor do their leading digits, whatever the bounds, where these are 2^46 or more
FALSE_ALARM = 1e-4
SHARES = np.array([1.0, 0.25])


class Repeats:
    """The random numbers of all draws, in this journal and in others: what no two of them have in common."""

    def __init__(self, others: Sequence[Journal] = ()) -> None:
        self._known: dict[Any, str] = {}
        for i, journal in enumerate(others, 1):
            for step in journal.steps:
                self._known |= dict.fromkeys(_keys(step), f"step {step.step} of the other journal {i}")

    def check(self, step: Step) -> Iterator[Finding]:
        """Find out whether the numbers of a step came before."""
        keys = list(_keys(step))
        for before in [self._known[key] for key in keys if key in self._known][:1]:
            yield Finding("numbers", f"its random numbers are those of {before}", step.step)
        self._known |= dict.fromkeys(keys, f"step {step.step}")


def _keys(step: Step) -> Iterator[Any]:
    """What no other step may have: its long numbers and, if they are very long, their leading digits."""
    for bound, number in step.numbers or ():
        if bound >= LONG:
            yield from (("share", number * FINE // bound), number) if bound >= 4 * FINE else [(bound, number)]


class Bets:
    """The capitals of all gamblers up to some step."""

    def __init__(self) -> None:
        self.capitals = np.zeros((8, len(SHARES)))  # logarithms, by what is liked
        self._before: Query = ()
        self._over = False

    def check(self, step: Step, drawn: Drawn, next: int | None) -> Iterator[Finding]:
        """Bet on the numbers of a step before the request `next`, and on its set if its law is known."""
        for bound, number in step.numbers or ():
            if 0 <= number < bound:
                middle = abs(2 * number + 1 - bound)  # twice the distance from there
                liked = [(2 * number + 1) / bound, (2 * (bound - 1 - middle) + 1 + (middle > 0)) / bound]
                self.capitals[:4] += _gains([*liked, *(2 - ratio for ratio in liked)])
        if drawn is not None:
            self.capitals[4:] += _gains(redraws(*drawn, step.query, self._before, next))
        self._before = step.query
        capital = float(np.exp(np.minimum(self.capitals, 600.0)).mean())
        if capital >= 1 / FALSE_ALARM and not self._over:
            self._over = True
            message = f"the random numbers up to here look chosen, not drawn (false alarms: {FALSE_ALARM:g})"
            yield Finding("numbers", message, step.step, amount=1 / capital)


def redraws(row: Units, law: Law, query: Query, before: Query, next: int | None) -> list[float]:
    """p[worse sets] + p[sets no better] for each thing that a client may like about the set that it draws."""
    at, chances, sizes = law.index[query], row / row.sum(), np.array([len(one) for one in law.sets])
    again, without = np.array([one == before for one in law.sets]), np.array([next not in one for one in law.sets])
    dislikes = (sizes, -sizes, again, without)
    return [float(chances[bad > bad[at]].sum() + chances[bad >= bad[at]].sum()) for bad in dislikes]


def _gains(ratios: Sequence[float]) -> Any:
    """The logarithms of what capitals are multiplied by: a row for each thing liked, a column for each share."""
    return np.log(np.maximum(1 + np.outer(np.array(ratios) - 1, SHARES), 2.0**-60))  # floats round to 0
