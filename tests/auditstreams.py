"""Streams of a client without a network, as the audit reads them: for tests of the audit's parts."""

from __future__ import annotations

import random
from functools import cache

import numpy as np

from onoff import plan
from onoff.audit.models import Planned
from onoff.audit.transcripts import Line, Step
from onoff.session import State, begin, finish, next_lag
from oracles import random_chain

CHAIN = random_chain("dense", 4, 1)
LAGS = (1, 2)


@cache
def plans():
    return {lag: plan(CHAIN, lag) for lag in LAGS}


@cache
def models():
    return {Planned(one).name: Planned(one) for one in plans().values()}


def steps_of(count, seed, randbelow=None, unsettled=0, private=0.25):
    """The journal of a stream with random statuses."""
    rng = np.random.default_rng(seed)
    path, statuses = CHAIN.simulate(count + 1, rng).tolist(), rng.random(count) < private
    state, steps = State(unsettled=unsettled), []
    below = randbelow or random.Random(f"of the stream {seed}").randrange
    for t in range(count):
        asked = bool(statuses[t])
        lag = next_lag(state, path[t + 1], asked)
        used = plans()[min(lag, max(LAGS))] if lag else None
        state, made = begin(state, CHAIN, path[t], path[t + 1], asked, used, below)
        steps.append(Step(t, made.private, asked, made.lag, made.plan, made.query, made.request, made.next))
        state = finish(state)
    return tuple(steps)


def lines_of(steps):
    """What a server sees of them, where nothing goes wrong and somebody watches the wire."""
    return tuple(Line(step.step, step.query, damaged=False) for step in steps)
