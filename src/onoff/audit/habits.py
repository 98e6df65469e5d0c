"""Which chain serves each step of the promises `past` and `all`, and which steps ask for everything: worked out again.

The rules are those of the client; the referee follows them with code of its own. The journal notes each chain with the
first step that it serves. Here it is compared with the one that is due:

    learning  everything is asked for. Open requests are noted; 10 transitions for each source make the first chain,
              which remembers one request. A request that is asked ON ends it: everything is asked for to the end
    complete  the next step must be asked OFF, and uses that chain; else everything is asked for to the end
    known     where the last queries leave one state, a transition from there to an OFF query of one source is counted
              and bet on. After 10 for each state the chain is fitted again. If the bets reach 1000, everything is asked
              for to the end, unless a chain stated as exact can be replaced by the counts

Nothing after the learning looks at requests: queries and statuses decide.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lgamma
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onoff.audit.law import UNCHECKED, Finding
from onoff.types import Floats, Query, Units

if TYPE_CHECKING:
    from onoff.audit.files import Journal, Step
    from onoff.model.chain import Chain

ANEW = "everything, anew"  # the plan of a full set before which a request may be missing
EACH, BLOWN = 10, 1000.0
PRIORS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
QUANTILE, DRAWS = 0.99, 400
NEAR = 1e-9  # entries of two chains that count as equal
UNKNOWN = Finding(UNCHECKED, "the chain that was learned is believed: requests that it was made of were erased")


@dataclass(frozen=True, eq=False)
class Recorded:
    """Habits of this `depth`: the request x in state z has the probability P[z, x] and leads to step[z, x].

    `weight` are the transitions that rows rest on, None if they were stated as exact.
    """

    P: Floats
    step: Units
    depth: int
    weight: Floats | None = None

    def states_after(self, sets: Sequence[Query]) -> Units:
        """The states after one request from each of these sets, whatever came before."""
        found = np.arange(len(self.P))
        for query in sets[-self.depth :]:
            reached = np.zeros(len(self.P), dtype=bool)
            reached[self.step[found][:, list(query)]] = True
            found = np.flatnonzero(reached)
        return found

    def known_state(self, requests: Sequence[int | None]) -> int | None:
        """The state after these requests; None if that is open. A request may be unknown."""
        everything = tuple(range(self.P.shape[1]))
        found = self.states_after([everything if x is None else (x,) for x in requests])
        return int(found[0]) if len(found) == 1 else None


def read_chain(row: Mapping[str, Any], chain: Chain) -> Recorded | None:
    """Read what a journal made for this chain used: the same states, or those of a Markov chain that was learned.

    None where a person has begun to learn anew.
    """
    if not row["matrix"]:
        return None
    n, longer = chain.n, [list(state) for state in chain.states[chain.n :]]
    like = Recorded(chain.P, chain.step, chain.depth) if json.loads(row["states"]) == longer else _first_order(n)
    P = np.frombuffer(b64decode(row["matrix"]), "<f8").reshape(like.P.shape)
    weight = None if row["weight"] is None else np.array(json.loads(row["weight"]), np.float64)
    if not (P >= 0).all() or abs(P.sum(axis=1) - 1).max() > 1e-9 or (weight is not None and weight.shape != (len(P),)):
        raise ValueError(f"the chain of step {row['step']} is none")
    return replace(like, P=P, weight=weight)


def _first_order(n: int) -> Recorded:
    """A Markov chain before anything is known of habits."""
    return Recorded(np.full((n, n), 1 / n), np.tile(np.arange(n), (n, 1)), 1)


class Served(NamedTuple):
    """What serves a step: the chain, whether everything is `due`, and whether the step `spares` what is fresh."""

    chain: Recorded
    due: bool
    spares: bool = False


def serve(chain: Chain, journal: Journal) -> tuple[list[Served], list[Finding]]:
    """Work out what serves every step of a journal made for this chain, and what is wrong."""
    stated = journal.chains.get(0)
    made_for = Recorded(chain.P, chain.step, chain.depth, None if stated is None else stated.weight)
    if journal.promise == "both":
        return [Served(made_for, False)] * len(journal.steps), []
    learns = journal.learns or (0 in journal.chains and stated is None)  # told to learn anew before the first step
    stage = "all" if journal.promise == "all" else "learning" if learns else "known"
    habits = Habits(made_for, stage, journal)
    served, wrong = [], []
    for step in journal.steps:
        served.append(Served(habits.chain, habits.stage in ("learning", "all"), habits.stage == "all"))
        wrong += [replace(finding, step=step.step) for finding in habits.advance(step, private=step.lag == 0)]
    return served, wrong


class Habits:
    """The state before a step, which `chain` serves, after the last `_sets` and, while learning, the last request."""

    def __init__(self, stated: Recorded, stage: str, journal: Journal) -> None:
        self._recorded, self._sensitive = journal.chains, bool(journal.sensitive)
        self.stage = stage
        self._known = True  # whether all requests that were noted are
        self._last: int | None = None
        self._sets: tuple[Query, ...] = ()
        self._begin(_first_order(stated.P.shape[1]) if stage == "learning" else stated)

    def advance(self, step: Step, private: bool) -> Iterator[Finding]:
        """Move on by a step that was made ON (`private`) or OFF."""
        due = self._after(step, private)
        following = step.step + 1
        noted = self._recorded.get(following, self.chain)
        self._sets = (*self._sets, step.query)[-self.chain.depth :]
        if noted is None:
            self.stage, self._known, self._last = "learning", True, None
            self._begin(_first_order(self.chain.P.shape[1]))
        elif due is None and following in self._recorded:
            if not self._known and self.stage == "learning":
                yield UNKNOWN
                self.stage = "complete"
                self._begin(noted)
            else:
                yield Finding("habits", "another chain is used from the next step on; none is due")
        elif due is not None:
            if not _equal(due, noted):
                yield Finding("habits", "the chain that is used from the next step on is not the one that is due")
            bet = (self._wealth, self._bets) if self.stage == "known" and self.chain.weight is not None else None
            self._begin(noted, bet)

    def _begin(self, chain: Recorded, bet: tuple[Floats, int] | None = None) -> None:
        """Begin to count with this chain. What was `bet` before goes on, with its capital and number."""
        self.chain = chain
        self._wealth, self._bets = (np.zeros(3), 0) if bet is None else bet
        self._counts = np.zeros(chain.P.shape, np.int64)

    def _after(self, step: Step, private: bool) -> Recorded | None:
        """The chain that is due from the next step on, if it is another one."""
        if self.stage in ("learning", "complete") and (step.asked_private or self.stage == "learning"):
            return self._learn(step)
        if self.stage == "all" or self._sensitive or private:
            return None
        self.stage = "known"
        states = self.chain.states_after(self._sets)
        if len(step.query) > 1 or len(states) > 1:
            return None
        self._bet(self._factors(int(states[0]), step.query[0]))
        self._counts[states[0], step.query[0]] += 1
        if self._wealth.mean() >= BLOWN:
            if self.chain.weight is None and self._enough:
                return self._fit()
            self.stage = "all"
        elif self.chain.weight is not None and self._enough:
            return self._posterior(self.chain.P, self.chain.weight)
        return None

    def _bet(self, factors: Floats) -> None:
        """Multiply what was staked: 1/2 with the first bet, and 1/6, 1/12, ... after as many bets as sources each."""
        turn, rest = divmod(self._bets, self.chain.P.shape[1])
        self._wealth = (self._wealth + (0 if rest else 1 / (turn + 1) - 1 / (turn + 2))) * factors
        self._bets += 1

    def _learn(self, step: Step) -> Recorded | None:
        if step.asked_private:
            self.stage = "all"
            return None
        if step.request is None:
            self._known = False
            return None
        before, self._last = None if step.plan == ANEW else self._last, step.request
        if before is not None:
            self._counts[before, step.request] += 1
        if not self._known or not self._enough:
            return None
        self.stage = "complete"
        return self._fit()

    @property
    def _enough(self) -> bool:
        return bool(self._counts.sum() >= EACH * len(self._counts))

    def _fit(self) -> Recorded:
        """A chain that rests on what was counted alone."""
        shares = (self._counts.sum(axis=0) + 0.5) / (self._counts.sum() + self.chain.P.shape[1] / 2)
        likelihoods = [self._log_likelihood(pull * shares) for pull in PRIORS]
        pull = PRIORS[int(np.argmax(likelihoods))]
        return self._posterior(np.tile(shares, (len(self._counts), 1)), np.full(len(self._counts), pull))

    def _log_likelihood(self, prior: Floats) -> float:
        """Of the counts, if each row comes from a Pólya urn with this prior."""
        rise = np.vectorize(lambda start, count: lgamma(start + count) - lgamma(start))
        return float(rise(prior, self._counts).sum() - rise(prior.sum(), self._counts.sum(axis=1)).sum())

    def _posterior(self, prior: Floats, weight: Floats) -> Recorded:
        """A chain of the same states, with the `prior` counted as `weight` transitions."""
        total = weight + self._counts.sum(axis=1)
        return replace(self.chain, P=(weight[:, None] * prior + self._counts) / total[:, None], weight=total)

    def _factors(self, state: int, y: int) -> Floats:
        """What each of three bets gains if y comes after this state."""
        mu, seen = self.chain.P[state], self._counts[state]
        order = 0.1 * mu
        last = int((self.chain.step == state).any(axis=0).argmax())
        order[(last + 1) % len(mu)] += 0.9
        laws = [(pull * mu + seen) / (pull + seen.sum()) for pull in (1.0, 0.1)]
        eps = 0.0
        if self.chain.weight is not None:
            drawn = np.random.default_rng(0).standard_gamma(self.chain.weight[state] * mu, (DRAWS, len(mu)))
            total = np.where((drawn > 0).any(axis=1), drawn.sum(axis=1), np.nan)
            far = np.quantile(np.abs(drawn / total[:, None] - mu).sum(axis=1) / 2, QUANTILE)
            eps = 1.0 if np.isnan(far) else float(far)
        return np.array([_factor(mu, nu, eps, y) for nu in (*laws, order)])


def _factor(mu: Floats, nu: Floats, eps: float, y: int) -> float:
    """nu[y] / mu[y] within lo and hi: sum (nu / hi - mu)+ = eps = sum (mu - nu / lo)+. 1 if nu is within eps of mu.

    Both sums are the largest over sets of sources, and sets of largest or least quotients attain them.
    """
    possible = mu > 0
    mu, nu, quotient = mu[possible], nu[possible], nu[y] / mu[y]
    if np.maximum(nu - mu, 0.0).sum() <= eps:
        return 1.0
    order = np.argsort(nu / mu)
    least, most = ([law[way].cumsum() for law in (nu, mu)] for way in (order, order[::-1]))
    low = min(top / (below - eps) for top, below in zip(*least, strict=True) if below > eps)
    return float(np.clip(quotient, low, (most[0] / (most[1] + eps)).max()))


def _equal(one: Recorded, other: Recorded) -> bool:
    if one.weight is None or other.weight is None or one.P.shape != other.P.shape:
        return False
    return bool(np.abs(one.P - other.P).max() <= NEAR and np.abs(one.weight - other.weight).max() <= NEAR)
