"""Hypothesis strategies for chains, for the tests of onoff and of whatever is built on it (extra `testing`).

Use as `@given(chains(max_sources=6))`.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from onoff.model.chain import Chain


def chains(min_sources: int = 2, max_sources: int = 12) -> st.SearchStrategy[Chain]:
    """Chains of every kind below."""
    sizes = st.integers(min_sources, max_sources)
    return sizes.flatmap(
        lambda n: st.one_of(dense(n), sparse(n), periodic(n), near_deterministic(n), symmetric(n), tiny_entries(n))
    )


def dense(n: int) -> st.SearchStrategy[Chain]:
    """Every entry positive."""
    return _weights(n, st.integers(1, 100)).map(_normalise)


def sparse(n: int) -> st.SearchStrategy[Chain]:
    """Many zeros: impossible contexts, transient and absorbing sources."""
    weights = _weights(n, st.sampled_from([0, 0, 0, 1, 2, 5]))
    return st.builds(_with_a_successor, weights, st.permutations(range(n))).map(_normalise)


def periodic(n: int) -> st.SearchStrategy[Chain]:
    """The sources fall into two parts that alternate."""
    part = np.arange(n) % 2
    alternates = part[:, None] != part[None, :]
    return _weights(n, st.integers(1, 20)).map(lambda weights: _normalise(weights * alternates))


def near_deterministic(n: int) -> st.SearchStrategy[Chain]:
    """Chains that follow a permutation and leave it with a small probability, which may be 0."""

    def build(order: list[int], slip: float) -> Chain:
        P = np.full((n, n), slip / n)
        P[np.arange(n), order] += 1 - slip
        return Chain(P)

    return st.builds(build, st.permutations(range(n)), st.sampled_from([0.0, 1e-12, 1e-6, 0.01]))


def symmetric(n: int) -> st.SearchStrategy[Chain]:
    """The symmetric chain of the paper, on both sides of alpha = 1/n and at the ends."""
    alphas = st.one_of(st.sampled_from([0.0, 1 / n, 1.0]), st.integers(0, 64).map(lambda k: k / 64))
    return alphas.map(lambda alpha: Chain.symmetric(n, alpha))


def tiny_entries(n: int) -> st.SearchStrategy[Chain]:
    """Entries down to 1e-18: contexts of 14 steps down to 1e-252."""
    weights = _weights(n, st.sampled_from([0.0, 1e-18, 1e-9, 1.0]))
    return st.builds(_with_a_successor, weights, st.permutations(range(n))).map(_normalise)


def trees(n: int, depth: int) -> st.SearchStrategy[Chain]:
    """Habits that remember up to `depth` requests, with zeros: random sets of states, closed under dropping an end."""
    longer = [state for length in range(2, depth + 1) for state in product(range(n), repeat=length)]

    def build(seeds: list[tuple[int, ...]], entries: list[int], successors: list[int]) -> Chain:
        runs: set[tuple[int, ...]] = {(x,) for x in range(n)}
        for seed in seeds:
            runs |= {seed[i:j] for i in range(len(seed)) for j in range(i + 1, len(seed) + 1)}
        states = sorted(runs)
        weights = np.resize(np.array(entries, dtype=np.float64), (len(states), n))
        weights[np.arange(len(states)), np.resize(successors, len(states))] += 1
        return Chain(weights / weights.sum(axis=1, keepdims=True), states=states)

    # A prime number of entries: the rows differ from each other, whatever n is.
    entries = st.lists(st.sampled_from([0, 0, 1, 2, 5]), min_size=101, max_size=101)
    successors = st.lists(st.integers(0, n - 1), min_size=13, max_size=13)
    return st.builds(build, st.lists(st.sampled_from(longer), min_size=1, max_size=6), entries, successors)


def _weights(n: int, entry: st.SearchStrategy[float]) -> st.SearchStrategy[NDArray[np.float64]]:
    cells = st.lists(entry, min_size=n * n, max_size=n * n)
    return cells.map(lambda values: np.array(values, dtype=np.float64).reshape(n, n))


def _with_a_successor(weights: NDArray[np.float64], successors: list[int]) -> NDArray[np.float64]:
    """Give each source one certain successor, so that no row is empty."""
    weights[np.arange(len(weights)), successors] += 1
    return weights


def _normalise(weights: NDArray[np.float64]) -> Chain:
    return Chain(weights / weights.sum(axis=1, keepdims=True))
