"""The Bayesian server: what all queries of a stream say about every request, exactly.

The requests x_0, x_1, ... are hidden and follow the chain. The query of step t has the likelihood
p(q_t | last, x_t, x_{t+1}), where `last` is the newest request made while ON, before t. So (last, x_t) is a Markov
chain, and forward-backward over it gives p(x_t | all queries):

    M[last, x]  ~ p(last, x_t = x, q_0..q_{t-1})      going forward;  an ON step makes its request the `last`
    N[last, x]  ~ p(q_t, q_{t+1}, ... | last, x_t = x)   going back
    p(x_t = x | all queries) ~ sum over last of M N

Both are scaled to sums and maxima of 1 at every step. Kept are n numbers for an ON step and n^2 for every `BLOCK`
steps of an OFF period; what lies between is computed again on the way back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onoff.audit.models import Model
from onoff.audit.setting import start_law
from onoff.errors import OnoffError
from onoff.model.chain import Chain
from onoff.model.powers import times
from onoff.types import Query

BLOCK = 16
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Asked:
    """A step as the server knows it: its lag (0: ON), the set it saw, and how such clients draw their sets.

    Without a query (nothing was seen) or a model (a race has no table) the step says nothing.
    """

    lag: int
    query: Query | None
    model: Model | None


@dataclass(frozen=True)
class Beliefs:
    """One row for each step, over the sources.

    `prior` is p(x_t) by the chain alone, `predicted` is p(x_t | q_0..q_{t-1}), `posterior` is p(x_t | all queries).
    `impossible` are the steps whose query no request can have caused under its model: they were left out.
    """

    prior: Array
    predicted: Array
    posterior: Array
    impossible: tuple[int, ...]


def attack(
    chain: Chain, asked: Sequence[Asked], prior: Array | None = None, advance: Callable[[], None] = lambda: None
) -> Beliefs:
    """The beliefs of a server that saw these steps; `prior` is of the first request. `advance` is called twice a step.

    Lags must count the steps since the last ON step wherever a likelihood depends on `last`.
    """
    steps, n = len(asked), chain.n
    priors, predicted, posterior = (np.empty((steps, n)) for _ in range(3))
    marginal = start_law(chain) if prior is None else prior
    checkpoints: list[tuple[int, Array]] = []
    impossible: set[int] = set()

    forward: Array = np.diag(marginal)
    since: int | None = None  # the steps since the last ON step
    for t, step in enumerate(asked):
        priors[t], marginal = marginal, times(marginal, chain.P)
        predicted[t] = forward.sum(axis=0)
        if step.lag == 0:
            checkpoints.append((t, predicted[t]))
            forward, since = np.diag(predicted[t]), 0
        elif t == 0 or t - checkpoints[-1][0] == BLOCK:
            checkpoints.append((t, forward))
        weights = _weights(chain, step, since)
        moved = _forward(forward, weights)
        if not moved.sum() > 0:
            impossible.add(t)
            moved = _forward(forward, chain.P[None])
        forward = moved / moved.sum()
        since = None if since is None else since + 1
        advance()

    backward, end = np.ones((n, n)), steps
    for start, kept in reversed(checkpoints):
        forwards, block = [np.diag(kept) if kept.ndim == 1 else kept], []
        for t in range(start, end):
            block.append(chain.P[None] if t in impossible else _weights(chain, asked[t], asked[t].lag))
            forwards.append(_normalised(_forward(forwards[-1], block[-1]), t))
        for t in range(end - 1, start - 1, -1):
            backward = times(block[t - start], backward[:, :, None])[:, :, 0]
            backward /= backward.max()
            posterior[t] = _normalised((forwards[t - start] * backward).sum(axis=0), t)
            if asked[t].lag == 0:  # whoever was last before does not matter any more
                backward = np.broadcast_to(np.diag(backward), (n, n))
            advance()
        end = start
    return Beliefs(priors, predicted, posterior, tuple(sorted(impossible)))


def unfold(chain: Chain, asked: Sequence[Asked], beliefs: Beliefs, first: int, end: int) -> Array:
    """How beliefs about the steps from `first` (an ON step) to `end` changed: [t, step] is p(x_step | q_0..q_t)."""
    window = list(asked[first:end])
    rows = []
    for seen in range(1, len(window) + 1):
        hidden = [Asked(step.lag, None, None) for step in window[seen:]]
        rows.append(attack(chain, window[:seen] + hidden, beliefs.predicted[first]).posterior)
    return np.array(rows)


def _weights(chain: Chain, step: Asked, since: int | None) -> Array:
    """p(q_t, x_{t+1} | last, x_t) with these axes; the first has length 1 where `last` does not matter."""
    if step.query is None or step.model is None:
        return chain.P[None]
    likelihood = step.model.likelihood(step.query, step.lag)
    if len(likelihood) > 1 and step.lag != since:
        before = "never ON" if since is None else f"last ON {since} steps"
        raise OnoffError(f"a step has the lag {step.lag}, but privacy was {before} before it")
    return likelihood * chain.P


def _forward(matrix: Array, weights: Array) -> Array:
    moved: Array = times(matrix[:, None, :], weights)[:, 0, :]
    return moved


def _normalised(values: Array, step: int) -> Array:
    total = float(values.sum())
    if not total > 0:
        raise OnoffError(f"the likelihoods around step {step} are below the range of floats")
    scaled: Array = values / total
    return scaled
