"""Streams of the everyday engine with their record, and all paths that may have caused them."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product

from onoff.audit.everyday.record import Seen, law_of
from onoff.everyday import Everyday


def seen_law(state, step):
    return law_of(step.as_dict(), state.place, state.joined, state.charge)


def stream(chain, sensitive, statuses, seed):
    """A stream as the server sees it: `Seen` for each step, and the (state, step) behind each OFF step."""
    rng = random.Random(seed)
    seen, behind = [], []
    request, state, context = rng.randrange(chain.n), None, None
    for t, private in enumerate(statuses):
        if t:
            request = rng.choices(range(chain.n), chain.P[request])[0]
        if private:
            state = Everyday.start(chain, sensitive)
            seen.append(Seen(True, tuple(range(chain.n))))
            behind.append(None)
            context = state.context(request, None, True)
            continue
        step = state.prepare()
        query = step.draw(request, context, rng.randrange)
        seen.append(Seen(False, query, seen_law(state, step)))
        behind.append((state, step))
        state = state.advance(step, query)
        context = state.context(request, context, False)
    return seen, behind


def paths(chain, sensitive, seen, behind, start=None):
    """Pr[path, queries] in fractions for every path of requests, by the engine's own encoders and moves of contexts."""
    P = [[Fraction(p) / sum(map(Fraction, row)) for p in row] for row in chain.P.tolist()]
    start = start or [Fraction(1, chain.n)] * chain.n
    start_state = Everyday.start(chain, sensitive)
    after = [known and known[0].advance(known[1], step.query) for step, known in zip(seen, behind, strict=True)]
    tables = [known and {c: known[1].encoder(c).toarray().tolist() for c in known[1].contexts} for known in behind]
    found = {}
    for path in product(range(chain.n), repeat=len(seen)):
        p = start[path[0]]
        context = None
        for t, (step, known) in enumerate(zip(seen, behind, strict=True)):
            p *= P[path[t - 1]][path[t]] if t else 1
            if not p:
                break
            if known is None:
                moved = start_state.context(path[t], None, True)
            else:
                ready = known[1]
                units = ready.masses if path[t] in sensitive else tables[t][context][path[t]]
                p *= Fraction(units[ready.sets.index(step.query)], sum(units))
                if not p:
                    break
                moved = after[t].context(path[t], context, False)
            context = moved
        if p:
            found[path] = p
    return found
