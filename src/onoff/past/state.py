"""The public state of the promise `past`: the last query, and nothing else.

With habits that remember k requests it is the last k queries. The states to which requests in them may have led are
the *candidates* Z. Let S be the sensitive sources, N the others, and P the chain.

    ON    W = everything
    OFF   r_z = P[z, .] on N, normalised, for every candidate z with P[z, N] > 0
          mu dominates every r_z:   there are encoders w_z with   sum over x of r_z(x) w_z(R | x) = mu(R)
          the request x is open:    R ~ w_z(. | x), where z is the reader's own state
          the request is sensitive: R ~ mu
          W = S + R

**Theorem 1.** Let K_t be the request of step t if it is ON or sensitive, else "open". Assume that open requests follow
P, that statuses do not depend on requests, and that draws are fresh. Then the law of W_t, given all requests before
step t, K_t and W_0..W_{t-1}, depends on W_0..W_{t-1} alone, whatever the law of ON and sensitive requests is.
*Proof.* Any past leads to a state z, and z is in Z, since every request is in its query. Z is a function of queries. If
step t is ON, W_t is constant. Given a past and a sensitive request, R ~ mu. Given a past and "open", the request has
the law r_z, so R has the law sum over x of r_z(x) w_z(R | x) = mu(R). The probability of "open" is never used. ∎

P may be another matrix at every step, if queries and statuses determine it. **Theorem 2.** If requests do not follow P,
and their law given a past and "open" is within eps of r_z, then the law of R is within eps of mu: encoders turn laws of
requests into laws of queries, and never increase a distance. So one step has one error, and nothing adds up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Self

import numpy as np

from onoff.errors import ChainError
from onoff.model.chain import Chain
from onoff.past.candidates import Candidates
from onoff.past.race import RaceStep
from onoff.past.step import StepLaw, prepare
from onoff.types import Query, is_whole


@dataclass(frozen=True)
class PastState:
    """The chain, the sensitive sources, and the last queries: as many as the chain remembers, the newest last."""

    chain: Chain
    sensitive: Query
    queries: tuple[Query, ...]

    @classmethod
    def start(cls, chain: Chain, sensitive: Iterable[int | str] = ()) -> Self:
        """The state after as many ON steps as the chain remembers requests."""
        everything = tuple(range(chain.n))
        return cls(chain, sensitive_sources(chain, sensitive), (everything,) * chain.depth)

    @cached_property
    def candidates(self) -> Candidates:
        """Z: the states after all requests that the last queries allow."""
        if self.chain.depth == 1:
            return Candidates(self.chain, self.sensitive, self.queries[-1])
        states = np.arange(len(self.chain.P))
        for query in self.queries:
            states = np.unique(self.chain.step[states][:, list(query)])
        return Candidates(self.chain, self.sensitive, tuple(states.tolist()))

    def prepare(self, deadline: float = inf) -> StepLaw | RaceStep:
        """Make the law of the next OFF query. Raises `TimeoutError` past the deadline."""
        return prepare(self.candidates, deadline)

    def after(self, query: Query) -> Self:
        """The state after one more step with this query."""
        return replace(self, queries=(*self.queries, query)[-self.chain.depth :])


def sensitive_sources(chain: Chain, sources: Iterable[int | str]) -> Query:
    """Sources by index or by name, sorted. Raises `ChainError` for one that the chain does not have."""
    if isinstance(sources, str) or not isinstance(sources, Iterable):
        raise ChainError(f"the sensitive sources are {sources!r}: give a list of names", value=sources)
    found = set()
    for source in sources:
        index = chain.index(source) if isinstance(source, str) else source
        if not (is_whole(index) and index < chain.n):
            raise ChainError(
                f"the sensitive source {source!r} is unknown: give names, or 0 to {chain.n - 1}", value=source
            )
        found.add(int(index))
    return tuple(sorted(found))
