"""The server's inference from queries: forward-backward over the client's context and the states of habits.

The server believes that requests follow its own habits; the client has another chain. States here are the union of
both chains' states, so a state holds all requests that either remembers. The client's query depends on its context,
its request and, with the promise `both`, its next request (`onoff.audit.clients`). So (context, state) is a Markov
chain with the queries as observations, and forward-backward over it is exact:

    M[c, z]  ~ p(context c, state z after the request X_t | Q_0..Q_{t-1})    going forward
    N[c, z]  ~ p(Q_t, Q_{t+1}, .. | context c, state z)                      going back
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from onoff.model import tree
from onoff.model.powers import sparse_times
from onoff.model.requests import start_law
from onoff.types import Floats

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from onoff.model.chain import Chain

BLOCK = 32  # steps between states that are kept on the way forward; the others are computed again on the way back
Contexts = NDArray[np.intp]
Branch = tuple[int, Any, Any]  # a next request, the states that it leads to, and the moves into them


@dataclass(frozen=True, eq=False)
class View:
    """What one query says: chances[c, x, y] = p(query | context, request, next).

    The step has `contexts` contexts. A client in context b at the last step, with the state s of its habits after the
    request there, is in comes[b, s] now; without `comes` all clients are in context 0. An array with one row, or one
    column, does not depend on that index.
    """

    chances: Floats
    contexts: int = 1
    comes: Contexts | None = None


NOTHING = View(np.ones((1, 1, 1)))  # a step that says nothing, in one context


@dataclass(frozen=True)
class Beliefs:
    """One row for each step, over the sources.

    `prior` is p(X_t) by habits alone, `before` is p(X_t | Q_0..Q_{t-1}), `at` is p(X_t | Q_0..Q_t) and
    `after` is p(X_t | all queries). `some_before` and `some_at` are the same for "a sensitive source was asked for, at
    this step or before". A query that no request can have caused says nothing, nor do the steps after it up to the next
    ON step, whose contexts or laws rest on it: all these are `silent`.
    """

    sensitive: tuple[int, ...]
    prior: Floats
    before: Floats
    at: Floats
    after: Floats
    some_before: Floats
    some_at: Floats
    silent: tuple[int, ...]


def hidden_part(row: Floats, private: bool, sensitive: Sequence[int]) -> Floats:
    """Turn the law of a request into that of its hidden part: for an OFF step, one last entry stands for open ones."""
    if private:
        return row
    return np.append(row[list(sensitive)], np.delete(row, list(sensitive)).sum())


def infer(
    habits: Chain,
    steps: int,
    view: Callable[[int], View],
    sensitive: Iterable[int] = (),
    advance: Callable[[], None] = lambda: None,
    *,
    client: Chain | None = None,
    start: Floats | None = None,
) -> Beliefs:
    """Compute the beliefs of a server with these habits that saw view(t) at each of the `steps`.

    `client` is the chain whose states views speak of, if it is another one; `start` the law of X_0. `view` and
    `advance` are called twice for each step.
    """
    hidden, model = tuple(sorted(set(sensitive))), _model(habits, client or habits)
    law = start_law(habits) if start is None else start / start.sum()
    alone = _Pass(model, law, steps, lambda t: NOTHING, hidden)
    alone.forward(lambda: None)
    found = _Pass(model, law, steps, view, hidden)
    found.forward(advance)
    found.back(advance)
    rows = alone.before, found.before, found.at, found.after
    return Beliefs(hidden, *rows, found.some_before, found.some_at, tuple(sorted(found.silent)))


@dataclass(frozen=True, eq=False)
class _Model:
    """The union of the states of server and client: in z the last request is last[z], and the client's state memory[z].

    moves[z, y] is the probability of state y after state z, by the server's habits.
    """

    n: int
    last: Contexts
    memory: Contexts
    moves: csr_array

    def parts(self, view: View) -> list[Branch]:
        """All moves; or, if it matters what comes next, for each request the moves into the states that it leads to."""
        return self._by_next if view.chances.shape[2] > 1 else [(0, slice(None), self.moves)]

    @cached_property
    def _by_next(self) -> list[Branch]:
        into = [np.flatnonzero(self.last == y) for y in range(self.n)]
        return [(y, states, self.moves[:, states]) for y, states in enumerate(into)]

    def chances(self, view: View, y: int) -> Floats:
        """[c, z]: p(query | context, request, next request y)."""
        cube = np.broadcast_to(view.chances, (view.contexts, self.n, view.chances.shape[2]))
        found: Floats = cube[:, self.last, y]
        return found

    def by_source(self, row: Floats) -> Floats:
        """The law of the request, from that of the state."""
        return np.bincount(self.last, row, self.n).astype(np.float64)

    def next(self, state: Floats, view: View, following: View) -> Floats:
        """M of the step that follows, from M of the step of `view`."""
        result = np.empty((len(state), following.contexts, len(self.last)))
        for y, states, moves in self.parts(view):
            asked = self._gather(state * self.chances(view, y), following)
            flat = sparse_times(moves.T, asked.reshape(-1, len(self.last)).T).T
            result[..., states] = flat.reshape(*result.shape[:2], -1)
        return result

    def likelihood(self, view: View, ahead: tuple[Floats, View] | None) -> Floats:
        """N of a step, from N and view of the step after; without them, the likelihood of this step's query alone."""
        if ahead is None and view.chances.shape[2] == 1:
            return self.chances(view, 0)
        after, following = ahead or (np.ones((1, len(self.last))), NOTHING)
        result = np.zeros((view.contexts, len(self.last)))
        for y, states, moves in self.parts(view):
            onwards = sparse_times(moves, after[:, states].T).T
            result += self.chances(view, y) * self._pick(onwards, following)
        return result

    def _gather(self, asked: Floats, following: View) -> Floats:
        """[layer, c, z] by the context at the step that follows."""
        if following.comes is None:
            return np.asarray(asked.sum(axis=1, keepdims=True))
        size = len(self.last)
        places = np.broadcast_to(following.comes[:, self.memory] * size + np.arange(size), asked.shape[1:]).ravel()
        layers = [np.bincount(places, layer.ravel(), following.contexts * size) for layer in asked]
        return np.array(layers, dtype=np.float64).reshape(len(asked), -1, size)

    def _pick(self, onwards: Floats, following: View) -> Floats:
        """[c, z] from [context at the step that follows, z]."""
        if following.comes is None:
            return onwards[:1]
        return onwards[following.comes[:, self.memory], np.arange(len(self.last))]


