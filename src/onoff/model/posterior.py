"""The law of the request given what must stay hidden: a row p(x | u) for every context u.

Makers of laws need nothing but `Rows`. `Posterior` has the rows of the announced promise, a context for every pair
(last, next), in floats with a proved error. `RowTable` holds any few rows as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onoff.errors import ChainError, ContextError
from onoff.model import powers as products
from onoff.model.chain import Chain, check_chain
from onoff.types import Floats, Mask, is_whole

SAFE = 2.0**-900  # products above this neither underflow nor lose a term that matters
MOST_STEPS = 4096  # beyond, a walk from the start would take seconds
KEPT = 16  # sources `last` whose walks are continued


class Rows(Protocol):
    """The rows p(x | u) of all contexts u, over `n` sources.

    The contexts are divided into `groups`: those of one group are nearly alike, so that one repair often serves them
    all, and sources that peak in one group must hardly ever be asked for together (`onoff.schemes.comb`).
    """

    @property
    def n(self) -> int:
        """Number of sources."""

    @property
    def rows(self) -> Floats:
        """All rows. There may be n^2: prefer `group`."""

    @property
    def peaks(self) -> Floats:
        """max_u p(x | u) for every source x, within twice the relative error of a row. Computed once."""

    @property
    def relative_error(self) -> float:
        """A proved bound on |computed - exact| / exact of every p(x | u) above 2^-1000."""

    @property
    def groups(self) -> int:
        """Number of groups; some may be empty."""

    def group(self, index: int) -> Floats:
        """Return a group's rows."""

    def supports(self) -> Iterator[Mask]:
        """Yield the distinct sets {x : p(x | u) > 0}, in parts; some may repeat. Decided without floats."""


@dataclass(frozen=True, eq=False)
class RowTable:
    """A few rows, each a group of its own: row u is rows[u], positive exactly where `possible[u]` holds.

    A positive entry may have underflowed to 0: only `possible` counts.
    """

    rows: Floats
    possible: Mask
    relative_error: float = 0.0

    @property
    def n(self) -> int:
        return int(self.rows.shape[1])

    @cached_property
    def peaks(self) -> Floats:
        peaks: Floats = self.rows.max(axis=0, initial=0.0)
        return peaks

    @property
    def groups(self) -> int:
        return len(self.rows)

    def group(self, index: int) -> Floats:
        return self.rows[index : index + 1]

    def supports(self) -> Iterator[Mask]:
        yield np.unique(self.possible, axis=0)


class Support:
    """Which contexts and requests are possible at a lag, decided from the graph of the chain: floats underflow.

    The context (i, k) is possible iff a walk of lag + 1 steps leads from i to k; there may be fewer than n^2.
    """

    def __init__(self, chain: Chain, lag: int) -> None:
        check_chain(chain)
        if not is_whole(lag):
            raise ChainError(f"the lag is {lag!r}: a whole number of at least 0 is needed", value=lag)
        self.chain = chain
        self.lag = int(lag)
        self.edges = chain.P > 0
        self.reached = products.boolean_power(self.edges, self.lag)

    @property
    def n(self) -> int:
        return self.chain.n

    @cached_property
    def joined(self) -> Mask:
        """joined[last, next]: true if the context is possible."""
        return products.boolean_power(self.edges, self.lag + 1)

    @cached_property
    def contexts(self) -> NDArray[np.intp]:
        """All possible contexts (last, next), in lexicographic order."""
        return np.argwhere(self.joined)

    def supports(self) -> Iterator[Mask]:
        """For each `last`, yield the distinct sets of possible requests in its contexts; only one if all are full."""
        if self.edges.all() and self.reached.all():
            yield np.ones((1, self.n), dtype=bool)
            return
        for last in range(self.n):
            masks = self.reached[last] & self.edges[:, self.joined[last]].T
            yield np.unique(masks, axis=0)

    def possible(self, last: int, next: int) -> Mask:
        """Find the possible requests of a context. Raises `ContextError` if the context is impossible."""
        for role, source in (("last", last), ("next", next)):
            if not (is_whole(source) and source < self.n):
                raise ContextError(f"{role} is {source!r}: the sources are 0 to {self.n - 1}", last=last, next=next)
        mask: Mask = self.reached[last] & self.edges[:, next]
        if not mask.any():
            names = self.chain.names
            raise ContextError(
                f"the context (last={names[last]!r}, next={names[next]!r}) is impossible at lag {self.lag}: "
                "the chain never gets from one to the other in that many steps; smooth the chain if it can happen",
                last=last,
                next=next,
            )
        return mask

    def check(self, request: int, last: int, next: int) -> None:
        """Raise `ContextError` unless the request can happen in the context."""
        possible = self.possible(last, next)
        known = is_whole(request) and request < self.n
        if not (known and possible[request]):
            name = self.chain.names[request] if known else request
            raise ContextError(
                f"the request {name!r} is impossible between last={self.chain.names[last]!r} and "
                f"next={self.chain.names[next]!r} at lag {self.lag}; smooth the chain if it can happen",
                last=last,
                next=next,
                request=request,
            )


