"""What a fitted chain is worth: how well it predicts, how far requests are from first order, what privacy will cost.

To judge a chain, readers are held out: an eighth of them at a time is predicted by counts of all others. One reader has
blocks of time instead. Both are the buckets of `onoff.logs.count`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onoff.logs.count import BUCKETS
from onoff.model.chain import Chain
from onoff.model.misfit import FEW, is_too_small
from onoff.types import Floats, Units

LAGS = range(1, 11)  # at which costs are reported
WORTH = 0.1  # the least saving for which switching privacy OFF is worth the trouble
FOLDS = 8
SMOOTHINGS = 2.0 ** np.array(sorted(range(-10, 7), key=abs))
STRENGTHS = 4.0 ** np.arange(-2, 9)  # with which a row of the second order is pulled towards that of the first


def estimate(pairs: Units, starts: Units, names: Sequence[str], smoothing: float) -> Chain:
    """Make the chain with P[i, j] proportional to pairs[i, j] + smoothing.

    After a source that nothing ever followed a new sequence begins: its row is that of `starts`.
    """
    dead = pairs.sum(axis=1, keepdims=True) == 0
    return Chain.from_counts(np.where(dead, starts, pairs), names, smoothing)


def held_out_bits(pairs: Units, smoothings: Floats) -> Floats:
    """Compute the mean of -log2 P over the transitions pairs[bucket, i, j] of readers held out, for each smoothing.

    It is infinite or no number if something happened that no other reader did, and nothing is added to counts.
    """
    total, n = pairs.sum(axis=0), pairs.shape[2]
    bits: Floats = np.zeros(len(smoothings))
    for fold in np.array_split(pairs, FOLDS):
        held = fold.sum(axis=0)
        i, j = held.nonzero()
        seen, after = (total - held)[i, j], (total - held).sum(axis=1)[i]
        with np.errstate(divide="ignore", invalid="ignore"):
            bits -= np.array([(held[i, j] * np.log2((seen + s) / (after + n * s))).sum() for s in smoothings])
    bits /= max(1, total.sum())
    return bits


def choose_smoothing(pairs: Units) -> float:
    """Choose the smoothing that makes readers likeliest who are held out; of equally good ones, the nearest to 1."""
    return float(SMOOTHINGS[held_out_bits(pairs, SMOOTHINGS).argmin()])


def marginal_bits(pairs: Units) -> float:
    """Compute the bits for each transition of readers held out if only the frequencies of sources are known."""
    return float(held_out_bits(pairs.sum(axis=1, keepdims=True), np.ones(1))[0])


def second_order_gain(n: int, triples: Units) -> float | None:
    """Estimate the bits per transition by which the last two requests predict readers held out better than the last.

    The row of the first order is Q_jk = (N_jk + s / n) / (N_j + s), that of the second (N_ijk + s' Q_jk) / (N_ij + s').
    Each strength is the one that makes readers likeliest who are held out: a first order with more smoothing than that
    would let the second pass for memory. For a chain of first order the gain is about 0. None if nobody made three
    requests in a row.
    """
    bucket, flat, count = triples
    keys, place = np.unique(flat, return_inverse=True)
    if not len(keys):
        return None
    pair, last = keys % n**2, np.arange(n**2) // n
    held = [_sums(place, count * (bucket * FOLDS // BUCKETS == fold)) for fold in range(FOLDS)]
    held_pairs = [_sums(pair, fold, n**2) for fold in held]
    total, total_pairs = np.sum(held, axis=0), np.sum(held_pairs, axis=0)
    first, second = np.zeros(len(STRENGTHS)), np.zeros(len(STRENGTHS))
    for fold in held_pairs:
        first += _shrunk_bits(fold, total_pairs - fold, last, np.full(n**2, 1 / n))
    strength = STRENGTHS[first.argmin()]
    for fold, fold_pairs in zip(held, held_pairs, strict=True):
        known = total_pairs - fold_pairs
        row = (known + strength / n) / (_sums(last, known)[last] + strength)
        second += _shrunk_bits(fold, total - fold, keys // n, row[pair])
    return float((first.min() - second.min()) / count.sum())


def _shrunk_bits(held: Floats, known: Floats, context: Units, towards: Floats) -> Floats:
    """Add up -log2 of (known + s towards) / (known in the context + s) over what is held out, for each strength s."""
    sizes, at = _sums(context, known), held.nonzero()
    p = ((known[at] + s * towards[at]) / (sizes[context[at]] + s) for s in STRENGTHS)
    return np.array([-(held[at] * np.log2(row)).sum() for row in p])


def _sums(place: Units, values: Floats | Units, size: int = 0) -> Floats:
    return np.bincount(place, values, size).astype(np.float64)


def verdict(costs: Sequence[float], n: int, transitions: int) -> str:
    """Say whether OFF steps pay: whether the mean outer bound over `LAGS` is well below n, the cost of ON.

    No advice where the costs themselves cannot be relied on.
    """
    if is_too_small(transitions, n):
        return (
            f"No recommendation: {transitions} transitions are few for {n} sources, and the costs may be far off. "
            f"Collect at least {FEW * n}, or keep fewer sources (--top)."
        )
    mean = sum(costs) / len(costs)
    span = f"over lags {LAGS[0]} to {LAGS[-1]}"
    what = f"{span} no scheme of the promise both downloads less than {mean:.2f} of {n} messages on average"
    if (saved := 1 - mean / n) >= WORTH:
        return f"OFF saves download, at most {saved:.0%}: {what}."
    return f"ON all the time is as cheap: {what}, so OFF saves at most {saved:.1%}, and {WORTH:.0%} would be worth it."
