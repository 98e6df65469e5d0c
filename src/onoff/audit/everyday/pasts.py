"""What queries tell about the next request, given the last thing that is hidden: plain Bayes, nothing merged.

A *thing* is a request that is hidden: one made ON, or a sensitive one. Given the last thing (s, tau), nothing before
tau matters for requests after it, by the Markov property, nor for queries: the client's context follows from s, tau
and the recorded moves of contexts. So the forward algorithm over pairs (last thing, request) is exact:

    weight[thing, x] = p(last thing, X_t = x | Q_0..Q_{t-1}).

At an OFF step the query i multiplies it by w(i | x), the units of x on it over all units of x, in the encoder of the
thing's context; for a sensitive x by the mass of i. Where the request is sensitive, or the step ON, it becomes the last
thing. Then the request moves on by the chain.

Which pairs are possible is decided from the graph of the chain, since floats underflow. Things that the server believes
in with less than 2^-60 are left out; `forgotten` says whether there were any. Everything is a sum of products of
non-negative floats, so the relative error of a weight is at most (n + 8) 2^-53 for each step since its thing (`ages`),
up to a factor common to all entries of that thing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onoff.audit.everyday.record import Law
from onoff.errors import OnoffError
from onoff.model.chain import Chain
from onoff.model.powers import UNIT, counts, times
from onoff.types import Floats, Mask, Query

FORGOTTEN = 2.0**-60
LOST = -1  # the context of a thing for which the record has none
Whole = NDArray[np.int64]


class Impossible(OnoffError):
    """No request can have caused the query, under the recorded law."""


@dataclass(frozen=True, eq=False)
class Pasts:
    """The state before step `step`: thing k is the request `sources[k]` of step `made[k]`.

    `contexts[k]` is the context that its reader had at the step before; it counts only where `made` is earlier than
    that step.
    """

    chain: Chain
    sensitive: tuple[int, ...]
    step: int
    sources: Whole
    made: Whole
    contexts: Whole
    weight: Floats
    possible: Mask
    ages: Whole
    forgotten: bool
    spare: bool = False  # whether a client may have contexts for readers who cannot be

    @classmethod
    def begin(cls, chain: Chain, sensitive: tuple[int, ...], first: Floats) -> Pasts:
        """Before the first step, which must be ON: nothing is hidden yet, and the first request has the law `first`."""
        none, law = np.full(1, -1), (first / first.sum())[None]
        return cls(chain, sensitive, 0, none, none, none, law, law > 0, np.zeros(1, dtype=np.int64), False)

    @property
    def believed(self) -> Floats:
        """p(X_t = x | Q_0..Q_{t-1})."""
        result: Floats = self.weight.sum(axis=0)
        return result

    @property
    def open_sources(self) -> Mask:
        """The sources that are not sensitive."""
        mask = np.ones(self.chain.n, dtype=bool)
        mask[list(self.sensitive)] = False
        return mask

    @property
    def errors(self) -> Floats:
        """For each thing, a bound on the relative error of its row."""
        result: Floats = np.expm1(2 * (self.chain.n + 8) * UNIT * (self.ages + 1))
        return result

    def homes(self, law: Law) -> Whole:
        """The context of each thing's reader at this step, as the law says; LOST where it has none."""
        fresh = self.made == self.step - 1
        result: Whole = np.where(fresh, _at(law.joined, self.sources), _at(law.place, self.contexts))
        return result

    def likelihood(self, query: Query, law: Law) -> Floats:
        """p(query | last thing, X_t = x) by the recorded law. Raises `Impossible` if it does not have the query."""
        index = law.index(query)
        if index is None:
            raise Impossible(f"step {self.step}: {query} is not a set of the recorded law")
        n = self.chain.n
        result = np.zeros((len(self.sources), n))
        homes = self.homes(law)
        for context in np.unique(homes):
            table = law.tables.get(int(context))
            if table is not None:
                result[homes == context] = table.on(index, n) / np.maximum(table.totals(n), 1)
        result[:, list(self.sensitive)] = law.masses[index] / law.denominator
        return result

    def on(self) -> Pasts:
        """After an ON step: the full set was asked for, and its request is the last thing now."""
        n = self.chain.n
        believed = self.believed
        every = np.arange(n)
        possible = self.possible.any(axis=0)
        found = self._next(every[possible], np.full(n, LOST)[possible], np.diag(believed)[possible],
                           np.eye(n, dtype=bool)[possible], np.zeros(n, dtype=np.int64)[possible], True)  # fmt: skip
        # A client need not know that some requests were impossible here: it may have encoders for their readers.
        return replace(found, spare=not possible.all())

    def off(self, query: Query, law: Law) -> Pasts:
        """After an OFF step with this query, drawn from this law."""
        chances, homes = self.likelihood(query, law), self.homes(law)
        weight, seen = self.weight * chances, self.possible & (chances > 0)
        still = np.where(self.open_sources, weight, 0.0)
        stays = (seen & self.open_sources).any(axis=1)
        joining = np.array([s for s in self.sensitive if seen[:, s].any()], dtype=np.int64)
        new = np.zeros((len(joining), self.chain.n))
        new[np.arange(len(joining)), joining] = weight[:, joining].sum(axis=0)
        return self._next(
            np.concatenate([self.sources[stays], joining]),
            np.concatenate([homes[stays], np.full(len(joining), LOST)]),
            np.concatenate([still[stays], new]),
            np.concatenate([(seen & self.open_sources)[stays], new > 0]),
            np.concatenate([self.ages[stays] + 1, np.zeros(len(joining), dtype=np.int64)]),
            False,
            np.concatenate([self.made[stays], np.full(len(joining), self.step)]),
        )

    def silent(self) -> Pasts:
        """After a step whose law is not known: it tells nothing, and contexts are not known before the next ON step."""
        lost = np.full(len(self.sources), LOST)
        return self._next(self.sources, lost, self.weight, self.possible, self.ages + 1, False, self.made)

    def _next(
        self, sources: Any, contexts: Any, weight: Floats, possible: Mask, ages: Any, on: bool, made: Any = None
    ) -> Pasts:
        """Move on by the chain, scale to a sum of 1, and leave out what nobody believes."""
        total = weight.sum()
        if not total > 0:
            raise Impossible(f"step {self.step}: no request can have caused the query under the recorded law")
        weight = weight / total
        kept = weight.sum(axis=1) >= FORGOTTEN
        made = np.full(len(sources), self.step) if made is None else made
        single = np.count_nonzero(possible, axis=1) == 1  # then the next row is one of the chain's, whatever it was
        return Pasts(
            self.chain,
            self.sensitive,
            self.step + 1,
            sources[kept],
            made[kept],
            contexts[kept],
            times(weight[kept], self.chain.P),
            counts(possible[kept], self.chain.P > 0) > 0,
            np.where(single, 0, ages)[kept],
            (self.forgotten and not on) or not bool(kept.all()),
            self.spare and not on,
        )


def _at(numbers: tuple[int, ...], index: Whole) -> Whole:
    """The numbers at these places; LOST where there is none."""
    known = np.array([*numbers, LOST], dtype=np.int64)
    return known[np.where((index >= 0) & (index < len(numbers)), index, len(numbers))]
