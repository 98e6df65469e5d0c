"""Clients that are audited on streams: the one that keeps the everyday promise, as an exhibit, and two that leak.

To the audit a client is how it draws: `weights` of its queries, given public things, its own memory and the request.
Public things are a function of the statuses and queries so far. The memory is what the client keeps to itself; after an
ON step it depends on that request alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from math import comb
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onoff.audit.everyday.checks import served, well_formed
from onoff.audit.everyday.record import Fault, Law, law_of
from onoff.audit.models import TooLarge
from onoff.errors import OnoffError
from onoff.types import Query

MOST_SETS = 20_000  # of decoys, where all are written down
Weights = Mapping[Query, int]


class Client(Protocol):
    """How queries are drawn. `public` is None before the first step, and where a client keeps nothing."""

    @property
    def name(self) -> str: ...
    def on(self, request: int) -> Weights:
        """At an ON step."""
        ...

    def started(self) -> Any:
        """The public state after an ON step."""
        ...

    def ready(self, public: Any) -> Any:
        """What is ready at an OFF step."""
        ...

    def off(self, ready: Any, request: int, memory: Any) -> Weights:
        """At an OFF step."""
        ...

    def after(self, public: Any, ready: Any, query: Query) -> Any:
        """The public state after an OFF step with this query."""
        ...

    def remembered(self, public: Any, request: int, memory: Any, private: bool) -> Any:
        """The memory after a step, which led to this public state."""
        ...


@dataclass(frozen=True)
class Naive:
    """Asks for everything while ON and when the request is sensitive, and openly otherwise."""

    n: int
    sensitive: tuple[int, ...] = ()
    name: str = "naive"

    def on(self, request: int) -> Weights:  # noqa: ARG002
        return {tuple(range(self.n)): 1}

    def started(self) -> None:
        return None

    def ready(self, public: None) -> None:  # noqa: ARG002
        return None

    def off(self, ready: None, request: int, memory: None) -> Weights:  # noqa: ARG002
        return {tuple(range(self.n)) if request in self.sensitive else (request,): 1}

    def draw(self, request: int, private: bool, rng: np.random.Generator) -> Query:  # noqa: ARG002
        """A query, however many there are."""
        [query] = self.on(request) if private else self.off(None, request, None)
        return query

    def chances(self, query: Query, private: bool) -> NDArray[np.float64]:
        """p(query | request), for every request."""
        alike = [query in (self.on(x) if private else self.off(None, x, None)) for x in range(self.n)]
        return np.array(alike, dtype=np.float64)

    def after(self, public: None, ready: None, query: Query) -> None:  # noqa: ARG002
        return None

    def remembered(self, public: None, request: int, memory: None, private: bool) -> None:  # noqa: ARG002
        return None


@dataclass(frozen=True)
class Decoys(Naive):
    """Asks for the wanted source and `count` others, drawn uniformly and afresh at every step, ON or OFF."""

    count: int = 1
    name: str = "decoys"

    def __post_init__(self) -> None:
        if not 0 < self.count < self.n:
            raise OnoffError(f"{self.count} decoys among {self.n} sources: at least 1 and fewer than the sources")

    def on(self, request: int) -> Weights:
        if comb(self.n - 1, self.count) > MOST_SETS:
            raise TooLarge(f"{self.count} decoys among {self.n} sources: too many sets to write them down")
        others = [x for x in range(self.n) if x != request]
        return {tuple(sorted((request, *chosen))): 1 for chosen in combinations(others, self.count)}

    def off(self, ready: None, request: int, memory: None) -> Weights:  # noqa: ARG002
        return self.on(request)

    def draw(self, request: int, private: bool, rng: np.random.Generator) -> Query:  # noqa: ARG002
        others = rng.choice(self.n - 1, self.count, replace=False)
        return tuple(sorted([request, *(int(x) + (x >= request) for x in others)]))

    def chances(self, query: Query, private: bool) -> NDArray[np.float64]:  # noqa: ARG002
        result = np.zeros(self.n)
        result[list(query)] = 1 / comb(self.n - 1, self.count)
        return result


@dataclass(frozen=True, eq=False)
class Ready:
    """A prepared step of the exhibit, with its law as it would be recorded."""

    step: Any
    law: Law
    rows: dict[tuple[int | None, int], Weights] = field(default_factory=dict)

    def weights(self, context: int | None, request: int) -> Weights:
        """The units of a request on the sets, by the encoder of a context; without a context, the masses."""
        key = context, request
        if key not in self.rows:
            law = self.law
            units = np.array(law.masses if context is None else [0] * len(law.sets), dtype=np.int64)
            table = None if context is None else law.tables.get(context)
            if table is not None:
                here = table.request == request
                np.add.at(units, table.column[here], table.units[here])
            self.rows[key] = {law.sets[i]: int(units[i]) for i in np.flatnonzero(units)}
        return self.rows[key]


class Exhibit:
    """A client with the everyday engine. The engine is given; what it does is checked, and nothing of it is believed.

    `start` is the engine's state after an ON step, with `prepare()`, `advance(step, query)`, `context(request, context,
    private)`, `place`, `joined` and `charge`; its steps have `as_dict()` and `draw(request, context, randbelow)`. Law
    and encoders are read from `as_dict`, `draw` is called with numbers that the audit chooses, and contexts that differ
    from those recorded are a fault. All faults that were met are in `faults`.
    """

    def __init__(self, start: Any, n: int, sensitive: tuple[int, ...], name: str = "everyday") -> None:
        self.name = name
        self._start, self._n, self._sensitive = start, n, sensitive
        self.faults: list[Fault] = []
        self._ready: dict[int, Ready] = {}
        self._states: list[Any] = []  # keeps states alive, so that their ids stay theirs
        self._drawn: set[tuple[int, int, Any]] = set()

    def on(self, request: int) -> Weights:  # noqa: ARG002
        return {tuple(range(self._n)): 1}

    def started(self) -> Any:
        return self._start

    def ready(self, public: Any) -> Ready:
        if id(public) not in self._ready:
            step = public.prepare()
            law = law_of(step.as_dict(), public.place, public.joined, public.charge)
            self._note([*well_formed(law, self._n, self._sensitive), *served(law, self._n, self._sensitive)])
            self._ready[id(public)] = Ready(step, law)
            self._states.append(public)
        return self._ready[id(public)]

    def off(self, ready: Ready, request: int, memory: Any) -> Weights:
        weights = ready.weights(None if request in self._sensitive else memory, request)
        key = id(ready), request, memory
        if key not in self._drawn:
            self._drawn.add(key)
            self._note(_misdrawn(ready.step, request, memory, weights))
        return weights

    def after(self, public: Any, ready: Ready, query: Query) -> Any:
        return public.advance(ready.step, query)

    def remembered(self, public: Any, request: int, memory: Any, private: bool) -> Any:
        try:
            context = public.context(request, memory, private)
        except OnoffError as error:
            self._note([Fault("context", f"a reader has no context any more: {error}")])
            return None
        recorded = public.joined if private or request in self._sensitive else public.place
        at = request if private or request in self._sensitive else memory
        if at is None or not 0 <= at < len(recorded) or recorded[at] != context:
            self._note([Fault("context", "a reader is in another context than the record says")])
        return context

    def _note(self, faults: Any) -> None:
        self.faults += [fault for fault in faults if fault not in self.faults]


def _misdrawn(step: Any, request: int, context: Any, weights: Weights) -> list[Fault]:
    """What `draw` does that does not follow the weights: it is called at both ends of every part, one number each."""
    total, end = sum(weights.values()), 0
    for query, mass in weights.items():
        for number in {end, end + mass - 1}:
            asked: list[int] = []
            try:
                found = tuple(step.draw(request, context, _gives(number, asked)))
            except OnoffError as error:
                return [Fault("draw", f"`draw` fails: {error}")]
            if asked != [total]:
                return [Fault("draw", f"`draw` must ask for one random number below {total}; it asked for {asked[:3]}")]
            if found != query:
                return [Fault("draw", f"`draw` gives {found} for {number} of {total}, which is in the part of {query}")]
        end += mass
    return []


def _gives(number: int, asked: list[int]) -> Callable[[int], int]:
    def below(bound: int) -> int:
        asked.append(bound)
        return min(number, bound - 1)

    return below