class Posterior(Support):
    """p(j | i, k) = P^lag[i, j] P[j, k] / P^(lag+1)[i, k] for the context (last, next) = (i, k).

    These are the rows of the announced promise. Lag 0 is the ON case: the request is `last` itself. Only `possible`
    tells a request that is too unlikely for a float from an impossible one. Only P^lag, `walk`, is kept; it and `rows`
    are computed when they are first asked for.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return Posterior, (self.chain, self.lag)  # the rest is computed again where it is needed

    @cached_property
    def walk(self) -> Floats:
        """P^lag. Raises `ChainError` if a walk is so unlikely that products with it would underflow."""
        walk = self.chain.power(self.lag)
        if self.lag and walk[self.reached].min() * self.chain.P[self.edges].min() < SAFE:
            start, end = np.unravel_index(np.where(self.reached, walk, np.inf).argmin(), walk.shape)
            names = self.chain.names
            raise ChainError(
                f"the chain leads from {names[start]!r} to {names[end]!r} in {self.lag} steps with probability "
                f"{walk[start, end]:.3g}, too little to compute with: smooth the chain, or forbid it with 0",
                row=int(start),
                value=float(walk[start, end]),
            )
        return walk

    @property
    def relative_error(self) -> float:
        """A proved bound on |computed - exact| / exact of every p(x | u) above 2^-1000; exact at lag 0.

        The factors are non-negative: P^lag is off by (lag - 1) gamma(summands), numerator and denominator alike,
        and forming, adding and dividing n products meets fewer than n + 3 roundings more.
        """
        if self.lag == 0:
            return 0.0
        return 2.02 * products.gamma((self.lag - 1) * products.summands(self.n)) + products.gamma(self.n + 3)

    @property
    def total_variation(self) -> float:
        """A proved bound on the total variation between a computed row and the exact one."""
        return self.relative_error + self.n * 2.0**-999

    def row(self, last: int, next: int) -> Floats:
        """Compute p(. | last, next) in O(n). Raises `ContextError` if it is impossible."""
        self.possible(last, next)
        return self._normalise_rows(np.array([last]), np.array([next])).reshape(-1)

    @property
    def groups(self) -> int:
        """Number of groups: contexts with the same `next` are nearly alike at larger lags."""
        return self.n

    def group(self, index: int) -> Floats:
        """Compute the rows of possible contexts with `next` = `index`, ordered by `last`."""
        if not (is_whole(index) and index < self.n):
            raise ChainError(f"the group is {index!r}: the sources are 0 to {self.n - 1}", value=index)
        joined = self.joined[:, index]
        return self._normalise_rows(slice(None) if joined.all() else np.flatnonzero(joined), slice(index, index + 1))

    @cached_property
    def peaks(self) -> Floats:
        """max_u p(x | u) for every source x, faster than all rows: at most n^3 products and no sums.

        Contexts whose `last` or `next` cannot give the largest value are left out. Float multiplication is monotone, so
        the result is bit for bit the same as over all contexts.
        """
        P, walk = self.chain.P, self.walk
        result, inverse = np.zeros(self.n), np.zeros((self.n, self.n))
        np.divide(1.0, products.product(walk, P), out=inverse, where=self.joined)
        by_last, by_next = inverse.max(axis=1), inverse.max(axis=0)
        for x in range(self.n):
            before, after = walk[:, x], P[x]
            of_last, of_next = by_last * after.max() * before, by_next * after * before.max()  # the most there
            first = int(of_last.argmax())
            best = (inverse[first] * after).max() * before[first]
            lasts, nexts = np.flatnonzero(of_last > best), np.flatnonzero(of_next > best)
            if len(lasts) and len(nexts):
                scores = (inverse[np.ix_(lasts, nexts)] * after[nexts]).max(axis=1) * before[lasts]
                best = max(best, scores.max())
            result[x] = min(best, 1.0)
        result.setflags(write=False)  # shared by all who ask
        return result

    @cached_property
    def rows(self) -> Floats:
        """All rows, in the order of `contexts`: m x n floats, built when they are first asked for. Prefer `group`."""
        nexts = map(np.flatnonzero, self.joined)
        return np.concatenate([self._normalise_rows(slice(i, i + 1), those) for i, those in enumerate(nexts)])

    def _normalise_rows(self, lasts: NDArray[np.intp] | slice, nexts: NDArray[np.intp] | slice) -> Floats:
        """Compute these contexts' rows; one `last` or `next` goes with all the others."""
        weights: Floats = self.walk[lasts] * self.chain.P.T[nexts]
        weights /= weights.sum(axis=1, keepdims=True)
        return weights


