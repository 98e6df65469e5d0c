"""Whole past streams, enumerated as the client's own code draws them: what every query tells of what is hidden.

Numbers are decimals of 70 digits, made from the integers that queries are drawn with and the floats of the chain, digit
for digit. Beside the effects of interest, down to 2^-60, their own errors are nothing; fractions would be as good and
thirty times slower.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Context, Decimal, setcontext
from functools import cache, lru_cache
from itertools import accumulate
from unittest.mock import patch

from exactstreams import distance, normalise, random_tree
from onoff import Chain
from onoff.client.protocol import State, begin_past, finish
from onoff.past import Habits, PastState, PublicState

setcontext(Context(prec=70))


def exactly(weights):
    """Floats as decimals that sum to 1."""
    total = sum(map(Decimal, weights))
    return [Decimal(weight) / total for weight in weights]


@lru_cache(maxsize=100_000)
def drawn(step, request, context):
    """The law of the query for a request in a context: {query: probability}, with the integers that are drawn from."""
    units = units_of(step, request, context)
    total = sum(units)
    return {step.sets[i]: Decimal(mass) / total for i, mass in enumerate(units) if mass}


@lru_cache(maxsize=100_000)
def units_of(step, request, context):
    hidden = request in step.state.sensitive
    return list(step.masses) if hidden else step.encoder(context).toarray()[request].tolist()


@dataclass(frozen=True)
class Seen:
    """One query after one past: `laws` maps each value of what is hidden to (its probability, the law of the query)."""

    past: tuple
    probability: Decimal
    rounding: float  # of this step
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
    """All streams that the client's state machine can make, with their probabilities.

    What is hidden are the states that requests really lead to, given all that was asked before the journal. Requests
    follow the chain that the client uses, but those made ON the rows of `private`, if there are any. `stages` has the
    stage and the chain of the habits wherever a stream came to, and `now` where the last streams ended.
    """

    def __init__(self, chain, sensitive=(), private=None, begin=begin_past):
        self.public, self.begin = PublicState(Habits(chain, "known"), tuple(sensitive)), begin
        self.private = private and [exactly(row) for row in private]
        self.stages = set()
        self._rows = cache(lambda chain: [exactly(row) for row in chain.P.tolist()])
        # What moves on is a function of state, step and query: in an enumeration once is enough.
        start, full_set = cache(PastState.start), PastState.after_full_set
        first, self._prepare = start(chain, tuple(sensitive)), cache(PastState.prepare)

        @cache
        def after_full_set(state):
            found = full_set(state)
            return first if found.same(first) else found

        self._once = {"start": start, "advance": cache(PastState.advance), "after_full_set": after_full_set}

    def settled(self):
        """After a first step, ON: every state that it may have led to is as likely, and the client knows it."""
        chain = self.public.habits.chain
        rows = self._once["start"](chain, self.public.sensitive)
        homes = [(z, home) for z, home in enumerate(rows.joined) if home >= 0]
        readers = {
            ((z,), z, State(1, reader=z, unsettled=0, context=home)): 1 / Decimal(len(homes)) for z, home in homes
        }
        return {(tuple(range(chain.n)),): (replace(self.public, rows=rows), readers)}

    def new(self):
        """A new journal of a reader who has asked before, and whose state it does not know."""
        chain = self.public.habits.chain
        first, states = State(unsettled=chain.depth - 1), range(len(chain.P))
        return {(): (self.public, {((), z, first): 1 / Decimal(len(states)) for z in states})}

    def streams(self, statuses, now=None, draw=drawn):
        """Every OFF query after every past of positive probability, as `Seen`; a mutant has another `draw`.

        `now` is where streams begin: {queries: (public state, {(hidden, the reader's state, the client's):
        probability})}, by default after a first step. `statuses` may be their number and a function of the queries.
        """
        now = now or self.settled()
        steps, is_on = statuses if callable(statuses[-1]) else (len(statuses), lambda past: statuses[len(past)])
        for t in range(len(next(iter(now))), steps):
            found, after = [], {}
            with patch.multiple(PastState, **self._once):
                for past, there in now.items():
                    found += self._step(past, *there, is_on(past), draw, after)
            yield from ((t, seen) for seen in found)
            now = after
        self.now = now
        self._note(public for public, _ in now.values())

    def _step(self, past, public, readers, private, draw, after):
        """Put all that follows one past into `after`; what was seen, if it was drawn."""
        chain, laws = public.habits.chain, {}
        self._note([public])
        step = None if public.asks_for_all(private) else self._prepare(public.rows)
        secret = private or (step is None and public.habits.stage == "known")
        rows = self.private if private and self.private else self._rows(chain)
        nexts = [(*reader, x, p * q) for reader, p in readers.items() for x, q in enumerate(rows[reader[1]]) if q]
        for hidden, z, state, x, p in nexts:
            came = int(chain.step[z, x])
            known = (*hidden, came if secret or x in public.sensitive else None)
            for query, chance, randbelow in self._draws(chain, step, x, state, draw):
                made = self.begin(state, public, x, private, step, randbelow)
                assert made.pending.query == query
                law = laws.setdefault(known, {})
                law[query] = law.get(query, 0) + p * chance
                new, to = after.setdefault((*past, query), (made.public, {}))
                assert new is made.public or new.as_dict() == made.public.as_dict(), "what is public tells of a request"
                key = known, came, finish(made.state)
                to[key] = to.get(key, 0) + p * chance
        return [] if step is None else [self._seen(past, readers, step, laws)]

    def _draws(self, chain, step, request, state, draw):
        """(query, its probability, numbers that draw it) for every query that can be drawn."""
        if step is None:
            yield tuple(range(chain.n)), Decimal(1), None
            return
        ends = list(accumulate(map(int, units_of(step, request, state.context))))
        for query, chance in draw(step, request, state.context).items():
            last = ends[step.sets.index(query)] - 1
            numbers = iter([last])  # a second number is an error
            yield query, chance, lambda total, numbers=numbers: next(numbers) if total == ends[-1] else -1

    def _seen(self, past, readers, step, laws):
        shares = {known: (sum(law.values()), normalise(law)) for known, law in laws.items()}
        stated = {query: Decimal(mass) / step.denominator for query, mass in zip(step.sets, step.masses, strict=True)}
        return Seen(past, sum(readers.values()), step.rounding, stated, shares)

    def _note(self, publics):
        self.stages |= {(public.habits.stage, public.habits.chain.fingerprint) for public in publics}


def checked(world, patterns, start=World.settled):
    """The largest information in bits; the largest distance after any past, as a multiple of what its step states."""
    bits, excess = 0.0, 0.0
    for statuses in patterns:
        told = {}
        for t, seen in world.streams(statuses, start(world)):
            told[t] = told.get(t, 0.0) + seen.bits
            rounding = seen.rounding or 1e-300
            excess = max(excess, float(seen.distance) / rounding)
        bits = max([bits, *told.values()])
    return bits, excess
