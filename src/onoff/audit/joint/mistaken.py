"""A client whose chain is not the true one: a bound on what its stream tells, and the exact value.

With D_s the misfit of step s (`onoff.model.misfit`) and r_s the stated rounding of its plan, the law of (X_B, Q_1..Q_t)
is within d = sum of (D_s + r_s) over the OFF steps of one whose queries are independent of X_B. D_s is the most over
the last private request, or its mean where the law of the first request is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onoff.audit.joint.continuity import allowed_by, by_bound, information_bound
from onoff.audit.joint.enumeration import by_enumeration
from onoff.audit.models import Model, TooLarge
from onoff.audit.setting import MISSING, Leakage, Promise, lags_of
from onoff.model.misfit import misfit
from onoff.model.powers import times
from onoff.model.bounds import up

if TYPE_CHECKING:
    from onoff.model.chain import Chain


@dataclass(frozen=True)
class Mistaken:
    """The bounds after every step, and what was `found`: what the queries really tell under the true chain.

    `anywhere` bounds d whatever the first request was, and `distances` for streams that start as said. `bits` follows
    from `distances`: the most that the queries tell about X_B. `encoders` is d at the end as it follows from what the
    encoders of the used chain do at each step, which is at most the last of `anywhere`. What was found is exact, by
    enumeration, or a bound that follows from `encoders` if there are too many streams.
    """

    scheme: str
    anywhere: tuple[float, ...]
    distances: tuple[float, ...]
    bits: tuple[float, ...]
    encoders: float
    found: Leakage

    @property
    def holds(self) -> bool:
        """Whether what was found is within the bounds."""
        if self.encoders > self.anywhere[-1] + MISSING:
            return False
        if self.found.method == "bound":
            return True
        within = all(found <= most + MISSING for found, most in zip(self.found.bits, self.bits, strict=True))
        return within and (self.found.distance or 0.0) <= 2 * self.distances[-1] + MISSING


def mistaken(
    true: Chain,
    used: Chain,
    statuses: Sequence[bool],
    model: Model,
    start: NDArray[np.float64],
    promise: Promise,
) -> Mistaken:
    """Audit a client with plans for `used` whose requests follow `true`; `promise` states the roundings of plans."""
    step_misfit = cache(lambda lag: misfit(true, used, lag))
    law, last = start, start
    worst = mean = Fraction(0)
    anywhere, distances, bits, hidden = [], [], [], 1
    for lag, rounding in zip(lags_of(statuses), allowed_by(used, statuses, promise), strict=True):
        if lag == 0:
            last, hidden = law, hidden + 1
        found = step_misfit(lag)
        worst += Fraction(float(found.max()))
        mean += Fraction(float(times(last, found)) * (1 + 2.0**-40))  # more than the roundings of the mean lose
        law = times(law, true.P)
        anywhere.append(up(worst + rounding) + 0.0)
        distances.append(up(mean + rounding) + 0.0)
        bits.append(information_bound(mean + rounding, true.n, hidden))
    exact = bounded = by_bound(true, statuses, model)
    with suppress(TooLarge):
        exact = by_enumeration(true, statuses, model, start)
    return Mistaken(model.name, tuple(anywhere), tuple(distances), tuple(bits), bounded.distance or 0.0, exact)
