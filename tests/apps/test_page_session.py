"""The sessions of the page, without the page: a real server, a real client, beliefs of the server, costs."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from onoff import Chain, plan
from onoff.apps.costs import costs
from onoff.apps.demo.reader import reader
from onoff.apps.page import state as page_state
from onoff.apps.page.beliefs import NONE, BothObserver, PageStep, PastObserver, Steps
from onoff.apps.page.session import LAGS, LONGEST_QUEUE, MOST_SOURCES, OPENING, BothSession, PastSession, Wish
from onoff.apps.page.state import EFFORT, LOCKED, Page
from onoff.audit.files import read_log
from onoff.errors import ChainError, ContextError, NotUnique, OnoffError, PlanError, SessionError
from pageprocess import CHAIN, FULL, until


async def answered(session):
    await until(lambda: not session.queue and knows_all(session))


def knows_all(session):
    steps = len(session.history) + len([step for step in session.steps if step.bytes])
    return session.knowledge is not None and session.knowledge.steps == steps


def beliefs_by_enumeration(chain, private, queries, likelihood):
    """p(X_t), p(X_t | Q_0..Q_{t-1}), p(X_t | Q_0..Q_t) and p(X_t | all), over all paths: no filter at all."""
    steps, start = len(private), chain.stationary()
    found = np.zeros((4, steps, chain.n))
    for path in itertools.product(range(chain.n), repeat=steps):
        habit = start[path[0]] * np.prod([chain.P[x, y] for x, y in itertools.pairwise(path)])
        alike = [
            likelihood(t, x, on, query) for t, (x, on, query) in enumerate(zip(path, private, queries, strict=True))
        ]
        for t in range(steps):
            for row, seen in enumerate((0, t, t + 1, steps)):
                found[row, t, path[t]] += habit * np.prod(alike[:seen])
    return found / found.sum(axis=2, keepdims=True)


def naive(n, sensitive=lambda t: ()):
    """The chance of a query of a client that asks for everything while ON or if the request is sensitive."""
    return lambda t, x, on, query: float(query == (tuple(range(n)) if on or x in sensitive(t) else (x,)))


# The promise past


def test_a_click_is_a_request_and_what_is_believed_about_it_never_changes_but_for_a_naive_client():
    async def story():
        async with PastSession(CHAIN) as session:
            session.ask("a", True)
            await until(lambda: len(session.steps) == 1 and not session.queue)  # nothing was announced
            for source in "bbc":
                session.ask(source, False)
            with pytest.raises(ContextError, match="impossible to ask for 'b' now"):
                session.ask("b", False)
            session.ask("c", True)
            session.ask("a", False)
            await answered(session)
            assert [(step.private, step.wanted, step.lag) for step in session.steps] == [
                *((True, 0, 0), (False, 1, 1), (False, 1, 2), (False, 2, 3), (True, 2, 0), (False, 0, 1))
            ]
            assert session.steps[0].saw == session.steps[4].saw == FULL
            assert all(step.wanted in step.saw for step in session.steps)
            private = [step.private for step in session.steps]
            oracle = beliefs_by_enumeration(CHAIN, private, [step.naive(3) for step in session.steps], naive(3))
            assert [hidden.step for hidden in session.knowledge.hidden] == [4, 0]
            for hidden in session.knowledge.hidden:
                assert hidden.choices == ("a", "b", "c")
                assert hidden.wanted == hidden.source == session.steps[hidden.step].wanted
                habits, before, at, after = np.array(hidden.ours.rows)
                assert habits == pytest.approx(CHAIN.stationary())
                assert at == pytest.approx(before, abs=1e-9)
                assert after == pytest.approx(before, abs=1e-9)
                assert hidden.ours.bits < 1e-9
                assert np.array(hidden.naive.rows) == pytest.approx(oracle[:, hidden.step])
            assert session.knowledge.hidden[1].naive.bits > 0.1
            assert session.knowledge.sensitive is None
            frame, state = session.server.catalogue.frame_length, session.state()
            assert state["bytes"]["naive"] == frame * (2 * 3 + 4)
            assert state["bytes"]["everything"] == frame * 18
            assert state["message"] == "the latest of a"

    asyncio.run(story())


def test_a_lock_begins_a_new_stream_keeps_the_history_and_no_query_tells_whether_something_sensitive_was_read():
    async def story():
        async with PastSession(CHAIN) as session:
            for source, private in (("a", True), ("b", False)):
                session.ask(source, private)
            await answered(session)
            first = session.client.journal.stream
            with pytest.raises(ChainError, match="no source is called"):
                await session.lock("d", True)
            await session.lock("a", False)  # it is not locked: the stream goes on
            assert session.client.journal.stream == first
            await session.lock("c", True)
            state = session.state()
            assert (state["sensitive"], state["stream"], state["beginning"]) == ((2,), 1, 2)
            assert [step["step"] for step in state["steps"]] == [0, 1]
            assert state["habits"] == CHAIN.P[1].tolist()  # the reader is the same
            for source in "cccab":
                session.ask(source, False)
            await answered(session)
            assert session.state()["beginning"] == 0
            assert [step.step for step in session.steps] == [2, 3, 4, 5, 6]
            assert [step.private for step in session.steps] == [True, True, False, False, False]
            assert [step.made_private for step in session.steps[:2]] == [True, True]
            assert all(2 in step.saw for step in session.steps)
            assert {step.times for step in session.steps} == {1}  # those of the stream before are not counted
            lines = read_log(session.server.transcript, CHAIN)
            assert [line.stream == first for line in lines] == [True] * 2 + [False] * 5
            found = session.knowledge.sensitive
            assert found.steps == (2, 3, 4, 5, 6)
            assert found.read == (True, True, True, False, False)
            before, after = found.ours
            assert after == pytest.approx(before, abs=1e-9)
            assert 0.01 < min(before) < max(before) < 0.99
            # The naive client had shown b before the new stream; every step of it then tells whether c was read.
            steps = [*session.history, *session.steps]
            private, queries = [step.private for step in steps], [step.naive(3) for step in steps]
            rules = naive(3, lambda t: (2,) if t > 1 else ())
            oracle = beliefs_by_enumeration(CHAIN, private, queries, rules)
            assert np.array(found.naive) == pytest.approx(oracle[[1, 3], 2:, 2])
            assert found.naive[1][2:] == pytest.approx((1, 0, 0))
            hidden = session.knowledge.hidden[0]
            assert (hidden.step, hidden.private, hidden.choices, hidden.wanted) == (4, False, ("c", NONE), 0)
            assert hidden.ours.bits < 1e-9
            assert hidden.naive.rows[3] == pytest.approx((1, 0))
            assert session.state()["steps"][4]["naive"] == FULL

    asyncio.run(story())


def test_a_stream_that_cannot_begin_leaves_the_one_before():
    async def story():
        async with PastSession(CHAIN) as session:
            session.ask("a", True)
            await answered(session)
            await session.run_server(False)
            with pytest.raises(OnoffError):
                await session.lock("c", True)
            assert (session.stream, session.sensitive, len(session.steps)) == (0, (), 1)
            session.ask("b", False)
            await until(lambda: "Step 1 has no answer yet" in session.state()["trouble"])
            with pytest.raises(SessionError, match="another stream can begin after it"):
                await asyncio.wait_for(session.lock("c", True), 60)
            await session.run_server(True)
            await answered(session)
            assert len(session.steps) == 2
            assert not session.state()["trouble"]

    asyncio.run(story())


def test_the_beliefs_are_those_about_the_recorded_laws_and_without_a_law_there_is_none(tmp_path):
    """Of a client that asks openly and records that, as much is learned as of the naive one: nothing is assumed."""
    openly = {"sets": [[0], [1], [2]], "masses": [1, 1, 1], "denominator": 3, "rounding": 0.0, "lower_bound": 1.0}
    openly["encoders"] = {"0": [[0, 1, 2], [0, 1, 2], [1, 1, 1]]}
    line = {"format": "onoff-law", "version": 1, "stream": "me", "place": [0], "joined": [0, 0, 0]}
    record = tmp_path / "record"
    others = json.dumps({**line, "stream": "other", "step": 1, "law": {**openly, "masses": [3, 0, 0]}})
    record.write_text(f"{others}\n" + json.dumps({**line, "step": 1, "law": openly}) + "\n")
    steps = [on(0), PageStep(1, False, False, 1, "past", 1, (1,), 1, 1)]
    observer = PastObserver(CHAIN)
    observer.follow(record, "me", 0)
    [hidden] = observer.observe(steps).hidden
    expected = CHAIN.stationary() * CHAIN.P[:, 1]
    assert hidden.ours.rows[3] == pytest.approx(expected / expected.sum())
    assert hidden.ours == hidden.naive
    assert hidden.ours.bits > 0.1
    steps.append(PageStep(2, False, False, 2, "past", 1, (1,), 1, 1))
    with pytest.raises(PlanError, match="the law of step 2 is not on record"):
        observer.observe(steps)
    with record.open("a") as file:
        file.write(json.dumps({**line, "step": 2, "law": openly}) + '\n{"format": "onoff-law", "half')
    assert observer.observe(steps).steps == 3


def on(wanted, step=0):
    return PageStep(step, True, False, 0, "everything", wanted, FULL, 1, 1)


@pytest.mark.parametrize(("Session", "locked"), [(PastSession, [LOCKED]), (BothSession, [])])
def test_the_page_opens_with_a_story_in_which_the_naive_client_loses_clearly(Session, locked):
    """The server is right about all that is shown, and sure of it, while ours leaves it guessing."""
    chain = reader()

    async def story():
        async with Session(chain, opening=True, sensitive=tuple(map(chain.index, locked))) as session:
            await until(lambda: session.knowledge is not None and session.knowledge.steps >= len(OPENING) - 1)
            return session.knowledge.hidden

    hidden = asyncio.run(story())
    assert len(hidden) == 3
    assert sum(not one.private for one in hidden) == len(locked)  # a locked source was read while OFF
    for one in hidden:
        ours, naive = (side.rows[3][one.wanted] for side in (one.ours, one.naive))
        assert naive > 0.9
        assert ours < 0.5


def test_requests_that_do_not_follow_the_habits_bring_a_warning():
    """The catalogue in its order, three times, after the opening; requests that follow the habits bring none."""
    chain = reader()

    def warning(path):
        return BothObserver(chain, ()).observe([on(x, t) for t, x in enumerate(path)]).warning

    opening = [chain.index(wish.source) for wish in PastSession(chain, opening=True).queue]
    assert "DO NOT FOLLOW" in warning([*opening, *range(8), *range(8), *range(8)])
    assert warning([int(x) for x in chain.simulate(40, np.random.default_rng(1))]) == ""


# The promise both


def test_a_request_is_made_when_the_next_is_known_with_the_status_of_its_click():
    async def story():
        async with BothSession(CHAIN) as session:
            with pytest.raises(ChainError, match="no source is called"):
                session.ask("d", True)
            session.ask("a", True)
            session.ask("b", True)
            await until(lambda: len(session.steps) == 1)
            assert list(session.queue) == [Wish("b", True)]
            session.switch(False)  # too late for b
            session.ask("c", False)
            session.ask("c", True)
            await until(lambda: len(session.steps) == 3)
            assert [(step.private, step.lag, step.wanted) for step in session.steps] == [
                (True, 0, 0),
                (True, 0, 1),
                (False, 1, 2),
            ]
            assert session.steps[0].saw == session.steps[1].saw == FULL
            assert 2 in session.steps[2].saw
            assert session.state()["habits"] == [0.5, 0.0, 0.5]
            with pytest.raises(ContextError, match="impossible"):
                session.ask("b", False)
            session.ask("a", False)
            with pytest.raises(SessionError, match="choose a source"):
                session.make_now()  # two are waiting
            await until(lambda: len(session.queue) == 1)
            session.make_now()
            await until(lambda: len(session.steps) == 5 and not session.queue)
            assert session.steps[4].made_private  # asked OFF, but without a next request
            assert session.steps[4].saw == FULL
            state, frame = session.state(), session.server.catalogue.frame_length
            assert state["message"] == "the latest of a"
            assert state["bytes"] == {
                "onoff": frame * sum(len(step.saw) for step in session.steps),
                "everything": frame * 15,
                "naive": frame * (4 * 3 + 1),
            }

    asyncio.run(story())


def test_the_server_believes_what_it_did_before_but_for_a_naive_client():
    async def story():
        async with BothSession(CHAIN) as session:
            for source, private in zip("abbca", (True, False, False, True, True), strict=True):
                session.ask(source, private)
            await until(lambda: len(session.steps) == 4 and knows_all(session))
            latest, first = session.knowledge.hidden
            assert (latest.step, first.step) == (3, 0)
            prior, P = CHAIN.stationary(), CHAIN.P
            for hidden in session.knowledge.hidden:
                assert np.array(hidden.ours.rows) == pytest.approx(np.array([prior] * 4), abs=1e-12)
                assert hidden.ours.bits < 1e-12
                assert hidden.naive.bits > 0.05
            # The naive client has shown that b was asked for right after step 0 and right before step 3.
            before = prior * P[:, 1]
            assert first.naive.rows[3] == pytest.approx(before / before.sum())
            assert latest.naive.rows[3] == pytest.approx(P[1])

    asyncio.run(story())


def test_requests_do_not_wait_for_the_beliefs_and_go_on_when_these_fail():
    async def story():
        async with BothSession(CHAIN) as session:
            observe, go = session.observer.observe, threading.Event()
            session.observer.observe = lambda steps: go.wait(60) and observe(steps)
            for source, private in zip("abbbca", (True, False, False, False, True, False), strict=True):
                session.ask(source, private)
            try:
                await until(lambda: len(session.steps) == 5 and len(session.queue) == 1)
                assert session.knowledge is None
            finally:
                go.set()
            await until(lambda: knows_all(session))
            session.observer = BothObserver(CHAIN, [plan(CHAIN, 13)])
            session.ask("b", False)
            await until(lambda: "A part of the page has failed" in session.state()["trouble"])
            session.ask("b", False)
            await until(lambda: len(session.steps) == 7 and len(session.queue) == 1)
            troubles.append(session.state()["trouble"])

    troubles = []
    with pytest.raises(PlanError, match="drawn by another plan"):  # in the end it is raised
        asyncio.run(story())
    assert "drawn by another plan" in troubles[0]


def test_the_beliefs_are_about_the_queries_in_the_transcript():
    """Of a client that leaks, the same observer learns: here one whose plan is for another chain than its requests."""
    other = plan(Chain.symmetric(3, 0.05, ["a", "b", "c"]), 1)
    query = next(query for query in other.sets if query != FULL)
    steps = [on(0), PageStep(1, False, False, 1, other.name, query[0], query, 1, 1)]
    [flat] = BothObserver(CHAIN, [other]).observe(steps[:1]).hidden
    assert flat.ours.bits < 1e-12
    [leak] = BothObserver(CHAIN, [other]).observe(steps).hidden
    assert leak.ours.bits > 0.01


# Both


def test_lines_of_the_transcript_that_were_read_are_not_read_again(tmp_path):
    rows, file = [], tmp_path / "transcript"
    steps = Steps(SimpleNamespace(stream="s", steps=lambda since: rows[since:]), file, CHAIN)
    assert steps.read() == []
    lines = [{"catalogue": ["c", "b", "a"]}, {"stream": "s", "step": 0, "sources": [0, 1]}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = {"private": True, "made_private": True, "lag": 0, "plan": "", "request": 1, "bytes": 9}
    rows.append(SimpleNamespace(step=0, **made))
    assert [(step.saw, step.times) for step in steps.read()] == [((1, 2), 1)]
    other, own, cut = (
        '{"stream": "other", "step": 1, "sources": [0]}',
        '{"stream": "s", "step": 1, "sources": [2]}',
        '{"s',
    )
    file.write_text("x" * file.stat().st_size + f"{other}\n{own}\n{cut}")  # whoever reads it again fails
    rows.append(SimpleNamespace(step=1, **made))
    assert [(step.saw, step.times) for step in steps.read()] == [((1, 2), 1), ((0,), 1)]


def test_a_server_that_comes_back_gets_the_same_query_and_nothing_is_left_behind():
    async def story():
        async with BothSession(CHAIN) as session:
            await session.run_server(False)
            assert session.state()["trouble"] == "You stopped the server."
            session.ask("a", True)
            session.ask("b", False)
            await until(lambda: "Step 0 has no answer yet" in session.state()["trouble"])
            await session.run_server(True)
            await until(lambda: len(session.queue) == 1)
            await session.run_server(False)
            session.ask("c", True)
            await until(lambda: "Step 1 has no answer yet" in session.state()["trouble"])
            drawn = session.client.journal.state.pending.query
            assert session.steps[-1].saw == ()
            assert not session.steps[-1].bytes
            while len(session.queue) < LONGEST_QUEUE:
                session.ask("c", True)
            with pytest.raises(SessionError, match="are waiting"):
                session.ask("c", True)
            await session.run_server(True)
            await until(lambda: len(session.queue) == 1 and not session.state()["trouble"])
            assert session.steps[1].saw == drawn
            assert session.steps[1].bytes
            directory = session.server.transcript.parent
            assert directory.exists()
        assert not directory.exists()

    asyncio.run(story())


def test_chains_that_cannot_be_shown_are_refused():
    async def story():
        with pytest.raises(ChainError, match="at most"):
            PastSession(Chain.symmetric(MOST_SOURCES + 1, 0.5))
        with pytest.raises(NotUnique):
            PastSession(Chain(np.eye(2)))

    asyncio.run(story())


# Costs


def page_with(chain, *sensitive):
    page = Page(chain, "test")
    page.past = SimpleNamespace(sensitive=sensitive)
    return page


def test_the_costs_are_those_of_the_command_and_are_not_computed_twice(monkeypatch):
    page = page_with(CHAIN, 2)
    asyncio.run(page._compute_costs())
    for name, sensitive in (("past", ()), ("locked", (2,))):
        expected = [cost.messages for cost in costs({"c": CHAIN}, LAGS, sensitive=sensitive, effort=EFFORT)]
        assert page.costs[name] == pytest.approx(expected)
    assert page.costs["both"][:2] == [plan(CHAIN, 1).cost, plan(CHAIN, 2).cost]
    assert all(both <= paper + 1e-9 for both, paper in zip(page.costs["both"], page.costs["paper"], strict=True))
    assert page.gap < 1e-5
    monkeypatch.setattr(page_state, "costs", None)  # would fail
    page.past.sensitive = ()
    asyncio.run(page._compute_costs())
    assert sorted(page.costs) == ["both", "paper", "past"]


def test_a_simulation_that_nobody_waits_for_ends(monkeypatch):
    streams = []

    async def story():
        began, loop = asyncio.Event(), asyncio.get_running_loop()

        def simulate(*_, bar, **__):
            with bar(None) as advance:
                for _ in range(1000):
                    streams.append(loop.call_soon_threadsafe(began.set))
                    advance()
                    time.sleep(0.01)
                    yield from ()

        monkeypatch.setattr(page_state, "costs", simulate)
        task = asyncio.create_task(page_with(CHAIN)._compute_costs())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())  # waits for the thread
    assert 0 < len(streams) < 1000
