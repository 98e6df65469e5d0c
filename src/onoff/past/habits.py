"""Habits that keep themselves: the chain that a client of the promise `past` uses, as a function of public things.

A chain becomes public when a query is drawn with it, so it may be made of public things only:

1. `learn`: everything is asked for, and open requests are noted. After `requests_needed` of them the chain is fixed
   (`fixed`), and the next step must be OFF, so that the chain is used before anything private is asked (`known`). A
   private request that comes earlier ends the learning: everything is asked for from then on (`all`).
2. `known`: after a query of one source, the next OFF query has one source, too, which is the request. Transitions
   between two such queries are counted. Nothing else is: from a set into a single source, or into a private request,
   they would tell of what is hidden.
3. After as many new transitions as `requests_needed`, the chain is fitted again, with the old one as its prior. It
   changes right after a full set, or after a query of one source: there the server's belief about the last request is
   one point, whatever the chain was.

The fuse bets against the chain at the transitions that are counted. Let mu be the row P[x], and nu the law of an
alternative. If the true row is within eps of mu in total variation, the mean of

    clip(nu / mu, lo, hi)   with   sum of (nu / hi - mu)+  =  eps  =  sum of (mu - nu / lo)+

is at most 1, for it is nu / mu' with mu' the law within eps that it favours most. The capital of such bets ever reaches
`BLOWN` with probability at most 1 / BLOWN (Ville's inequality). Then the requests do not follow the chain, and
everything is asked for from then on: a function of queries alone, which tells nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np

from onoff.errors import PlanError
from onoff.model.chain import Chain
from onoff.model.misfit import FEW
from onoff.types import Floats, Query, Units

STAGES = ("learn", "fixed", "known", "all")
PRIOR = 5.0  # transitions: what is known of a source before any was seen, the shares of all requests, counts as many
BLOWN = 1000.0
QUANTILE, DRAWS = 0.99, 400  # of the distance between a row and one that its counts leave plausible
PULLS = (1.0, 0.1)  # how fast two alternatives move from the row of the chain to what was counted
IN_ORDER = 0.9  # a third expects the next source of the list with this probability


def requests_needed(n: int) -> int:
    """The transitions of n sources that make a first chain, or a new one."""
    return FEW * n


@dataclass(frozen=True, eq=False)
class Habits:
    """The chain, how it came about, and what was counted since.

    `counts` are the transitions since the chain was made. `before` is the request before (`learn`), or the source of
    the query before if that had one source only. `wealth` is the capital of each bet, after so many
    `bets`.
    """

    chain: Chain
    stage: str
    counts: Units | None = None
    before: int | None = None
    wealth: tuple[float, ...] = (1.0, 1.0, 1.0)
    bets: int = 0

    @property
    def blown(self) -> bool:
        """Whether the bets say that requests do not follow the chain."""
        return sum(self.wealth) / len(self.wealth) >= BLOWN

    @property
    def transitions(self) -> Units:
        return np.zeros((self.chain.n, self.chain.n), np.int64) if self.counts is None else self.counts

    def as_dict(self) -> dict[str, Any]:
        """All but the chain, for a journal."""
        counts = [[int(x), int(y), int(self.transitions[x, y])] for x, y in np.argwhere(self.transitions)]
        return {
            "stage": self.stage,
            "before": self.before,
            "wealth": list(self.wealth),
            "bets": self.bets,
            "counts": counts,
        }

    @classmethod
    def from_dict(cls, chain: Chain, data: dict[str, Any]) -> Self:
        """The habits that `as_dict` wrote. Raises `PlanError` if they make no sense."""
        counts = np.zeros((chain.n, chain.n), np.int64)
        try:
            for x, y, count in data["counts"]:
                counts[x, y] = count
            wealth = tuple(map(float, data["wealth"]))
            if data["stage"] not in STAGES or len(wealth) != len(cls.wealth) or counts.min() < 0:
                raise ValueError("its parts do not fit together")
            return cls(chain, data["stage"], counts, data["before"], wealth, int(data["bets"]))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise PlanError(f"the habits are damaged: {error}") from None

    def learned(self, request: int, private: bool) -> Self:
        """The habits after a step of the stages `learn` and `fixed` that was asked ON (`private`) or OFF."""
        if private:
            return replace(self, stage="all", counts=None, before=None)
        if self.stage == "fixed":
            return self
        counts = self.transitions.copy()
        if self.before is not None:
            counts[self.before, request] += 1
        if counts.sum() < requests_needed(self.chain.n):
            return replace(self, counts=counts, before=request)
        return replace(self.fitted(counts), stage="fixed", before=None)

    def asked(self, query: Query, private: bool) -> Self:
        """The habits after a step with a known chain, made ON (`private`) or OFF: a function of the query alone."""
        single = query[0] if len(query) == 1 and not private else None
        wealth, bets, counts = self.wealth, self.bets, self.transitions
        if self.before is not None and single is not None:
            factors = self.factors(self.before)[:, single]
            wealth, bets = tuple(float(w * f) for w, f in zip(wealth, factors, strict=True)), bets + 1
            counts = counts.copy()
            counts[self.before, single] += 1
        after = replace(self, stage="known", wealth=wealth, bets=bets, counts=counts, before=single)
        enough, may_change = counts.sum() >= requests_needed(self.chain.n), private or single is not None
        if after.blown:
            # Counts judge a chain that was stated once; what they make of it is not stated as exact.
            return after.fitted(counts) if self.chain.weight is None and enough else replace(after, stage="all")
        if self.chain.weight is not None and enough and may_change:
            return replace(after.refitted(self.chain.P, self.chain.weight, counts), wealth=wealth, bets=bets)
        return after

    def fitted(self, counts: Units) -> Self:
        """A chain that rests on these counts alone: rows are pulled towards the shares of all requests."""
        shares = (counts.sum(axis=0) + 0.5) / (counts.sum() + self.chain.n / 2)
        return self.refitted(np.broadcast_to(shares, counts.shape), np.full(self.chain.n, PRIOR), counts)

    def refitted(self, prior: Floats, weight: Floats, counts: Units) -> Self:
        """A chain with the `prior` counted as `weight` transitions of each row; bets begin anew."""
        total = weight + counts.sum(axis=1)
        chain = Chain((weight[:, None] * prior + counts) / total[:, None], self.chain.names, total)
        return replace(self, chain=chain, counts=None, wealth=(1.0, 1.0, 1.0), bets=0)

    def factors(self, x: int) -> Floats:
        """What each bet is multiplied by if the next source is y, in column y."""
        mu, seen = self.chain.P[x], self.transitions[x]
        order = (1 - IN_ORDER) * mu
        order[(x + 1) % len(mu)] += IN_ORDER
        laws = [(pull * mu + seen) / (pull + seen.sum()) for pull in PULLS] + [order]
        weight = self.chain.weight
        eps = 0.0 if weight is None else plausible_distance(mu.tobytes(), float(weight[x]))
        return np.array([clipped(mu, nu, eps) for nu in laws])


@lru_cache(maxsize=1024)
def plausible_distance(row: bytes, weight: float) -> float:
    """The quantile of the total variation between mu, whose bytes are given, and a row drawn from Dirichlet(weight mu).

    The draws are the same every time, so that all who compute it find the same.
    """
    mu = np.frombuffer(row)
    drawn = np.random.default_rng(0).standard_gamma(weight * mu, (DRAWS, len(mu)))
    drawn /= drawn.sum(axis=1, keepdims=True)
    return float(np.quantile(np.abs(drawn - mu).sum(axis=1) / 2, QUANTILE))


def clipped(mu: Floats, nu: Floats, eps: float) -> Floats:
    """nu / mu between `lo` and `hi`; 1 if nu is within eps of mu.

    The sum of (nu / hi - mu)+ is the maximum of nu(A) / hi - mu(A) over all sets A, and a set of largest quotients
    attains it: so hi is the largest nu(A) / (mu(A) + eps), and lo the least nu(A) / (mu(A) - eps).
    """
    possible = mu > 0  # nothing else is ever asked for
    if not possible.all():
        factors = np.ones_like(mu)
        factors[possible] = clipped(mu[possible], nu[possible], eps)
        return factors
    order = np.argsort(-nu / mu)
    top_nu, top_mu = nu[order].cumsum(), mu[order].cumsum()
    hi = (top_nu / (top_mu + eps)).max()
    low_nu, low_mu = nu[order[::-1]].cumsum(), mu[order[::-1]].cumsum()
    large = low_mu > eps
    if hi <= 1 or not large.any():
        return np.ones_like(mu)
    return np.clip(nu / mu, (low_nu[large] / (low_mu[large] - eps)).min(), hi)
