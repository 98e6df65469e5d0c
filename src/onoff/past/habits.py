"""Habits that keep themselves: the chain that a client of the promise `past` uses, as a function of public things.

A chain becomes public when a query is drawn with it, so it may be made of public things only:

1. `learning`: everything is asked for, and transitions between open requests are counted. After `requests_needed` of
   them the chain is `complete`, and the next step must be OFF, so that the chain is used before anything private is
   asked (`known`). A private request that comes earlier ends the learning: then everything is asked for (`all`).
2. `known`: where the last queries leave one candidate alone (`onoff.past.state`), the reader's state is public. If the
   next OFF query has one source, this is the request, and the transition to it is counted. No other one is counted: a
   transition from a set to a single source, or to a private request, would tell of what is hidden.
3. After as many new transitions as `requests_needed`, the chain is fitted again, with the old one as its prior.

The fuse bets against the chain at the transitions that are counted. Let mu be the row P[z], and nu the law of an
alternative. If the true row is within eps of mu in total variation, the mean of

    clip(nu / mu, lo, hi)   with   sum of (nu / hi - mu)+  =  eps  =  sum of (mu - nu / lo)+

is at most 1: the factor is nu / mu', where mu' is the law within eps with the largest mean. Honest requests use up
the capital of a bet. So it is staked in parts, 1/2, 1/6, 1/12, ..., a part whenever there were as many bets as there
are sources. All parts sum to 1, and the capital ever reaches `BLOWN` with probability at most 1 / BLOWN (Ville's
inequality). Then the requests do not follow the chain, and everything is asked for from then on: a function of queries
alone, which tells nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import log
from typing import Any, Self

import numpy as np

from onoff.errors import PlanError
from onoff.model.chain import Chain
from onoff.model.misfit import FEW
from onoff.past.state import PastState
from onoff.types import Floats, Query, Units

STAGES = ("learning", "complete", "known", "all")
PRIORS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)  # transitions: the shares of all requests count as one of these in a row
BLOWN = 1000.0
QUANTILE, DRAWS = 0.99, 400  # of the distance between a row and one that its counts leave plausible
PULLS = (1.0, 0.1)  # how fast two alternatives move from the row of the chain to what was counted
IN_ORDER = 0.9  # a third expects the next source of the list with this probability


def requests_needed(states: int) -> int:
    """How many transitions make a chain of so many states."""
    return FEW * states


@dataclass(frozen=True, eq=False)
class Habits:
    """The chain, the stage of its making, and the transitions since.

    `counts[z, x]` are the transitions since the chain was made. `wealth` is the capital of each bet, as far as it was
    staked, after so many `bets`.
    """

    chain: Chain
    stage: str
    counts: Units | None = None
    wealth: tuple[float, ...] = (0.0, 0.0, 0.0)
    bets: int = 0

    @property
    def blown(self) -> bool:
        """True if the bets say that requests do not follow the chain."""
        return bool(np.mean(self.wealth) >= BLOWN)

    @property
    def transitions(self) -> Units:
        return np.zeros(self.chain.P.shape, np.int64) if self.counts is None else self.counts

    def as_dict(self) -> dict[str, Any]:
        """All but the chain, for a journal."""
        counts = np.zeros((0, 0), np.int64) if self.counts is None else self.counts
        counted = counts.nonzero()
        return {
            "stage": self.stage,
            "wealth": list(self.wealth),
            "bets": self.bets,
            "counts": np.transpose([*counted, counts[counted]]).tolist(),
        }

    @classmethod
    def from_dict(cls, chain: Chain, data: dict[str, Any]) -> Self:
        """Read what `as_dict` wrote. Raises `PlanError` if it makes no sense."""
        try:
            counts = np.zeros(chain.P.shape if data["counts"] else (0, 0), np.int64)
            for x, y, count in data["counts"]:
                counts[x, y] = count
            wealth = tuple(map(float, data["wealth"]))
            if data["stage"] not in STAGES or len(wealth) != len(cls.wealth) or counts.min(initial=0) < 0:
                raise ValueError("its parts do not fit together")
            return cls(chain, data["stage"], counts if counts.size else None, wealth, int(data["bets"]))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise PlanError(f"the habits are damaged: {error}") from None

    def after_learning(self, state: int | None, request: int, private: bool) -> Self:
        """The habits after a request in a state, None if that is not known; at the stages `learning` and `complete`.

        `private`: it was asked ON.
        """
        if private:
            return replace(self, stage="all", counts=None)
        if self.stage == "complete" or state is None:
            return self
        after = self.count(state, request)
        return replace(after.fit(), stage="complete") if after.has_enough else after

    def after_query(self, state: int | None, query: Query) -> Self:
        """The habits after an OFF query, in the one state that could be the reader's; None if there were more.

        It is a function of queries alone.
        """
        after = replace(self, stage="known")
        if state is None or len(query) > 1:
            return after
        after = after.with_bet(state, query[0]).count(state, query[0])
        if after.blown:
            # Counts judge a chain that was stated once; what they make of it is not stated as exact.
            return after.fit() if self.chain.weight is None and after.has_enough else replace(after, stage="all")
        if self.chain.weight is not None and after.has_enough:
            return replace(after.refit(self.chain.P, self.chain.weight), wealth=after.wealth, bets=after.bets)
        return after

    @property
    def bits(self) -> float:
        """What a better model gains over the chain, in bits a request: one that learns, or the best bet."""
        if not self.bets:
            return 0.0
        counts, P = self.transitions, self.chain.P
        total = int(counts.sum())
        if not total:
            return 0.0
        own = float((counts[counts > 0] * np.log(P[counts > 0])).sum())
        learner = max(log_evidence(counts, pull * P) for pull in PULLS) - own
        return max(0.0, learner / total, log(max(self.wealth) or 1.0) / self.bets) / log(2)

    @property
    def has_enough(self) -> bool:
        """True if the counts suffice for a chain."""
        return bool(self.transitions.sum() >= requests_needed(len(self.chain.P)))

    def with_bet(self, state: int, request: int) -> Self:
        """Bet on a request in a known state."""
        turn, rest = divmod(self.bets, self.chain.n)
        stake = 0.0 if rest else 1 / ((turn + 1) * (turn + 2))
        wealth = (np.array(self.wealth) + stake) * self.factors(state)[:, request]
        return replace(self, wealth=tuple(wealth.tolist()), bets=self.bets + 1)

    def count(self, state: int, request: int) -> Self:
        """Count a transition."""
        counts = self.transitions.copy()
        counts[state, request] += 1
        return replace(self, counts=counts)

    def fit(self) -> Self:
        """Fit a chain to the counts alone: rows are pulled towards the shares of all requests.

        The pull is the likeliest of `PRIORS`. Were it too strong, rows of few counts would not be plausible, and the
        fuse would blow.
        """
        counts = self.transitions
        shares = (counts.sum(axis=0) + 0.5) / (counts.sum() + self.chain.n / 2)
        pull = max(PRIORS, key=lambda weight: log_evidence(counts, weight * shares))
        return self.refit(np.broadcast_to(shares, counts.shape), np.full(len(counts), pull))

    def refit(self, prior: Floats, weight: Floats) -> Self:
        """Fit a chain to the counts and a `prior` that weighs `weight` transitions a state; bets begin anew."""
        total = weight + self.transitions.sum(axis=1)
        P = (weight[:, None] * prior + self.transitions) / total[:, None]
        chain = Chain(P, self.chain.names, total, self.chain.states)
        return replace(self, chain=chain, counts=None, wealth=Habits.wealth, bets=0)

    def factors(self, state: int) -> Floats:
        """Column y: the factor of each bet's capital if y is requested next."""
        mu, seen = self.chain.P[state], self.transitions[state]
        order = (1 - IN_ORDER) * mu
        order[(self.chain.last[state] + 1) % len(mu)] += IN_ORDER
        laws = [(pull * mu + seen) / (pull + seen.sum()) for pull in PULLS] + [order]
        weight = self.chain.weight
        eps = 0.0 if weight is None else plausible_distance(mu.tobytes(), float(weight[state]))
        return np.array([clip_factors(mu, nu, eps) for nu in laws])


