"""Habits of the second order, fitted to one half of the people of a log; the other half is there to be attacked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from onoff.errors import OnoffError
from onoff.model.chain import Chain
from onoff.model.requests import Requests, Split
from onoff.types import Floats, Mask

Path = NDArray[np.intp]
MOST_SOURCES = 60  # beliefs are tables of n^3 numbers, and the work is n^4 for every request
SERVERS = ("second order", "the chain")
STRENGTHS = (*(2.0**k for k in range(-2, 17)), np.inf)  # how far a row is shrunk towards the first-order model
HELD_OUT = 5  # every fifth sequence judges the strengths


def split_people(
    sequences: Iterable[Sequence[str]],
    chain: Chain | None = None,
    *,
    users: int = 2000,
    min_length: int = 6,
    max_length: int = 200,
    seed: int = 1,
) -> Split:
    """Let the servers learn from one half of the people, at random, and keep up to `users` of the other half to attack.

    Sequences of other lengths are left out. One with a source or step that the chain does not have ends before it.
    Without a chain the client has the one that is counted in the first half.
    """
    names = {} if chain is None else {name: i for i, name in enumerate(chain.names)}
    possible = [] if chain is None else (chain.P > 0).tolist()
    paths, cut = [], 0
    for words in sequences:
        if not min_length <= len(words) <= max_length:
            continue
        path = [names.setdefault(word, len(names)) if chain is None else names.get(word, -1) for word in words]
        if chain is not None:
            wrong = (t for t, x in enumerate(path) if x < 0 or (t and not possible[path[t - 1]][x]))
            end = next(wrong, len(path))
            cut += end < len(path)
            path = path[:end]
        if len(path) >= min_length:
            paths.append(np.array(path, dtype=np.intp))
    if len(paths) < 4:
        raise OnoffError(
            f"{len(paths)} sequences of {min_length} to {max_length} requests are left, after {cut} were cut where the "
            "chain ends; give more sequences, other limits or another chain"
        )
    if len(names) > MOST_SOURCES:
        raise OnoffError(
            f"{len(names)} sources: the attack keeps n^3 numbers and takes up to {MOST_SOURCES}; merge some"
        )
    order, middle = np.random.default_rng(seed).permutation(len(paths)), len(paths) // 2
    training, attacked = [paths[i] for i in order[:middle]], [paths[i] for i in order[middle:]]
    used = chain or Chain.from_counts(count_runs(training, len(names), 2), tuple(names))
    fitted = fit_habits(training, used.P > 0)
    servers = dict(zip(SERVERS, (fitted, Requests.of_chain(used, fitted.start)), strict=True))
    return Split(used, attacked[:users], len(training), servers, cut)


def fit_habits(paths: Sequence[Path], possible: Mask) -> Requests:
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
    return Requests(start / start.sum(), *_shrink(count_runs(paths, n, 2), count_runs(paths, n, 3), possible, best))


def _shrink(pairs: Floats, triples: Floats, possible: Mask, strength: float) -> tuple[Floats, Floats]:
    first = (pairs + 1) * possible
    first /= first.sum(axis=1, keepdims=True)
    if np.isinf(strength):
        return first, np.broadcast_to(first, triples.shape)
    second = triples + strength * first
    return first, second / second.sum(axis=2, keepdims=True)


def count_runs(paths: Sequence[Path], n: int, order: int) -> Floats:
    """Count how often each run of `order` requests occurs, as an array with that many axes."""
    flat = np.concatenate([*(np.append(path, -1) for path in paths), np.full(order, -1)])  # -1: a person ends
    runs = np.lib.stride_tricks.sliding_window_view(flat, order)
    counts = np.zeros((n,) * order)
    np.add.at(counts, tuple(runs[(runs >= 0).all(axis=1)].T), 1.0)
    return counts
