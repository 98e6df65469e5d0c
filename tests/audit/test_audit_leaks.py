"""Planted leaks: mistakes in the client, each a small patch of the real one, that the audit must find.

Every mutant lives the same life as the honest client, over real sockets, with real journals and plans: frames are
damaged on the way, the server is down for a while, the caller changes its mind, and the journal is lost. The audit
sees the log of the wire, the last journal and the plans. What it must not miss is in `MUTANTS`; the honest client must
pass. A query that leaves too early or too late shows in no log: `test_client_timing.py` is about that.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import random
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest

import onoff.client.journalfile
import onoff.client.transport.own as own_transport
from clientkit import client_with
from onoff import Chain, Client, OnoffTransport, Planner, plan
from onoff.audit.models import Planned
from onoff.audit.transcript.conformance import Breach, conformance
from onoff.audit.transcript.draws import DrawTest, draws
from onoff.audit.transcript.reading import Line, Step, read_journal, read_log, streams
from onoff.client import session
from onoff.client.journal import Journal
from onoff.client.transport import Answer, Content
from onoff.errors import Announced, AnswerError, PendingRequest, Unavailable
from onoff.plans.base import Plan
from onoff.plans.store import PlanStore
from onoff.plans.table import TablePlan
from onoff.wire import Query, decode_answer
from oracles import dependence, joint_law
from recordingserver import LoggingOrigin, RecordingServer, reply

NAMES = ("news", "sports", "science", "weather", "culture")
LAGS = (1, 2, 3)
LENGTH = 40_000  # of a message: a set is more than the client's socket is read of at once
BEFORE = 40  # steps before the journal is lost
SHORT, LONG = 200, 700  # steps after it; the long life is for mistakes that show in how often sets come
ATTEMPTS = 6


def ring(n, seed):
    """A chain that often goes round: where it is now tells where it was, so that mistakes about that show."""
    rows = np.random.default_rng(seed).dirichlet(np.full(n, 0.4), n) + 0.05
    P = 0.4 * np.roll(np.eye(n), 1, axis=1) + 0.6 * rows / rows.sum(axis=1, keepdims=True)
    return Chain(P, NAMES[:n])


CHAIN = ring(5, 3)


@dataclass(frozen=True)
class Audit:
    """What the audit is given, and what it found."""

    lines: tuple[Line, ...]
    steps: tuple[Step, ...]
    findings: tuple[Breach, ...]
    draws: DrawTest

    @property
    def alarms(self):
        return {finding.rule for finding in self.findings} | ({"draws"} if self.draws.rejected else set())


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Plans made ahead, all that the planner of a test has."""
    directory = tmp_path_factory.mktemp("plans")
    for lag in LAGS:
        PlanStore(CHAIN, directory).save(plan(CHAIN, lag))
    return directory


@pytest.fixture(scope="module")
def models(directory):
    known = [Planned(PlanStore(CHAIN, directory).load(lag)) for lag in LAGS]
    return {model.name: model for model in known}


class Faults:
    """Damages a frame of one answer in ten, and answers nothing but 503 at some steps, until the client gives up."""

    def __init__(self, seed):
        self._random, self._down = random.Random(seed), {}

    def go_down(self, step):
        self._down[step] = ATTEMPTS

    def __call__(self, step, frames):
        if self._down.get(step, 0) > 0:
            self._down[step] -= 1
            return reply(b'{"title": "busy"}', 503)
        if self._random.random() < 0.1:
            broken = bytearray(frames[victim := self._random.randrange(len(frames))])
            broken[30] ^= 1
            return reply(b"".join([*frames[:victim], bytes(broken), *frames[victim + 1 :]]))
        return None


def life(steps, seed):
    """Requests with their statuses, and for each step other requests that could be made from then on."""
    rng = np.random.default_rng(seed)
    path, private = CHAIN.simulate(steps, rng).tolist(), (rng.random(steps) < 0.2).tolist()
    return path, private, lambda t: CHAIN.simulate(steps - t, rng, start=(path[t] + 1) % CHAIN.n).tolist()


async def stream(client, steps, seed, faults):
    """A caller who at some steps would rather ask for something else, and sometimes tries to when it must not."""
    path, private, otherwise = life(steps, seed)

    async def get(t, future):
        names = [CHAIN.names[x] for x in future[:2]]
        await client.get(names[0], names[1] if len(names) > 1 else None, private[t])
        path[t:] = future

    for t in range(steps):
        if t % 20 == 10:
            try:
                await get(t, otherwise(t))
                continue
            except Announced:
                pass
        if t % 20 == 15:
            faults.go_down(t)
        try:
            await get(t, path[t:])
        except Unavailable:
            bound = client.journal.state.announced is not None  # then only what comes after it can be changed
            try:
                await get(t, [path[t], *otherwise(t + 1)] if bound else otherwise(t))
            except PendingRequest:
                await client.resume()


