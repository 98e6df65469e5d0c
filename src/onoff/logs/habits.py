"""People of a log: some are attacked, the others teach habits to client and servers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from onoff.errors import OnoffError
from onoff.logs.count import FOLDS, Level
from onoff.logs.fit import estimate
from onoff.logs.memory import Contexts, choose_smoothing, choose_states, fit_contexts
from onoff.model.chain import Chain
from onoff.model.requests import Split
from onoff.types import Mask

Path = NDArray[np.intp]
MOST_SOURCES = 60
MOST_STATES = 1000  # of a server: more cost time, and rest on few transitions
FEWEST = 10  # transitions that the row of a longer context rests on


def split_people(
    sequences: Iterable[Sequence[str]],
    chain: Chain | None = None,
    *,
    memory: Sequence[int] = (1,),
    orders: Sequence[int] = (2,),
    users: int = 2000,
    min_length: int = 6,
    max_length: int = 200,
    seed: int = 1,
) -> Split:
    """Divide people in halves, at random: one teaches clients and servers; of the other up to `users` are attacked.

    There is a client for each `memory`, with the habits that `onoff fit` would make of the first half, or one with the
    given `chain`. There are two servers of each of the `orders`: the second learned from those of the other half who
    are not attacked. Sequences of other lengths are left out. One with a source or step that the chain does not have
    ends before it.
    """
    names = {} if chain is None else {name: i for i, name in enumerate(chain.names)}
    paths, cut = [], 0
    for words in sequences:
        if not min_length <= len(words) <= max_length:
            continue
        path = [names.setdefault(word, len(names)) if chain is None else names.get(word, -1) for word in words]
        end = len(path) if chain is None else _end(path, chain)
        cut += end < len(path)
        if end >= min_length:
            paths.append(np.array(path[:end], dtype=np.intp))
    if len(paths) < 4:
        raise OnoffError(
            f"{len(paths)} sequences of {min_length} to {max_length} requests are left, after {cut} were cut where the "
            "chain ends; give more sequences, other limits or another chain"
        )
    if len(names) > MOST_SOURCES:
        raise OnoffError(f"{len(names)} sources: the attack takes up to {MOST_SOURCES}; merge some")
    order, middle = np.random.default_rng(seed).permutation(len(paths)), len(paths) // 2
    first, others = [paths[i] for i in order[:middle]], [paths[i] for i in order[middle:]]
    users = min(users, len(others) // 2)
    learned = [fit_people(some, tuple(names), max(*memory, *orders)) for some in (first, others[users:])]
    clients = [chain] if chain else [learned[0].chain(choose_states(learned[0], k), tuple(names)) for k in memory]
    servers = {
        f"order {k}{whose}": found.chain(most_frequent(found, k), tuple(names))
        for k in orders
        for found, whose in zip(learned, ("", ", of others"), strict=True)
    }
    start = np.bincount([path[0] for path in first], minlength=len(names)) + 1.0
    return Split({one.depth: one for one in clients}, servers, start / start.sum(), others[:users], len(first), cut)


def _end(path: Sequence[int], chain: Chain) -> int:
    """Find the first request of a path that is no source of the chain or impossible; else its length."""
    state = path[0]
    for t, x in enumerate(path):
        if x < 0 or (t and not chain.P[state, x]):
            return t
        state = chain.step[state, x] if t else x
    return len(path)


def fit_people(paths: Sequence[Path], names: Sequence[str], depth: int) -> Contexts:
    """Fit the rows of contexts of up to `depth` requests, as `onoff fit` does."""
    levels = [count_level(paths, len(names), length) for length in range(1, depth + 1)]
    levels = [level for level in levels if len(level.contexts)]
    pairs, starts = levels[0].counts, np.bincount([path[0] for path in paths], minlength=len(names))
    smoothing = choose_smoothing(pairs)
    return fit_contexts(levels, estimate(pairs.sum(axis=0), starts, names, smoothing).P, smoothing)


def count_level(paths: Sequence[Path], n: int, length: int) -> Level:
    """Count what came after each context of this length, if 1 or if frequent enough. People fall in folds."""
    flat = np.concatenate([np.append(path, -1) for path in paths])  # -1: a person ends
    folds = np.repeat(np.arange(len(paths)) % FOLDS, [len(path) + 1 for path in paths])[length:]
    runs = np.lib.stride_tricks.sliding_window_view(flat, length + 1)
    whole = (runs >= 0).all(axis=1)
    key = np.ravel_multi_index(tuple(runs[whole, :-1].T), (n,) * length)
    keys, place, came = np.unique(key, return_inverse=True, return_counts=True)
    frequent = came >= FEWEST
    if length == 1:
        keys, place, frequent = np.arange(n), key, np.ones(n, dtype=bool)
    level = Level.of(np.stack(np.unravel_index(keys[frequent], (n,) * length), axis=1), n)
    kept = frequent[place]
    places = (folds[whole][kept], (np.cumsum(frequent) - 1)[place[kept]], runs[whole, -1][kept])
    np.add.at(level.counts, places, 1)
    return level


def most_frequent(contexts: Contexts, order: int) -> Mask:
    """Find the most frequent contexts of up to `order` requests. A part of a context comes as often as the whole."""
    deeper, came = (contexts.lengths > 1) & (contexts.lengths <= order), contexts.counts.sum(axis=1)
    least = np.sort(came[deeper])[:-MOST_STATES].max(initial=0)
    states: Mask = (contexts.lengths == 1) | (deeper & (came > least))
    return states
