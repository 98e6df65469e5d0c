"""The first chain of a fit, and what is said of what privacy will cost with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onoff.model.chain import Chain
from onoff.model.misfit import FEW, is_too_small
from onoff.types import Units

LAGS = range(1, 11)  # at which costs of the promise both are reported
WORTH = 0.1  # the least saving for which switching privacy OFF is worth the trouble


def estimate(pairs: Units, starts: Units, names: Sequence[str], smoothing: float) -> Chain:
    """Make the chain with P[i, j] proportional to pairs[i, j] + smoothing.

    After a source that nothing ever followed a new sequence begins: its row is that of `starts`.
    """
    dead = pairs.sum(axis=1, keepdims=True) == 0
    return Chain.from_counts(np.where(dead, starts, pairs), names, smoothing)


def verdict(costs: Sequence[float], first_cost: float, n: int, transitions: int) -> str:
    """Say whether OFF steps pay: whether their least cost is well below n, the cost of ON.

    It is the mean outer bound over `LAGS`, or without these `costs` of the promise both that of the first OFF step. No
    advice where the costs themselves cannot be relied on.
    """
    if is_too_small(transitions, n):
        return (
            f"No recommendation: {transitions} transitions are few for {n} sources, and the costs may be far off. "
            f"Collect at least {FEW * n}, or keep fewer sources (--top)."
        )
    least = sum(costs) / len(costs) if costs else first_cost
    span = f"over lags {LAGS[0]} to {LAGS[-1]}" if costs else "at the first OFF step after ON"
    promise, mean = ("both", " on average") if costs else ("past", "")
    what = f"{span} no scheme of the promise {promise} downloads less than {least:.2f} of {n} messages{mean}"
    if (saved := 1 - least / n) >= WORTH:
        return f"OFF saves download, at most {saved:.0%}: {what}."
    return f"ON all the time is as cheap: {what}, so OFF saves at most {saved:.1%}, and {WORTH:.0%} would be worth it."
