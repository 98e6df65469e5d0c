"""Do requests follow a chain? A test that may be looked at after every request, with a proved rate of false alarms.

All that is promised is relative to the chain, so this is the first thing to ask. The test is a bet. A gambler starts
with capital 1 and before each request spreads it over the chain and many predictors. When the request x comes, the
share on a predictor is multiplied by q(x) / P(x). If requests follow the chain, the expected capital stays 1 whatever
the predictors are, so it ever reaches 1 / r with probability at most r (Ville's inequality): exactly, for every length,
also if one looks again and again. If they do not, the capital grows as fast as the best predictor is better than the
chain, and its logarithm is the number of bits that a server with such a model is ahead.

A predictor gives the next request x the probability q(x | all requests before); the chain gives it P(x | the last one).
All predictors start from the chain and move away from it as far as the requests so far suggest:

    q(x | c) = (N_cx + s P(x)) / (N_c + s)      N_cx: how often x came in the context c, up to two requests back
    q(A)     = (N_A  + s P(A)) / (N   + s)      N_A: how often the request was one of A (such as: the one 4 before);
                                                inside A, and outside of it, the chain decides

The strength s says how slowly. Some forget everything every `SHORT` requests, so that a change of habits is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, inf, log
from reprlib import repr as short
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from onoff.errors import OnoffError
from onoff.model.chain import Chain, checked_chain
from onoff.types import Floats, Mask, Units, is_number, is_whole

FALSE_ALARMS = 0.01
FAITH = 0.5  # what is laid on the chain itself: the capital never falls far below it
MOST = 1e200  # by which a request multiplies at most: less than q / P is no harm, and infinity would be
LITTLE = 50  # requests: fewer say little
PERIODS = 32
SHORT, LONG = 64, 2**16  # requests, after which a predictor begins afresh
CELLS = 2**20  # of a table of steps and sources: bounds the memory


@dataclass(frozen=True)
class Following:
    """How requests follow a chain, from `tested` requests that came after another one.

    `bits` is what a better model gained on each of them, on average; 0 if none was better. `p_value` bounds the
    probability of such evidence, at this or any earlier time, if the chain is right. `refuted` means that it is at most
    `false_alarms`; then `found_at` is the number of requests that were needed, and `hint` what the better model looked
    at. The chain calls `impossible` requests of them impossible: one of those is enough.
    """

    tested: int
    bits: float
    p_value: float
    false_alarms: float
    found_at: int | None
    impossible: int
    hint: str

    @property
    def refuted(self) -> bool:
        return self.found_at is not None

    def words(self) -> str:
        """Say the verdict in a line."""
        if not self.tested:
            return "whether requests follow the chain: not known, too few were made"
        about = f"p = {self.p_value:.2g}, false alarms at most {100 * self.false_alarms:g} %"
        if not self.refuted:
            little = "; so few say little" if self.tested < LITTLE else ""
            return f"{self.tested} requests tested: nothing speaks against the chain ({about}){little}"
        what = f"look at {self.hint}; a better model gains {self.bits:.2f} bits a request"
        if self.impossible:
            what = f"the chain calls {self.impossible} of them impossible"
        verdict = f"they DO NOT FOLLOW the chain, as the first {self.found_at} requests show"
        return f"{self.tested} requests tested: {verdict}: {what} ({about})"


@dataclass(frozen=True, eq=False)
class Piece:
    """Some requests in a row, after the first: x came after `last`, with the probability p by the chain.

    `path` also has the request before them: path[t + 1] is x[t]. `tested` are the steps at which something is said: not
    those where another sequence begins, nor those that the chain calls impossible.
    """

    P: Floats
    path: Units
    tested: Mask

    @property
    def n(self) -> int:
        return len(self.P)

    @property
    def x(self) -> Units:
        return self.path[1:]

    @property
    def last(self) -> Units:
        return self.path[:-1]


Predictors: TypeAlias = Callable[[Piece], Iterator[tuple[str, float, Floats]]]


def follows(
    chain: Chain,
    requests: Sequence[int] | NDArray[np.integer[Any]],
    *,
    begins: Collection[int] = (),
    false_alarms: float = FALSE_ALARMS,
) -> Following:
    """Test whether requests, indices of sources in the order in which they were made, follow the chain.

    At the places in `begins` another sequence begins: nothing is said of what came there after what.
    """
    return bet(chain, requests, begins, false_alarms, predictors)


def bet(
    chain: Chain,
    requests: Sequence[int] | NDArray[np.integer[Any]],
    begins: Collection[int],
    false_alarms: float,
    against: Predictors,
) -> Following:
    """Make the bet of `follows` with any predictors whose q sums to 1 (or less) over the requests.

    Before each request a share 1 / (t + 64) of all capital is laid out anew as at the start. So habits that change
    after t requests cost about log2 t bits more to find, not the losses of t requests.
    """
    if not (is_number(false_alarms) and 0 < false_alarms < 1):
        raise OnoffError(f"the rate of false alarms is {false_alarms!r}: it lies between 0 and 1")
    path = _check_requests(chain, requests)
    new = np.zeros(len(path), bool)
    new[_check_places(begins, len(path))] = True
    capital = _Capital(-log(false_alarms))
    tested = impossible = 0
    first: int | None = None
    for start in range(0, len(path) - 1, LONG):
        walked = path[start : start + LONG + 1]
        p = chain.P[walked[:-1], walked[1:]]
        linked = ~new[start + 1 : start + len(walked)]
        tested += int(linked.sum())
        barred = np.flatnonzero(linked & (p == 0))
        impossible += len(barred)
        if len(barred) and first is None:
            first = start + int(barred[0]) + 2
        capital.lay(start, against(Piece(chain.P, walked, linked & (p > 0))))
    found_at, most = capital.found_at, capital.most
    if first is not None:
        found_at, most = min(first, found_at or first), inf
    return Following(
        tested=tested,
        bits=max(0.0, capital.now / log(2) / tested) if tested else 0.0,
        p_value=exp(-most),
        false_alarms=false_alarms,
        found_at=found_at,
        impossible=impossible,
        hint=capital.hint if found_at is not None else "",
    )


class _Capital:
    """The capital of a bet, as a logarithm: `now`, and the `most` that it was.

    `found_at` is the number of the request at which it reached `enough`, and `hint` who had most of it at its peak
    before that.
    """

    def __init__(self, enough: float) -> None:
        self.now = self.most = 0.0
        self.found_at: int | None = None
        self.hint = ""
        self._enough = enough
        self._shares: Floats | None = None

    def lay(self, start: int, bets: Iterator[tuple[str, float, Floats]]) -> None:
        """Lay it on a piece of the path, which begins at `start`."""
        names, weights, ratios = zip(*bets, strict=True)
        prior = np.append(FAITH, (1 - FAITH) * np.array(weights))
        table = np.minimum(np.column_stack([np.ones(len(ratios[0])), *ratios]), MOST)
        shares = prior if self._shares is None else self._shares
        for t, row in enumerate(table, start):
            shares = shares * row
            gain = float(shares.sum())
            self.now += log(gain)
            if self.now > self.most:
                self.most = self.now
                self.hint = names[int(shares[1:].argmax())] if self.found_at is None else self.hint
            if self.found_at is None and self.most >= self._enough:
                self.found_at = t + 2
            anew = 1 / (t + 64)
            shares = (1 - anew) / gain * shares + anew * prior
        self._shares = shares


def _check_places(begins: Collection[int], length: int) -> list[int]:
    """Check the places; those after the last request are left out."""
    if isinstance(begins, str) or not isinstance(begins, Iterable) or not all(is_whole(place) for place in begins):
        raise OnoffError(f"begins is {short(begins)}: places among the requests are needed, whole numbers from 0 on")
    return [int(place) for place in begins if place < length]


def _check_requests(chain: Chain, requests: Sequence[int] | NDArray[np.integer[Any]]) -> Units:
    checked_chain(chain)
    wrong = OnoffError(f"requests are indices of sources, from 0 to {chain.n - 1} (Chain.index gives that of a name)")
    try:
        given = np.asarray(requests if len(requests) else np.zeros(0, np.int64))
    except (TypeError, ValueError):
        raise wrong from None
    if given.ndim != 1 or given.dtype.kind not in "iu" or ((given < 0) | (given >= chain.n)).any():
        raise wrong
    return given.astype(np.int64)


def predictors(piece: Piece) -> Iterator[tuple[str, float, Floats]]:
    """Yield every predictor: what it looks at, its weight among all, and q / P at every step. The weights sum to 1."""
    counts = list(_count_predictors(piece))
    classes = list(_class_predictors(piece))
    for found in (counts, classes):
        for what, ratio in found:
            yield what, 0.5 / len(found), ratio


def _count_predictors(piece: Piece) -> Iterator[tuple[str, Floats]]:
    """Bet on how often each request came: at all, after the last request, and after the last two."""
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
                    yield what, _bet_on_counts(piece, context, strength, length)


def _bet_on_counts(piece: Piece, context: Units, strength: float, length: int) -> Floats:
    at = np.flatnonzero(piece.tested)
    group = context[at] + (at // length) * (piece.n + 1) * (piece.n + 1)
    same = _count_earlier(group * piece.n + piece.x[at])
    ratio = np.ones(len(piece.x))
    ratio[at] = (same / piece.P[piece.last[at], piece.x[at]] + strength) / (_count_earlier(group) + strength)
    return ratio


def _count_earlier(codes: Units) -> Units:
    """Count for each step how often its code has come before."""
    order = np.argsort(codes, kind="stable")
    ranked = codes[order]
    first = np.append(True, ranked[1:] != ranked[:-1]) if len(codes) else np.zeros(0, bool)
    starts = np.flatnonzero(first)
    rank = np.arange(len(codes)) - np.repeat(starts, np.diff(np.append(starts, len(codes))))
    result = np.empty(len(codes), np.int64)
    result[order] = rank
    return result


def _class_predictors(piece: Piece) -> Iterator[tuple[str, Floats]]:
    """Bet on whether the request is one of a few that the past points at."""
    n = piece.n
    for what, hit, mass in _classes(piece):
        for length in (SHORT, LONG):
            yield what, _bet_on_class(piece.tested, hit, mass, length)
    for window in sorted({n // 2, n - 1} - {0}):
        hit, mass = _recent(piece, window)
        for length in (SHORT, LONG):
            yield "how long ago a source was asked for", _bet_on_class(piece.tested, hit, mass, length)


def _classes(piece: Piece) -> Iterator[tuple[str, Mask, Floats]]:
    """Point at one source: the request m steps before, the next or the one before in the catalogue."""
    n, size = piece.n, len(piece.x)
    for period in [*range(1, PERIODS + 1), *([n] if n > PERIODS else [])]:
        pointed, known = np.zeros(size, np.int64), np.zeros(size, bool)
        pointed[period - 1 :], known[period - 1 :] = piece.path[: max(0, size - period + 1)], True
        yield f"the request {period} before", *_point_at(piece, pointed, known)
    for step, what in ((1, "the order of the catalogue"), (-1, "the order of the catalogue, backwards")):
        yield what, *_point_at(piece, (piece.last + step) % n, np.ones(size, bool))


def _point_at(piece: Piece, pointed: Units, known: Mask) -> tuple[Mask, Floats]:
    return known & (piece.x == pointed), np.where(known, piece.P[piece.last, pointed], 0.0)


def _recent(piece: Piece, window: int) -> tuple[Mask, Floats]:
    """Point at the sources of the last `window` requests: whether x is one of them, and what the chain gives them."""
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


def _bet_on_class(tested: Mask, hit: Mask, mass: Floats, length: int) -> Floats:
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
