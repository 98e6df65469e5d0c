"""Whether statuses, announcements and plans were chosen without looking at the requests.

A journal is believed in what was asked: ON or OFF, whether the next request was known, and which of several plans was
taken. All of that is public; none of it may depend on the requests. If it does not, and the requests follow a Markov
chain (any chain: its probabilities need not be known), then the requests could have come in any other order that makes
the same transitions equally often. All such orders are equally likely given the public choices. So the true order is
compared with orders drawn at random among them, by one statistic: how much better the requests are told by the choices
than without them (Bayes factors of tables of choice by request, averaged). If the choices do not depend on the
requests, every rank is equally likely, exactly.

Orders with the same transitions are the Eulerian trails of a graph. One is drawn uniformly from a random tree of last
exits (Wilson's algorithm) and a shuffle of all other exits (the BEST theorem).
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, lgamma, log
from typing import Protocol

from onoff.audit.transcript.conformance import plan_lag
from onoff.audit.transcript.reading import Step
from onoff.audit.transcript.rules import Due, due

FALSE_ALARM = 1e-3
ORDERS = 999  # with none as telling as the true one, p is 1 in 1000
ENOUGH = 10  # orders as telling as the true one: then p is known well enough (Besag and Clifford)
Value = Callable[[Sequence[int], int], Hashable]
Choice = tuple[int, Hashable]  # among which steps, and which one


@dataclass(frozen=True)
class ChoiceTest:
    """If choices do not depend on requests, p_value <= a has probability at most a; `hint` is the most telling one."""

    p_value: float
    hint: str
    false_alarm: float

    @property
    def rejected(self) -> bool:
        return self.p_value <= self.false_alarm


class Telling(Protocol):
    """Something that requests may be told by."""

    @property
    def hint(self) -> str:
        """What is told by what, in words."""

    def evidence(self, path: Sequence[int]) -> float:
        """The logarithm of the Bayes factor of a dependence, if the requests are these."""


@dataclass(frozen=True)
class Table:
    """Choices at some steps, beside a value of the requests around each."""

    hint: str
    choices: dict[int, Choice]
    value: Value

    def evidence(self, path: Sequence[int]) -> float:
        """The logarithm of the Bayes factor: one law of the value for each choice against one for all of its group."""
        counts: dict[Choice, Counter[Hashable]] = defaultdict(Counter)
        groups: dict[int, Counter[Hashable]] = defaultdict(Counter)
        values: set[Hashable] = set()
        for step, choice in self.choices.items():
            value = self.value(path, step)
            counts[choice][value] += 1
            groups[choice[0]][value] += 1
            values.add(value)
        size = len(values)
        apart = sum(_marginal(one, size) for one in counts.values())
        return apart - sum(_marginal(one, size) for one in groups.values())


def _marginal(counts: Counter[Hashable], size: int) -> float:
    """The logarithm of the chance of a sequence with these counts under a uniform law of laws (Jeffreys' prior)."""
    each = sum(lgamma(count + 0.5) - lgamma(0.5) for count in counts.values())
    return each + lgamma(size / 2) - lgamma(counts.total() + size / 2)


def choices(
    steps: Sequence[Step],
    seed: int | None = None,
    false_alarm: float = FALSE_ALARM,
    announced: bool = True,
    more: Sequence[Telling] = (),
) -> ChoiceTest:
    """Test a journal. `seed` is of the random orders; `announced` is False for the everyday mode.

    `more` are other choices than those of statuses, announcements and plans.
    """
    tables = [*_tables(steps, due(steps, announced=announced)), *more]
    path = [step.request for step in steps]
    rng, orders = random.Random(seed), Orders(path)
    own, hint = _telling(tables, path)
    if len({tuple(path), *(tuple(orders.draw(rng)) for _ in range(3))}) == 1 or not tables:
        return ChoiceTest(1.0, hint, false_alarm)
    reached = 0
    for tried in range(1, ORDERS + 1):
        reached += _telling(tables, orders.draw(rng))[0] >= own
        if reached == ENOUGH:
            return ChoiceTest(ENOUGH / tried, hint, false_alarm)
    return ChoiceTest((1 + reached) / (1 + ORDERS), hint, false_alarm)


def _telling(tables: Sequence[Telling], path: Sequence[int]) -> tuple[float, str]:
    """The logarithm of the mean Bayes factor, and which table has the most."""
    found = [(table.evidence(path), table.hint) for table in tables]
    top, hint = max(found, default=(0.0, "nothing"))
    return (top + log(sum(exp(one - top) for one, _ in found) / len(found)) if found else 0.0), hint


def _tables(steps: Sequence[Step], dues: Sequence[Due]) -> list[Table]:
    """Every kind of choice beside every request that it may follow."""
    lasts = last_private(dues)
    values: dict[str, tuple[int, Value]] = {  # how many requests ahead the value looks
        "the request": (0, lambda path, t: path[t]),
        "the next request": (1, lambda path, t: path[t + 1]),
        "whether the next request is the same": (1, lambda path, t: path[t] == path[t + 1]),
        "the request before": (0, lambda path, t: path[t - 1] if t else None),
        "the request two before": (0, lambda path, t: path[t - 2] if t > 1 else None),
        "the last private request": (0, lambda path, t: path[lasts[t]]),
    }
    kinds: dict[str, dict[int, Choice]] = {
        "going ON": {step.step: (0, step.asked_private) for step in steps},
        "an unknown next request": {step.step: (0, step.next is None) for step in steps if not step.asked_private},
        "the plan": _returning(steps, [owed.lag for owed in dues]),
    }
    tables = []
    for kind, chosen in kinds.items():
        for value, (ahead, look) in values.items():
            there = {t: choice for t, choice in chosen.items() if t + ahead < len(steps)}
            if len(set(there.values())) > 1:
                tables.append(Table(f"{kind} by {value}", there, look))
    return tables


def last_private(dues: Sequence[Due]) -> list[int]:
    """The last step before each one that was made ON; 0 if there is none."""
    lasts, last = [], 0
    for number, owed in enumerate(dues):
        lasts.append(last)
        if owed.lag == 0:
            last = number
    return lasts


def _returning(steps: Sequence[Step], lags: Sequence[int]) -> dict[int, Choice]:
    """The plans of OFF steps, each lag by itself, where plans take turns.

    Better plans replace others as time goes by, and then a plan is a matter of time; a reader's habits may be, too. So
    a plan counts only if another one was in use between its first and its last use at the same lag.
    """
    uses: dict[tuple[int, str], list[int]] = defaultdict(list)
    for step, lag in zip(steps, lags, strict=True):
        if lag and plan_lag(step.plan) is not None:
            uses[lag, step.plan].append(step.step)
    found: dict[int, Choice] = {}
    for (lag, plan), numbers in uses.items():
        rivals = [other for (its, name), other in uses.items() if its == lag and name != plan]
        if any(other[0] < numbers[-1] and numbers[0] < other[-1] for other in rivals):
            found |= dict.fromkeys(numbers, (lag, plan))
    return found


class Orders:
    """The orders of a path that make the same transitions equally often, from the same start."""

    def __init__(self, path: Sequence[int]) -> None:
        self._start, self._end = path[0], path[-1]
        self._exits: dict[int, list[int]] = defaultdict(list)
        for before, after in pairwise(path):
            self._exits[before].append(after)

    def draw(self, rng: random.Random) -> list[int]:
        """One of them, all alike."""
        queues = {source: exits.copy() for source, exits in self._exits.items()}
        final = self._tree(rng)
        for source, queue in queues.items():
            if source in final:
                queue.remove(final[source])
            rng.shuffle(queue)
            if source in final:
                queue.insert(0, final[source])  # taken from the end: the first one is the last exit
        path = [self._start]
        while queues.get(path[-1]):
            path.append(queues[path[-1]].pop())
        return path

    def _tree(self, rng: random.Random) -> dict[int, int]:
        """The last exit of every source but the end: a random tree towards it."""
        final: dict[int, int] = {}
        for source in self._exits:
            walk: dict[int, int] = {}
            here = source
            while here != self._end and here not in final:
                walk[here] = rng.choice(self._exits[here])
                here = walk[here]
            here = source
            while here != self._end and here not in final:
                final[here] = walk[here]
                here = walk[here]
        return final
