"""Draws of a race, made again from their random numbers.

Every source y has a clock E_y, exponential with mean 1, and in the context u the winner is the source with the largest
score p(y | u) / E_y. The query is the set of all winners, over all contexts. Given the request x in the context u the
client takes T exponential, E_x = p(x | u) T and E_y = p(y | u) T + (a fresh exponential) for the others: averaged over
x the clocks are independent and their law is the same in every context, and so is the law of whatever is computed from
them alone.

Promise `past`: the contexts are the candidates, and sensitive sources take no part. A request for one of these has
fresh clocks. Promise `both`: the scores in the context (i, k) are P^lag[i, y] P[y, k] / E_y. A larger lag d is served
by first drawing where the reader may have been `lag` steps ago, j with probability in proportion to P^(d-lag)[last, j]
P^lag[j, x].

The client computes in floats and counts a source as a winner if it comes within a slack of the lead. Computed here in
other floats, a score may be off by far less than a quarter of the slack: so a source must be in the set, must not, or
may be.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import cache
from math import frexp, ldexp
from typing import Any

import numpy as np

from onoff.audit.law import UNCHECKED, Finding, Pairs
from onoff.audit.rows import Candidates
from onoff.types import Floats, Query

FINE, BIASED, WHOLE, GRID = 122, 58, 6, 60  # binary digits of a clock: right of the point, biased, left; looked at
SLACK, SLACK_OF_PAST = 2.0**-18, 2.0**-40
WEIGHT = 160  # binary digits of the largest weight of a row that a clock is multiplied by
BLOCK = 64  # rows at a time
OFF = 2.0**-57  # for each source: more than what the clocks of `past` are off by, in total variation
COMPARED = 124  # sources up to which the client compares all of them; beyond, it may include some unseen
FAINT = 2.0**-800  # contexts less likely than this are not looked at


def check_race(candidates: Candidates, query: Query, numbers: Pairs, request: int, state: int | None) -> Finding | None:
    """Find what is wrong with a draw of the promise `past`; the state is None if the request is sensitive."""
    sources = np.flatnonzero(candidates.is_open)
    clocks = exponentials(numbers, len(sources) + 1)
    if isinstance(clocks, str):
        return Finding("draw", clocks)
    *clocks, common = clocks
    if state is not None:
        row = candidates.chain.P[state, sources].tolist()
        shares = [int(ldexp(weight, WEIGHT - frexp(max(row))[1])) for weight in row]
        clocks[int(np.searchsorted(sources, request))] = 0
        clocks = [own + share * common // sum(shares) for own, share in zip(clocks, shares, strict=True)]
    times, near = np.array([float((clock >> (FINE - GRID)) + 1) for clock in clocks]), np.zeros(len(sources))
    for start in range(0, len(candidates.live), BLOCK):
        scores = candidates.rows[start : start + BLOCK] * (times.min() / times)
        near = np.maximum(near, (scores / scores.max(axis=1, keepdims=True)).max(axis=0))
    hidden = np.flatnonzero(~candidates.is_open).tolist()
    return _compare(query, {request, *hidden}, sources, near, SLACK_OF_PAST)


def _compare(query: Query, always: set[int], sources: Any, near: Floats, slack: float) -> Finding | None:
    """Find out whether a query has the sources `always`, and those that are near enough to the lead, and no others."""
    must, may = (always | set(sources[near >= 1 - share * slack].tolist()) for share in (0.75, 1.25))
    if must <= set(query) <= may:
        return None
    return Finding("draw", "the clocks give this set, and another one was asked for", query=tuple(sorted(must)))


def exponentials(numbers: Pairs, count: int) -> list[int] | str:
    """So many clocks in units of 2^-FINE, from one number; or what is wrong with that.

    A clock takes 65 words of 64 bits: each biased digit has a word of its own, the fair ones have the last.
    """
    size = count * (WHOLE + BIASED + 1) * 8
    if len(numbers) != 1 or numbers[0][0] != 1 << (8 * size) or not 0 <= numbers[0][1] < numbers[0][0]:
        return f"{count} clocks take one number of {8 * size} bits, and there is another list"
    words: Any = np.frombuffer(numbers[0][1].to_bytes(size, "little"), dtype="<u8").reshape(count, -1)
    biased = np.packbits(words[:, :-1] < _thresholds(), axis=1)
    digits = np.concatenate([biased, words[:, -1:].copy().view(np.uint8)], axis=1)
    return [int.from_bytes(row.tobytes(), "big") for row in digits]


@cache
def _thresholds() -> Any:
    """The probabilities 1 / (1 + exp(2^k)) of the biased digits, times 2^64, from the largest digit on."""
    with localcontext() as context:
        context.prec = 60
        digits = [Decimal(2) ** 64 / (1 + (Decimal(2) ** k).exp()) for k in range(WHOLE - 1, -BIASED - 1, -1)]
        return np.array([int(digit.to_integral_value()) for digit in digits], dtype=np.uint64)


class Race:
    """The race of the promise `both` for one chain and lag."""

    def __init__(self, P: Floats, lag: int) -> None:
        self.n, self.lag, self._P = len(P), lag, P
        self._walk = _power(P, lag)

    def check(self, query: Query, numbers: Pairs, request: int, context: tuple[int, int, int]) -> Finding | None:
        """Find what is wrong with a draw in the context (lag, last, next), if anything."""
        near = self._run(numbers, request, *context)
        if isinstance(near, str):
            return Finding("draw", near, context=context)
        off = _compare(query, {request}, np.arange(self.n), near, SLACK)
        if off is not None and set(off.query or ()) <= set(query) and self.n > COMPARED:
            return Finding(UNCHECKED, "a race of many sources may include some that it did not compare")
        return off

    def _run(self, numbers: Pairs, request: int, lag: int, last: int, next: int) -> str | Floats:
        """Run the clocks again: how near each source comes to the lead, or what is wrong."""
        if lag > self.lag:
            weights = _power(self._P, lag - self.lag)[last] * self._walk[:, request]
            (bound, number), numbers = numbers[0] if numbers else (1, 1), numbers[1:]
            total = float(weights.sum()) / 2.0 ** int(np.frexp(weights.max())[1])  # the largest weight has 160 bits
            off = min(abs(min(bound, 2**200) / 2**160 - total * factor) for factor in (0.5, 1, 2))
            if off > 2.0**-30 * total or not 0 <= number < bound:
                return "the source of an earlier step is not drawn below the sum of its weights"
            last = int(np.searchsorted(np.cumsum(weights), number / bound * weights.sum(), side="right"))
        clocks = exponentials(numbers, self.n + 1)
        if isinstance(clocks, str):
            return clocks
        *own, common = [clock / 2**FINE for clock in clocks]
        own[request] = 0.0
        weights = self._walk[last] * self._P[:, next]
        return self._lead(np.maximum((np.array(own) + weights / weights.sum() * common) * 2.0**GRID, 1.0))

    def _lead(self, clocks: Floats) -> Floats:
        """For every source how near it comes to the lead in its best context: 1 if it leads."""
        left, best, near = self._walk / clocks, np.zeros((self.n, self.n)), np.zeros(self.n)
        for y in range(self.n):
            np.maximum(best, np.multiply.outer(left[:, y], self._P[y]), out=best)
        best[best * clocks.min() < FAINT] = np.inf
        for y in range(self.n):
            near[y] = (np.multiply.outer(left[:, y], self._P[y]) / best).max()
        return near


def _power(P: Floats, k: int) -> Floats:
    with np.errstate(all="ignore"):  # BLAS leaves flags behind that mean nothing (numpy issue 24067)
        return np.asarray(np.linalg.matrix_power(P, k))