def log_evidence(counts: Units, prior: Floats) -> float:
    """The logarithm of the probability of the counted transitions, in their order, if rows come from Dirichlet(prior).

    It is also that of a model that learns: after N_x transitions from x it expects (prior + N) / (sum of prior + N_x).
    """
    from scipy.special import gammaln

    prior, seen = np.broadcast_to(prior, counts.shape), counts > 0
    total = prior.sum(axis=1)
    rows = gammaln(total) - gammaln(total + counts.sum(axis=1))
    return float(rows.sum() + (gammaln((prior + counts)[seen]) - gammaln(prior[seen])).sum())


@lru_cache(maxsize=1024)
def plausible_distance(row: bytes, weight: float) -> float:
    """The quantile of the total variation between mu, whose bytes are given, and a row drawn from Dirichlet(weight mu).

    The draws are the same every time, so that all who compute it find the same.
    """
    mu = np.frombuffer(row)
    drawn = np.random.default_rng(0).standard_gamma(weight * mu, (DRAWS, len(mu)))
    total = drawn.sum(axis=1)
    if not total.all():
        return 1.0  # the weight is so small that all is plausible
    return float(np.quantile(np.abs(drawn / total[:, None] - mu).sum(axis=1) / 2, QUANTILE))


def clip_factors(mu: Floats, nu: Floats, eps: float) -> Floats:
    """nu / mu between `lo` and `hi`; 1 if nu is within eps of mu.

    The sum of (nu / hi - mu)+ is the maximum of nu(A) / hi - mu(A) over all sets A, and a set of largest quotients
    attains it: so hi is the largest nu(A) / (mu(A) + eps), and lo the least nu(A) / (mu(A) - eps).
    """
    possible = mu > 0  # nothing else is ever asked for
    if not possible.all():
        factors = np.ones_like(mu)
        factors[possible] = clip_factors(mu[possible], nu[possible], eps)
        return factors
    order = np.argsort(-nu / mu)
    top_nu, top_mu = nu[order].cumsum(), mu[order].cumsum()
    hi = (top_nu / (top_mu + eps)).max()
    low_nu, low_mu = nu[order[::-1]].cumsum(), mu[order[::-1]].cumsum()
    large = low_mu > eps
    if hi <= 1 or not large.any():
        return np.ones_like(mu)
    return np.clip(nu / mu, (low_nu[large] / (low_mu[large] - eps)).min(), hi)


