"""Streams of a client as the audit knows it, drawn without a network; people, and an engine with a mistake."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from onoff import Chain
from onoff.audit.clients import Past
from onoff.audit.streams import audit_streams, parse_statuses
from onoff.model.measures import divergence
from onoff.model.requests import Requests, start_law
from onoff.past import PastState


def statuses(text):
    return [status == "1" for status in text]


def stream(client, chain, private, rng, start=None):
    """A path, and what a client makes of it: the steps, contexts and queries."""
    path = [int(rng.choice(chain.n, p=start_law(chain) if start is None else start))]
    steps, contexts, queries = [], [], []
    for t, on in enumerate(private):
        step = client.on() if on else client.off(steps[-1], queries[-1])
        contexts.append(0 if step.comes is None else int(step.comes[contexts[-1], path[t - 1]]))
        path.append(int(rng.choice(chain.n, p=chain.P[path[t]] / chain.P[path[t]].sum())))
        queries.append(step.draw(contexts[-1], path[t], path[t + 1], rng))
        steps.append(step)
    return path, steps, queries


def query_laws(client, private, path):
    """Pr[queries] in fractions, given a path that is one request longer: step by step, from the client's encoders."""
    found = {(): (Fraction(1), None, 0)}
    for t, on in enumerate(private):
        after = {}
        for queries, (p, before, context) in found.items():
            step = client.on() if on else client.off(before, queries[-1])
            now = 0 if step.comes is None else int(step.comes[context, path[t - 1]])
            units = None if now < 0 else step.encoder(now, path[t + 1])
            row = [] if units is None else units[path[t]].tolist()
            for query, part in zip(step.sets, row, strict=False):
                if part:
                    after[(*queries, query)] = p * Fraction(part, sum(row)), step, now
        found = after
    return {queries: p for queries, (p, *_) in found.items()}


def bits(beliefs, t):
    """Bits about what is hidden of step t: before it, by its own query, and by all queries from it on."""
    rows = beliefs.prior, beliefs.before, beliefs.at, beliefs.after
    prior, before, at, after = (beliefs.hidden(row, t) for row in rows)
    return divergence(before, prior), divergence(at, before), divergence(after, before)


def random_habits(n, rng):
    """A person whose requests depend on the last two."""
    return Requests(*(rng.dirichlet(np.ones(n), shape) for shape in ((), n, (n, n))))


def simulate(habits, steps, rng):
    """Draw the requests of a person with these habits."""
    path = [int(rng.choice(len(habits.start), p=habits.start))]
    for t in range(steps - 1):
        moves = habits.moves(t)
        path.append(int(rng.choice(len(habits.start), p=moves[path[-2] if len(moves) > 1 else 0, path[-1]])))
    return np.array(path, dtype=np.intp)


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

    def context(self, request, context, private):
        return self.state.context(request, context, private)


class Forgetful(Wrong):
    """Goes on from the first context whatever was asked ON."""

    def context(self, request, context, private):
        return self.state.context(0 if private else request, context, private)


def audited_past(chain, sensitive, text, engine=None, **options):
    """What the referee finds of all streams of an engine of the promise `past`; by default the honest one."""
    client = Past(engine or PastState.start(chain, sensitive), chain.n, sensitive)
    return audit_streams(chain, parse_statuses(text), client, "past", sensitive, **{"uniform": True, **options})


def most_bits(found):
    return max(step.bits for step in found.steps)
