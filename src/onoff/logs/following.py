"""Do requests follow a chain? A test that may be looked at after every request, with a proved rate of false alarms.

All that is promised is relative to the chain, so this is the first thing to ask. The test is a bet. A gambler starts
with capital 1 and before each request spreads it over the chain and many predictors (`onoff.logs.predictors`). When the
request x comes, what was laid on a predictor is multiplied by q(x) / P(x). If requests follow the chain, the expected
capital stays 1 whatever the predictors are, so it ever reaches 1 / r with probability at most r (Ville's inequality):
exactly, for every length, also if one looks again and again. If they do not, the capital grows as fast as the best
predictor is better than the chain, and its logarithm is the number of bits that a server with such a model is ahead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, inf, log
from reprlib import repr as short
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onoff.errors import OnoffError
from onoff.logs.predictors import LONG, Indices, Piece, Predictors, predictors
from onoff.model.chain import Chain, checked_chain
from onoff.types import Floats, is_number, is_whole

FALSE_ALARMS = 0.01
FAITH = 0.5  # what is laid on the chain itself: the capital never falls far below it
MOST = 1e200  # by which a request multiplies at most: less than q / P is no harm, and infinity would be
LITTLE = 50  # requests: fewer say little


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
        """The verdict in a line."""
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


def follows(
    chain: Chain,
    requests: Sequence[int] | NDArray[np.integer[Any]],
    *,
    begins: Collection[int] = (),
    false_alarms: float = FALSE_ALARMS,
) -> Following:
    """Whether requests, indices of sources in the order in which they were made, follow the chain.

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
    """The bet of `follows` with any predictors whose q sums to 1 (or less) over the requests.

    Before each request a share 1 / (t + 64) of all capital is laid out anew as at the start. So habits that change
    after t requests cost about log2 t bits more to find, not the losses of t requests.
    """
    if not (is_number(false_alarms) and 0 < false_alarms < 1):
        raise OnoffError(f"the rate of false alarms is {false_alarms!r}: it lies between 0 and 1")
    path = _checked(chain, requests)
    new = np.zeros(len(path), bool)
    new[_places(begins, len(path))] = True
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


def _places(begins: Collection[int], length: int) -> list[int]:
    """The places within the requests."""
    if isinstance(begins, str) or not isinstance(begins, Iterable) or not all(is_whole(place) for place in begins):
        raise OnoffError(f"begins is {short(begins)}: places among the requests are needed, whole numbers from 0 on")
    return [int(place) for place in begins if place < length]


def _checked(chain: Chain, requests: Sequence[int] | NDArray[np.integer[Any]]) -> Indices:
    checked_chain(chain)
    wrong = OnoffError(f"requests are indices of sources, from 0 to {chain.n - 1} (Chain.index gives that of a name)")
    try:
        given = np.asarray(requests if len(requests) else np.zeros(0, np.int64))
    except (TypeError, ValueError):
        raise wrong from None
    if given.ndim != 1 or given.dtype.kind not in "iu" or ((given < 0) | (given >= chain.n)).any():
        raise wrong
    return given.astype(np.int64)
