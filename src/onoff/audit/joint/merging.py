"""Long streams of clients whose query does not depend on the last private request: everything, naive, decoys.

Given X_B the queries of different segments (from one ON step to the next) are independent, and those of a segment
depend on its two ends only. So I(X_B; Q) = H(Q) - sum over segments of H(Q_segment | X_first, X_end), and
H(Q_segment | X_first, X_end) = H(Q_segment | X_first) + H(X_end | Q_segment, X_first) - H(X_end | X_first). Both
kinds of entropy follow from the server's belief, p(current request | queries so far). Histories with the same belief
are one: where few beliefs occur this is exact, up to the rounding of floats. Where they do not, streams are sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onoff.audit.models import Decoys, Model, TooLarge
from onoff.audit.setting import Leakage, Promise, lags_of, some_encoder
from onoff.model.powers import contracted, times
from onoff.types import Floats, Query

if TYPE_CHECKING:
    from onoff.model.chain import Chain

BELIEFS = 2_000  # kept at once
ALIKE = 12  # decimals in which two beliefs must agree to be one


@dataclass
class _Tree:
    """All histories of queries, merged by belief: (probability, belief), and the entropy of the queries so far."""

    nodes: list[tuple[float, Floats]]
    entropy: float = 0.0

    def ask(self, kernel: Floats) -> None:
        """One step: kernel[query, request, next] = P[request, next] p(query | request, next)."""
        merged: dict[bytes, list[float | Floats]] = {}
        for probability, belief in self.nodes:
            after = contracted("x,qxy->qy", belief, kernel)
            chances = after.sum(axis=1)
            self.entropy += probability * entropy(chances)
            for chance, unscaled in zip(chances, after, strict=True):
                if chance > 0:
                    scaled = unscaled / chance
                    key = (np.round(scaled, ALIKE) + 0.0).tobytes()
                    found = merged.setdefault(key, [0.0, scaled])
                    found[0] += probability * chance
            if len(merged) > BELIEFS:
                raise TooLarge(f"more than {BELIEFS} beliefs")
        self.nodes = [(float(probability), belief) for probability, belief in merged.values()]  # type: ignore[misc]

    @property
    def uncertainty(self) -> float:
        """H(current request | queries)."""
        return sum(probability * entropy(belief) for probability, belief in self.nodes)


def by_beliefs(
    chain: Chain, statuses: Sequence[bool], model: Model, start: Floats, promise: Promise | None = None
) -> Leakage:
    """Every t by dynamic programming over beliefs, to 12 decimals; `TooLarge` if they do not repeat.

    A promise is kept if the information is 0 to these decimals: no client with a rounding of its own comes here.
    """
    kernels = _Kernels(chain, model)
    stream, segment, finished, ends, walk = _Tree([(1.0, start)]), _Tree([]), 0.0, start, chain.P
    given = 0.0
    bits = []
    for private, lag in zip(statuses, lags_of(statuses), strict=True):
        if private:
            finished += given
            segment = _Tree([(float(p), unit) for p, unit in zip(ends, np.eye(chain.n), strict=True) if p > 0])
            first, walk = ends, np.eye(chain.n)
        stream.ask(kernels(lag))
        segment.ask(kernels(lag))
        ends, walk = times(ends, chain.P), times(walk, chain.P)
        open_end = float(sum(p * entropy(row) for p, row in zip(first, walk, strict=True)))
        given = segment.entropy + segment.uncertainty - open_end
        bits.append(max(0.0, round(stream.entropy - finished - given, ALIKE)))
    holds = promise is None or not any(bits)
    return Leakage(model.name, "exact (dynamic programming)", tuple(bits), holds)


def by_sampling(
    chain: Chain,
    statuses: Sequence[bool],
    model: Model,
    start: Floats,
    streams: int = 2000,
    seed: int = 1,
    advance: Callable[[], None] = lambda: None,
) -> Leakage:
    """The mean of log2 p(queries | X_B) / p(queries) over sampled streams: without bias, with its 95 % interval.

    Both probabilities are exact, by the server's filter; only the average over streams is sampled.
    """
    rng = np.random.default_rng(seed)
    lags, cumulated = lags_of(statuses), np.cumsum(chain.P, axis=1)
    walks = [np.eye(chain.n)]
    for _ in range(max(lags) + 1):
        walks.append(times(walks[-1], chain.P))
    draw = _draw(chain, model, set(lags))
    samples = np.empty((streams, len(lags)))
    for number in range(streams):
        path = [int(rng.choice(chain.n, p=start))]
        for uniform in rng.random(len(lags)):
            path.append(min(int(np.searchsorted(cumulated[path[-1]], uniform, side="right")), chain.n - 1))
        belief, inside, log_view, log_given, finished = start, start, 0.0, 0.0, 0.0
        for t, lag in enumerate(lags):
            if lag == 0:
                finished, first = log_given, path[t]
                inside, log_inside = np.eye(chain.n)[first], 0.0
            step = chain.P * _likelihood(model, draw(path[t], lag, rng), lag)
            belief, chance = _scaled(times(belief, step))
            log_view += chance
            inside, chance = _scaled(times(inside, step))
            log_inside += chance
            end = path[t + 1]
            log_given = finished + log_inside + float(np.log2(inside[end]) - np.log2(walks[lag + 1][first, end]))
            samples[number, t] = log_given - log_view
        advance()
    margin = 1.96 * samples.std(axis=0, ddof=1) / np.sqrt(streams)
    return Leakage(model.name, "estimate", tuple(samples.mean(axis=0).tolist()), margin=tuple(margin.tolist()))


def _draw(chain: Chain, model: Model, lags: set[int]) -> Callable[[int, int, np.random.Generator], Query]:
    """How such a client draws its set for a request at a lag; of decoys there may be too many sets to list them."""
    if isinstance(model, Decoys):
        return lambda request, lag, rng: model.draw(request, rng)
    encoders = {lag: some_encoder(chain, model, lag) for lag in lags}

    def draw(request: int, lag: int, rng: np.random.Generator) -> Query:
        weights = encoders[lag].weights[request].astype(np.float64)
        return encoders[lag].sets[int(rng.choice(len(weights), p=weights / weights.sum()))]

    return draw


def entropy(law: Floats) -> float:
    """In bits."""
    positive = law[law > 0]
    return float(-(positive * np.log2(positive)).sum())


class _Kernels:
    """kernel[query, request, next] at a lag; only ON and OFF differ for these clients."""

    def __init__(self, chain: Chain, model: Model) -> None:
        self._chain, self._model = chain, model
        self._made: dict[int, Floats] = {}

    def __call__(self, lag: int) -> Floats:
        if lag not in self._made:
            sets = some_encoder(self._chain, self._model, lag).sets
            if len(sets) > BELIEFS:
                raise TooLarge(f"more than {BELIEFS} queries")
            self._made[lag] = np.stack([self._chain.P * _likelihood(self._model, query, lag) for query in sets])
        return self._made[lag]


def _likelihood(model: Model, query: Query, lag: int) -> Floats:
    """p(query | request, next); `TooLarge` for a client that also looks at the last private request."""
    likelihood = model.likelihood(query, lag)
    if len(likelihood) > 1:
        raise TooLarge(f"{model.name}: its queries depend on the last private request")
    law: Floats = likelihood[0]
    return law


def _scaled(vector: Floats) -> tuple[Floats, float]:
    """A vector as a law, and the log2 of its sum."""
    total = float(vector.sum())
    return vector / total, float(np.log2(total))