class Walks:
    """Single rows of P^k, for lags k that grow by one from draw to draw: each is the row before times P, n^2 products.

    A row is walked the same way, and is the same to the bit, whatever was asked for before. Its relative error is that
    of `powers.power`: k - 1 products, each summed in the same blocks.
    """

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self._power = lru_cache(maxsize=2)(chain.power)
        self._reached: dict[int, tuple[int, Floats]] = {}

    def row(self, last: int, k: int) -> Floats:
        """Compute row `last` of P^k for k >= 1, by repeated squaring if the walk is long."""
        if k > MOST_STEPS:
            far: Floats = self._power(k)[last]
            return far
        row: Floats = self.chain.P[last]
        steps, reached = self._reached.get(last, (1, row))
        steps, row = (steps, reached) if steps <= k else (1, row)
        for _ in range(steps, k):
            row = products.product(row[None], self.chain.P)[0]
        while len(self._reached) >= KEPT:
            self._reached.pop(next(iter(self._reached)), None)
        self._reached[last] = k, row
        return row


class WalkedPosterior(Posterior):
    """`Posterior` for draws: its rows come from `walks`, unless the lag is far or probabilities might underflow."""

    def __init__(self, chain: Chain, lag: int, walks: Walks) -> None:
        super().__init__(chain, lag)
        self._walks = walks
        least = math.log2(chain.P[self.edges].min())
        # If every source may follow every other, an entry of P^lag is an average of entries of P.
        smallest = least * (2 if self.edges.all() else self.lag + 1)
        self._walked = 1 <= lag <= MOST_STEPS and smallest >= math.log2(SAFE)

    def row(self, last: int, next: int) -> Floats:
        """Compute p(. | last, next): n^2 products for each lag since the last call with this `last`."""
        if not self._walked:
            return super().row(last, next)
        self.possible(last, next)
        weights = self._walks.row(last, self.lag) * self.chain.P[:, next]
        result: Floats = weights / np.sum(weights)
        return result
