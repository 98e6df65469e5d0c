"""Do requests follow a chain? A test that may be looked at after every request, with a proved rate of false alarms.

All that is promised is relative to the chain, so this is the first thing to ask. The test is a bet. A gambler starts
with capital 1 and before each request spreads it over the chain and many predictors. When the request x comes, the
share on a predictor is multiplied by q(x) / P(x). If requests follow the chain, the expected capital stays 1 whatever
the predictors are, so it ever reaches 1 / r with probability at most r (Ville's inequality): exactly, for every length,
also if one looks again and again. If they do not, the capital grows as fast as the best predictor is better than the
chain, and its logarithm is the number of bits that a server with such a model is ahead.

A predictor gives the next request x the probability q(x | all requests before); the chain gives it P(x) in the state
that the requests before lead to. All predictors start from the chain and move away from it as far as the requests so
far suggest:

    q(x | c) = (N_cx + s P(x)) / (N_c + s)      N_cx: how often x came in the context c, up to two requests back
    q(A)     = (N_A  + s P(A)) / (N   + s)      N_A: how often the request was one of A (such as: the one 4 before);
                                                inside A, and outside of it, the chain decides

The strength s says how slowly. Some forget everything every `SHORT` requests, so that a change of habits is noticed.

The requests come from a journal or a log, as indices of the chain in the order in which they were made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import exp, inf, log
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onoff.errors import LogError, OnoffError
from onoff.extras import need
from onoff.logs.engines import DuckDB, explain_errors
from onoff.logs.journals import read_journal
from onoff.logs.read import ReadOptions, open_log
from onoff.model.chain import Chain, check_chain
from onoff.types import Floats, Mask, Units, is_number, is_whole

FALSE_ALARMS = 0.01
FAITH = 0.5  # what is laid on the chain itself: the capital never falls far below it
MOST = 1e200  # by which a request multiplies at most: less than q / P is no harm, and infinity would be
LITTLE = 50  # requests: fewer say little
SLIGHT = 0.1  # bits a request
PERIODS = 32
MOST_REQUESTS = 100_000  # of a log; the test of so many takes seconds
SHORT, LONG = 64, 2**16  # requests, after which a predictor begins afresh
MERGED = ("other (merged)", "other")  # what `onoff fit` calls the sources that it did not keep
ORDERED = "SELECT user, source FROM log WHERE user IS NOT NULL AND time IS NOT NULL ORDER BY user, time, row"
DEFAULT = ReadOptions()


@dataclass(frozen=True)
class Following:
    """How requests follow a chain, from `tested` requests that came after another one.

    `bits` is a better model's average gain on each of them; 0 if none was better. `p_value` bounds the
    probability of such evidence, at this or any earlier time, if the chain is right. `refuted` means that it is at most
    `false_alarms`; then `found_at` is the number of requests needed, and `hint` what the better model looked
    at. The chain calls `impossible` requests impossible: one of them is enough.
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

    @property
    def is_slight(self) -> bool:
        """Say whether a better model is ahead by little: by Pinsker's inequality its rows are within .19 on average."""
        return self.bits < SLIGHT and not self.impossible

    def words(self) -> str:
        """Say the verdict in a line."""
        if not self.tested:
            return "whether requests follow the chain: not known, too few were made"
        effect = f"a better model gains {self.bits:.2f} bits a request"
        about = f"p = {self.p_value:.2g}, false alarms at most {100 * self.false_alarms:g} %"
        if not self.refuted:
            little = "; so few say little" if self.tested < LITTLE else ""
            return f"{self.tested} requests tested: nothing speaks against the chain ({effect}, {about}){little}"
        what = f"look at {self.hint}; {effect}, which is {'little' if self.is_slight else 'much'}"
        if self.impossible:
            what = f"the chain calls {self.impossible} of them impossible"
        verdict = f"they DO NOT FOLLOW the chain, as the first {self.found_at} requests show"
        return f"{self.tested} requests tested: {verdict}: {what} ({about})"


@dataclass(frozen=True, eq=False)
class Piece:
    """Some requests in a row: x came after `last`, in the state `state`. The chain gives it P[state, x].

    `tested` are the steps that are judged: not those where another sequence begins, nor those that the
    chain calls impossible.
    """

    P: Floats
    state: Units
    last: Units
    x: Units
    tested: Mask


