"""A server that knows more than the chain: requests that depend on the two before them, and its exact beliefs.

    X_0 ~ start,   X_1 ~ first[X_0],   X_t ~ second[X_{t-2}, X_{t-1}]

A chain is the special case second[a, b] = P[b].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onoff.errors import OnoffError
from onoff.model.powers import contracted, times
from onoff.types import Floats

if TYPE_CHECKING:
    from onoff.model.chain import Chain

Path = NDArray[np.intp]
Likelihoods = Callable[[int], Floats]  # of an OFF step: p(query | last, request, next), axes may have length 1

STRENGTHS = (*(2.0**k for k in range(-2, 17)), np.inf)  # how many observations the back-off is worth
HELD_OUT = 5  # every fifth sequence judges the strengths


@dataclass(frozen=True)
class SecondOrder:
    """The model; all rows are distributions."""

    start: Floats
    first: Floats
    second: Floats

    @classmethod
    def of_chain(cls, chain: Chain, start: Floats) -> SecondOrder:
        """The chain itself: the second request before does not matter."""
        return cls(start, chain.P, np.broadcast_to(chain.P, (chain.n, chain.n, chain.n)))

    @classmethod
    def fit(cls, paths: Sequence[Path], possible: NDArray[np.bool_]) -> SecondOrder:
        """Counts, smoothed: p(c | a, b) = (N_abc + s F_bc) / (N_ab + s), where row b of F is N_b + 1, normalised.

        The strength s is the one under which every fifth sequence is most likely when the others are counted; with s
        infinite the model is a chain. Only steps that are `possible` have a probability.
        """
        n = len(possible)
        judging = counted(paths[::HELD_OUT], n, 3)
        others = [path for i, path in enumerate(paths) if i % HELD_OUT]
        pairs, triples = counted(others, n, 2), counted(others, n, 3)
        best = max(STRENGTHS, key=lambda s: _log_likelihood(judging, _backed_off(pairs, triples, possible, s)[1]))
        start = counted([path[:1] for path in paths], n, 1) + 1
        return cls(start / start.sum(), *_backed_off(counted(paths, n, 2), counted(paths, n, 3), possible, best))

    @property
    def n(self) -> int:
        return len(self.start)

    @cached_property
    def by_current(self) -> tuple[Floats, Floats]:
        """[b, a, c]: from the request b, after a, to c; for the step from the first request, and for all later ones."""
        early = np.broadcast_to(self.first[:, None, :], (self.n, self.n, self.n))
        return np.ascontiguousarray(early), np.ascontiguousarray(self.second.transpose(1, 0, 2))

    def marginals(self, steps: int) -> Floats:
        """p(X_t) for every t: what the server believes before it has seen a query."""
        rows, pair = [self.start], self.start[:, None] * self.first
        for _ in range(steps - 1):
            rows.append(pair.sum(axis=0))
            pair = contracted("ab,abc->bc", pair, self.second)
        return np.array(rows)

    def never(self, sources: Sequence[int], steps: int) -> float:
        """The probability that none of these sources is asked for in so many steps, two or more."""
        others = np.ones(self.n)
        others[list(sources)] = 0.0
        pair = (self.start * others)[:, None] * self.first * others
        for _ in range(steps - 2):
            pair = contracted("ab,abc->bc", pair, self.second) * others
        return float(pair.sum())

    def simulate(self, steps: int, rng: np.random.Generator) -> Path:
        path: list[int] = []
        for t in range(steps):
            row = self.start if t == 0 else self.first[path[0]] if t == 1 else self.second[path[-2], path[-1]]
            path.append(int(rng.choice(self.n, p=row)))
        return np.array(path, dtype=np.intp)

    def code_length(self, path: Path) -> float:
        """-log2 of the probability of a path, given its first request."""
        later = self.second[path[:-2], path[1:-1], path[2:]]
        return -float(np.log2(self.first[path[0], path[1]]) + np.log2(later).sum())


def counted(paths: Sequence[Path], n: int, order: int) -> Floats:
    """How often each run of `order` requests occurs, as an array with that many axes."""
    long = [path for path in paths if len(path) >= order]
    if not long:
        return np.zeros((n,) * order)
    flat = np.concatenate(long)
    ends = np.cumsum([len(path) for path in long])
    inside = np.ones(len(flat), dtype=bool)  # where a run may begin
    for back in range(1, order):
        inside[ends - back] = False
    begins = np.flatnonzero(inside)
    index = np.zeros(len(begins), dtype=np.int64)
    for k in range(order):
        index = index * n + flat[begins + k]
    return np.bincount(index, minlength=n**order).reshape((n,) * order).astype(np.float64)


def _backed_off(pairs: Floats, triples: Floats, possible: NDArray[np.bool_], strength: float) -> tuple[Floats, Floats]:
    first = (pairs + 1) * possible
    first /= first.sum(axis=1, keepdims=True)
    if np.isinf(strength):
        return first, np.broadcast_to(first, triples.shape)
    second = triples + strength * first
    return first, second / second.sum(axis=2, keepdims=True)


def _log_likelihood(counts: Floats, second: Floats) -> float:
    seen = counts > 0
    return float((counts[seen] * np.log(second[seen])).sum())


def beliefs(model: SecondOrder, private: Sequence[bool], likelihoods: Likelihoods) -> tuple[Floats, float]:
    """The posterior of every private request given all queries, one row for each, and log2 of their probability.

    Forward and backward over (current, last private, previous), which determine all that comes later. At private steps
    the query is the full set and says nothing; the first and the last step must be private.
    """
    joint, evidence = _forward(model, private, likelihoods)
    n = model.n
    rows: list[Floats] = []
    ahead = np.ones((n, n, n))  # [current, last, previous]: how likely what the server sees from this step on is
    for t in range(len(private) - 1, -1, -1):
        if t < len(private) - 1:
            onwards = ahead.transpose(2, 1, 0)
            if not private[t]:
                onwards = onwards * likelihoods(t).transpose(1, 0, 2)
            ahead = times(onwards, model.by_current[t > 0].transpose(0, 2, 1))
            ahead /= ahead.max()
        if private[t]:
            here = ahead[range(n), range(n)]
            row = (joint.pop() * here).sum(axis=1)
            rows.append(row / row.sum())
            ahead = np.broadcast_to(here[:, None, :], (n, n, n))
    return np.array(rows[::-1]), evidence


def predictions(model: SecondOrder, private: Sequence[bool], likelihoods: Likelihoods) -> Floats:
    """What is believed of every private request from the queries before it, one row for each."""
    rows = [here.sum(axis=1) for here in _forward(model, private, likelihoods)[0]]
    return np.array([row / row.sum() for row in rows])


def evidence(model: SecondOrder, private: Sequence[bool], likelihoods: Likelihoods | None, known: Path) -> float:
    """log2 p(queries, private requests) where the private requests are those of the path `known`.

    Without likelihoods: log2 p(private requests).
    """
    return _forward(model, private, likelihoods, known)[1]


def _forward(
    model: SecondOrder, private: Sequence[bool], likelihoods: Likelihoods | None, known: Path | None = None
) -> tuple[list[Floats], float]:
    """p(previous, current, what was seen so far) at every private step, up to a factor, and log2 of the whole."""
    n = model.n
    joint: list[Floats] = []
    logarithm = 0.0
    state = np.zeros((n, n, n))  # [current, last, previous]; before the first request there is none: call it 0
    state[:, 0, 0] = model.start
    for t, on in enumerate(private):
        if on:
            here = state.sum(axis=1)
            if known is not None:
                here = here * (np.arange(n) == known[t])[:, None]
            joint.append(here)
            state = np.zeros((n, n, n))
            state[range(n), range(n)] = here  # the current request is the last private one
        total = state.sum()
        if not total > 0:
            raise OnoffError(f"step {t}: the server's model calls the queries impossible")
        logarithm += float(np.log2(total))
        if t < len(private) - 1:
            state = times(state / total, model.by_current[t > 0])
            if not on and likelihoods is not None:
                state *= likelihoods(t).transpose(1, 0, 2)
            state = state.transpose(2, 1, 0)
    return joint, logarithm