@dataclass(frozen=True)
class PublicState:
    """All that is public between two steps of a client that keeps the promise `past` or `all`.

    The law of a query, whether everything is asked for, and when the chain changes follow from it alone. `queries` are
    the last ones, as many as the chain remembers, or fewer at the beginning.
    """

    habits: Habits
    sensitive: Query = ()
    queries: tuple[Query, ...] = ()

    def asks_for_all(self, private: bool) -> bool:
        """True if the next step asks for everything. A private request always does."""
        return private or self.habits.stage not in ("complete", "known")

    @property
    def state(self) -> PastState:
        """The state from which the next OFF query is drawn."""
        return PastState(self.habits.chain, self.sensitive, self.queries)

    def after_everything(self, reader: int | None, request: int, private: bool) -> Self:
        """Advance by a full-set step of a reader in this state of the habits. `private`: it was asked ON."""
        habits = self.habits
        if habits.stage in ("learning", "complete"):
            habits = habits.after_learning(reader, request, private)
        return self._with_query(habits, tuple(range(habits.chain.n)))

    def after(self, query: Query) -> Self:
        """Advance by an OFF step."""
        states = self.state.candidates.states
        only = states[0] if len(states) == 1 else None
        # With sensitive sources no query shows an open request, and nothing is counted.
        return self._with_query(self.habits if self.sensitive else self.habits.after_query(only, query), query)

    def _with_query(self, habits: Habits, query: Query) -> Self:
        return replace(self, habits=habits, queries=(*self.queries, query)[-habits.chain.depth :])

    def as_dict(self) -> dict[str, Any]:
        """The state for a journal, without the chain. Nothing in it is hidden from the server."""
        queries = [list(query) for query in self.queries]
        return {"habits": self.habits.as_dict(), "sensitive": list(self.sensitive), "queries": queries}

    @classmethod
    def from_dict(cls, chain: Chain, data: dict[str, Any]) -> Self:
        """Read what `as_dict` wrote. Raises `PlanError` if it is damaged."""
        queries = tuple(map(tuple, data["queries"]))
        if any(not query or list(query) != sorted({*query} & {*range(chain.n)}) for query in queries):
            raise PlanError("the last queries are no sets of sources")
        return cls(Habits.from_dict(chain, data["habits"]), tuple(data["sensitive"]), queries)
