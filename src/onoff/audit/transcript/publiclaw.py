"""Whether the sets of OFF steps are such as the plans draw, by the log alone: without requests and without a journal.

While OFF a plan has one law of its sets. If requests follow the chain, every set has this law given all sets before it:
what is known of the last private request and of the next one does not change with them. Without a journal nobody knows
which plan served a step, but it serves its lag. So the set q of a step has at most the chance

    p(q) = max over the plans that serve the lag of their chance of q

and a gambler who states chances r beforehand and wins r(q) / p(q) does not expect to gain: it ever has 1 / a with
probability at most a (Ville's inequality). Some gamblers look at sets, some at their sizes. A set that no plan has wins
everything. A race has no table, and steps that nothing else serves are not tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log

from onoff.audit.models import Planned
from onoff.audit.transcript.belief import Asked
from onoff.types import Query

FALSE_ALARM = 1e-4
CAUTION = 4.0  # sets that a gambler imagines to have seen as the plans say
EVENLY = 0.05  # the share of its bets that is laid on all cells alike: a set that is next to impossible wins at once
Chances = Mapping[Hashable, float]


@dataclass(frozen=True)
class LawTest:
    """`tested` OFF steps of a log against the public law of their plans; `untested` ones are served by none.

    If the client drew from these plans, and its requests follow the chain, p_value <= a has probability at most a.
    `impossible` are the steps whose set no plan has; `hint` is what the winning gambler looked at.
    """

    tested: int
    untested: int
    impossible: tuple[int, ...]
    p_value: float
    hint: str
    false_alarm: float

    @property
    def rejected(self) -> bool:
        return self.p_value <= self.false_alarm


@dataclass
class _Gambler:
    """Learns how often each cell comes; `cell` says to which one a set belongs."""

    hint: str
    cell: Callable[[Query], Hashable]
    log_capital: float = 0.0
    seen: Counter[Hashable] = field(default_factory=Counter)

    def bet(self, query: Query, laws: Sequence[Mapping[Query, float]]) -> None:
        found = [self._chances(law) for law in laws]
        cell = self.cell(query)
        most = max(chances.get(cell, 0.0) for chances in found)
        usual = sum(chances.get(cell, 0.0) for chances in found) / len(found)
        learned = (self.seen[cell] + CAUTION * usual) / (self.seen.total() + CAUTION)
        cells = len({cell for chances in found for cell in chances})
        stated = EVENLY / cells + (1 - EVENLY) * learned
        self.log_capital += log(stated / most)
        self.seen[cell] += 1

    def _chances(self, law: Mapping[Query, float]) -> Chances:
        found: dict[Hashable, float] = {}
        for query, chance in law.items():
            found[self.cell(query)] = found.get(self.cell(query), 0.0) + chance
        return found


def public_law(asked: Iterable[Asked], models: Iterable[Planned], false_alarm: float = FALSE_ALARM) -> LawTest:
    """Test the OFF steps of a log, whose lags follow from the statuses. `models` are the plans that may serve them."""
    plans = [(model.plan.lag, _law(model)) for model in models]
    gamblers = [_Gambler("the sets", lambda query: query), _Gambler("the sizes of the sets", len)]
    tested = untested = 0
    impossible, most = [], 0.0
    for number, step in enumerate(asked):
        if step.lag == 0 or step.query is None:
            continue
        laws = [law for lag, law in plans if lag <= step.lag]
        if not laws:
            untested += 1
            continue
        tested += 1
        if not any(law.get(step.query) for law in laws):
            impossible.append(number)
            continue
        for gambler in gamblers:
            gambler.bet(step.query, laws)
        top = max(gambler.log_capital for gambler in gamblers)
        most = max(most, top + log(sum(exp(gambler.log_capital - top) for gambler in gamblers) / len(gamblers)))
    best = max(gamblers, key=lambda gambler: gambler.log_capital)
    hint = "sets that no plan has" if impossible else best.hint
    return LawTest(tested, untested, tuple(impossible), 0.0 if impossible else exp(-most), hint, false_alarm)


def _law(model: Planned) -> dict[Query, float]:
    """The chance of every set of a plan."""
    plan = model.plan
    return {query: mass / plan.denominator for query, mass in zip(plan.sets, plan.masses, strict=True)}
