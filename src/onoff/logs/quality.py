"""What a fitted chain is worth: how well it predicts, how far requests are from first order, what privacy will cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onoff.model.chain import Chain
from onoff.model.misfit import FEW, is_too_small
from onoff.types import Floats, Mask, Units

LEVEL = 0.95
FEWEST = 10  # buckets: fewer say too little about how they vary
WORTH = 0.1  # the least saving for which switching privacy OFF is worth the trouble
FOLDS = 8  # of a cross-validation
SMOOTHINGS = 2.0 ** np.array(sorted(range(-10, 7), key=abs))
STRENGTHS = 2.0 ** np.arange(-20, 21)  # with which a row is shrunk towards the lower-order model


@dataclass(frozen=True)
class Interval:
    """An estimate with an interval that covers the truth about 95 times in 100, if nothing pulls the estimate aside."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True)
class Cost:
    """The outer bound at one lag, in messages per request."""

    lag: int
    outer: float


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


def choose_smoothing(pairs: Units) -> float:
    """Choose the smoothing that makes readers likeliest who are held out, from the counts pairs[bucket, i, j].

    An eighth of the buckets at a time is held out, and its transitions are predicted by counts of the others. One
    reader has blocks of time for buckets. Of smoothings that do equally well, the nearest to 1 is taken.
    """
    total, n = pairs.sum(axis=0), pairs.shape[1]
    likelihood = np.zeros(len(SMOOTHINGS))
    for fold in np.array_split(pairs, FOLDS):
        held = fold.sum(axis=0)
        i, j = held.nonzero()
        seen, after = (total - held)[i, j], (total - held).sum(axis=1)[i]
        likelihood += [(held[i, j] * np.log((seen + s) / (after + n * s))).sum() for s in SMOOTHINGS]
    return float(SMOOTHINGS[likelihood.argmax()])


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


def second_order_gain(pairs: Units, triples: tuple[Units, Units, Units] | None, held: Mask) -> Interval | None:
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
    return ratio(_sums(column, gain * count[~train]), _sums(column, count[~train]))


def _first_order(pairs: Units) -> Floats:
    seen, towards = pairs > 0, np.broadcast_to(_common(pairs), pairs.shape)
    sizes = np.broadcast_to(pairs.sum(axis=1, keepdims=True), pairs.shape)
    strength = _strength(pairs[seen], sizes[seen], towards[seen])
    rows: Floats = (pairs + strength * towards) / (sizes + strength)
    return rows


def _common(pairs: Units) -> Floats:
    """Share of each source among all that follow; one event more for each, so that none is impossible."""
    common: Floats = (pairs.sum(axis=0) + 1) / (pairs.sum() + len(pairs))
    return common


def _strength(known: Floats | Units, sizes: Floats | Units, towards: Floats) -> float:
    """Find the strength under which each of the counted transitions is likeliest given all others."""
    return float(max(STRENGTHS, key=lambda strength: _leave_one_out(known, sizes, towards, strength)))


def _leave_one_out(known: Floats | Units, sizes: Floats | Units, towards: Floats, strength: float) -> float:
    p = (known - 1 + strength * towards) / (sizes - 1 + strength)
    return float((known * np.log(np.maximum(p, 1e-300))).sum())


def _sums(place: NDArray[np.intp], values: NDArray[np.number[Any]]) -> Floats:
    return np.bincount(place, values).astype(np.float64)


def _look_up(keys: NDArray[np.int64], values: Floats, wanted: NDArray[np.int64]) -> Floats:
    """Look up the values of sorted keys; 0 for those that are not there."""
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], 0.0)


def ratio(sums: Floats, sizes: Floats) -> Interval | None:
    """Divide the total of `sums` by that of `sizes`, with an interval over buckets; None with fewer than 10 of them.

    The events of one user depend on each other, those of different users do not. Users fall into buckets at random, so
    the k buckets are k independent parts with the same law, and the deviation of the ratio r is that of the mean of
    sums - r sizes. Student's quantile with k - 1 degrees of freedom gives the interval.
    """
    from scipy.stats import t

    k = int(np.count_nonzero(sizes))
    if k < FEWEST:
        return None
    found = float(sums.sum() / sizes.sum())
    half = t.ppf((1 + LEVEL) / 2, k - 1) * np.sqrt(((sums - found * sizes) ** 2).sum() * k / (k - 1)) / sizes.sum()
    return Interval(found, found - float(half), found + float(half))


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
    what = f"over lags {span} no scheme of the promise both downloads less than {mean:.2f} of {n} messages on average"
    if (saved := 1 - mean / n) >= WORTH:
        return f"OFF saves download, at most {saved:.0%}: {what}."
    return f"ON all the time is as cheap: {what}, so OFF saves at most {saved:.1%}, and {WORTH:.0%} would be worth it."