def live(tmp_path, directory, steps, seed=1):
    """One life: a stream, the loss of its journal, another stream. What the server and the last journal saw of it."""
    faults = Faults(seed)
    origin = LoggingOrigin({name: f"about {name}".encode() for name in NAMES}, LENGTH, faults)

    async def run(journal, steps, seed, first_ever):
        randbelow = random.Random(seed).randrange
        # The mistakes are about queries: without a cache all answers have frames of one length.
        options = {"delay": 0.0, "attempts": ATTEMPTS, "backoff": 0.0, "randbelow": randbelow, "cache": 0}
        with Planner(CHAIN, directory) as planner:
            transport = OnoffTransport(server.url)
            async with client_with(CHAIN, transport, journal, planner, first_ever=first_ever, **options) as client:
                await stream(client, steps, seed, faults)

    with RecordingServer(origin) as server:
        asyncio.run(run(tmp_path / "lost", BEFORE, seed, True))
        asyncio.run(run(tmp_path / "journal", steps, seed + 1, False))
        server.wait_closed()
    origin.write_log(tmp_path / "log")
    return read_log(tmp_path / "log", CHAIN), read_journal(tmp_path / "journal", CHAIN)


@pytest.fixture
def audit(tmp_path, directory, models, monkeypatch):
    """Live a life of so many steps, and look at it."""
    monkeypatch.setattr(Planner, "_compute", lambda self, lag: None)  # no process in the background
    connect = onoff.client.journalfile.connect

    def hasty(path):  # thousands of steps, of which none has to survive a loss of power
        database = connect(path)
        database.execute("PRAGMA synchronous=OFF")
        return database

    monkeypatch.setattr(onoff.client.journalfile, "connect", hasty)

    def lived(steps):
        lines, noted = live(tmp_path, directory, steps)
        found = streams(lines, noted=[step.query for step in noted])
        return Audit(lines, noted, conformance(CHAIN, found, noted, models), draws(noted, models))

    return lived


@pytest.mark.parametrize("steps", [SHORT, pytest.param(LONG, marks=pytest.mark.long)])
def test_the_honest_client_passes(audit, steps):
    found = audit(steps)
    assert found.alarms == set(), found.findings[:5]
    assert found.draws.tested > 0.6 * steps
    assert found.draws.untested == 0
    assert sum(line.damaged for line in found.lines) > 0.1 * len(found.lines)  # it was put to the test


# The mutants: each is the real client but for what is patched here.


def redraw_on_retry(patch):
    complete = Client._complete

    async def redrawn(self, pending, called, again=False):  # noqa: ARG001
        self.attempts = 1
        for _ in range(ATTEMPTS - 1):
            try:
                return await complete(self, pending, called)
            except Unavailable:
                if pending.lag:
                    plan, last = self.planner.best(pending.lag), self.journal.state.last
                    query = plan.draw(pending.request, last, pending.next, pending.lag, self._randbelow)
                    pending = replace(pending, query=query, held=())
        return await complete(self, pending, called)

    patch.setattr(Client, "_complete", redrawn)


def drawing(patch, draw):
    """Plans that draw otherwise; `draw` is given the honest one as its first argument, then those of `draw`."""
    patch.setattr(TablePlan, "draw", functools.partialmethod(draw, TablePlan.draw))


def next_ignored(patch):
    """The most likely next request is taken for the next one."""

    def draw(self, honest, request, last, next, lag, randbelow):  # noqa: ARG001
        return honest(self, request, last, int(CHAIN.P[request].argmax()), lag, randbelow)

    drawing(patch, draw)


def lag_too_high(patch):
    """An ON step leaves the lag at 1: the OFF step after it is taken for the second one."""
    finish = session.finish
    patch.setattr(session, "finish", lambda state: replace(finish(state), lag=max(1, finish(state).lag)))


def lag_too_high_in_secret(patch):
    """Plans serve one lag more than they are asked for; the journal knows nothing of it."""

    def draw(self, honest, request, last, next, lag, randbelow):
        return honest(self, request, last, next, lag + 1, randbelow)

    drawing(patch, draw)


