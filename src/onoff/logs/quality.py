"""A chain from counts, and what is said of what privacy will cost with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onoff.model.chain import Chain
from onoff.model.misfit import FEW, is_too_small
from onoff.types import Units

WORTH = 0.1  # the least saving for which switching privacy OFF is worth the trouble


def estimate(pairs: Units, starts: Units, names: Sequence[str], smoothing: float) -> Chain:
    """Make the chain with P[i, j] proportional to pairs[i, j] + smoothing.

    After a source that nothing ever followed a new sequence begins: its row is that of `starts`.
    """
    dead = pairs.sum(axis=1, keepdims=True) == 0
    return Chain.from_counts(np.where(dead, starts, pairs), names, smoothing)


def verdict(first_cost: float, n: int, transitions: int) -> str:
    """Say whether OFF steps pay: whether the least cost of the first one is well below n, the cost of ON.

    No advice where the costs themselves cannot be relied on.
    """
    if is_too_small(transitions, n):
        return (
            f"No recommendation: {transitions} transitions are few for {n} sources, and the costs may be far off. "
            f"Collect at least {FEW * n}, or keep fewer sources (--top)."
        )
    what = f"at the first step after ON no scheme of the promise past needs less than {first_cost:.2f} of {n} messages"
    if (saved := 1 - first_cost / n) >= WORTH:
        return f"OFF saves download, {saved:.0%} or less to begin with: {what}. Later steps usually need fewer."
    return f"ON all the time is nearly as cheap to begin with: {what}. Later steps usually need fewer."
