"""What a fitted chain is worth: how well it predicts, how far requests are from first order, what privacy will cost.

Intervals are over users: whole buckets of users are drawn again with replacement (a bucketed bootstrap). The events of
one user depend on each other, those of different users do not. Users fall into k buckets at random, so the buckets'
counts are k independent, equally distributed parts of the total, and resampling them is the bootstrap of a sample of k.
It costs k counts instead of a hundred passes over the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onoff.model.bounds import outer_bound
from onoff.model.chain import Chain
from onoff.model.misfit import FEW, is_too_small
from onoff.model.powers import contracted, times
from onoff.types import Floats, Mask, Units

LEVEL = 0.95
FEWEST = 10  # buckets: fewer say too little about how they vary
WORTH = 0.1  # the least saving for which switching privacy OFF is worth the trouble
REPLICATES = 1000  # behind an interval of the gain
MUCH, NOTABLE = 4.0, 0.005  # smoothing: so many times what the counts ask for, and so large a share of all weight
# Candidate smoothing strengths: how far a row is shrunk towards the lower-order model.
STRENGTHS = 2.0 ** np.arange(-20, 21)


@dataclass(frozen=True)
class Interval:
    """An estimate with an interval that covers the truth about 95 times in 100, if nothing pulls the estimate aside."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class Cost:
    """The outer bound at one lag, in messages per request; `low` and `high` are None without enough users."""

    lag: int
    outer: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class HeldOut:
    """How well the chain predicts users it was not fitted on. `unseen`: their transitions that training never saw.

    `bits` is minus the mean of log2 P over `transitions`; `marginal_bits` the same if only the frequencies of sources
    were known. Both are None if the chain calls something impossible.
    """

    transitions: int
    unseen: float
    bits: float | None
    marginal_bits: float | None


def estimate(pairs: Units, starts: Units, names: Sequence[str], smoothing: float) -> Chain:
    """Make the chain with P[i, j] proportional to pairs[i, j] + smoothing.

    After a source that nothing ever followed a new sequence begins: its row is that of `starts`.
    """
    dead = pairs.sum(axis=1, keepdims=True) == 0
    return Chain.from_counts(np.where(dead, starts, pairs), names, smoothing)


def smoothing_note(pairs: Units, smoothing: float) -> str | None:
    """Warn if the smoothing pulls the rows together much more than the counts ask for."""
    weight, asked = pairs.size * smoothing, best_smoothing(pairs)
    if smoothing < MUCH * asked or weight < NOTABLE * (weight + pairs.sum()):
        return None
    return (
        f"smoothing {smoothing:g} makes the rows more alike than the counts do, so the cost may come out "
        "wrong, mostly too low; "
        f"--smoothing {asked:.2g} is what the counts ask for"
    )


def held_out(chain: Chain, pairs: Units, held: Units) -> HeldOut | None:
    """Test the chain, fitted on `pairs`, on the transitions `held` of other users; None if there are none."""
    total = int(held.sum())
    if not total:
        return None
    seen = held > 0
    unseen = float(held[pairs == 0].sum() / total)
    if (chain.P[seen] == 0).any():
        return HeldOut(total, unseen, None, None)
    bits = -float((held[seen] * np.log2(chain.P[seen])).sum() / total)
    marginal = -float((held.sum(axis=0) * np.log2(_common(pairs))).sum() / total)
    return HeldOut(total, unseen, bits, marginal)


def second_order_gain(
    pairs: Units,
    triples: tuple[Units, Units, Units] | None,
    held: Mask,
    rng: np.random.Generator,
) -> Interval | None:
    """Estimate the bits per transition by which the last two requests predict better than the last, on held-out users.

    The first-order row is Q_jk = (N_jk + s f_k) / (N_j + s): training counts, pulled towards the frequencies f of the
    sources. The second-order row is (N_ijk + s' Q_jk) / (N_ij + s'). Each strength maximises the likelihood of every
    training transition given all others (leave one out), so held-out users decide nothing but the result. The chain
    itself would be no fair opponent: more smoothing than the counts ask for would pass for memory. For a chain of
    first order the gain is about 0, or slightly below.
    """
    if triples is None:
        return None
    bucket, flat, count = triples
    train, n = ~held[bucket], len(pairs)
    keys, place = np.unique(flat[train], return_inverse=True)
    if not len(keys) or train.all():
        return None
    first = _first_order(pairs).ravel()
    known = _sums(place, count[train])
    groups, group = np.unique(keys // n, return_inverse=True)
    sizes = _sums(group, known)
    strength = _strength(known, sizes[group], first[keys % n**2])

    wanted = flat[~train]
    n_ijk = _look_up(keys, known, wanted)
    n_ij = _look_up(groups, sizes, wanted // n)
    gain = np.log2((n_ijk / first[wanted % n**2] + strength) / (n_ij + strength))
    column = np.searchsorted(np.flatnonzero(held), bucket[~train])
    return ratio(_sums(column, gain * count[~train]), _sums(column, count[~train]), rng, REPLICATES)


def _first_order(pairs: Units) -> Floats:
    common = _common(pairs)
    strength = _row_strength(pairs, common)
    rows: Floats = (pairs + strength * common) / (pairs.sum(axis=1, keepdims=True) + strength)
    return rows


def best_smoothing(pairs: Units) -> float:
    """Find the smoothing under which each transition is likeliest given all others: what the counts ask for."""
    n = len(pairs)
    return _row_strength(pairs, np.full(n, 1 / n)) / n


def _row_strength(pairs: Units, towards: Floats) -> float:
    """Find the strength with which rows of counts are best shrunk towards one distribution."""
    seen = pairs > 0
    sizes = np.broadcast_to(pairs.sum(axis=1, keepdims=True), pairs.shape)
    return _strength(pairs[seen], sizes[seen], np.broadcast_to(towards, pairs.shape)[seen])


def _common(pairs: Units) -> Floats:
    """Share of each source among all that follow; one event more for each, so that none is impossible."""
    common: Floats = (pairs.sum(axis=0) + 1) / (pairs.sum() + len(pairs))
    return common


def _strength(known: Floats | Units, sizes: Floats | Units, towards: Floats) -> float:
    return float(max(STRENGTHS, key=lambda s: _leave_one_out(known, sizes, towards, s)))


def _sums(place: NDArray[np.intp], values: NDArray[np.number[Any]]) -> Floats:
    return np.bincount(place, values).astype(np.float64)


def _leave_one_out(known: Floats | Units, sizes: Floats | Units, towards: Floats, strength: float) -> float:
    p = (known - 1 + strength * towards) / (sizes - 1 + strength)
    return float((known * np.log(np.maximum(p, 1e-300))).sum())


def _look_up(keys: NDArray[np.int64], values: Floats, wanted: NDArray[np.int64]) -> Floats:
    """Look up the values of sorted keys; 0 for those that are not there."""
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], 0.0)


