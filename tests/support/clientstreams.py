"""Streams of a client as the audit knows it, drawn without a network."""

from __future__ import annotations

from onoff.model.measures import divergence
from onoff.model.requests import start_law


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


def bits(beliefs, t):
    """Bits about what is hidden of step t: before it, by its own query, and by all queries from it on."""
    rows = beliefs.prior, beliefs.before, beliefs.at, beliefs.after
    prior, before, at, after = (beliefs.hidden(row, t) for row in rows)
    return divergence(before, prior), divergence(at, before), divergence(after, before)
