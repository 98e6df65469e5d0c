"""Whether the sets of OFF steps were drawn as the plans say: a bet against the client that is fair if they were.

Given the requests, the set of each step follows its row of the plan's encoder, independently of all others. A gambler
starts with capital 1 and before each step may choose any other distribution r; when the set q comes, with probability
p(q) by the plan, the capital is multiplied by r(q) / p(q). By the plan its expectation stays 1 whatever is chosen, so
it ever reaches 1 / a with probability at most a (Ville's inequality): exactly, for logs of any length, without tables
or simulation. Several gamblers share the capital: some learn from the steps before (`gambling`), some bet
on one mistake that has a name (`mistakes`). A set that the plan never draws wins everything, and so does
one in a context for which the plan has no encoder at all.
"""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from onoff.audit.models import Encoder, Model
from onoff.audit.transcript.conformance import plan_lag
from onoff.audit.transcript.gambling import Drawn, gamblers, racers
from onoff.audit.transcript.mistakes import generators, mistakes
from onoff.audit.transcript.reading import Step
from onoff.audit.transcript.rules import Due, due
from onoff.errors import ContextError, OnoffError, PlanError
from onoff.types import Query, RandBelow

if TYPE_CHECKING:
    from onoff.model.chain import Chain

FALSE_ALARM = 1e-4
CONTEXTS_KEPT = 1024
BAG = 31  # fresh draws of a race beside the one that came


class Raced(Protocol):
    """A plan without a table, as an exhibit."""

    @property
    def chain(self) -> Chain: ...
    def draw(self, request: int, last: int, next: int, lag: int, randbelow: RandBelow, /) -> Query: ...


class Bets(Protocol):
    """Somebody who bets on draws."""

    @property
    def hint(self) -> str: ...
    def bet(self, drawn: Drawn) -> None: ...
    @property
    def log_capital(self) -> float: ...


@dataclass(frozen=True)
class DrawTest:
    """`tested` steps against their plans, `raced` of them against fresh draws of a race; `untested` are the others.

    If all were drawn as the plans say, p_value <= a has probability at most a. `impossible` are steps whose set the
    plan never draws in their context; `hint` is what the winning gambler looked at.
    """

    tested: int
    untested: int
    impossible: tuple[int, ...]
    p_value: float
    hint: str
    false_alarm: float
    raced: int = 0

    @property
    def rejected(self) -> bool:
        return self.p_value <= self.false_alarm


def draws(
    steps: Sequence[Step],
    models: Mapping[str, Model],
    false_alarm: float = FALSE_ALARM,
    races: Mapping[str, Raced] | None = None,
    others: Iterable[Sequence[Step]] = (),
    randbelow: RandBelow = secrets.randbelow,
    seen: Mapping[int, Query] | None = None,
) -> DrawTest:
    """Test the sets in a journal against its plans, `models` and `races` by name.

    With `seen`, the sets of a log by their steps, those are tested and no others: not what the log lacks. Contexts are
    recomputed from what was asked. `others` are other journals of the same plans: their numbers must not come again.
    `randbelow` is for the fresh draws of races.
    """
    if not 0 < false_alarm < 1:
        raise OnoffError(f"the rate of false alarms is {false_alarm}: a probability between 0 and 1 is needed")
    beside = [
        {drawn.step.step: drawn for drawn in _drawn(other, models, {}, randbelow, None) if isinstance(drawn, Drawn)}
        for other in others
    ]
    groups: list[Sequence[Bets]] = [gamblers(), racers(), mistakes(beside), generators()]
    return wager(_drawn(steps, models, races or {}, randbelow, seen), groups, false_alarm, (1,), (0,))


def wager(
    found: Iterable[Drawn | int | None],
    groups: Sequence[Sequence[Bets]],
    false_alarm: float = FALSE_ALARM,
    races_only: Collection[int] = (),
    tables_only: Collection[int] = (),
) -> DrawTest:
    """Let all groups of gamblers, who share the capital evenly, bet on the draws; some groups on one kind only.

    `found` has an entry for every OFF step, as `_drawn` gives it.
    """
    of_tables = [gambler for i, group in enumerate(groups) if i not in races_only for gambler in group]
    of_races = [gambler for i, group in enumerate(groups) if i not in tables_only for gambler in group]
    tested = untested = raced = 0
    impossible: list[int] = []
    most = 0.0
    for drawn in found:
        if drawn is None:
            untested += 1
            continue
        tested += 1
        if isinstance(drawn, int) or drawn.weights[drawn.index] == 0:
            impossible.append(drawn if isinstance(drawn, int) else drawn.step.step)
            continue
        raced += drawn.table is None
        for gambler in of_races if drawn.table is None else of_tables:
            gambler.bet(drawn)
        most = max(most, _mean([_mean([gambler.log_capital for gambler in group]) for group in groups]))
    everybody: list[Bets] = [gambler for group in groups for gambler in group]
    best = max(everybody, key=lambda gambler: gambler.log_capital)
    hint = "sets that the plan never draws" if impossible else best.hint
    p_value = 0.0 if impossible else math.exp(-most)
    return DrawTest(tested, untested, tuple(impossible), p_value, hint, false_alarm, raced)


