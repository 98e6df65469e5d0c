"""How clients that need no announcement are seen by a server that knows requests of the second order.

At every step a client asks with p(query | context, request), and then its context moves on. The server knows both
tables. So (context, previous request, request) is a Markov chain, and forward-backward over it is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onoff.audit.everyday.beliefs import chances_of, contexts_of
from onoff.audit.everyday.record import Law, law_of
from onoff.audit.real.secondorder import Path, SecondOrder
from onoff.model.powers import times
from onoff.types import Floats, Query

KEPT = 1500  # public states whose laws are kept; most streams begin alike
DEPTH = 3  # steps since the last ON step up to which they are kept
Whole = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class View:
    """One step: how many messages it asked for, p(its query | context, request), and where each pair goes next."""

    size: int
    chances: Floats
    goes: Whole
    contexts: int


class Client(Protocol):
    """A client that is replayed."""

    @property
    def name(self) -> str: ...
    def views(self, path: Path, private: Sequence[bool], rng: np.random.Generator) -> list[View]:
        """What a server sees of the requests of a person."""
        ...


@dataclass(frozen=True)
class Openly:
    """Asks for everything while ON, and for the wanted source alone otherwise.

    With `covered` sources it also asks for everything whenever one of them is wanted.
    """

    n: int
    name: str = "naive"
    covered: tuple[int, ...] = ()

    def views(self, path: Path, private: Sequence[bool], rng: np.random.Generator) -> list[View]:  # noqa: ARG002
        return [self._view(int(x), on) for x, on in zip(path, private, strict=True)]

    def _view(self, request: int, private: bool) -> View:
        chances = np.zeros((1, self.n))
        if private:
            chances[:] = 1
        elif request in self.covered:
            chances[0, list(self.covered)] = 1
        else:
            chances[0, request] = 1
        size = self.n if private or request in self.covered else 1
        return View(size, chances, np.zeros((1, self.n), dtype=np.intp), 1)


@dataclass(eq=False)
class _Node:
    """A public state of the engine with its law, and the states that queries lead to."""

    state: Any
    depth: int
    ready: Any = None
    law: Law | None = None
    after: dict[Query, _Node] = field(default_factory=dict)


class Everyday:
    """The client of the everyday mode, as an exhibit: `start` is its engine's state after an ON step."""

    def __init__(self, start: Any, n: int, sensitive: Sequence[int], name: str = "everyday") -> None:
        self.name = name
        self._n, self._hidden = n, tuple(sorted(sensitive))
        self._root, self._kept = _Node(start, 0), 0

    def views(self, path: Path, private: Sequence[bool], rng: np.random.Generator) -> list[View]:
        found: list[View] = []
        node, context = self._root, 0
        for t, (x, on) in enumerate(zip(path.tolist(), private, strict=True)):
            if on:
                size, chances, law, node = self._n, np.ones((1, self._n)), None, self._root
            else:
                law = self._law(node)
                query = self._drawn(law, x, context, rng)
                size, chances = len(query), chances_of(law, query, self._n, self._hidden)
                node = self._next(node, query)
            if t + 1 == len(path) or private[t + 1]:
                found.append(View(size, chances, np.zeros(chances.shape, dtype=np.intp), 1))
                continue
            following = self._law(node)
            goes = self._goes(following, chances, law is None)
            found.append(View(size, chances, goes, contexts_of(following)))
            context = int(goes[0 if law is None else context, x])
        return found

    def _goes(self, following: Law, chances: Floats, on: bool) -> Whole:
        joined = np.array(following.joined, dtype=np.intp)
        if on:
            return joined[None]
        goes = np.repeat(np.array(following.place, dtype=np.intp)[: len(chances), None], self._n, axis=1)
        goes[:, list(self._hidden)] = joined[list(self._hidden)]
        return goes

    def _law(self, node: _Node) -> Law:
        if node.law is None:
            node.ready = node.state.prepare()
            node.law = law_of(node.ready.as_dict(), node.state.place, node.state.joined, node.state.charge)
        return node.law

    def _drawn(self, law: Law, request: int, context: int, rng: np.random.Generator) -> Query:
        sets = len(law.sets)
        units = law.masses if request in self._hidden else law.tables[context].of(request, sets)
        ends = np.cumsum(np.array(units, dtype=np.int64))
        return law.sets[int(np.searchsorted(ends, rng.integers(ends[-1]), side="right"))]

    def _next(self, node: _Node, query: Query) -> _Node:
        found = node.after.get(query)
        if found is None:
            found = _Node(node.state.advance(node.ready, query), node.depth + 1)
            if found.depth <= DEPTH and self._kept < KEPT:
                self._kept += 1
                node.after[query] = found
        return found


def beliefs(model: SecondOrder, views: Sequence[View], closed: Sequence[int] = ()) -> tuple[Floats, Floats, float]:
    """p(X_t | queries before t) and p(X_t | all queries) for every t, and whether a `closed` source was ever asked for.

    The last is the probability, given all queries.
    """
    steps, n = len(views), model.n
    before, after = np.empty((steps, n)), np.empty((steps, n))
    # state[layer, context, previous, current]: layer 1 is the part in which no closed source was asked for so far
    state = np.zeros((2, 1, n, n))
    state[:, 0, 0] = model.start
    kept = []
    for t, view in enumerate(views):
        kept.append(state[0])
        before[t] = state[0].sum(axis=(0, 1))
        asked = state * view.chances[None, :, None, :]
        asked[1][:, :, list(closed)] = 0.0
        asked /= asked[0].sum()
        none = float(asked[1].sum())
        if t + 1 < steps:
            state = _forward(asked, view, model.by_current[t > 0])
    ahead = np.ones((1, n, n))  # [context, previous, current]
    for t in range(steps - 1, -1, -1):
        view = views[t]
        if t + 1 == steps:
            ahead = np.broadcast_to(view.chances[:, None, :], (len(view.chances), n, n))
        else:
            ahead = _backward(ahead, view, model.by_current[t > 0])
        both = (kept[t] * ahead).sum(axis=(0, 1))
        after[t] = both / both.sum()
        ahead = ahead / ahead.max()
    return before, after, 1 - none


def _forward(asked: Floats, view: View, by_current: Floats) -> Floats:
    n = len(by_current)
    gathered = np.zeros((len(asked), view.contexts + 1, n, n))  # [layer, context, current, previous]; the last: nowhere
    every = np.broadcast_to(np.arange(n), view.goes.shape)
    for layer, part in zip(gathered, asked, strict=True):
        np.add.at(layer, (view.goes, every), part.transpose(0, 2, 1))
    moved = times(gathered[:, :-1].transpose(0, 2, 1, 3), by_current)  # [layer, current, context, next]
    return np.ascontiguousarray(moved.transpose(0, 2, 1, 3))


def _backward(ahead: Floats, view: View, by_current: Floats) -> Floats:
    n = len(by_current)
    padded = np.concatenate([ahead, np.zeros((1, n, n))])  # [context at the next step, current, next]
    onwards = padded[view.goes, np.arange(n)]  # [context, current, next]
    told = times(onwards.transpose(1, 0, 2), by_current.transpose(0, 2, 1))  # [current, context, previous]
    return np.ascontiguousarray(told.transpose(1, 2, 0)) * view.chances[:, None, :]
