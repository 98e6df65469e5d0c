"""Real people are not Markov: what servers that know more than the chain learn from a client's queries.

Clients replay a person's requests, with ON and OFF periods that do not depend on them. A server knows the client's
rules and the statuses; it sees all queries, and knows neither the requests nor the person. It believes in a model of
habits of its own, and computes its beliefs exactly. For every hidden request X with the true value x,

    before      log2 p(x | queries before it) / p(x)
    after       log2 p(x | all queries) / p(x | queries before it)     0 is promised by `past` if the chain is right
    bits        log2 p(x | all queries) / p(x), the sum of both        0 is promised by `both` if the chain is right
    moved       KL(p(X | all queries) || p(X | queries before it))     how far belief moved, right or wrong
    divergence  KL(p(X | all queries) || p(X))
    together    log2 p(x_B | all queries) / p(x_B), where B are all hidden steps of the person

and averages over hidden requests. Intervals are 95 % bootstrap intervals over people, since the requests of one person
are not independent. If people followed the server's model, the means of bits and divergence would both be I(X; Q), and
`together` the I(X_B; Q) of the promise, divided by |B|. With sensitive sources, hidden of a request is which of them it
was, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from onoff.errors import OnoffError
from onoff.model.chain import Chain
from onoff.model.powers import contracted
from onoff.types import Floats, Mask, Progress, Query, silent

if TYPE_CHECKING:
    from onoff.plans.base import Plan

Path = NDArray[np.intp]

MOST_SOURCES = 60  # beliefs are tables of n^3 numbers, and the work is n^4 for every request
SERVERS = ("second order", "the chain")
STRENGTHS = (*(2.0**k for k in range(-2, 17)), np.inf)  # how far a row is shrunk towards the first-order model
HELD_OUT = 5  # every fifth sequence judges the strengths
RESAMPLES = 1000
TOGETHER = 20  # people in one task for another process


# The people and the models of the servers


@dataclass(frozen=True)
class SecondOrder:
    """Habits of the second order: X_0 ~ start, X_1 ~ first[X_0], X_t ~ second[X_{t-2}, X_{t-1}].

    A chain is the special case second[a, b] = P[b].
    """

    start: Floats
    first: Floats
    second: Floats

    @classmethod
    def of_chain(cls, chain: Chain, start: Floats) -> SecondOrder:
        return cls(start, chain.P, np.broadcast_to(chain.P, (chain.n, chain.n, chain.n)))

    @classmethod
    def fit(cls, paths: Sequence[Path], possible: Mask) -> SecondOrder:
        """Count and smooth: p(c | a, b) = (N_abc + s F_bc) / (N_ab + s), where row b of F is N_b + 1, normalised.

        The strength s is the one under which every fifth sequence is most likely when the others are counted; with s
        infinite the model is a chain. Only steps that are `possible` have a probability.
        """
        n = len(possible)
        judging = count_runs(paths[::HELD_OUT], n, 3)
        seen = judging > 0
        others = [path for i, path in enumerate(paths) if i % HELD_OUT]
        pairs, triples = count_runs(others, n, 2), count_runs(others, n, 3)

        def likelihood(strength: float) -> float:
            return float((judging[seen] * np.log(_shrink(pairs, triples, possible, strength)[1][seen])).sum())

        best = max(STRENGTHS, key=likelihood)
        start = count_runs([path[:1] for path in paths], n, 1) + 1
        return cls(start / start.sum(), *_shrink(count_runs(paths, n, 2), count_runs(paths, n, 3), possible, best))

    @property
    def n(self) -> int:
        return len(self.start)

    def priors(self, steps: int, allowed: Mask | None = None) -> Floats:
        """p(X_t) for every t, before any query; with `allowed` sources, jointly with no other one up to t."""
        factor = np.ones(self.n) if allowed is None else allowed.astype(np.float64)
        rows, pair = [self.start * factor], (self.start * factor)[:, None] * self.first * factor
        for _ in range(steps - 1):
            rows.append(pair.sum(axis=0))
            pair = contracted("ab,abc->bc", pair, self.second) * factor
        return np.array(rows)

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


def count_runs(paths: Sequence[Path], n: int, order: int) -> Floats:
    """Count how often each run of `order` requests occurs, as an array with that many axes."""
    flat = np.concatenate([*(np.append(path, -1) for path in paths), np.full(order, -1)])  # -1: a person ends
    runs = np.lib.stride_tricks.sliding_window_view(flat, order)
    counts = np.zeros((n,) * order)
    np.add.at(counts, tuple(runs[(runs >= 0).all(axis=1)].T), 1.0)
    return counts


def _shrink(pairs: Floats, triples: Floats, possible: Mask, strength: float) -> tuple[Floats, Floats]:
    first = (pairs + 1) * possible
    first /= first.sum(axis=1, keepdims=True)
    if np.isinf(strength):
        return first, np.broadcast_to(first, triples.shape)
    second = triples + strength * first
    return first, second / second.sum(axis=2, keepdims=True)


@dataclass(frozen=True)
class Split:
    """People to attack, and the `servers`, which learned from `training` others; `chain` is the client's.

    `unknown` and `impossible` count the sequences that were cut at a source or at a step that the chain does not have.
    """

    chain: Chain
    attacked: list[Path]
    training: int
    servers: dict[str, SecondOrder]
    unknown: int = 0
    impossible: int = 0


def split_people(
    sequences: Iterable[Sequence[str]],
    chain: Chain | None = None,
    *,
    users: int = 2000,
    min_length: int = 6,
    max_length: int = 200,
    seed: int = 1,
) -> Split:
    """Let the servers learn from one half of the people, at random, and attack up to `users` of the other half.

    Sequences of other lengths are left out. One with a source or step that the chain does not have ends before it.
    Without a chain the client has the one that is counted in the first half.
    """
    names = {} if chain is None else {name: i for i, name in enumerate(chain.names)}
    paths, unknown, impossible = [], 0, 0
    for words in sequences:
        if not min_length <= len(words) <= max_length:
            continue
        if chain is None:
            path = [names.setdefault(word, len(names)) for word in words]
        else:
            path = [names.get(word, -1) for word in words]
            cut = path.index(-1) if -1 in path else len(path)
            unknown += cut < len(path)
            path = path[:cut]
            allowed = chain.P[path[:-1], path[1:]] > 0
            if not allowed.all():
                impossible += 1
                path = path[: int(np.argmin(allowed)) + 1]
        if len(path) >= min_length:
            paths.append(np.array(path, dtype=np.intp))
    if len(paths) < 4:
        raise OnoffError(
            f"{len(paths)} sequences of {min_length} to {max_length} requests are left, after {unknown} were "
            f"cut at sources and {impossible} at steps that the chain does not have; give more sequences, other limits "
            "or another chain"
        )
    if len(names) > MOST_SOURCES:
        raise OnoffError(
            f"{len(names)} sources: the attack keeps n^3 numbers and takes up to {MOST_SOURCES}; merge some"
        )
    order, middle = np.random.default_rng(seed).permutation(len(paths)), len(paths) // 2
    training, attacked = [paths[i] for i in order[:middle]], [paths[i] for i in order[middle:]]
    used = chain or Chain.from_counts(count_runs(training, len(names), 2), tuple(names))
    fitted = SecondOrder.fit(training, used.P > 0)
    servers = dict(zip(SERVERS, (fitted, SecondOrder.of_chain(used, fitted.start)), strict=True))
    return Split(used, attacked[:users], len(training), servers, unknown, impossible)


# What a person's requests look like to a server


@dataclass(frozen=True, eq=False)
class Seen:
    """One step: p(its query | context, request, next request), the next context of each (context, request), the size.

    The last axis of `chances` has length 1 where the next request does not matter.
    """

    chances: Floats
    goes: NDArray[np.intp]
    contexts: int
    size: int


class Client(Protocol):
    """A client that asks for the requests of a person."""

    @property
    def name(self) -> str: ...
    def ask(self, path: Path, private: Sequence[bool], rng: np.random.Generator) -> list[Seen]: ...


@dataclass(frozen=True)
class Naive:
    """Asks for everything while ON, and for the wanted source alone otherwise.

    With `covered` sources it also asks for everything whenever one of them is wanted.
    """

    n: int
    name: str = "naive"
    covered: tuple[int, ...] = ()

    def ask(self, path: Path, private: Sequence[bool], rng: np.random.Generator) -> list[Seen]:  # noqa: ARG002
        return [self._step(int(x), on) for x, on in zip(path, private, strict=True)]

    def _step(self, request: int, private: bool) -> Seen:
        alike = range(self.n) if private else self.covered if request in self.covered else [request]
        chances = np.zeros((1, self.n, 1))
        chances[0, list(alike)] = 1
        size = self.n if private or request in self.covered else 1
        return Seen(chances, np.zeros((1, self.n), dtype=np.intp), 1, size)

