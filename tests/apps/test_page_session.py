"""The sessions of the page, without the page: a real server, a real client, beliefs of the server, costs."""

from __future__ import annotations

import asyncio
import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest

from clientstreams import random_habits
from onoff import Chain, plan
from onoff.apps.page.beliefs import NONE, BothObserver, PageStep, PastObserver
from onoff.apps.page.session import BothSession, PastSession, Wish
from onoff.apps.page.state import Page
from onoff.audit.exhibits import law_line
from onoff.audit.files import read_log
from onoff.errors import ChainError, ContextError, PlanError, SessionError
from pageprocess import CHAIN, FULL
from replaykit import write_lines
from waiting import until


async def answered(session):
    await until(lambda: not session.queue and knows_all(session))


def knows_all(session):
    steps = len(session.history) + len(session.steps)
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


def spoil(file):
    """Overwrite what the page has read: it reads on from there."""
    file.write_bytes(b'{"' + b"x" * (file.stat().st_size - 3) + b"\n")


def naive(n, sensitive=lambda t: ()):
    """The chance of a query of a client that asks for everything while ON or if the request is sensitive."""
    return lambda t, x, on, query: float(query == (tuple(range(n)) if on or x in sensitive(t) else (x,)))


# The promise past


def test_a_click_is_a_request_and_what_is_believed_about_it_never_changes_but_for_a_naive_client():
    async def story():
        async with PastSession(CHAIN) as session:
            session.ask("a", True)
            await until(lambda: len(session.steps) == 1 and not session.queue)  # nothing was announced
            spoil(session.server.transcript)
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


def test_habits_with_memory_show_what_follows_the_last_requests_and_hidden_beliefs_stay():
    habits = random_habits(3, np.random.default_rng(8))

    async def story():
        async with PastSession(habits) as session:
            for source, private in zip("abcacbab", (True, False, False, False, True, False, False, False), strict=True):
                session.ask(habits.names["abc".index(source)], private)
                last = [step.wanted for step in session.steps] + [habits.index(wish.source) for wish in session.queue]
                assert session.state()["habits"] == habits.P[habits.state_of(last[-2:])].tolist()
            await answered(session)
            assert session.state()["habits"] == habits.P[habits.state_of((0, 1))].tolist()
            await session.lock("1", True)
            assert session.state()["beginning"] == 2
            for source in "010120":
                session.ask(source, False)
            await answered(session)
            steps = [*session.history, *session.steps]
            assert [step.lag for step in steps] == [0, 0, 1, 2, 0, 1, 2, 3, 0, 0, 1, 2, 3, 4]
            assert session.knowledge.hidden
            for hidden in session.knowledge.hidden:
                assert hidden.ours.rows[3] == pytest.approx(hidden.ours.rows[1], abs=1e-9)
            before, after = session.knowledge.sensitive.ours
            assert after == pytest.approx(before, abs=1e-9)
            assert max(hidden.naive.bits for hidden in session.knowledge.hidden) > 1e-3

    asyncio.run(story())


def test_a_page_of_habits_with_memory_has_no_plans_and_says_so():
    async def story():
        page = Page(random_habits(3, np.random.default_rng(8)), "habits")
        with pytest.raises(ChainError, match="the promise `both` needs a Markov chain"):
            await page.open_both()
        page.past = SimpleNamespace(sensitive=(), state=dict)
        await page._compute_costs()
        assert set(page.costs) == {"past"}
        assert "both`: it needs a Markov chain" in page.state()["unplanned"]

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
            assert (state["sensitive"], state["stream"], state["beginning"]) == ((2,), 1, 1)
            assert [step["step"] for step in state["steps"]] == [0, 1]
            assert state["habits"] == CHAIN.P[1].tolist()  # the reader is the same
            for source in "cccab":
                session.ask(source, False)
            await answered(session)
            assert session.state()["beginning"] == 0
            assert [step.step for step in session.steps] == [2, 3, 4, 5, 6]
            assert [step.private for step in session.steps] == [True, False, False, False, False]
            assert [step.made_private for step in session.steps[:2]] == [True, False]
            assert all(2 in step.saw for step in session.steps)
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


def test_the_beliefs_are_those_about_the_recorded_laws_and_without_a_law_there_is_none(tmp_path):
    """Of a client that asks openly and records that, as much is learned as of the naive one: nothing is assumed."""
    proof, each = {"cuts": [], "weights": []}, [[0, 1, 2], [0, 1, 2], [1, 1, 1]]
    openly = {"sets": [[0], [1], [2]], "masses": [1, 1, 1], "certificate": proof, "encoders": {"0": each, "2": each}}
    line = {"format": "onoff-law", "version": 4, "stream": "me", "law": openly}
    record = tmp_path / "record"
    write_lines(record, [line, {**line, "law": {**openly, "encoders": {"1": each}}}])  # other states, and the same law
    digest = law_line(openly, 3).digest
    steps = [on(0), PageStep(1, False, False, 1, "past", 1, (1,), 1, digest)]
    observer = PastObserver(CHAIN)
    observer.follow(record)
    [hidden] = observer.observe(steps).hidden
    expected = CHAIN.stationary() * CHAIN.P[:, 1]
    assert hidden.ours.rows[3] == pytest.approx(expected / expected.sum())
    assert hidden.ours == hidden.naive
    assert hidden.ours.bits > 0.1
    other = {**openly, "masses": [2, 2, 2], "encoders": {"1": [*each[:2], [2, 2, 2]]}}
    steps.append(PageStep(2, False, False, 2, "past", 1, (1,), 1, law_line(other, 3).digest))
    with pytest.raises(PlanError, match="the law of step 2 is not on record"):
        observer.observe(steps)
    spoil(record)
    with record.open("a") as file:
        file.write(json.dumps({**line, "law": other}) + '\n{"format": "onoff-law", "half')
    assert observer.observe(steps).steps == 3


def on(wanted, step=0):
    return PageStep(step, True, False, 0, "everything", wanted, FULL, 1)


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


def test_the_beliefs_are_about_the_queries_in_the_transcript():
    """Of a client that leaks, the same observer learns: here one whose plan is for another chain than its requests."""
    other = plan(Chain.symmetric(3, 0.05, ["a", "b", "c"]), 1)
    query = next(query for query in other.sets if query != FULL)
    steps = [on(0), PageStep(1, False, False, 1, other.name, query[0], query, 1)]
    [flat] = BothObserver(CHAIN, [other]).observe(steps[:1]).hidden
    assert flat.ours.bits < 1e-12
    [leak] = BothObserver(CHAIN, [other]).observe(steps).hidden
    assert leak.ours.bits > 0.01


# Both
