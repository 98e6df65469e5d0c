"""Real people are not Markov: what a server with a better model than the chain learns from the client's queries.

A person's requests are replayed with ON and OFF periods that do not depend on them. The server knows the client's
rules and the statuses; it sees all queries and knows neither requests nor the person. For every private request X with
true value x we take, under the server's own model,

    bits        log2 p(x | queries) / p(x)                   what it learned about this person: negative if misled
    divergence  KL(p(X | queries) || p(X)) in bits           how far its belief moved, right or wrong
    together    log2 p(x_B | queries) / p(x_B), B = all private steps of the person
    guesses     whether the most likely source is x, with the queries and without

and average over private requests. Intervals are 95 % bootstrap intervals over people, since the requests of one
person are not independent. If people did follow the model, the means of bits and divergence would both be I(X; Q),
and `together` the I(X_B; Q) of the promise, divided by |B|.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from onoff.audit.models import Encoder, Model
from onoff.audit.real.secondorder import Path, SecondOrder, beliefs, evidence
from onoff.audit.setting import lags_of
from onoff.errors import OnoffError
from onoff.types import Floats, Query

CACHE_BYTES = 2**27  # for likelihoods, and for encoders
RESAMPLES = 1000
REAL, SIMULATED = "real", "simulated"


class Case(NamedTuple):
    """Who asks how, who attacks, and whether the people are real or follow the server's model."""

    client: str
    server: str
    people: str


class Score(NamedTuple):
    """Sums over the private requests of one person."""

    private: int
    bits: float
    together: float
    divergence: float
    right: float
    right_before: float


@dataclass(frozen=True)
class Estimate:
    """A mean per private request with a 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Leak:
    """What one server learned from one client, per private request."""

    case: Case
    people: int
    private: int
    bits: Estimate
    together: Estimate
    divergence: Estimate
    right: Estimate
    right_before: Estimate
    guesses_won: Estimate


@dataclass(frozen=True)
class Rules:
    """A client as the server knows it: the model in force at each lag. Answers are kept, within bounds."""

    name: str
    n: int
    model_at: Callable[[int], Model]

    @cached_property
    def encoder(self) -> Callable[[int, int, int], Encoder]:
        return lru_cache(maxsize=self._kept)(
            lambda last, following, lag: self.model_at(lag).encoder(last, following, lag)
        )

    @cached_property
    def likelihood(self) -> Callable[[Query, int], Floats]:
        return lru_cache(maxsize=self._kept)(lambda query, lag: self.model_at(lag).likelihood(query, lag))

    @property
    def _kept(self) -> int:
        """An encoder of n^2 sets, or a likelihood, takes 8 n^3 bytes."""
        return max(8, CACHE_BYTES // (8 * self.n**3))

    def queries(self, path: Path, private: Sequence[bool], rng: np.random.Generator) -> list[Query]:
        """What the client asks for, drawn from its integer weights. The first and the last step are private."""
        drawn, last = [], 0
        for t, lag in enumerate(lags_of(private)):
            if lag == 0:
                last = int(path[t])
            following = int(path[min(t + 1, len(path) - 1)])
            encoder = self.encoder(last, following, lag)
            ends = np.cumsum(encoder.weights[path[t]])
            drawn.append(encoder.sets[int(np.searchsorted(ends, rng.integers(ends[-1]), side="right"))])
        return drawn


def switched(steps: int, rate: float, rng: np.random.Generator) -> list[bool]:
    """ON and OFF periods that know nothing of the requests: switched before a step with probability `rate`.

    The first request is ON, as the client's rules want it; so is the last one, whose next request is not known.
    """
    private = [bool(on) for on in np.cumsum(rng.random(steps) < rate) % 2 == 0]
    private[0] = private[-1] = True
    return private


def halves(paths: Sequence[Path], rng: np.random.Generator) -> tuple[list[Path], list[Path]]:
    """The people in random order: one half for the server to learn from, the other to be attacked."""
    order = rng.permutation(len(paths))
    middle = len(paths) // 2
    return [paths[i] for i in order[:middle]], [paths[i] for i in order[middle:]]


def attack(server: SecondOrder, rules: Rules, queries: Sequence[Query], private: Sequence[bool], truth: Path) -> Score:
    """The server's exact beliefs about one person, held against the truth."""
    at = lags_of(private)
    seen = np.flatnonzero(private)

    def likelihoods(t: int) -> Floats:
        return rules.likelihood(queries[t], at[t])

    after, total = beliefs(server, private, likelihoods)
    before = server.marginals(len(truth))[seen]
    each, true = np.arange(len(seen)), truth[seen]
    ratio = np.log2(np.where(after > 0, after, 1.0) / np.where(after > 0, before, 1.0))
    together = evidence(server, private, likelihoods, truth) - evidence(server, private, None, truth) - total
    return Score(
        private=len(seen),
        bits=float(np.log2(after[each, true] / before[each, true]).sum()),
        together=together,
        divergence=float((after * ratio).sum()),
        right=hits(after, true),
        right_before=hits(before, true),
    )


def hits(belief: Floats, true: NDArray[np.intp]) -> float:
    """How often the most likely source is the true one; among equals (up to rounding) one is drawn, so shares count."""
    best = belief >= belief.max(axis=1, keepdims=True) * (1 - 1e-9)
    return float((best[np.arange(len(true)), true] / best.sum(axis=1)).sum())


def replay(
    people: Iterable[Path], clients: Sequence[Rules], servers: Mapping[str, SecondOrder], rate: float, seed: int
) -> Iterator[dict[Case, Score]]:
    """Attack one person after the other, in every combination.

    Beside each real person stands a simulated one who follows the model of the first server for as many steps, with the
    same statuses: what that server would learn if its model were the truth.
    """
    strongest = next(iter(servers))
    for number, path in enumerate(people):
        rng = np.random.default_rng([seed, number])
        private = switched(len(path), rate, rng)
        scores = {}
        for rules in clients:
            queries = rules.queries(path, private, rng)
            for name, server in servers.items():
                scores[Case(rules.name, name, REAL)] = attack(server, rules, queries, private, path)
            twin = servers[strongest].simulate(len(path), rng)
            asked = rules.queries(twin, private, rng)
            scores[Case(rules.name, strongest, SIMULATED)] = attack(servers[strongest], rules, asked, private, twin)
        yield scores


def leaks(scores: Sequence[dict[Case, Score]], seed: int) -> list[Leak]:
    """The means of all cases over the people attacked so far, with their intervals."""
    if not scores:
        raise OnoffError("no sequence was attacked: there is nothing to report")
    return [_leak(case, np.array([person[case] for person in scores]), seed) for case in scores[0]]


def _leak(case: Case, table: Floats, seed: int) -> Leak:
    table = np.column_stack([table, table[:, 4] - table[:, 5]])
    return Leak(case, len(table), int(table[:, 0].sum()), *estimates(table, seed))


def estimates(table: Floats, seed: int) -> list[Estimate]:
    """The sums of all columns but the first over that of the first, with intervals; a row for each person."""
    rng = np.random.default_rng(seed)
    totals = np.array([table[rng.integers(len(table), size=len(table))].sum(axis=0) for _ in range(RESAMPLES)])
    low, high = np.quantile(totals[:, 1:] / totals[:, :1], [0.025, 0.975], axis=0)
    means = table[:, 1:].sum(axis=0) / table[:, 0].sum()
    return [Estimate(*map(float, three)) for three in zip(means, low, high, strict=True)]