def plan_of_a_larger_lag(patch):
    """The next plan of the grid is cheaper; that it does not serve this lag is not checked."""
    best = Planner.best
    patch.setattr(Planner, "best", lambda self, lag: best(self, lag + 1))
    patch.setattr(Plan, "served_lag", lambda plan, lag: max(plan.lag, lag or 0))


def free_after_two_steps(patch):
    """From the third OFF step on the wanted source is asked for openly."""

    def draw(self, honest, request, last, next, lag, randbelow):
        return (request,) if lag > 2 else honest(self, request, last, next, lag, randbelow)

    drawing(patch, draw)


def biased_sampler(patch):
    """To save bytes, two sets are drawn and the smaller one is sent."""
    drawing(patch, lambda self, honest, *context: min((honest(self, *context) for _ in range(2)), key=len))


def last_updated_while_off(patch):
    finish = session.finish

    def forgetful(state):
        done = finish(state)
        return done if done.last is None else replace(done, last=done.previous)

    patch.setattr(session, "finish", forgetful)


def one_full_set_after_loss(patch):
    """Every journal is made as if nothing had ever been asked before."""
    made = Client.__init__

    def forgetful(self, *args, **options):
        made(self, *args, **{**options, "first_ever": True})

    patch.setattr(Client, "__init__", forgetful)


def pending_request_replaced(patch):
    """A request that the server did not answer is dropped for the next one."""
    begin, note = session.begin, Journal.begin

    def noted(self, state, pending, cost):
        self._database.execute("DELETE FROM steps WHERE step = ?", (state.step,))
        note(self, state, pending, cost)

    patch.setattr(session, "begin", lambda state, *args: begin(replace(state, pending=None), *args))
    patch.setattr(Journal, "begin", noted)


def announcement_forgotten(patch):
    """Another request than the announced one is taken."""
    begin = session.begin
    patch.setattr(session, "begin", lambda state, *args: begin(replace(state, announced=None), *args))


def telling_the_transport(patch):
    """The transport is told what is wanted, to spare bytes or time: the common root of three mistakes."""
    complete = Client._complete

    async def told(self, pending, *rest, **options):
        self.transport.wanted = self._on_wire[pending.request]
        return await complete(self, pending, *rest, **options)

    patch.setattr(Client, "_complete", told)


def retry_only_if_the_wanted_frame_was_bad(patch):
    telling_the_transport(patch)
    fetch = OnoffTransport.fetch

    async def content_with_one(self, stream, step, sources, held):
        place = sources.index(self.wanted)

        def lenient(catalogue, sources, body, held):
            try:
                return decode_answer(catalogue, sources, body, held)
            except AnswerError as error:
                if place in dict(error.faults) or not error.faults:
                    raise
                size = catalogue.frame_length
                return decode_answer(catalogue, (self.wanted,), body[place * size : (place + 1) * size]) * len(sources)

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(own_transport, "decode_answer", lenient)
            return await fetch(self, stream, step, sources, held)

    patch.setattr(OnoffTransport, "fetch", content_with_one)


def early_abort(patch):
    """The client hangs up as soon as it has the wanted frame."""
    telling_the_transport(patch)

    async def fetch(self, stream, step, sources, held):  # noqa: ARG001
        catalogue, place = self.catalogue, sources.index(self.wanted)
        size, body = catalogue.frame_length, b""
        query = Query(catalogue.fingerprint, stream, step, sources).encode()
        async with self._http._http.stream("POST", "/v1/query", content=query) as response:
            async for chunk in response.aiter_raw():
                body += chunk
                if response.status_code == 200 and len(body) >= size * (place + 1):
                    break
        try:
            [frame] = decode_answer(catalogue, (self.wanted,), body[size * place : size * (place + 1)])
        except AnswerError as error:
            raise Unavailable(str(error)) from None
        return Answer((Content(200, frame.message, frame.round),) * len(sources), len(body))

    patch.setattr(OnoffTransport, "fetch", fetch)


def wanted_source_first(patch):
    """The order of the set tells."""
    telling_the_transport(patch)
    fetch = OnoffTransport.fetch

    async def ordered(self, stream, step, sources, held):
        order = (self.wanted, *(source for source in sources if source != self.wanted))
        answer = await fetch(self, stream, step, order, tuple(held[sources.index(source)] for source in order))
        return Answer(tuple(answer.contents[order.index(source)] for source in sources), answer.size)

    patch.setattr(OnoffTransport, "fetch", ordered)


