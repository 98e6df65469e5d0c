"""Clients as the server knows them: the public rules by which they draw queries.

A step has three secrets: the client's *context*, the request X_t and, with the promise `both`, the next
request X_{t+1}. The context is all that a client remembers of earlier requests. So a client is, at each step,

    how it asks        p(Q_t = q | context, X_t, X_{t+1}), in whole numbers                       `ClientStep.encoder`
    what it remembers  the context at this step, given the context of the step before and the
                       state of its habits after the request there                                `ClientStep.comes`

and both follow from the statuses and the queries so far: `on(before, query)` is the ON step and `off(before, query)`
the OFF step after the step `before` with this query; `on()` begins a stream. Promise `both`: the context is the last
request made ON, and asking depends on X_{t+1}. Promise `past`: the context is the state of the habits after the last
request. Clients of ours ask for the full set while ON, all in one context. Plans and engines are exhibits: objects that
are looked at, not believed. A client that `promises` states a rounding at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from itertools import combinations, product
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.audit.bayes import NOTHING, Contexts, View
from onoff.audit.exhibits import law_line
from onoff.audit.law import COARSE, Finding, Law, LawLine, check_columns, check_law
from onoff.errors import ContextError, OnoffError, PlanError
from onoff.types import Floats, Query, Units

if TYPE_CHECKING:
    from onoff.model.chain import Chain

CELLS = 10**7  # sources times sets: the largest encoder of decoys that is written down
KEPT = 2**28  # bytes of encoders that are kept


class TooLarge(OnoffError):
    """Too much to write down or to enumerate."""


@dataclass(frozen=True, eq=False)
class ClientStep:
    """One step of a client, made ready from public things; `lag` is 0 if it is ON.

    encoder(context, next)[x, i] are the units of the request x on sets[i]: the client asks for sets[i] with probability
    units / (sum of the row x). It is None for an impossible context. It depends on the `nexts` next requests, or on
    none of them if that is 1. chances(i) is p(sets[i] | context, request, next), if there is a faster way than by the
    encoders. `law` and `rounding` are what the client states: the law of the query in every context, up to a total
    variation. `exhibit` is the engine's state before the step.
    """

    lag: int
    sets: tuple[Query, ...]
    encoder: Callable[[int, int], Units | None]
    contexts: int = 1
    comes: Contexts | None = None
    nexts: int = 1
    chances: Callable[[int], Floats] | None = None
    rounding: float = 0.0
    law: Law | None = None
    exhibit: Any = None

    @property
    def silent(self) -> bool:
        """True if its chances are not known, and queries say nothing."""
        return not self.sets

    def context(self, before: int, state: int) -> int:
        """The context of a client that was in the context `before`, and then came to this state of its habits."""
        return 0 if self.comes is None else int(self.comes[min(before, len(self.comes) - 1), state])

    def view(self, query: Query) -> View:
        """What the query says; nothing is possible if the step does not have it."""
        chances = NOTHING.chances if self.silent else np.zeros((1, 1, 1))
        if query in self.sets:
            chances = (self.chances or self._column)(self.sets.index(query))
        return View(chances, self.contexts, self.comes)

    def _column(self, index: int) -> Floats:
        tables = [self.encoder(context, 0) for context in range(self.contexts)]
        n = next((len(units) for units in tables if units is not None), 1)
        rows = [np.zeros(n) if u is None else u[:, index] / np.maximum(u.sum(axis=1), 1) for u in tables]
        return np.array(rows)[:, :, None]

    def draw(self, context: int, request: int, following: int, rng: np.random.Generator) -> Query:
        """Draw a query as a client in this context does."""
        units = self.encoder(context, following)
        ends = np.cumsum([0] if units is None else units[request])
        if not ends[-1]:
            raise OnoffError("a request that happens is given no query")
        return self.sets[int(np.searchsorted(ends, rng.integers(ends[-1]), side="right"))]


# Clients that remember nothing: how they ask depends on the status and the request alone


class _Forgetful:
    name: str
    promises = False

    def __init__(self, n: int, sets: tuple[Query, ...], units: Units, on: ClientStep | None = None) -> None:
        self.n = n
        self._step = cache(
            lambda lag: on if on and lag == 0 else ClientStep(lag, sets, lambda context, following: units)
        )

    def on(self, before: ClientStep | None = None, query: Query = ()) -> ClientStep:  # noqa: ARG002
        return self._step(0)

    def off(self, before: ClientStep, query: Query) -> ClientStep:  # noqa: ARG002
        return self._step(before.lag + 1)


class Everything(_Forgetful):
    """Asks for the full set, always."""

    name, promises = "everything", True

    def __init__(self, n: int) -> None:
        super().__init__(n, (tuple(range(n)),), np.ones((n, 1), dtype=np.int64))


class Naive(_Forgetful):
    """Asks for everything while ON (and when the request is sensitive), and openly otherwise: time-sharing."""

    name = "naive"

    def __init__(self, n: int, sensitive: Iterable[int] = ()) -> None:
        units = np.eye(n, n + 1, dtype=np.int64)
        units[sorted(sensitive)] = np.eye(1, n + 1, n, dtype=np.int64)
        super().__init__(n, (*((x,) for x in range(n)), tuple(range(n))), units, Everything(n).on())


class Decoys(_Forgetful):
    """Asks for the wanted source and `count` others, drawn uniformly and afresh at every step, ON or OFF."""

    name = "decoys"

    def __init__(self, n: int, count: int) -> None:
        if not 0 < count < n:
            raise OnoffError(f"{count} decoys among {n} sources: at least 1 and fewer than the sources")
        if n * comb(n, count + 1) > CELLS:
            raise TooLarge(f"{count} decoys among {n} sources: too many sets to write them down; take fewer")
        sets = tuple(combinations(range(n), count + 1))
        units = np.zeros((n, len(sets)), dtype=np.int64)
        units[np.array(sets), np.arange(len(sets))[:, None]] = 1
        super().__init__(n, sets, units)


# The promise `both`


def serving_plan(plans: Iterable[Any], lag: int) -> Any:
    """Return the plan that a client uses at a lag: the cheapest that fits, of equals the one for the largest lag.

    A race, whose cost is estimated, counts with its upper estimate. Raises `OnoffError` if no plan fits.
    """
    fitting = [plan for plan in plans if plan.lag <= lag]
    if not fitting:
        raise OnoffError(f"there is no plan for lag {lag} or less: give one, or make it")
    return min(fitting, key=lambda plan: (plan.at_most, -plan.lag))


class Announced:
    """The promise `both`: draws from plans, which are exhibits; the context is the last request made ON.

    Plans offer `name`, `chain`, `lag`, `at_most`, `rounding_at(lag)` and, unless they are races, `sets` and
    `encoder(last, next, lag).toarray()`. A race has no table: its queries say nothing.
    """

    promises = True

    def __init__(self, n: int, plans: Sequence[Any], name: str = "both") -> None:
        self.n, self.plans, self.name = n, plans, name
        self._on, self.step = Everything(n).on(), cache(self._step)
        self._columns = lru_cache(maxsize=KEPT // 2**22)(partial(_columns, n))

    def on(self, before: ClientStep | None = None, query: Query = ()) -> ClientStep:  # noqa: ARG002
        return self._on

    def off(self, before: ClientStep, query: Query) -> ClientStep:  # noqa: ARG002
        return self.step(before.lag + 1, serving_plan(self.plans, before.lag + 1))

    def _step(self, lag: int, plan: Any) -> ClientStep:
        """The step at a lag with this plan."""
        comes = np.arange(self.n)[None] if lag == 1 else np.broadcast_to(np.arange(self.n)[:, None], (self.n, self.n))
        sets, rounding = plan.sets if plan.kind == "table" else (), plan.rounding_at(lag)
        chances = partial(self._chances, plan, lag)
        return ClientStep(lag, sets, partial(_units, plan, lag), self.n, comes, self.n, chances, rounding)

    def _chances(self, plan: Any, lag: int, index: int) -> Floats:
        cube: Floats = self._columns(plan, lag)[:, [index]].toarray().reshape(self.n, self.n, self.n)
        return cube.transpose(0, 2, 1)


def _units(plan: Any, lag: int, last: int, following: int) -> Units | None:
    """The encoder of a context; None if the plan has none there."""
    with suppress(ContextError, PlanError):
        units: Units = plan.encoder(last, following, lag).toarray()
        return units
    return None


def _columns(n: int, plan: Any, lag: int) -> Any:
    """All encoders of a plan at a lag below each other, as probabilities: row (last, next, request), column the set."""
    from scipy.sparse import csr_array, vstack

    blocks = []
    for last, following in product(range(n), repeat=2):
        units = _units(plan, lag, last, following)
        units = np.zeros((n, len(plan.sets)), dtype=np.int64) if units is None else units
        blocks.append(csr_array(units / np.maximum(units.sum(axis=1, keepdims=True), 1)))
    return vstack(blocks, format="csc")


# The promise `past`


def law_step(chain: Chain, line: LawLine, sensitive: Sequence[int]) -> ClientStep:
    """An OFF step by a law of the promise `past`. A sensitive request draws from the law itself, in every state."""
    law, closed, states = line.law, list(sensitive), len(chain.states)
    nothing = np.zeros((chain.n, len(law.sets)), dtype=np.int64)

    def encoder(context: int, following: int) -> Units:  # noqa: ARG001
        units = line.encoders.get(context, nothing).copy()
        units[closed] = law.units
        return units

    return ClientStep(1, law.sets, encoder, states, np.arange(states)[None], law=law)


class Past:
    """The promise `past`: an engine as an exhibit. Law and encoders are read from what it prepares, and checked.

    `start` is the engine's state after as many ON steps as its `chain` remembers requests. States have `queries`, which
    are all that moves, `after(query)` and `prepare()`; what they prepare has `rounding`, `law` and `as_dict()`.
    Whatever is wrong is in `findings`.
    """

    name, promises = "past", True

    def __init__(self, start: Any, n: int, sensitive: Iterable[int] = ()) -> None:
        self.n, self.sensitive, self.chain = n, tuple(sorted(sensitive)), start.chain
        self.findings: list[Finding] = []
        self._start, self._full = start, Everything(n).on()
        self._ons: dict[Any, ClientStep] = {}
        self._offs: dict[Any, ClientStep] = {}
        self._left = KEPT

    def on(self, before: ClientStep | None = None, query: Query = ()) -> ClientStep:
        state = self._start if before is None else before.exhibit.after(query)
        return self._ons.setdefault(state.queries, replace(self._full, exhibit=state))

    def off(self, before: ClientStep, query: Query) -> ClientStep:
        state = before.exhibit.after(query)
        if state.queries in self._offs:
            return self._offs[state.queries]
        found = self._step(state)
        size = 8 * self.n * len(found.sets) * found.contexts
        if size <= self._left:
            self._left -= size
            self._offs[state.queries] = found
        return found

    def _step(self, state: Any) -> ClientStep:
        ready = state.prepare()
        if ready.law is None:
            raise TooLarge("a race has no table to look at: take a smaller chain")
        stated, rounding = law_line(ready.as_dict(), self.n), float(ready.rounding)
        if rounding > COARSE:
            self._note(Finding("coarse", f"a rounding of {rounding:.1e} is stated: too much for one step"))
        self._note(check_law(stated.law, self.n, self.sensitive))
        possible = self.chain.P > 0
        possible[:, list(self.sensitive)] = False
        for z, units in stated.encoders.items():
            self._note(check_columns(stated.law, units, possible[z], (z,)))
        return replace(law_step(self.chain, stated, self.sensitive), rounding=rounding, exhibit=state)

    def _note(self, finding: Finding | None) -> None:
        if finding is not None and finding not in self.findings:
            self.findings.append(finding)


Client = _Forgetful | Announced | Past
