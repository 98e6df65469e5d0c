"""The whole stream: the information I(X_B; Q_1..Q_t) between what must stay hidden and all queries so far.

X_1, X_2, ... are the requests, B the steps up to t at which privacy was ON and all steps after t. By the Markov
property the future counts only through X_{t+1}.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onoff.audit.joint.continuity import by_bound
from onoff.audit.joint.enumeration import by_enumeration
from onoff.audit.joint.merging import by_beliefs, by_sampling
from onoff.audit.models import Model, TooLarge
from onoff.audit.setting import Leakage, Promise, lags_of

if TYPE_CHECKING:
    from onoff.model.chain import Chain


def audit(
    chain: Chain,
    statuses: Sequence[bool],
    model: Model,
    start: NDArray[np.float64],
    promise: Promise | None = None,
    *,
    streams: int = 2000,
    seed: int = 1,
    advance: Callable[[], None] = lambda: None,
) -> Leakage:
    """The information at every t by the strongest method that fits.

    That is enumeration if the streams are few. Beyond, clients with roundings get a certified bound. Others ignore the
    last private request: they get dynamic programming if beliefs repeat, else an estimate from sampled streams.
    `advance` is called after each of the slow parts.
    """
    try:
        return by_enumeration(chain, statuses, model, start, promise)
    except TooLarge:
        pass
    if promise is not None and any(map(promise, set(lags_of(statuses)))):
        return by_bound(chain, statuses, model, promise, advance)
    try:
        return by_beliefs(chain, statuses, model, start, promise)
    except TooLarge:
        pass
    return by_sampling(chain, statuses, model, start, streams, seed, advance)
