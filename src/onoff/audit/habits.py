"""Which chain serves each step of the promises `past` and `all`, and which steps ask for everything: worked out again.

The rules are those of the client; the referee follows them with code of its own. The journal notes each chain with the
first step that it serves. Here it is compared with the one that is due:

    learn   everything is asked for. Open requests are noted; 10 transitions for each source make the first chain. A
            request that is asked ON ends it: everything is asked for to the end
    fixed   the next step must be asked OFF, and uses that chain; else everything is asked for to the end
    known   transitions between two OFF queries of one source each are counted and bet on. After as many the chain is
            fitted again, right after a full set or a query of one source. If the bets reach 1000, everything is asked
            for to the end, unless a chain that was stated as exact can be replaced by the counts

Nothing after the learning looks at requests: queries and statuses decide.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onoff.audit.law import UNCHECKED, Finding
from onoff.types import Floats, Units

if TYPE_CHECKING:
    from onoff.audit.files import Journal, Step

EACH, PRIOR, BLOWN = 10, 5.0, 1000.0
QUANTILE, DRAWS = 0.99, 400
NEAR = 1e-9  # entries of two chains that count as equal
UNKNOWN = Finding(UNCHECKED, "the chain that was learned is believed: requests that it was made of were erased")


@dataclass(frozen=True)
class Recorded:
    """A chain of a journal; `weight` are the transitions that rows rest on, None if it was stated as exact."""

    P: Floats
    weight: Floats | None


def read_chain(row: Mapping[str, Any], n: int) -> Recorded | None:
    """Read a chain as a journal has it; None where a person has begun to learn anew."""
    if not row["matrix"]:
        return None
    P = np.frombuffer(b64decode(row["matrix"]), "<f8").reshape(n, n)
    weight = None if row["weight"] is None else np.array(json.loads(row["weight"]), np.float64)
    if not (P >= 0).all() or abs(P.sum(axis=1) - 1).max() > 1e-9 or (weight is not None and weight.shape != (n,)):
        raise ValueError(f"the chain of step {row['step']} is none")
    return Recorded(P, weight)


class Served(NamedTuple):
    """What serves a step: the chain, whether everything is `due`, and whether the chain is another than before."""

    P: Floats
    due: bool
    changed: bool


def serve(P: Floats, journal: Journal) -> tuple[list[Served], list[Finding]]:
    """Work out what serves every step of a journal made for the chain P, and the one after them; and what is wrong."""
    if journal.promise == "both":
        return [Served(P, False, False)] * (len(journal.steps) + 1), []
    stated = journal.chains.get(0)
    learns = journal.learns or (0 in journal.chains and stated is None)  # told to learn anew before the first step
    stage = "all" if journal.promise == "all" else "learn" if learns else "known"
    habits = Habits(Recorded(P, None if stated is None else stated.weight), stage, journal)
    served, wrong = [Served(P, habits.asks_for_all, False)], []
    for step in journal.steps:
        wrong += [replace(finding, step=step.step) for finding in habits.advance(step, private=step.lag == 0)]
        served.append(Served(habits.P, habits.asks_for_all, habits.changed))
    return served, wrong


class Habits:
    """The state before a step: `P` serves it unless it `asks_for_all`."""

    def __init__(self, stated: Recorded, stage: str, journal: Journal) -> None:
        self._chain, self.stage, self.changed = stated, stage, False
        self._recorded, self._sensitive = journal.chains, bool(journal.sensitive)
        self._begin()
        self._before: int | None = None
        self._known = True  # whether all requests that were noted are

    @property
    def P(self) -> Floats:
        return self._chain.P

    @property
    def asks_for_all(self) -> bool:
        return self.stage in ("learn", "all")

    def advance(self, step: Step, private: bool) -> Iterator[Finding]:
        """Move on by a step that was made ON (`private`) or OFF; `changed` says whether another chain serves then."""
        due = self._after(step, private)
        following = step.step + 1
        noted = self._recorded.get(following, self._chain)
        self.changed = False
        if noted is None:
            self.stage, self._before, self._known = "learn", None, True
            self._begin()
        elif due is None and following in self._recorded:
            if not self._known and self.stage == "learn":
                yield UNKNOWN
                self.stage, self._before, self._chain, self.changed = "fixed", None, noted, True
                self._begin()
            else:
                yield Finding("habits", "another chain is used from the next step on; none is due")
        elif due is not None:
            if not _equal(due, noted):
                yield Finding("habits", "the chain that is used from the next step on is not the one that is due")
            refitted = self.stage == "known" and self._chain.weight is not None
            self._chain, self.changed = noted, True
            self._begin(bets=not refitted)

    def _begin(self, bets: bool = True) -> None:
        """Begin to count anew and, unless a chain was fitted again, to bet."""
        n = len(self._chain.P)
        self._counts = np.zeros((n, n), np.int64)
        if bets:
            self._wealth = np.ones(3)

    def _after(self, step: Step, private: bool) -> Recorded | None:
        """The chain that is due from the next step on, if it is another one."""
        if self.stage in ("learn", "fixed") and (step.asked_private or self.stage == "learn"):
            return self._learn(step)
        if self.stage == "all" or self._sensitive:
            return None
        self.stage = "known"
        single = step.query[0] if len(step.query) == 1 and not private else None
        before, self._before = self._before, single
        if before is not None and single is not None:
            self._wealth = self._wealth * self._factors(before, single)
            self._counts[before, single] += 1
        enough = self._counts.sum() >= EACH * len(self.P)
        weight = self._chain.weight
        if self._wealth.mean() >= BLOWN:
            if weight is None and enough:
                return _fitted(self._counts)
            self.stage = "all"
        elif weight is not None and enough and (private or single is not None):
            return _posterior(self.P, weight, self._counts)
        return None

    def _learn(self, step: Step) -> Recorded | None:
        if step.asked_private:
            self.stage = "all"
            return None
        if step.request is None:
            self._known = False
            return None
        if self._before is not None:
            self._counts[self._before, step.request] += 1
        self._before = step.request
        if not self._known or self._counts.sum() < EACH * len(self.P):
            return None
        self.stage, self._before = "fixed", None
        return _fitted(self._counts)

    def _factors(self, x: int, y: int) -> Floats:
        """What each of three bets gains if y comes after x."""
        mu, seen = self.P[x], self._counts[x]
        order = np.where(np.arange(len(mu)) == (x + 1) % len(mu), 0.9, 0.0) + 0.1 * mu
        laws = [(pull * mu + seen) / (pull + seen.sum()) for pull in (1.0, 0.1)]
        eps = 0.0
        if self._chain.weight is not None:
            drawn = np.random.default_rng(0).standard_gamma(self._chain.weight[x] * mu, (DRAWS, len(mu)))
            eps = float(np.quantile(np.abs(drawn / drawn.sum(axis=1)[:, None] - mu).sum(axis=1) / 2, QUANTILE))
        return np.array([_factor(mu, nu, eps, y) for nu in (*laws, order)])


def _factor(mu: Floats, nu: Floats, eps: float, y: int) -> float:
    """nu[y] / mu[y] within lo and hi: sum (nu / hi - mu)+ = eps = sum (mu - nu / lo)+. 1 if nu is within eps of mu."""
    possible = mu > 0
    mu, nu, quotient = mu[possible], nu[possible], nu[y] / mu[y]

    def bound(low: float, high: float, side: float) -> float:
        for _ in range(200):  # by halving: the sum falls in the bound on the one side, and grows on the other
            middle = (low + high) / 2
            above = np.maximum(side * (nu / middle - mu), 0.0).sum() > eps
            low, high = (middle, high) if above == (side > 0) else (low, middle)
        return (low + high) / 2

    most = float((nu / mu).max()) + 1.0
    if np.maximum(nu - mu, 0.0).sum() <= eps:
        return 1.0
    return float(np.clip(quotient, bound(1e-300, most, -1.0), bound(1e-300, most, 1.0)))


def _fitted(counts: Units) -> Recorded:
    n = len(counts)
    shares = (counts.sum(axis=0) + 0.5) / (counts.sum() + n / 2)
    return _posterior(np.tile(shares, (n, 1)), np.full(n, PRIOR), counts)


def _posterior(prior: Floats, weight: Floats, counts: Units) -> Recorded:
    total = weight + counts.sum(axis=1)
    return Recorded((weight[:, None] * prior + counts) / total[:, None], total)


def _equal(one: Recorded, other: Recorded) -> bool:
    if one.weight is None or other.weight is None:
        return False
    return bool(np.abs(one.P - other.P).max() <= NEAR and np.abs(one.weight - other.weight).max() <= NEAR)
