"""Habits with memory, fitted to counts of contexts: which contexts deserve a row of their own, and the rows.

The row of a context is pulled towards that of its *suffix*, the context without its oldest request:

    P_c(j) = (N_cj + s P_suffix(j)) / (N_c + s),

and that of a single request towards 1/n, with s = n times the smoothing. For each length s is the value under which
readers who are held out, one fold at a time, are likeliest. A context *saves* the nats by which its row makes these
readers likelier than its suffix's row does. Savings add up: the likelihood of habits is what all states save.

A context becomes a state if it saves more than (n - 1) / 2 ln N, which is Schwarz's price of the n - 1 numbers of a
row after N transitions. The largest savings come first, each with all states that a suffix tree needs for it, while
there are at most `MOST_STATES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite, log, log2, sqrt

import numpy as np
from numpy.typing import NDArray

from onoff.logs.count import FOLDS, Level
from onoff.model.chain import Chain
from onoff.model.tree import State
from onoff.types import Floats, Mask, Units

AUTO, DEPTHS = "auto", (1, 2, 3)
MOST_STATES = 500
SMOOTHINGS = np.array([2.0**k for k in sorted(range(-10, 7), key=abs)])
STRENGTHS = 4.0 ** np.arange(-2.0, 9.0)
SURE = 2.0  # standard errors, over the folds, by which longer memory is better


@dataclass(frozen=True)
class Depth:
    """Habits that remember up to `memory` requests, and their worth.

    `bits` is the mean of -log2 P over transitions of readers who were held out; None if P is 0 for one of them. Of the
    promise past no scheme needs less than `first_cost` messages at the first OFF step after ON. `distance` is the mean
    total variation, over requests, between the rows of these habits and those that remember one request more; None if
    not counted. An OFF step is at most so far from the promise, for a server that knows those.
    """

    memory: int
    states: int
    bits: float | None
    first_cost: float
    distance: float | None


@dataclass(frozen=True, eq=False)
class Contexts:
    """All contexts that were counted, the shorter ones first. The suffix of context c is at the place suffix[c].

    `counts` are of all readers, and so are `rows`, which rest on `weight` transitions each. saved[c, fold] is what
    the other readers' row saves for the readers of the fold.
    """

    runs: list[State]
    suffix: NDArray[np.intp]
    counts: Units
    rows: Floats
    weight: Floats
    saved: Floats

    @property
    def lengths(self) -> NDArray[np.intp]:
        return np.array([len(run) for run in self.runs])

    def bits(self, states: Mask) -> float | None:
        """Compute the bits for each transition of readers held out, if these contexts are the states."""
        bits = log2(self.counts.shape[1]) - float(self.saved[states].sum()) / log(2) / self.transitions
        return bits if isfinite(bits) else None

    @property
    def transitions(self) -> int:
        return int(self.counts[self.lengths == 1].sum())

    def chain(self, states: Mask, names: Sequence[str], weight: Floats | None = None) -> Chain:
        """Make the habits with these states."""
        return Chain(self.rows[states], names, weight, [self.runs[place] for place in np.flatnonzero(states)])

    def own_counts(self, states: Mask) -> Units:
        """Count what came after each state unless a longer state is a suffix of the requests."""
        counts = self.counts * states[:, None]
        longer = states & (self.lengths > 1)
        np.subtract.at(counts, self.suffix[longer], self.counts[longer])
        return counts

    def distance(self, states: Mask, order: int) -> float:
        """Find `Depth.distance`."""
        home = np.arange(len(states))
        for place in np.flatnonzero(~states):
            home[place] = home[self.suffix[place]]  # the longest suffix that is a state
        requests = self.own_counts(self.lengths <= order).sum(axis=1)
        apart = np.abs(self.rows - self.rows[home]).sum(axis=1) / 2
        return float((requests * apart).sum() / requests.sum())


def fit_contexts(levels: Sequence[Level], first: Floats, smoothing: float) -> Contexts:
    """Fit the rows of all contexts. Those of single requests are `first`, as a chain has them."""
    n = len(first)
    places: dict[State, int] = {(): -1}
    begin, rows, held_out = -1, np.full((1, n), 1 / n), [np.full((1, n), 1 / n)] * FOLDS
    parts = []
    for level in levels:
        runs = list(map(tuple, level.contexts.tolist()))
        suffix = np.array([places[run[1:]] for run in runs], dtype=np.intp)
        towards = [found[suffix - begin] for found in (rows, *held_out)]
        begin = len(places) - 1
        places |= {run: begin + place for place, run in enumerate(runs)}
        strength = choose_strength(level.counts, towards[1:], STRENGTHS) if begin else n * smoothing
        total = level.counts.sum(axis=0)
        rows = _shrunk(total, towards[0], strength) if begin else first
        held_out, saved = [], np.empty((len(runs), FOLDS))
        for fold, (held, prior) in enumerate(zip(level.counts, towards[1:], strict=True)):
            held_out.append(_shrunk(total - held, prior, strength))
            saved[:, fold] = _log_likelihood(held, held_out[fold]) - _log_likelihood(held, prior)
        parts.append((suffix, total, rows, total.sum(axis=1) + strength, saved))
    return Contexts(list(places)[1:], *(np.concatenate(part) for part in zip(*parts, strict=True)))


def choose_strength(counts: Units, towards: Sequence[Floats], strengths: Floats) -> float:
    """Choose the strength that makes counts[fold] likeliest given all other folds; of equals, the first.

    The other folds' rows are pulled towards[fold].
    """
    total, nats = counts.sum(axis=0), np.zeros(len(strengths))
    for held, prior in zip(counts, towards, strict=True):
        at, known = held.nonzero(), total - held
        seen, pulled, size = known[at], prior[at], known.sum(axis=1)[at[0]]
        nats += [(held[at] * np.log((seen + s * pulled) / (size + s))).sum() for s in strengths]
    return float(strengths[nats.argmax()])


def choose_smoothing(pairs: Units) -> float:
    """Choose the smoothing that makes held-out readers likeliest; of equally good values, the nearest to 1."""
    n = int(pairs.shape[2])
    return choose_strength(pairs, [np.full((n, n), 1 / n)] * FOLDS, n * SMOOTHINGS) / n


def marginal_bits(pairs: Units) -> float:
    """Compute the bits per transition of held-out readers if only the frequencies of sources are known."""
    held = pairs.sum(axis=1)
    known = held.sum(axis=0) - held + 1
    return float(-(held * np.log2(known / known.sum(axis=1, keepdims=True))).sum() / held.sum())


def choose_states(contexts: Contexts, depth: int) -> Mask:
    """Choose the states of habits that remember up to `depth` requests."""
    saved, lengths = contexts.saved.sum(axis=1), contexts.lengths
    price = (contexts.counts.shape[1] - 1) / 2 * log(contexts.transitions)
    places = {run: place for place, run in enumerate(contexts.runs)}
    states = set(np.flatnonzero(lengths == 1).tolist())
    for place in np.argsort(-saved, kind="stable").tolist():
        if 1 < lengths[place] <= depth and saved[place] > price:
            run = contexts.runs[place]
            more = states | {places[run[i:j]] for i, j in combinations(range(len(run) + 1), 2)}
            states = more if len(more) <= MOST_STATES else states
    return np.isin(np.arange(len(saved)), list(states))


def compare(contexts: Contexts, choices: Sequence[Mask]) -> tuple[Depth, ...]:
    """Compare the states of habits that remember one request, two and so on."""
    return tuple(
        Depth(
            memory=depth,
            states=int(states.sum()),
            bits=contexts.bits(states),
            first_cost=float(contexts.rows[states].max(axis=0).sum()),
            distance=contexts.distance(states, depth + 1) if depth < len(choices) else None,
        )
        for depth, states in enumerate(choices, 1)
    )


def choose_depth(contexts: Contexts, choices: Sequence[Mask]) -> int:
    """Choose the first states over which later ones save at most `SURE` standard errors, as folds differ."""
    saved = np.array([contexts.saved[states].sum(axis=0) for states in choices])
    gains = saved[None] - saved[:, None]
    better = gains.sum(axis=2) > SURE * sqrt(FOLDS) * gains.std(axis=2, ddof=1)
    return int(np.argmin(np.triu(better).any(axis=1)))  # none is better than the last


def _shrunk(counts: Units, towards: Floats, strength: float) -> Floats:
    """Shrink rows of counts towards other rows; NaN where counts and strength are 0."""
    with np.errstate(invalid="ignore"):
        rows: Floats = (counts + strength * towards) / (counts.sum(axis=1, keepdims=True) + strength)
    return rows


def _log_likelihood(counts: Units, rows: Floats) -> Floats:
    """Sum counts times log P for each context."""
    at = counts.nonzero()
    with np.errstate(divide="ignore"):
        return np.bincount(at[0], counts[at] * np.log(rows[at]), len(counts)).astype(np.float64)
