"""Streams of a client without a network, as the audit reads them: for tests of the audit's parts."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from functools import cache

import numpy as np

from onoff import plan
from onoff.audit.models import Planned
from onoff.audit.transcript.reading import Line, Step
from onoff.client.journal import Journal
from onoff.client.protocol import State, begin, finish, next_lag
from onoff.plans.race import race_plan
from onoff.plans.store import PlanStore
from oracles import random_chain

CHAIN = random_chain("dense", 4, 1)
LAGS = (1, 2)


@cache
def plans():
    return {lag: plan(CHAIN, lag) for lag in LAGS}


@cache
def models():
    return {Planned(one).name: Planned(one) for one in plans().values()}


@cache
def race():
    """The race that a new client uses at every lag."""
    return race_plan(CHAIN, 1, draws=300, randbelow=random.Random(0).randrange)


class Drawing:
    """A plan whose `draw` is another one, which is given the honest plan first."""

    def __init__(self, plan, draw):
        self._plan, self._draw = plan, draw

    def __getattr__(self, name):
        return getattr(self._plan, name)

    def draw(self, *context):
        return self._draw(self._plan, *context)


def cheapest(lag, request):  # noqa: ARG001
    return plans()[min(lag, max(LAGS))]


def steps_of(count, seed, randbelow=None, unsettled=0, private=0.25, choose=cheapest, draw=None, change=None):
    """The journal of a stream with random statuses.

    `choose` gives the plan for a lag and a request; `draw` stands in for its `draw`, with the step as last argument;
    `change` may replace what the caller asks (status, request, next) before the client sees it.
    """
    rng = np.random.default_rng(seed)
    path, statuses = CHAIN.simulate(count + 1, rng).tolist(), rng.random(count) < private
    state, steps = State(unsettled=unsettled), []
    below = randbelow or random.Random(f"of the stream {seed}").randrange
    for t in range(count):
        asked, following = bool(statuses[t]), path[t + 1]
        if change is not None:
            asked, following = change(asked, path[t], following)
        lag = next_lag(state, following, asked)
        used = choose(lag, path[t]) if lag else None
        drawn = used
        if used is not None and draw is not None:
            drawn = Drawing(used, lambda honest, *context, t=t: draw(honest, *context, t))
        state, made = begin(state, CHAIN, path[t], following, asked, drawn, below)
        cost = float(CHAIN.n) if used is None else used.cost
        steps.append(Step(t, made.private, asked, made.lag, made.plan, made.query, made.request, made.next, cost))
        state = finish(state)
    return tuple(steps)


def lines_of(steps):
    """What a server sees of them, where nothing goes wrong and somebody watches the wire."""
    return tuple(Line(step.step, step.query, damaged=False) for step in steps)


def write_files(directory, steps, name="journal", kept=()):
    """Chain, plans, journal and the server's log of a stream: what the command is given."""
    CHAIN.save(directory / "chain.json")
    for one in kept or plans().values():
        PlanStore(CHAIN, directory / "plans").save(one)
    journal = Journal(directory / name, CHAIN.fingerprint, "catalogue")
    identity = journal.stream
    journal.close()
    rows = [
        (s.step, s.private, s.asked_private, s.lag, s.plan, json.dumps(s.query), s.request, s.next, s.cost)
        for s in steps
    ]
    with closing(sqlite3.connect(directory / name)) as database, database:
        columns = "step, private, asked_private, lag, plan, query, request, next, cost"
        database.executemany(f"INSERT INTO steps ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    common = {"client": "here", "stream": identity}
    lines = [{"step": s.step, "sources": list(s.query), "held": [0] * len(s.query), **common} for s in steps]
    log = [{"catalogue": CHAIN.names}, *lines]
    (directory / f"{name}.log").write_text("".join(json.dumps(line) + "\n" for line in log))
    return (
        *("audit", "transcript", directory / f"{name}.log", "--chain", directory / "chain.json"),
        *("--journal", directory / name, "--plans", directory / "plans"),
    )
