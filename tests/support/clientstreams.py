"""Streams of a client as the audit knows it, drawn without a network; people, and an engine with a mistake."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np

from onoff import Chain
from onoff.audit.bayes import hidden_part
from onoff.audit.clients import Past
from onoff.audit.streams import audit_streams, parse_statuses
from onoff.model.measures import divergence
from onoff.model.requests import start_law
from onoff.past import PastState


def statuses(text):
    return [status == "1" for status in text]


def stream(client, chain, private, rng, start=None):
    """A path, and what a client makes of it: the steps, contexts and queries."""
    path = [int(rng.choice(chain.n, p=start_law(chain) if start is None else start))]
    steps, contexts, queries, states = [], [], [], [path[0]]
    for t, on in enumerate(private):
        before = (steps[-1], queries[-1]) if t else ()
        step = client.on(*before) if on else client.off(*before)
        contexts.append(0 if step.comes is None else int(step.comes[contexts[-1], states[t - 1]]))
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
            now = 0 if step.comes is None else int(step.comes[context, _state(client, path[:t])])
            units = None if now < 0 else step.encoder(now, path[t + 1])
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


class Wrong:
    """An engine with a mistake: whatever is not overridden is the engine's."""

    def __init__(self, state):
        self.state = state

    def __getattr__(self, name):
        return getattr(self.state, name)

    def prepare(self):
        return self.state.prepare()

    def advance(self, step, query):
        return type(self)(self.state.advance(step, query))

    def after_full_set(self):
        return type(self)(self.state.after_full_set())

    def context(self, state, context, private):
        return self.state.context(state, context, private)


class Shallow(Wrong):
    """Remembers the last request alone, where habits remember more."""

    def context(self, state, context, private):
        last = self.chain.last
        alike = [z for z in range(len(last)) if last[z] == last[state] and self.joined[z] >= 0]
        return self.state.context(alike[0] if private and alike else state, context, private)


class Forgetful(Wrong):
    """Goes on from the first context whatever was asked ON."""

    def context(self, state, context, private):
        return self.state.context(0 if private else state, context, private)


def audited_past(chain, sensitive, text, engine=None, **options):
    """What the referee finds of all streams of an engine of the promise `past`; by default the honest one."""
    client = Past(engine or PastState.start(chain, sensitive), chain.n, sensitive)
    return audit_streams(chain, parse_statuses(text), client, "past", sensitive, **options)


def most_bits(found):
    return max(step.bits for step in found.steps)