def ratio(sums: Floats, sizes: Floats, rng: np.random.Generator, replicates: int) -> Interval | None:
    """Divide the total of `sums` by that of `sizes`, with an interval over buckets; None with fewer than 10 of them."""
    some = sizes > 0
    sums, sizes = sums[some], sizes[some]
    if len(sizes) < FEWEST:
        return None
    drawn = resample(lambda w: np.array([times(w, sums) / times(w, sizes)]), len(sizes), replicates, rng)
    return intervals(np.array([sums.sum() / sizes.sum()]), drawn, len(sizes))[0]


def resample(statistic: Callable[[Units], Floats], k: int, replicates: int, rng: np.random.Generator) -> Floats:
    """Compute the statistic, a vector, for `replicates` draws of k buckets: how often each of them was drawn."""
    return np.array([statistic(rng.multinomial(k, np.full(k, 1 / k))) for _ in range(replicates)])


def intervals(estimate: Floats, replicates: Floats, k: int) -> list[Interval]:
    """Compute estimate ± t s, component by component, widened by the bias to the side where it points.

    Mean and deviation of the replicates about the estimate stand for those of the estimate about the truth. t is
    Student's quantile with k - 1 degrees of freedom, and s is scaled by k / (k - 1), since k buckets vary a little
    less about their own mean than about the true one. Subtracting the bias was tried and covered less often.
    """
    from scipy.stats import t

    bias = replicates.mean(axis=0) - estimate
    half = t.ppf((1 + LEVEL) / 2, k - 1) * replicates.std(axis=0, ddof=1) * np.sqrt(k / (k - 1))
    low, high = estimate - half - np.maximum(bias, 0), estimate + half - np.minimum(bias, 0)
    return [Interval(*map(float, row)) for row in zip(estimate, low, high, strict=True)]


def costs(
    pairs: Units,
    starts: Units,
    names: Sequence[str],
    smoothing: float,
    lags: Sequence[int],
    replicates: int,
    rng: np.random.Generator,
    advance: Callable[[], None] = lambda: None,
) -> list[Cost]:
    """Compute the outer bound at each lag for the chain of all buckets, with intervals over users."""

    def outer(weights: NDArray[np.int64]) -> Floats:
        whole = estimate(contracted("k,kij->ij", weights, pairs), times(weights, starts), names, smoothing)
        result = np.array([outer_bound(whole.posterior(lag)) for lag in lags])
        advance()
        return result

    n, k = len(names), len(pairs)
    found = outer(np.ones(k, np.int64))
    if k < FEWEST or replicates < 2:
        return [Cost(lag, float(cost), None, None) for lag, cost in zip(lags, found, strict=True)]
    ranges = intervals(found, resample(outer, k, replicates, rng), k)
    return [
        Cost(lag, one.estimate, min(max(one.low, 1.0), n), min(max(one.high, 1.0), n))
        for lag, one in zip(lags, ranges, strict=True)
    ]


def verdict(rows: Sequence[Cost], n: int, transitions: int) -> str:
    """Say whether OFF steps pay: whether the mean outer bound over the lags is well below n, the cost of ON.

    No advice where the costs themselves cannot be relied on.
    """
    if is_too_small(transitions, n):
        return (
            f"No recommendation: {transitions} transitions are few for {n} sources, and the costs may be far off. "
            f"Collect at least {FEW * n}, or keep fewer sources (--top)."
        )
    span = f"{rows[0].lag} to {rows[-1].lag}" if len(rows) > 1 else str(rows[0].lag)
    mean = sum(row.outer for row in rows) / len(rows)
    saved = 1 - mean / n
    what = f"over lags {span} no scheme of the promise both downloads less than {mean:.2f} of {n} messages on average"
    if saved >= WORTH:
        return f"OFF saves download, at most {saved:.0%}: {what}."
    return (
        f"ON all the time is as cheap: {what}, so OFF saves at most {saved:.1%} "
        f"(the rule: below {WORTH:.0%} it is not worth it)."
    )