@lru_cache(maxsize=64)
def _model(habits: Chain, client: Chain) -> _Model:
    from scipy.sparse import csr_array

    states = sorted({*habits.states, *client.states}, key=lambda state: (len(state), state))
    believed, remembered = ({state: z for z, state in enumerate(chain.states)} for chain in (habits, client))
    P = habits.P[[tree.longest_suffix(believed, state) for state in states]]
    memory = np.array([tree.longest_suffix(remembered, state) for state in states])
    step, (z, x) = tree.steps(states, habits.n), np.nonzero(P)
    moves = csr_array((P[z, x], (z, step[z, x])), shape=(len(states), len(states)))
    return _Model(habits.n, np.array([state[-1] for state in states]), memory, moves)


class _Pass:
    """One pass forward over the views, which stores a state every BLOCK steps, and one back.

    A state is M[layer, c, z]. Layer 0 is all of it; layer 1, if there are sensitive sources, the part in which none
    of them was asked for at an earlier step.
    """

    def __init__(
        self, model: _Model, start: Floats, steps: int, view: Callable[[int], View], hidden: tuple[int, ...]
    ) -> None:
        self._model, self._steps, self._view = model, steps, view
        self._start = np.zeros((1 + bool(hidden), 1, len(model.last)))
        self._start[..., : model.n] = start
        self._hidden = np.isin(model.last, hidden)
        self.before, self.at, self.after = (np.empty((steps, model.n)) for _ in range(3))
        self.some_before, self.some_at = np.zeros(steps), np.zeros(steps)
        self.silent: set[int] = set()
        self._kept: list[Floats] = []

    def forward(self, advance: Callable[[], None]) -> None:
        """Fill all beliefs but those after the stream."""
        state, view, lost = self._start, NOTHING, False
        for t in range(self._steps):
            earlier, view_before, view = state, view, self._view(t)
            lost = lost and view.comes is not None
            found = None if lost else self._note_beliefs(self._next(earlier, view_before, view, t), view, t)
            if found is None:
                self.silent.add(t)
                lost, view = True, NOTHING
                found = self._note_beliefs(self._next(earlier, view_before, view, t), view, t)
            assert found is not None  # a view of nothing excludes nothing
            state = found
            if t % BLOCK == 0:
                self._kept.append(state[:1])
            advance()

    def back(self, advance: Callable[[], None]) -> None:
        """Fill the beliefs after the stream. The way forward is computed again, block by block."""
        ahead: tuple[Floats, View] | None = None
        for block in range(len(self._kept) - 1, -1, -1):
            first = block * BLOCK
            states = [self._kept[block]]
            views = [self._view_at(t) for t in range(first, min(first + BLOCK, self._steps))]
            for i in range(1, len(views)):
                state = self._next(states[-1], views[i - 1], views[i], first + i)
                states.append(state / state.sum())
            for t in range(first + len(views) - 1, first - 1, -1):
                likely = self._model.likelihood(views[t - first], ahead)
                both = self._model.by_source((states[t - first][0] * likely).sum(axis=0))
                self.after[t] = both / both.sum()
                ahead = likely / likely.max(), views[t - first]
                advance()

    def _view_at(self, t: int) -> View:
        return NOTHING if t in self.silent else self._view(t)

    def _note_beliefs(self, state: Floats, view: View, t: int) -> Floats | None:
        """Note the beliefs before and at step t, and return the state, scaled; None if the query is impossible."""
        total = state[0].sum()
        asked = state * self._model.likelihood(view, None)
        chance = asked[0].sum()
        if not (total > 0 and chance > 0):
            return None
        state, asked = state / total, asked / chance
        self.before[t], self.at[t] = (self._model.by_source(part[0].sum(axis=0)) for part in (state, asked))
        if self._hidden.any():
            self.some_before[t], self.some_at[t] = (1 - part[1][:, ~self._hidden].sum() for part in (state, asked))
        return state

    def _next(self, state: Floats, view: View, following: View, t: int) -> Floats:
        """The state before step t, from the one before step t - 1, its view and the view of step t."""
        if t == 0:
            return self._start
        if len(state) > 1:
            state = state.copy()
            state[1:, :, self._hidden] = 0.0
        return self._model.next(state, view, following)
