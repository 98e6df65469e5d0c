"""What the request may be, given what must stay hidden: p(x | u) for the context u = (last, next).

`Posterior` has it in floats with a proved error. `ExactPosterior` has it in fractions, slow and exact, for small n. It
is the oracle that the floats are tested against.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onoff.errors import ChainError, ContextError
from onoff.model import powers as products
from onoff.model.chain import Chain, checked_chain
from onoff.types import Floats, Mask, is_whole

SAFE = 2.0**-900  # products above this neither underflow nor lose a term that matters


class Support:
    """Which contexts and requests are possible at a lag, decided from the graph of the chain: floats underflow.

    The context (i, k) is possible iff a walk of lag + 1 steps leads from i to k; there may be fewer than n^2.
    """

    def __init__(self, chain: Chain, lag: int) -> None:
        checked_chain(chain)
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
        """joined[last, next]: whether the context is possible."""
        return products.boolean_power(self.edges, self.lag + 1)

    @cached_property
    def contexts(self) -> NDArray[np.intp]:
        """All possible contexts as rows (last, next), in lexicographic order."""
        return np.argwhere(self.joined)

    def supports(self) -> Iterator[Mask]:
        """For each `last`, the distinct sets of possible requests in its contexts; only one if none leaves one out."""
        if self.edges.all() and self.reached.all():
            yield np.ones((1, self.n), dtype=bool)
            return
        for last in range(self.n):
            masks = self.reached[last] & self.edges[:, self.joined[last]].T
            yield np.unique(masks, axis=0)

    def possible(self, last: int, next: int) -> Mask:
        """The requests of positive probability in a context. Raises `ContextError` if the context is impossible."""
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

    These are the rows (`rows.Rows`) of the announced promise. Lag 0 is the ON case: the request is `last` itself.
    A request below 2^-1075 has a float of 0: only `possible` tells it from an impossible one. Only P^lag, `walk`, is
    kept; it and `rows` are computed when they are first asked for.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return Posterior, (self.chain, self.lag)  # the rest is computed again where it is needed

    @cached_property
    def walk(self) -> Floats:
        """P^lag."""
        return self.chain.power(self.lag)

    @cached_property
    def _wide(self) -> tuple[products.Wide, products.Wide] | None:
        P = self.chain.P
        smallest = self.walk[self.reached].min(initial=1.0) * P[self.edges].min()
        if self.lag and smallest < SAFE:
            return products.wide_power(P, self.lag), products.widen(P.T)
        return None

    @property
    def scaled(self) -> bool:
        """Whether products of probabilities underflow here, so that rows are computed with exponents."""
        return self._wide is not None

    @property
    def relative_error(self) -> float:
        """A proved bound on |computed - exact| / exact of every p(x | u) above 2^-1000; exact at lag 0.

        The factors are non-negative: P^lag is off by (lag - 1) gamma(summands), numerator and denominator alike,
        and forming, adding and dividing n products meets fewer than n + 3 roundings more.
        """
        if self.lag == 0:
            return 0.0
        terms = self.n if self.scaled else products.summands(self.n)
        return 2.02 * products.gamma((self.lag - 1) * terms) + products.gamma(self.n + 3)

    @property
    def total_variation(self) -> float:
        """A proved bound on the total variation between a computed row and the exact one."""
        return self.relative_error + self.n * 2.0**-999

    def row(self, last: int, next: int) -> Floats:
        """p(. | last, next) in O(n). Raises `ContextError` if the context is impossible."""
        self.possible(last, next)
        return self._normalised(np.array([last]), np.array([next])).reshape(-1)

    @property
    def groups(self) -> int:
        """Contexts with the same `next` are a group: at larger lags they are almost alike."""
        return self.n

    def group(self, index: int) -> Floats:
        """The rows of all possible contexts whose `next` is `index`, in the order of `last`."""
        if not (is_whole(index) and index < self.n):
            raise ChainError(f"the group is {index!r}: the sources are 0 to {self.n - 1}", value=index)
        joined = self.joined[:, index]
        return self._normalised(slice(None) if joined.all() else np.flatnonzero(joined), slice(index, index + 1))

    @cached_property
    def peaks(self) -> Floats:
        """max_u p(x | u) for every source x, faster than all rows: at most n^3 products and no sums.

        Contexts whose `last` or `next` cannot give the largest value are left out. Float multiplication is monotone, so
        that the result is bit for bit that of looking at all of them.
        """
        result = np.zeros(self.n)
        if self.scaled:
            for _, rows in self.blocks():
                result = np.maximum(result, rows.max(axis=0, initial=0))
        else:
            P, inverse = self.chain.P, np.zeros((self.n, self.n))
            np.divide(1.0, products.product(self.walk, P), out=inverse, where=self.joined)
            by_last, by_next = inverse.max(axis=1), inverse.max(axis=0)
            for x in range(self.n):
                before, after = self.walk[:, x], P[x]
                of_last, of_next = by_last * after.max() * before, by_next * after * before.max()  # the most there
                first = int(of_last.argmax())
                best = (inverse[first] * after).max() * before[first]
                lasts, nexts = np.flatnonzero(of_last > best), np.flatnonzero(of_next > best)
                if len(lasts) and len(nexts):
                    scores = (inverse[np.ix_(lasts, nexts)] * after[nexts]).max(axis=1) * before[lasts]
                    best = max(best, scores.max())
                result[x] = best
            result = np.minimum(result, 1.0)
        result.setflags(write=False)  # shared by all who ask
        return result

    def blocks(self) -> Iterator[tuple[NDArray[np.intp], Floats]]:
        """For each `last`: its possible contexts and their rows. n^2 numbers at a time."""
        for last in range(self.n):
            nexts = np.flatnonzero(self.joined[last])
            lasts = np.full(len(nexts), last)
            yield np.stack([lasts, nexts], axis=1), self._normalised(slice(last, last + 1), nexts)

    @cached_property
    def rows(self) -> Floats:
        """All rows, in the order of `contexts`: m x n floats, built when they are first asked for. Prefer `blocks`."""
        return np.concatenate([rows for _, rows in self.blocks()])

    def _normalised(self, lasts: NDArray[np.intp] | slice, nexts: NDArray[np.intp] | slice) -> Floats:
        """The rows of these contexts; one `last` or `next` goes with all of the others."""
        if self._wide is None:
            weights: Floats = self.walk[lasts] * self.chain.P.T[nexts]
        else:
            left, right = self._wide
            weights, _ = products.scaled_products(
                products.Wide(left.mantissa[lasts], left.exponent[lasts]),
                products.Wide(right.mantissa[nexts], right.exponent[nexts]),
            )
        weights /= weights.sum(axis=1, keepdims=True)
        return weights


class ExactPosterior(Support):
    """`Posterior` over `fractions.Fraction`: the same names, arrays of dtype object.

    The matrix is taken as the floats say, digit for digit, and every row is divided by its exact sum.
    """

    def __init__(self, chain: Chain, lag: int) -> None:
        super().__init__(chain, lag)
        self._P = np.array([[Fraction(float(p)) for p in row] for row in chain.P], dtype=object)
        self._power = np.array([[Fraction(int(i == j)) for j in range(self.n)] for i in range(self.n)], dtype=object)
        for _ in range(self.lag):
            self._power = products.whole_times(self._power, self._P)

    def row(self, last: int, next: int) -> NDArray[Any]:
        """p(. | last, next); an error if the context is impossible."""
        self.possible(last, next)
        weights = self._power[last] * self._P[:, next]
        row: NDArray[Any] = weights / weights.sum()
        return row

    def blocks(self) -> Iterator[tuple[NDArray[np.intp], NDArray[Any]]]:
        """For each `last`: its possible contexts and their rows."""
        for last in range(self.n):
            block = self.contexts[self.contexts[:, 0] == last]
            yield block, np.array([self.row(last, int(k)) for k in block[:, 1]], dtype=object)

    @cached_property
    def rows(self) -> NDArray[Any]:
        """All rows, in the order of `contexts`."""
        return np.concatenate([rows for _, rows in self.blocks()])