def follows(
    chain: Chain,
    requests: Sequence[int] | NDArray[np.integer[Any]],
    *,
    begins: Collection[int] = (),
    false_alarms: float = FALSE_ALARMS,
) -> Following:
    """Test whether requests, indices of sources in the order in which they were made, follow the chain.

    At the places in `begins` another sequence begins: the step to that place is not judged.

    Before each request a share 1 / (t + 64) of all capital is laid out anew as at the start. So habits that change
    after t requests cost about log2 t bits more to find, not the losses of t requests.
    """
    path, linked = _check(chain, requests, begins, false_alarms)
    states = _states(chain, path, linked)
    likely = chain.P[states, path[1:]] > 0
    barred = np.flatnonzero(linked & ~likely)
    capital = most = 0.0  # logarithms
    found_at, hint, shares = None, "", None
    for start in range(0, len(linked), LONG):
        steps = slice(start, start + LONG)
        piece = Piece(chain.P, states[steps], path[:-1][steps], path[1:][steps], (linked & likely)[steps])
        names, weights, ratios = zip(*predictors(piece), strict=True)
        prior = np.append(FAITH, (1 - FAITH) * np.array(weights))
        table = np.minimum(np.column_stack([np.ones(len(piece.x)), *ratios]), MOST)
        shares = prior if shares is None else shares
        for t, row in enumerate(table, start):
            shares = shares * row
            gain = float(shares.sum())
            capital += log(gain)
            most = max(most, capital)
            if found_at is None and most == capital:
                hint = names[int(shares[1:].argmax())]
                found_at = t + 2 if most >= -log(false_alarms) else None
            anew = 1 / (t + 64)
            shares = (1 - anew) / gain * shares + anew * prior
    if len(barred):
        first = int(barred[0]) + 2
        found_at, most = min(first, found_at or first), inf
    tested = int(linked.sum())
    return Following(
        tested=tested,
        bits=max(0.0, capital / log(2) / tested) if tested else 0.0,
        p_value=exp(-most),
        false_alarms=false_alarms,
        found_at=found_at,
        impossible=len(barred),
        hint=hint if found_at is not None else "",
    )


def _check(
    chain: Chain, requests: Sequence[int] | NDArray[np.integer[Any]], begins: Collection[int], false_alarms: float
) -> tuple[Units, Mask]:
    """Check what was given. Return the requests, and for each after the first whether it follows the one before."""
    check_chain(chain)
    if not (is_number(false_alarms) and 0 < false_alarms < 1):
        raise OnoffError(f"the rate of false alarms is {false_alarms!r}: it lies between 0 and 1")
    try:
        path, places = [*requests], [*begins]
    except TypeError:
        path, places = [-1], []
    if not all(is_whole(x) and x < chain.n for x in path) or not all(map(is_whole, places)):
        raise OnoffError(
            f"requests are indices of sources, from 0 to {chain.n - 1} (Chain.index gives that of a name), and begins "
            "are places among them"
        )
    new = np.zeros(max(1, len(path)), bool)
    new[[place for place in places if place < len(path)]] = True
    return np.array(path, np.int64), ~new[1:]


def _states(chain: Chain, path: Units, linked: Mask) -> Units:
    """Find the state before each request but the first. Requests of an earlier sequence do not enter a state."""
    states = path[:-1].copy()  # a state below n is one request alone
    for t in np.flatnonzero(linked[:-1] if chain.depth > 1 else []):
        states[t + 1] = chain.step[states[t], path[t + 1]]
    return states


def predictors(piece: Piece) -> Iterator[tuple[str, float, Floats]]:
    """Yield every predictor: what it looks at, its weight among all, and q / P at every step. The weights sum to 1."""
    for found in (list(_count_predictors(piece)), list(_class_predictors(piece))):
        for what, ratio in found:
            yield what, 0.5 / len(found), ratio


def _count_predictors(piece: Piece) -> Iterator[tuple[str, Floats]]:
    """Bet on how often each request came: at all, after the last request, and after the last two."""
    before = np.where(np.append(False, piece.tested[:-1]), np.append(-1, piece.last[:-1]), -1)
    everything, pair = np.zeros_like(piece.last), (before + 1) * piece.P.shape[1] + piece.last
    for what, context, short, long in (
        ("how often each source is asked for", everything, (4,), (4, 64)),
        ("what follows each source", piece.last, (1, 8), (1, 8, 64)),
        ("the last two requests together", pair, (1, 8), (1, 8)),
    ):
        yield from ((what, _bet_on_counts(piece, context, strength, SHORT)) for strength in short)
        yield from ((what, _bet_on_counts(piece, context, strength, LONG)) for strength in long)


