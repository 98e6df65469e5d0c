"""Streams of a client as the audit knows it, drawn without a network; people, and an engine with a mistake."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from onoff import Chain
from onoff.audit.bayes import hidden_part
from onoff.audit.clients import Past
from onoff.audit.streams import audit_streams, parse_statuses
from onoff.model.measures import divergence
from onoff.model.requests import start_law
from onoff.past import PastState
from onoff.schemes.encoder import LawEncoder


def statuses(text):
    return [status == "1" for status in text]


def stream(client, chain, private, rng, start=None):
    """A path, and what a client makes of it: the steps, contexts and queries."""
    path = [int(rng.choice(chain.n, p=start_law(chain) if start is None else start))]
    steps, contexts, queries, states = [], [], [], [path[0]]
    for t, on in enumerate(private):
        before = (steps[-1], queries[-1]) if t else ()
        step = client.on(*before) if on else client.off(*before)
        contexts.append(step.context(contexts[-1], states[t - 1]) if t else 0)
        row = chain.P[states[t]]
        path.append(int(rng.choice(chain.n, p=row / row.sum())))
        states.append(chain.step[states[t], path[-1]])
        queries.append(step.draw(contexts[-1], path[t], path[t + 1], rng))
        steps.append(step)
    return path, steps, queries


def query_laws(client, private, path):
    """Pr[queries] in fractions, given a path that is one request longer: step by step, from the client's encoders."""
    found = {(): (Fraction(1), None, 0)}
    for t, on in enumerate(private):
        after = {}
        for queries, (p, before, context) in found.items():
            earlier = (before, queries[-1]) if t else ()
            step = client.on(*earlier) if on else client.off(*earlier)
            now = step.context(context, _state(client, path[:t])) if t else 0
            units = step.encoder(now, path[t + 1])
            row = [] if units is None else units[path[t]].tolist()
            for query, part in zip(step.sets, row, strict=False):
                if part:
                    after[(*queries, query)] = p * Fraction(part, sum(row)), step, now
        found = after
    return {queries: p for queries, (p, *_) in found.items()}


def _state(client, path):
    """The state of the client's habits after some requests; without habits it is the last of them."""
    return client.chain.state_of(path) if path and hasattr(client, "chain") else path[-1]


def bits(beliefs, t, private=True):
    """Bits about what is hidden of step t: before it, by its own query, and by all queries from it on."""
    rows = beliefs.prior, beliefs.before, beliefs.at, beliefs.after
    prior, before, at, after = (hidden_part(row[t], private, beliefs.sensitive) for row in rows)
    return divergence(before, prior), divergence(at, before), divergence(after, before)


def random_habits(n, rng, depth=2):
    """A person whose requests depend on the last `depth` ones."""
    states = [state for length in range(1, depth + 1) for state in product(range(n), repeat=length)]
    return Chain(rng.dirichlet(np.ones(n), len(states)), states=states)


def towards(used, other, share):
    return Chain((1 - share) * used.P + share * other.P)


@dataclass(frozen=True)
class Made:
    """What an engine has prepared, with encoders of its own."""

    law: Any
    rounding: float
    data: dict

    def as_dict(self):
        return self.data


class Wrong:
    """An engine with a mistake, in its law or in encoders, which it tells. Whatever is not overridden is honest."""

    def __init__(self, state):
        self.state = state

    def __getattr__(self, name):
        return getattr(self.state, name)

    def after(self, query):
        return type(self)(self.state.after(query))

    def prepare(self):
        step = self.made()
        encoders = {str(z): [part.tolist() for part in self.entries(step, z)] for z in self.state.candidates.live}
        return Made(step.law, step.rounding, {**step.as_dict(), "encoders": encoders})

    def made(self):
        return self.state.prepare()

    def entries(self, step, z):
        return step.entries(z)

    def filled(self, step, row):
        """An encoder for this row: every set gets its mass, though it be from requests that are too likely in it."""
        requests, sets, units = LawEncoder(step.inner).encode(row, row > 0).entries
        return np.flatnonzero(self.candidates.open_sources)[requests], sets, units


class Shallow(Wrong):
    """Remembers the last request alone, where habits remember more."""

    def entries(self, step, z):
        last = self.chain.last
        return step.entries(next(y for y in self.state.candidates.live if last[y] == last[z]))


class Forgetful(Wrong):
    """Uses the encoder of the first state, whatever was asked."""

    def entries(self, step, z):  # noqa: ARG002
        return step.entries(self.state.candidates.live[0])


def audited_past(chain, sensitive, text, engine=None, **options):
    """What the referee finds of all streams of an engine of the promise `past`; by default the honest one."""
    client = Past(engine or PastState.start(chain, sensitive), chain.n, sensitive)
    return audit_streams(chain, parse_statuses(text), client, "past", sensitive, **options)


def most_bits(found):
    return max(step.bits for step in found.steps)
