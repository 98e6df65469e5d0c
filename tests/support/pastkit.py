"""Whole past streams, enumerated as they are really drawn: what every query tells of what is hidden.

Numbers are decimals of 70 digits, made from the integers that queries are drawn with and the floats of the chain, digit
for digit. Beside the effects of interest, down to 2^-60, their own errors are nothing; fractions would be as good and
thirty times slower.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal, setcontext
from functools import lru_cache

from exactstreams import distance, normalise
from onoff.past import PastState

setcontext(Context(prec=70))


def exactly(weights):
    """Floats as decimals that sum to 1."""
    total = sum(map(Decimal, weights))
    return [Decimal(weight) / total for weight in weights]


@lru_cache(maxsize=100_000)
def drawn(step, request, context):
    """The law of the query for a request in a context: {query: probability}, with the integers that are drawn from."""
    hidden = request in step.state.sensitive
    units = list(step.masses) if hidden else step.encoder(context).toarray()[request].tolist()
    total = sum(units)
    return {step.sets[i]: Decimal(mass) / total for i, mass in enumerate(units) if mass}


@dataclass(frozen=True)
class Seen:
    """One query after one past: `laws` maps each value of what is hidden to (its probability, the law of the query)."""

    past: tuple
    probability: Decimal
    rounding: float  # of this step
    so_far: float  # of all steps up to this one
    stated: dict
    laws: dict

    @property
    def distance(self):
        """The largest total variation, over what is hidden, between the law of the query and the stated one."""
        return max(distance(law, self.stated) for _, law in self.laws.values())

    @property
    def bits(self):
        """Its part of I(G_t; Q_t | Q_0..Q_{t-1})."""
        mean = {}
        for p, law in self.laws.values():
            for query, chance in law.items():
                mean[query] = mean.get(query, 0) + p * chance / self.probability
        return math.fsum(
            float(p * chance) * math.log1p(chance / mean[query] - 1) / math.log(2)
            for p, law in self.laws.values()
            for query, chance in law.items()
        )


class World:
    """The public part of all streams of a chain and a sensitive set: every state is prepared once."""

    def __init__(self, chain, sensitive=()):
        self.chain = chain
        self.P = [exactly(row) for row in chain.P.tolist()]
        self.start = PastState.start(chain, sensitive)
        self.steps, self.states = {}, {}

    def step(self, past, state):
        """The prepared step after these queries since the last ON step."""
        if past not in self.steps:
            self.steps[past] = state.prepare()
        return self.steps[past]

    def next(self, past, state, query):
        if (past, query) not in self.states:
            self.states[past, query] = state.advance(self.step(past, state), query)
        return self.states[past, query]

    def streams(self, statuses, draw=drawn):
        """Every OFF query after every past of positive probability, as `Seen`; a mutant has another `draw`."""
        n, everything = self.chain.n, tuple(range(self.chain.n))
        # past -> (queries since ON, state, sum of roundings, {(hidden, context, request): probability})
        now = {(): ((), None, 0.0, {((), None, x): 1 / Decimal(n) for x in range(n)})}
        for t, private in enumerate(statuses):
            after = {}
            for past, (since, state, before, readers) in now.items():
                if private:
                    moved = {}
                    for (hidden, _, x), p in readers.items():
                        context = self.start.context(x, None, True)
                        follow(self.P, moved, (*hidden, x), context, x, p)
                    after[(*past, everything)] = (), self.start, before, moved
                    continue
                step = self.step(since, state)
                laws, branches = {}, {}
                for (hidden, context, x), p in readers.items():
                    known = (*hidden, x if x in state.sensitive else None)
                    for query, chance in draw(step, x, context).items():
                        law = laws.setdefault(known, {})
                        law[query] = law.get(query, 0) + p * chance
                        branches.setdefault(query, []).append((known, context, x, p * chance))
                so_far = before + step.rounding
                total, stated = sum(readers.values()), self._stated(step)
                shares = {known: (sum(law.values()), normalise(law)) for known, law in laws.items()}
                yield t, Seen(past, total, step.rounding, so_far, stated, shares)
                if t + 1 == len(statuses):
                    continue
                for query, found in branches.items():
                    new, moved = self.next(since, state, query), {}
                    for known, context, x, p in found:
                        follow(self.P, moved, known, new.context(x, context, False), x, p)
                    after[(*past, query)] = (*since, query), new, so_far, moved
            now = after

    def _stated(self, step):
        return {query: Decimal(mass) / step.denominator for query, mass in zip(step.sets, step.masses, strict=True)}


def follow(P, readers, hidden, context, request, p):
    """Let readers of probability `p` go on from a request by the chain. They are kept by (hidden, context, next)."""
    for y, chance in enumerate(P[request]):
        if chance:
            key = hidden, context, y
            readers[key] = readers.get(key, 0) + p * chance
