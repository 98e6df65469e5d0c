"""Streams of the promise `past` as the client's own state machine makes them, in fractions.

The strong promise: the law of a query, given all requests before it and its own one if that is sensitive, depends on
the queries before it alone. Here it is taken literally. Every past of queries is paired with every history of requests
that may have led to it, and the law of the next query is worked out for each, from the numbers that the client would
draw and the exact rows of its chain.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np

from exactstreams import distance, random_tree, widest
from onoff import Chain
from onoff.client.protocol import State, begin_past, finish
from onoff.errors import OnoffError
from onoff.past import Habits, PublicState, StepLaw
from onoff.past.step import prepare

ON, OFF, LOST = True, False, None  # LOST: the journal is gone, a new one asks the same server, and privacy is OFF
prepared, entries = cache(prepare), cache(StepLaw.entries)


@cache
def exactly(weights):
    """Floats as fractions that sum to 1."""
    total = sum(map(Fraction, weights))
    return [Fraction(weight) / total for weight in weights]


def habits(n, depth, seed, full=False, zeros=True):
    """A random tree (`exactstreams.random_tree`) as habits of the package."""
    rows = random_tree(n, depth, seed, full, zeros)
    return Chain([[weight / sum(row) for weight in row] for row in rows.values()], states=rows)


def table(step, state):
    """The units of every request on every set, in the encoder of a state."""
    requests, sets, units = step.entries(state)
    found = np.zeros(step.law.member.shape[::-1], dtype=np.int64)
    found[requests, sets] = units
    return found


@cache
def drawn(step, request, state):
    """The law of a draw: {query: (its probability, a number that draws it)}. The query None is an error."""
    bounds, law, low = set(), {}, 0

    def query(number):
        return step.draw(request, state, lambda bound: bounds.add(bound) or number)

    with patch.object(StepLaw, "entries", entries):
        try:
            query(0)
        except OnoffError:
            return {None: (Fraction(1), None)}
        [total] = bounds
        while low < total:
            found = query(low)
            high = low + 1 + bisect_left(range(low + 1, total), True, key=lambda number: query(number) != found)
            assert found not in law
            law[found], low = (Fraction(high - low, total), high - 1), high
    return law


def mixture(parts):
    """The law of a query for a request that has some law: `parts` are (probability, what is drawn for the request)."""
    parts, law = list(parts), {}
    total = sum(p for p, _ in parts)
    for p, drawn in parts:
        for query, (chance, _) in drawn.items():
            law[query] = law.get(query, 0) + p * chance / total
    return law


@dataclass(frozen=True)
class Seen:
    """The next query after one past: `laws` has its law for each history, with the request if that is sensitive."""

    past: tuple
    step: StepLaw
    laws: dict

    @property
    def off(self):
        """The largest total variation from the stated law."""
        masses = zip(self.step.sets, self.step.masses, strict=True)
        stated = {query: Fraction(mass, self.step.denominator) for query, mass in masses}
        return max(distance(law, stated) for law in self.laws.values())

    @property
    def apart(self):
        """The largest total variation between two of the laws."""
        return widest(self.laws.values())


class World:
    """All streams of a client and its reader, from a new journal on. Subclasses make mistakes.

    Open requests follow the chain that the client uses. Requests that are made ON, or are sensitive, or are asked for
    with everything while full sets are owed may be any: no law is assumed. `chains` are used in turn, by the size of
    the last query. Before every step the client is started again: only what a journal keeps is left.
    """

    def __init__(self, chain, sensitive=(), *others):
        self.chains, self.state = (chain, *others), State(owed=chain.depth)
        self.public = PublicState(Habits(chain, "known"), tuple(sensitive))
        self.stages = set()  # stage and chain of the habits wherever a stream came to

    def begin(self, state, public, request, private, step, number, query):  # noqa: ARG002
        """One step of the client, which draws this number."""
        return begin_past(state, public, request, private, step, lambda _: number)

    def step(self, past, public):  # noqa: ARG002
        """What the client prepares after these queries."""
        return prepared(public.state.candidates)

    def drawn(self, past, history, step, request, reader):  # noqa: ARG002
        """The law of the client's query."""
        return drawn(step, request, reader)

    def streams(self, statuses, now=None):
        """Every drawn query after every past, as `Seen`.

        Each status is one of ON, OFF and LOST, or a function of the queries before. `now` is where streams begin:
        {queries: (public state, {requests: the client's state})}.
        """
        now = now or {(): (self.public, {(): self.state})}
        with patch.object(StepLaw, "entries", entries):
            for status in statuses:
                after = {}
                for past, there in now.items():
                    seen = self._step(past, *there, status(past) if callable(status) else status, after)
                    if seen is not None:
                        yield seen
                now = after
        self.stages |= {self._stage(public) for public, _ in now.values()}

    def _step(self, past, public, readers, status, after):
        """Put all that follows one past into `after`; what was seen, if it was drawn."""
        if status is LOST:
            public, readers = self.public, dict.fromkeys(readers, self.state)
        chain = self.chains[len(past[-1]) % len(self.chains)] if past and self.chains[1:] else public.habits.chain
        public = PublicState.from_dict(chain, json.loads(json.dumps(public.as_dict())))
        self.stages.add(self._stage(public))
        [owed] = {state.owed for state in readers.values()}
        step = None if owed or public.asks_for_all(bool(status)) else self.step(past, public)
        again = cache(lambda state: State.from_dict(json.loads(json.dumps(state.as_dict()))))
        run = cache(lambda state, *drawn: self.begin(again(state), public, drawn[0], bool(status), step, *drawn[1:]))
        everything = {tuple(range(chain.n)): (Fraction(1), None)}
        laws = {}
        for history, state in readers.items():
            row = None if step is None else exactly(tuple(chain.P[chain.state_of(history)].tolist()))
            opened = []
            for x in range(chain.n):
                hidden = x in public.sensitive
                if step is not None and not hidden and not row[x]:
                    continue
                law = everything if step is None else self.drawn(past, history, step, x, state.reader)
                for query, (_, number) in law.items():
                    if query is not None:
                        begun = run(state, x, number, query)
                        assert begun.pending.query == query
                        assert x in query
                        new, to = after.setdefault((*past, query), (begun.public, {}))
                        assert new is begun.public or new.as_dict() == begun.public.as_dict(), "public things tell"
                        to[*history, x] = finish(begun.state)
                if hidden:
                    laws[history, x] = mixture([(1, law)])
                else:
                    opened.append((row and row[x], law))
            if step is not None and opened:
                laws[history, None] = mixture(opened)
        return None if step is None else Seen(past, step, laws)

    def _stage(self, public):
        return public.habits.stage, public.habits.chain.fingerprint


class Planted(World):
    """A client that asks for whatever `drawn` says."""

    def begin(self, state, public, request, private, step, number, query):  # noqa: ARG002
        if step is not None:
            step = SimpleNamespace(candidates=public.state.candidates, draw=lambda *_: query, rounding=0.0)
        return begin_past(state, public, request, private, step)