MUTANTS = {
    redraw_on_retry: (SHORT, {"one query", "journal"}),
    next_ignored: (SHORT, {"draws"}),
    lag_too_high: (SHORT, {"lag", "plan"}),
    lag_too_high_in_secret: (LONG, {"draws"}),
    plan_of_a_larger_lag: (SHORT, {"plan"}),
    free_after_two_steps: (SHORT, {"draws"}),
    biased_sampler: (LONG, {"draws"}),
    last_updated_while_off: (LONG, {"draws"}),
    one_full_set_after_loss: (SHORT, {"full set", "lag", "plan"}),
    pending_request_replaced: (SHORT, {"one query", "journal"}),
    announcement_forgotten: (SHORT, {"next"}),
    retry_only_if_the_wanted_frame_was_bad: (SHORT, {"retry"}),
    early_abort: (SHORT, {"unread", "retry"}),
    wanted_source_first: (SHORT, {"order"}),
}


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, marks=pytest.mark.long if steps == LONG or i % 4 else ())
        for i, (mutant, (steps, _)) in enumerate(MUTANTS.items())
    ],
    ids=lambda mutant: mutant.__name__,
)
def test_the_mutant_is_caught(audit, monkeypatch, mutant):
    steps, expected = MUTANTS[mutant]
    mutant(monkeypatch)
    found = audit(steps)
    assert found.alarms >= expected, (found.findings[:5], found.draws)


# Those that are about draws do leak: the exact law of whole streams, in fractions.


class Mutated:
    """A plan with other rows: `rows` is given the honest plan, last, next, the lag and the request."""

    def __init__(self, honest, rows, sets=None):
        self._honest, self._rows, self.sets = honest, rows, sets or honest.sets

    def encoder(self, last, next, lag):
        rows = [self._rows(self._honest, last, next, lag, x) for x in range(self._honest.n)]
        return SimpleNamespace(toarray=lambda: np.array(rows, dtype=object))


def honest_row(plan, last, next, lag, request):
    return [int(units) for units in plan.encoder(last, next, lag).toarray()[request]]


def smaller_of_two(plan, *context):
    row = honest_row(plan, *context)
    chances = [0] * len(row)
    for i, j in itertools.product(range(len(row)), repeat=2):
        chances[min(i, j, key=lambda k: len(plan.sets[k]))] += row[i] * row[j]
    return chances


def drawn_twice(plan, *context):
    row = honest_row(plan, *context)
    return [a * b for a, b in itertools.product(row, row)]


def counted(lag, last, path, t):  # noqa: ARG001
    return lag + 1, last


def test_the_mutants_that_draw_otherwise_do_leak():
    chain = ring(3, 3)
    plans = {lag: plan(chain, lag) for lag in (1, 2, 3)}

    def leaked(rows=honest_row, rules=counted, statuses=(True, False, False), ahead=0, pairs=False):
        """The dependence of the queries on what is hidden, with plans that draw from other rows or serve ahead."""
        used = {lag: plans[lag + ahead] for lag in range(1, 4 - ahead)}
        sets = {lag: [*itertools.product(one.sets, repeat=2)] if pairs else None for lag, one in used.items()}
        changed = {lag: Mutated(one, rows, sets[lag]) for lag, one in used.items()}
        return float(dependence(joint_law(chain, statuses, changed, rules), statuses))

    def any_next(plan, last, next, lag, request):  # noqa: ARG001
        return honest_row(plan, last, int(chain.P[request].argmax()), lag, request)

    def openly(plan, last, next, lag, request):
        row = honest_row(plan, last, next, lag, request)
        return row if lag < 3 else [int(query == (request,)) for query in plan.sets]

    assert leaked() < 1e-9
    found = {
        redraw_on_retry: leaked(drawn_twice, statuses=(True, False), pairs=True),
        next_ignored: leaked(any_next),
        lag_too_high: leaked(rules=lambda lag, last, path, t: (max(2, lag + 1), last)),
        lag_too_high_in_secret: leaked(
            lambda plan, last, next, lag, request: honest_row(plan, last, next, lag + 1, request)
        ),
        plan_of_a_larger_lag: leaked(
            lambda plan, last, next, lag, request: honest_row(plan, last, next, max(lag, plan.lag), request), ahead=1
        ),
        free_after_two_steps: leaked(openly, statuses=(True, False, False, False)),
        biased_sampler: leaked(smaller_of_two),
        last_updated_while_off: leaked(rules=lambda lag, last, path, t: (lag + 1, path[t - 1])),
    }
    assert min(found.values()) > 1e-3, found
