"""What a server concludes from queries: forward-backward over the client's context and the requests.

Requests follow a chain, or a model of the second order. How a client asks depends on its context, its request and, with
the promise `both`, its next request (`onoff.audit.clients`). So (context, X_{t-1}, X_t) is a Markov chain with the
queries as observations, and forward-backward over it is exact. With w = X_{t-1} (absent for a chain) and x = X_t,

    M[c, x, w]  ~ p(context c, x, w | Q_0..Q_{t-1})         going forward
    N[c, x, w]  ~ p(Q_t, Q_{t+1}, .. | context c, x, w)     going back
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onoff.model.powers import times
from onoff.model.requests import Requests
from onoff.types import Floats

if TYPE_CHECKING:
    pass

BLOCK = 32  # steps between states that are kept on the way forward; the others are computed again on the way back
Contexts = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class View:
    """What one query says: chances[c, x, y] = p(query | context, request, next), axes of length 1 do not matter.

    There are so many `contexts` at this step. A client that was in context b at the step before, and asked for x there,
    is in comes[b, x] now; without `comes` all clients are in context 0.
    """

    chances: Floats
    contexts: int = 1
    comes: Contexts | None = None


NOTHING = View(np.ones((1, 1, 1)))  # a step that says nothing, in one context


@dataclass(frozen=True)
class Beliefs:
    """One row for each step, over the sources.

    `prior` is p(X_t) by the model of requests alone, `before` is p(X_t | Q_0..Q_{t-1}), `at` is p(X_t | Q_0..Q_t) and
    `after` is p(X_t | all queries). `some_prior`, `some_before` and `some_at` are the same for "a sensitive source was
    asked for, at this step or before". No request can have caused the query of an `impossible` step: it says nothing,
    nor do the steps after it whose contexts are then unknown, up to the next ON step; all these are `silent`.
    """

    sensitive: tuple[int, ...]
    private: tuple[bool, ...]
    prior: Floats
    before: Floats
    at: Floats
    after: Floats
    some_prior: Floats
    some_before: Floats
    some_at: Floats
    impossible: tuple[int, ...]
    silent: tuple[int, ...]

    def hidden(self, rows: Floats, t: int) -> Floats:
        """The law of what is hidden of step t: X_t if it was ON, else which sensitive source it was, or none (last)."""
        return hidden_part(rows[t], self.private[t], self.sensitive)


def hidden_part(row: Floats, private: bool, sensitive: Sequence[int]) -> Floats:
    """Turn the law of a request into the law of its hidden part, where one last entry stands for all open requests."""
    if private:
        return row
    return np.append(row[list(sensitive)], np.delete(row, list(sensitive)).sum())


def infer(
    requests: Requests,
    private: Sequence[bool],
    view: Callable[[int], View],
    sensitive: Iterable[int] = (),
    advance: Callable[[], None] = lambda: None,
) -> Beliefs:
    """What a server believes that saw view(t) at every step t. `view` and `advance` are called twice for each step."""
    hidden = tuple(sorted(set(sensitive)))
    alone = _Pass(requests, len(private), lambda t: NOTHING, hidden)
    alone.forward(lambda: None)
    found = _Pass(requests, len(private), view, hidden)
    found.forward(advance)
    found.back(advance)
    impossible, silent = tuple(sorted(found.impossible)), tuple(sorted(found.silent))
    return Beliefs(
        hidden, tuple(map(bool, private)), alone.before, found.before, found.at, found.after,
        alone.some_at, found.some_before, found.some_at, impossible, silent,
    )  # fmt: skip


class _Pass:
    """One way forward over the views, of which a state is kept every BLOCK steps, and one way back.

    A state is M[layer, c, x, w]. Layer 0 is all of it; layer 1, if there are sensitive sources, the part in which none
    of them was asked for at an earlier step.
    """

    def __init__(self, requests: Requests, steps: int, view: Callable[[int], View], hidden: tuple[int, ...]) -> None:
        n = len(requests.start)
        self._requests, self._steps, self._view, self._hidden = requests, steps, view, list(hidden)
        self.before, self.at, self.after = (np.empty((steps, n)) for _ in range(3))
        self.some_before, self.some_at = np.zeros(steps), np.zeros(steps)
        self.impossible: set[int] = set()
        self.silent: set[int] = set()
        self._kept: list[Floats] = []

    def forward(self, advance: Callable[[], None]) -> None:
        """Fill all beliefs but those after the stream."""
        start = np.repeat(self._requests.start[None, None, :, None], 1 + bool(self._hidden), axis=0)
        state, view, lost = start, NOTHING, False
        for t in range(self._steps):
            earlier, view_before, view = state, view, self._view(t)
            lost = lost and view.comes is not None
            found = (
                None if lost else self._told(start if t == 0 else self._next(earlier, view_before, view, t), view, t)
            )
            if found is None:
                self.silent.add(t)
                if not lost:
                    self.impossible.add(t)
                lost, view = True, NOTHING
                found = self._told(start if t == 0 else self._next(earlier, view_before, view, t), view, t)
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
            views = [self._seen(t) for t in range(first, min(first + BLOCK, self._steps))]
            for i in range(1, len(views)):
                state = self._next(states[-1], views[i - 1], views[i], first + i)
                states.append(state / state.sum())
            for t in range(first + len(views) - 1, first - 1, -1):
                likely = _likelihood(views[t - first], self._requests.moves(t), ahead)
                both = (states[t - first][0] * likely).sum(axis=(0, 2))
                self.after[t] = both / both.sum()
                ahead = likely / likely.max(), views[t - first]
                advance()

    def _seen(self, t: int) -> View:
        return NOTHING if t in self.silent else self._view(t)

    def _told(self, state: Floats, view: View, t: int) -> Floats | None:
        """Note the beliefs before and at step t, and return the state, scaled; None if the query is impossible."""
        total = state[0].sum()
        asked = state * _likelihood(view, self._requests.moves(t), None)
        chance = asked[0].sum()
        if not (total > 0 and chance > 0):
            return None
        state, asked = state / total, asked / chance
        self.before[t], self.at[t] = state[0].sum(axis=(0, 2)), asked[0].sum(axis=(0, 2))
        if self._hidden:
            self.some_before[t], self.some_at[t] = (
                1 - np.delete(part[1], self._hidden, axis=1).sum() for part in (state, asked)
            )
        return state

    def _next(self, state: Floats, view: View, following: View, t: int) -> Floats:
        """The state before step t, from the one before step t - 1, its view and the view of step t."""
        moves, is_chain = self._requests.moves(t - 1), self._requests.second is None
        if self._hidden:
            state = state.copy()
            state[1:, :, self._hidden] = 0.0
        if view.chances.shape[2] == 1:
            asked = _gathered(state * view.chances, following)
            if is_chain:
                return times(asked[..., 0], moves[0])[..., None]
            return _walked(asked, moves).transpose(0, 1, 3, 2)
        asked = _gathered(_walked(state, moves) * view.chances, following)
        return asked.sum(axis=2)[..., None] if is_chain else asked.transpose(0, 1, 3, 2)


def _walked(state: Floats, moves: Floats) -> Floats:
    """[layer, c, x, y] = sum over w of state[layer, c, x, w] moves[w, x, y]."""
    layers, contexts, n, _ = state.shape
    batches = state.transpose(2, 0, 1, 3).reshape(n, layers * contexts, -1)
    return times(batches, moves.transpose(1, 0, 2)).reshape(n, layers, contexts, n).transpose(1, 2, 0, 3)


def _gathered(asked: Floats, following: View) -> Floats:
    """[layer, c, x, ..] by the context at the step that follows."""
    if following.comes is None:
        return np.asarray(asked.sum(axis=1, keepdims=True))
    layers, _, n, last = asked.shape
    result = np.zeros((layers, following.contexts + 1, n, last))  # the last context is NOWHERE
    for before, comes in enumerate(following.comes):
        result[:, comes, np.arange(n)] += asked[:, before]
    return result[:, :-1]


def _likelihood(view: View, moves: Floats, ahead: tuple[Floats, View] | None) -> Floats:
    """N[c, x, w] from N and view of the step after; without them, the likelihood of this step's query alone."""
    announced = view.chances.shape[2] > 1
    chances = np.broadcast_to(view.chances, (view.contexts, moves.shape[1], view.chances.shape[2]))
    if ahead is None:
        return _back(chances, moves) if announced else chances
    after, following = ahead  # after[c, y, w], where w is this step's x, or absent
    if announced:
        onwards = np.broadcast_to(after.transpose(0, 2, 1), (len(after), chances.shape[1], after.shape[1]))
        return _back(chances * _picked(onwards, following), moves)
    if after.shape[2] == 1 and len(moves) == 1:
        onwards = times(after[:, :, 0], moves[0].T)[..., None]
    else:
        onwards = _back(np.broadcast_to(after.transpose(0, 2, 1), (len(after), *moves.shape[1:])), moves)
    return chances * _picked(onwards, following)


def _picked(onwards: Floats, following: View) -> Floats:
    """[c, x, ..] from [context at the step that follows, x, ..]."""
    if following.comes is None:
        return onwards[:1]
    padded = np.concatenate([onwards, np.zeros_like(onwards[:1])])  # the last context is NOWHERE
    return padded[following.comes, np.arange(onwards.shape[1])]


def _back(cube: Floats, moves: Floats) -> Floats:
    """[c, x, w] = sum over y of cube[c, x, y] moves[w, x, y]."""
    return times(cube.transpose(1, 0, 2), moves.transpose(1, 2, 0)).transpose(1, 0, 2)
