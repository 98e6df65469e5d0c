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

from exactstreams import distance, normalise, random_tree
from onoff import Chain
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


def habits(n, depth, seed, full=False, zeros=True):
    """A random tree (`exactstreams.random_tree`) as habits of the package."""
    rows = random_tree(n, depth, seed, full, zeros)
    return Chain([[weight / sum(row) for weight in row] for row in rows.values()], states=rows)


class World:
    """The public part of all streams of a chain and a sensitive set: every state is prepared once.

    What is hidden are whole states. Requests made ON follow the rows of `private`, if there are any.
    """

    def __init__(self, chain, sensitive=(), private=None):
        self.chain, self.step = chain, chain.step.tolist()
        self.P = [exactly(row) for row in chain.P.tolist()]
        self.private = self.P if private is None else [exactly(row) for row in private]
        self.start = PastState.start(chain, sensitive)
        self.steps, self.states = {}, {}

    def prepared(self, since, state):
        """The prepared step after what was asked since `start`: queries, and None for everything."""
        if since not in self.steps:
            self.steps[since] = state.prepare()
        return self.steps[since]

    def next(self, since, state, query):
        """What was asked since `start`, and the state, one step later."""
        if (since, query) not in self.states:
            new = state.after_full_set() if query is None else state.advance(self.prepared(since, state), query)
            self.states[since, query] = ((), self.start) if new.same(self.start) else ((*since, query), new)
        return self.states[since, query]

    def streams(self, statuses, draw=drawn):
        """Every OFF query after every past of positive probability, as `Seen`; a mutant has another `draw`.

        The first step is ON. `statuses` may be their number and a function of the queries so far.
        """
        steps, is_on = statuses if callable(statuses[1]) else (len(statuses), lambda past: statuses[len(past)])
        everything = tuple(range(self.chain.n))
        first = {((z,), home, z): p for z, home, p in self._first()}
        # past -> (asked since `start`, state, sum of roundings, {(hidden, context, the reader's state): probability})
        now = {(everything,): ((), self.start, 0.0, first)}
        for t in range(1, steps):
            after = {}
            for past, (since, state, before, readers) in now.items():
                if is_on(past):
                    after[(*past, everything)] = (*self.next(since, state, None), before, readers, None)
                    continue
                step = self.prepared(since, state)
                laws, branches = {}, {}
                for (hidden, context, z), p in readers.items():
                    for x, q in enumerate(self.P[z]):
                        known = (*hidden, self.step[z][x] if x in state.sensitive else None)
                        for query, chance in draw(step, x, context).items() if q else ():
                            law = laws.setdefault(known, {})
                            law[query] = law.get(query, 0) + p * q * chance
                            branches.setdefault(query, []).append((known, context, self.step[z][x], p * q * chance))
                so_far = before + step.rounding
                total, stated = sum(readers.values()), self._stated(step)
                shares = {known: (sum(law.values()), normalise(law)) for known, law in laws.items()}
                yield t, Seen(past, total, step.rounding, so_far, stated, shares)
                for query, found in branches.items() if t + 1 < steps else ():
                    after[(*past, query)] = (*self.next(since, state, query), so_far, None, found)
            now = {past: self._settled(*there) for past, there in after.items()}

    def _first(self):
        """Readers of all states that the first step may have led to, equally likely."""
        homes = [(z, home) for z, home in enumerate(self.start.joined) if home >= 0]
        return [(z, home, 1 / Decimal(len(homes))) for z, home in homes]

    def _settled(self, since, state, so_far, readers, found):
        """Where readers are after a step that was made ON, or OFF with what was `found`."""
        moved = {}
        if found is None:
            found = (
                ((*hidden, self.step[z][x]), None, self.step[z][x], p * q)
                for (hidden, _, z), p in readers.items() for x, q in enumerate(self.private[z]) if q
            )  # fmt: skip
        for known, context, z, p in found:
            key = known, state.context(z, context, context is None), z
            moved[key] = moved.get(key, 0) + p
        return since, state, so_far, moved

    def _stated(self, step):
        return {query: Decimal(mass) / step.denominator for query, mass in zip(step.sets, step.masses, strict=True)}
