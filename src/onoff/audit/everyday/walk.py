"""One stream with its record: every law is checked, and every query moves the pasts on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onoff.audit.everyday.checks import Checked, check
from onoff.audit.everyday.pasts import Impossible, Pasts
from onoff.audit.everyday.record import Fault, Seen
from onoff.audit.setting import start_law
from onoff.errors import OnoffError
from onoff.model.chain import Chain
from onoff.types import Floats, Query

NOTHING = Checked((), 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Walk:
    """A `Checked` for every step, and the sum of all stated roundings; `silent` steps could not be checked."""

    steps: tuple[Checked, ...]
    stated: float
    silent: tuple[int, ...]

    @property
    def faults(self) -> tuple[tuple[int, Fault], ...]:
        """All faults with their steps."""
        return tuple((t, fault) for t, step in enumerate(self.steps) for fault in step.faults)

    @property
    def distance(self) -> float:
        """The largest distance of a query from its stated law, given some hidden past."""
        return max((step.distance for step in self.steps), default=0.0)


def walk(
    chain: Chain,
    sensitive: Sequence[int],
    seen: Sequence[Seen],
    first: Floats | None = None,
    advance: Callable[[], None] = lambda: None,
) -> Walk:
    """Check a stream from its first step, which is private; `first` is the law of the first request.

    A step whose law is missing or excludes its query is a fault, and nothing more is checked until the full set is
    asked for again.
    """
    if not seen or not seen[0].private:
        raise OnoffError("a stream of the everyday mode starts with the full set: give all its steps, from the first")
    everything: Query = tuple(range(chain.n))
    pasts = Pasts.begin(chain, tuple(sorted(sensitive)), start_law(chain) if first is None else first)
    steps, silent, lost = [], [], False
    stated = charged = 0.0
    for t, step in enumerate(seen):
        if step.private:
            faults = () if step.query == everything else (Fault("full", "an ON step must ask for every source"),)
            pasts, lost, charged = pasts.on(), False, 0.0
            steps.append(Checked(faults, 0.0, 0.0, 0.0, 0.0))
        elif lost or step.law is None:
            steps.append(NOTHING if lost else Checked((Fault("record", "its law is missing"),), 0.0, 0.0, 0.0, 0.0))
            silent.append(t)
            pasts, lost = pasts.silent(), True
        else:
            found = check(pasts, step.law, charged)
            charged, stated = max(charged, step.law.charge), stated + step.law.rounding
            try:
                pasts = pasts.off(step.query, step.law)
            except Impossible as error:
                fault = Fault("query", str(error))
                found = Checked((*found.faults, fault), found.distance, found.average, found.bits, found.error)
                silent.append(t)
                pasts, lost = pasts.silent(), True
            steps.append(found)
        advance()
    return Walk(tuple(steps), stated, tuple(silent))