def _drawn(
    steps: Sequence[Step],
    models: Mapping[str, Model],
    races: Mapping[str, Raced],
    randbelow: RandBelow,
    seen: Mapping[int, Query] | None,
) -> Iterator[Drawn | int | None]:
    """The draw of every OFF step, or of those that were `seen`.

    It is None where nothing can be tested: the plan is not at hand, or does not serve the context. It is the number of
    the step where nothing can have been drawn: the plan is at hand and serves the lag, but has no encoder there.
    """
    tables = _Tables(models)
    before, previous = 0, -1
    for noted, owed in zip(steps, due(steps), strict=True):
        step = as_seen(noted, seen)
        if owed.lag and step is not None:
            if step.plan in races and step.plan not in models:
                yield _from_bag(step, owed, races[step.plan], randbelow)
            else:
                drawn = tables.drawn(step, owed, before, previous)
                if isinstance(drawn, Drawn):
                    before = drawn.place
                yield drawn
        previous = noted.request


def as_seen(step: Step, seen: Mapping[int, Query] | None) -> Step | None:
    """The step with the set that the log has, which decides; None if it has none. Without a log it is as noted."""
    if seen is None:
        return step
    return replace(step, query=seen[step.step]) if step.step in seen else None


class _Tables:
    """The encoders of plans with a table, the latest ones kept."""

    def __init__(self, models: Mapping[str, Model]) -> None:
        @lru_cache(maxsize=CONTEXTS_KEPT)
        def encoder(
            plan: str, last: int, following: int, lag: int
        ) -> tuple[Encoder, dict[Query, int], NDArray[np.intp]]:
            found = models[plan].encoder(last, following, lag)
            sizes = np.array([len(query) for query in found.sets])
            return found, {query: i for i, query in enumerate(found.sets)}, sizes

        self._encoder, self._models = encoder, models

    def drawn(self, step: Step, owed: Due, before: int, previous: int) -> Drawn | int | None:
        assert step.next is not None  # else the step is ON
        try:
            rows, places, sizes = self._encoder(step.plan, owed.last, step.next, owed.lag)
        except (KeyError, ContextError):
            return None
        except PlanError:
            lag = plan_lag(step.plan)
            return None if lag is None or lag > owed.lag else step.step
        weights, index, sets = rows.weights[step.request], places.get(step.query), rows.sets
        if index is None:  # a set outside the law: one more, of weight 0
            weights, index, sizes = np.append(weights, 0), len(weights), np.append(sizes, len(step.query))
            sets = (*sets, step.query)

        def other(last: int, following: int, lag: int) -> NDArray[np.int64] | None:
            try:
                found: NDArray[np.int64] = self._encoder(step.plan, last, following, lag)[0].weights[step.request]
            except (ContextError, PlanError):
                return None
            return found

        chain = getattr(self._models[step.plan], "chain", None)
        likeliest = None if chain is None else int(chain.P[step.request].argmax())
        n = len(rows.weights)
        return Drawn(
            *(step, owed.last, owed.lag, sizes, weights, index, before),
            *(sets, n, rows.weights, other, likeliest, previous),
        )


def _from_bag(step: Step, owed: Due, plan: Raced, randbelow: RandBelow) -> Drawn | None:
    """The draw of a race among fresh draws in the same context."""
    following = step.next
    assert following is not None  # else the step is ON

    def replay(below: RandBelow) -> Query:
        return tuple(plan.draw(step.request, owed.last, following, owed.lag, below))

    try:
        bag = Counter([step.query, *(replay(randbelow) for _ in range(BAG))])
    except (ContextError, PlanError):
        return None
    sets = sorted(bag)  # an order that does not tell which one came
    weights = np.array([bag[query] for query in sets])
    sizes = np.array([len(query) for query in sets])
    place = sets.index(step.query)
    return Drawn(step, owed.last, owed.lag, sizes, weights, place, 0, sets, plan.chain.n, replay=replay)


def _mean(logs: Sequence[float]) -> float:
    """The logarithm of the mean of the exponentials."""
    top = max(logs)
    return top + math.log(sum(math.exp(log - top) for log in logs) / len(logs))
