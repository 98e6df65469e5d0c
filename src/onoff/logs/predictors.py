"""Predictors of the next request, each as a bet against the chain.

A predictor gives the next request x the probability q(x | all requests before); the chain gives it P(x | the last one).
What is computed here is q / P at the requests that were made, for every predictor and every step. All of them start
from the chain and move away from it as far as the requests so far suggest:

    q(x | c) = (N_cx + s P(x)) / (N_c + s)      N_cx: how often x came in the context c, up to two requests back
    q(A)     = (N_A  + s P(A)) / (N   + s)      N_A: how often the request was one of A (such as: the one 4 before);
                                                inside A, and outside of it, the chain decides

The strength s says how slowly. Some forget everything every `SHORT` requests, so that a change of habits is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onoff.types import Floats

PERIODS = 32
SHORT, LONG = 64, 2**16  # requests, after which a predictor begins afresh
CELLS = 2**20  # of a table of steps and sources: bounds the memory
Indices = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Piece:
    """Some requests in a row, after the first: x came after `last`, with the probability p by the chain.

    `path` also has the request before them: path[t + 1] is x[t]. `tested` are the steps at which something is said: not
    those where another sequence begins, nor those that the chain calls impossible.
    """

    P: Floats
    path: Indices
    tested: Bools

    @property
    def n(self) -> int:
        return len(self.P)

    @property
    def x(self) -> Indices:
        return self.path[1:]

    @property
    def last(self) -> Indices:
        return self.path[:-1]


def predictors(piece: Piece) -> Iterator[tuple[str, float, Floats]]:
    """Every predictor: what it looks at, its weight among all, and q / P at every step. The weights sum to 1."""
    counts = list(_by_counts(piece))
    classes = list(_by_classes(piece))
    for found in (counts, classes):
        for what, ratio in found:
            yield what, 0.5 / len(found), ratio


def _by_counts(piece: Piece) -> Iterator[tuple[str, Floats]]:
    """How often each request came: at all, after the last request, and after the last two."""
    n, size = piece.n, len(piece.x)
    before = np.where(np.append(False, piece.tested[:-1]), np.append(-1, piece.path[:-2]), -1)[:size]
    contexts = {
        "how often each source is asked for": np.zeros(size, np.int64),
        "what follows each source": piece.last,
        "the last two requests together": (before + 1) * n + piece.last,
    }
    for (what, context), strengths in zip(contexts.items(), ((4, 64), (1, 8, 64), (1, 8)), strict=True):
        for length in (SHORT, LONG):
            for strength in strengths:
                if strength < 64 or length == LONG:  # the slowest learn nothing in a short time
                    yield what, _counted(piece, context, strength, length)


def _counted(piece: Piece, context: Indices, strength: float, length: int) -> Floats:
    at = np.flatnonzero(piece.tested)
    group = context[at] + (at // length) * (piece.n + 1) * (piece.n + 1)
    same = _earlier(group * piece.n + piece.x[at])
    ratio = np.ones(len(piece.x))
    ratio[at] = (same / piece.P[piece.last[at], piece.x[at]] + strength) / (_earlier(group) + strength)
    return ratio


def _earlier(codes: Indices) -> Indices:
    """How often the code of each step has come before."""
    order = np.argsort(codes, kind="stable")
    ranked = codes[order]
    first = np.append(True, ranked[1:] != ranked[:-1]) if len(codes) else np.zeros(0, bool)
    starts = np.flatnonzero(first)
    rank = np.arange(len(codes)) - np.repeat(starts, np.diff(np.append(starts, len(codes))))
    result = np.empty(len(codes), np.int64)
    result[order] = rank
    return result


def _by_classes(piece: Piece) -> Iterator[tuple[str, Floats]]:
    """Whether the request is one of a few that the past points at."""
    n = piece.n
    for what, hit, mass in _classes(piece):
        for length in (SHORT, LONG):
            yield what, _betted(piece.tested, hit, mass, length)
    for window in sorted({n // 2, n - 1} - {0}):
        hit, mass = _recent(piece, window)
        for length in (SHORT, LONG):
            yield "how long ago a source was asked for", _betted(piece.tested, hit, mass, length)


def _classes(piece: Piece) -> Iterator[tuple[str, Bools, Floats]]:
    """One source that is pointed at: the request m steps before, the next or the one before in the catalogue."""
    n, size = piece.n, len(piece.x)
    for period in [*range(1, PERIODS + 1), *([n] if n > PERIODS else [])]:
        pointed, known = np.zeros(size, np.int64), np.zeros(size, bool)
        pointed[period - 1 :], known[period - 1 :] = piece.path[: max(0, size - period + 1)], True
        yield f"the request {period} before", *_pointed(piece, pointed, known)
    for step, what in ((1, "the order of the catalogue"), (-1, "the order of the catalogue, backwards")):
        yield what, *_pointed(piece, (piece.last + step) % n, np.ones(size, bool))


def _pointed(piece: Piece, pointed: Indices, known: Bools) -> tuple[Bools, Floats]:
    return known & (piece.x == pointed), np.where(known, piece.P[piece.last, pointed], 0.0)


def _recent(piece: Piece, window: int) -> tuple[Bools, Floats]:
    """The sources asked for in the last `window` requests: whether x is one of them, and what the chain gives them."""
    size, n = len(piece.x), piece.n
    hit, mass = np.zeros(size, bool), np.zeros(size)
    seen = np.full(n, -window - 1)
    for start in range(0, size, max(1, CELLS // n)):
        steps = np.arange(start, min(size, start + max(1, CELLS // n)))
        newest = np.full((len(steps), n), -window - 1)
        newest[np.arange(len(steps)), piece.path[steps]] = steps
        newest[0] = np.maximum(newest[0], seen)
        newest = np.maximum.accumulate(newest, axis=0)
        recent = newest > steps[:, None] - window
        hit[steps] = recent[np.arange(len(steps)), piece.x[steps]]
        mass[steps] = (piece.P[piece.last[steps]] * recent).sum(axis=1)
        seen = newest[-1]
    return hit, mass


def _betted(tested: Bools, hit: Bools, mass: Floats, length: int) -> Floats:
    """q / P where A has the probability `mass` by the chain; 1 where the chain is sure of A, or of the opposite."""
    strength = 1.0
    used = tested & (mass > 1e-9) & (mass < 1 - 1e-9)
    at = np.flatnonzero(used)
    block = at // length
    first = np.searchsorted(block, block)  # where the block of each step begins
    hits = np.append(0, np.cumsum(hit[at]))
    trials, before = np.arange(len(at)) - first, hits[:-1] - hits[first]
    p = np.where(hit[at], mass[at], 1 - mass[at])
    came = np.where(hit[at], before, trials - before)
    ratio = np.ones(len(tested))
    ratio[at] = (came / p + strength) / (trials + strength)
    return ratio


Predictors = Callable[[Piece], Iterator[tuple[str, float, Floats]]]