def _bet_on_counts(piece: Piece, context: Units, strength: float, length: int) -> Floats:
    n, at = piece.P.shape[1], np.flatnonzero(piece.tested)
    group = context[at] + (at // length) * (n + 1) * (n + 1)
    same = _count_earlier(group * n + piece.x[at])
    ratio = np.ones(len(piece.x))
    ratio[at] = (same / piece.P[piece.state[at], piece.x[at]] + strength) / (_count_earlier(group) + strength)
    return ratio


def _count_earlier(codes: Units) -> Units:
    """Count for each step how often its code has come before."""
    order = np.argsort(codes, kind="stable")
    ranked = codes[order]
    result = np.empty(len(codes), np.int64)
    result[order] = np.arange(len(codes)) - np.searchsorted(ranked, ranked)
    return result


def _class_predictors(piece: Piece) -> Iterator[tuple[str, Floats]]:
    """Bet on whether the request is one of a few that the past points at."""
    for what, hit, mass in (*_point_at_one(piece), *_point_at_recent(piece)):
        for length in (SHORT, LONG):
            yield what, _bet_on_class(piece.tested, hit, mass, length)


def _point_at_one(piece: Piece) -> Iterator[tuple[str, Mask, Floats]]:
    """Point at one source: the request m steps before, or the next in the catalogue."""
    n = piece.P.shape[1]
    for period in [*range(1, PERIODS + 1), *([n] if n > PERIODS else [])]:
        pointed = np.append(np.full(period - 1, -1), piece.last)[: len(piece.x)]
        mass = np.where(pointed >= 0, piece.P[piece.state, pointed], 0.0)
        yield f"how requests repeat at a distance of {period}", piece.x == pointed, mass
    following = (piece.last + 1) % n
    yield "the order of the catalogue", piece.x == following, piece.P[piece.state, following]


def _point_at_recent(piece: Piece) -> Iterator[tuple[str, Mask, Floats]]:
    """Point at the sources of the last requests: as many as half of the sources, or all but one."""
    n, size = piece.P.shape[1], len(piece.x)
    for window in sorted({n // 2, n - 1} - {0}):
        hit, mass = np.zeros(size, bool), np.zeros(size)
        newest = np.full(n, -window - 1)
        for t, (state, last, x) in enumerate(zip(piece.state, piece.last, piece.x, strict=True)):
            newest[last] = t
            recent = newest > t - window
            hit[t], mass[t] = recent[x], piece.P[state, recent].sum()
        yield "how long ago a source was asked for", hit, mass


def _bet_on_class(tested: Mask, hit: Mask, mass: Floats, length: int) -> Floats:
    """Compute q / P where A has probability `mass` in the chain; 1 where the chain is sure of A or its opposite."""
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


@dataclass(frozen=True)
class Requests:
    """`indices` in order. At the places in `begins` another sequence begins: another user's, or after a break.

    The sources of `unknown` requests are not in the chain.
    """

    indices: tuple[int, ...]
    begins: tuple[int, ...] = ()
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_journal_requests(file: Path, chain: Chain) -> Requests:
    """Read the requests of all steps of a journal of this chain, or of one that was made while learning."""
    found = read_journal(file)
    if found.chain is not None and found.chain != chain.fingerprint:
        raise LogError(f"{file}: is the journal of another chain")
    names = chain.names if found.chain is not None else found.names or ()
    known = {name: i for i, name in enumerate(chain.names)}
    try:
        return Requests(tuple(known[names[request]] for request in found.requests))
    except LookupError:
        raise LogError(f"{file}: the journal has requests for no source of the chain") from None


def read_log_requests(file: Path, chain: Chain, options: ReadOptions = DEFAULT) -> Requests:
    """Read the first requests of a log, as `onoff.fit` does: user after user, at most `MOST_REQUESTS`.

    Each user is one sequence, however long the pauses are: a client, too, goes on after a pause.
    """
    need("logs", "reading a log")
    with (
        TemporaryDirectory(prefix="onoff-check-") as name,
        closing(DuckDB("1GB", Path(name))) as engine,
        explain_errors(file),
    ):
        notes = open_log(engine, [file], options).notes
        events = engine.rows(f"{ORDERED} LIMIT {MOST_REQUESTS}")
    if len(events) == MOST_REQUESTS:
        notes += (f"of a log the first {MOST_REQUESTS:,} requests are tested",)
    known = {name: i for i, name in enumerate(chain.names)}
    merged = next((known[name] for name in MERGED if name in known), None)
    indices: list[int] = []
    begins: list[int] = []
    unknown: list[str] = []
    before: object = None  # the user of the row before, if its source is one of the chain
    for user, source in events:
        index = None if source is None else known.get(source, merged)
        if index is not None:
            begins += [len(indices)] if user != before else []
            indices.append(index)
        elif source is not None:
            unknown.append(source)
        before = None if index is None else user
    if not indices:
        raise LogError(f"{file}: no request read from it has a source of the chain ({', '.join(chain.names[:6])}, ...)")
    return Requests(tuple(indices), tuple(begins), tuple(unknown), notes)
