"""An everyday client whose chain is not the true one: a bound on what its queries tell, and the value (docs/misfit.md).

Requests follow P, the client uses P^. With eps(x) the total variation of the rows P_x and P^_x, r_t the stated rounding
of step t, and the sum over the OFF steps since the last ON step, up to t,

    d_t = sum of E eps(X_{s-1}) + the most that the r_s sum to,

the law of what is hidden and asked since that ON step is within d_t of one that keeps the promise exactly. The law of
what is hidden up to t and asked *before* t is within e_t: d_t if there are sensitive sources, else d_{t-1}. Then

    E TV(law of Q_t given what is hidden and asked before, the stated law)  <=  d_t + e_t,
    I(G_t; Q_t | Q_0..Q_{t-1})  <=  h(d_t) + h(e_t) + (d_t + e_t) log2 |G_t|   for d_t <= 1/2,

where |G_t| counts the values of what is hidden since that ON step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import log, log1p, log2
from typing import TYPE_CHECKING

import numpy as np

from onoff.audit.everyday.streams import Streams
from onoff.audit.setting import MISSING
from onoff.model.powers import times
from onoff.model.bounds import up
from onoff.types import Floats

if TYPE_CHECKING:
    from onoff.model.chain import Chain


@dataclass(frozen=True)
class Misfit:
    """The bounds after every step, and what was `found`: what queries really tell under the true chain.

    `distances` is d_t for streams that start as said. `anywhere` is d_t wherever they start: the largest eps stands in
    place of its mean. `allowed` is d_t + e_t, and `bits` follows from d_t and e_t.
    """

    distances: tuple[float, ...]
    allowed: tuple[float, ...]
    anywhere: tuple[float, ...]
    bits: tuple[float, ...]
    found: Streams

    @property
    def guess(self) -> float:
        """The most that queries made at or after a hidden request add to the chance of guessing it.

        It is twice the sum over all OFF steps, wherever the stream starts; at most 1.
        """
        return min(1.0, 2 * self.total)

    @property
    def total(self) -> float:
        """The sum of `anywhere` over the periods between ON steps: over the whole stream."""
        ends = [t for t in range(len(self.anywhere)) if t + 1 == len(self.anywhere) or self.anywhere[t + 1] == 0]
        return sum(self.anywhere[t] for t in ends)

    @property
    def holds(self) -> bool:
        """Whether what was found is within the bounds, where it is exact."""
        exact = self.found.method.startswith("exact (")
        for step, apart, most in zip(self.found.steps, self.allowed, self.bits, strict=True):
            if exact and (step.bits > most + MISSING or (step.average or 0.0) > apart + MISSING):
                return False
        return not self.found.faults


def row_misfit(true: Chain, used: Chain) -> Floats:
    """eps(x), rounded up."""
    apart: Floats = np.abs(true.P - used.P).sum(axis=1) / 2
    return apart * (1 + 2.0**-40) + np.where(apart > 0, true.n * 2.0**-52, 0.0)


def bounds(
    true: Chain, used: Chain, statuses: Sequence[bool], sensitive: Sequence[int], start: Floats, found: Streams
) -> Misfit:
    """The bounds beside what was found; roundings count with the most that was stated along any stream of it."""
    eps = row_misfit(true, used)
    law = before = start / start.sum()
    means, most, allowed, bits = [], [], [], []
    mean = worst = now = Fraction(0)
    values = 0.0  # log2 |G_t|
    for private, step in zip(statuses, found.steps, strict=True):
        if private:
            mean = worst = Fraction(0)
            values = log2(true.n)
        else:
            mean += Fraction(float(times(before, eps)) * (1 + 2.0**-40))
            worst += Fraction(float(eps.max()))
            values += log2(len(sensitive) + 1)
        rounding = Fraction(step.stated_most or 0.0)
        earlier, now = Fraction(0) if private else now, mean + rounding
        earlier = now if sensitive else earlier
        means.append(up(now) + 0.0)
        most.append(up(worst + rounding) + 0.0)
        allowed.append(up(now + earlier) + 0.0)
        bits.append(min(values, _information(now, values) + _information(earlier, values)))
        before, law = law, times(law, true.P)
    return Misfit(tuple(means), tuple(allowed), tuple(most), tuple(bits), found)


def _information(distance: Fraction, values: float) -> float:
    """h(d) + d log2 |G|, and at most log2 |G|; rounded up."""
    if distance == 0:
        return 0.0
    if distance > Fraction(1, 2):
        return values
    d = up(distance)
    entropy = d * log2(1 / d) - (1 - d) * log1p(-d) / log(2)  # no term is negative: nothing cancels
    return min(values, (entropy + d * values) * (1 + 2.0**-48))
