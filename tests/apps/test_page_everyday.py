"""The everyday mode of the page, without the page: requests at once, locks, what the server believes, what it costs."""

from __future__ import annotations

import asyncio
import itertools
import json
import time

import numpy as np
import pytest

from onoff import Chain, plan
from onoff.apps.costs import Effort
from onoff.apps.costs import costs as compute_costs
from onoff.apps.demo import reader
from onoff.apps.page.beliefs import NONE, PastObserver
from onoff.apps.page.costs import STEPS, STREAMS, STREAMS_LOCKED, costs
from onoff.apps.page.everyday import EverydaySession
from onoff.apps.page.session import LOCKED, OPENING
from onoff.apps.page.steps import Made
from onoff.audit.files import read_log
from onoff.errors import ChainError, ContextError, OnoffError, PlanError, SessionError
from pagekit import CHAIN, FULL, until


async def answered(world):
    await until(lambda: not world.queue and world.watched is not None and world.watched.steps == len(world.made))


def beliefs_by_enumeration(chain, private, queries, start, likelihood):
    """p(X_t | Q_0..Q_{t-1}), p(X_t | Q_0..Q_t) and p(X_t | all), over all paths: no filter at all."""
    steps = len(private)
    found = np.zeros((3, steps, chain.n))
    for path in itertools.product(range(chain.n), repeat=steps):
        habit = start[path[0]] * np.prod([chain.P[x, y] for x, y in itertools.pairwise(path)])
        alike = [likelihood(x, on, query) for x, on, query in zip(path, private, queries, strict=True)]
        for t in range(steps):
            for row, seen in enumerate((t, t + 1, steps)):
                found[row, t, path[t]] += habit * np.prod(alike[:seen])
    return found / found.sum(axis=2, keepdims=True)


def naive(sensitive, n):
    """The chance of a query of a client that asks for everything while ON or if the request is sensitive."""
    return lambda x, on, query: float(query == (tuple(range(n)) if on or x in sensitive else (x,)))


def test_a_click_is_a_request_and_what_is_believed_about_it_never_changes_but_for_a_naive_client():
    async def story():
        async with EverydaySession(CHAIN) as world:
            world.ask("a", True)
            await until(lambda: len(world.made) == 1 and not world.queue)  # nothing was announced
            for source in "bbc":
                world.ask(source, False)
            with pytest.raises(ContextError, match="impossible to ask for 'b' now"):
                world.ask("b", False)
            world.ask("c", True)
            world.ask("a", False)
            await answered(world)
            assert [(made.private, made.wanted, made.lag) for made in world.made] == [
                *((True, 0, 0), (False, 1, 1), (False, 1, 2), (False, 2, 3), (True, 2, 0), (False, 0, 1))
            ]
            assert world.made[0].saw == world.made[4].saw == FULL
            assert all(made.wanted in made.saw for made in world.made)
            private = [made.private for made in world.made]
            queries = [made.naive(3) for made in world.made]
            oracle = beliefs_by_enumeration(CHAIN, private, queries, CHAIN.stationary(), naive((), 3))
            assert [hidden.step for hidden in world.watched.hidden] == [4, 0]
            for hidden in world.watched.hidden:
                assert hidden.choices == ("a", "b", "c")
                assert hidden.wanted == hidden.source == world.made[hidden.step].wanted
                before, at, after = np.array(hidden.ours.rows)
                assert at == pytest.approx(before, abs=1e-9)
                assert after == pytest.approx(before, abs=1e-9)
                assert hidden.ours.bits < 1e-9
                assert np.array(hidden.naive.rows) == pytest.approx(oracle[:, hidden.step])
            assert world.watched.hidden[1].naive.bits > 0.1
            assert world.watched.sensitive is None
            frame, state = world.server.catalogue.frame_length, world.state()
            assert state["bytes"]["naive"] == frame * (2 * 3 + 4)
            assert state["bytes"]["everything"] == frame * 18
            assert state["message"] == "the latest of a"

    asyncio.run(story())


def test_a_lock_begins_a_new_stream_in_which_no_query_tells_whether_something_sensitive_was_read():
    async def story():
        async with EverydaySession(CHAIN) as world:
            for source, private in (("a", True), ("b", False)):
                world.ask(source, private)
            await answered(world)
            first = world.client.journal.stream
            with pytest.raises(ChainError, match="no source is called"):
                await world.lock("d", True)
            await world.lock("a", False)  # it is not locked: the stream goes on
            assert world.client.journal.stream == first
            await world.lock("c", True)
            state = world.state()
            assert (state["sensitive"], state["stream"], state["beginning"], state["steps"]) == ((2,), 1, 2, [])
            assert state["habits"] == CHAIN.P[1].tolist()  # the reader is the same
            for source in "cccab":
                world.ask(source, False)
            await answered(world)
            assert world.state()["beginning"] == 0
            assert [made.private for made in world.made] == [True, True, False, False, False]
            assert [made.made_private for made in world.made[:2]] == [True, True]
            assert all(2 in made.saw for made in world.made)
            assert {made.times for made in world.made} == {1}  # those of the stream before are not counted
            lines = read_log(world.server.transcript, CHAIN).lines
            assert [line.stream == first for line in lines] == [True] * 2 + [False] * 5
            found = world.watched.sensitive
            assert found.read == (True, True, True, False, False)
            before, after = found.ours
            assert after == pytest.approx(before, abs=1e-9)
            assert 0.01 < min(before) < max(before) < 0.99
            # The naive client had shown b before the new stream; every step of it then tells whether c was read.
            queries = [made.naive(3, (2,)) for made in world.made]
            private = [made.private for made in world.made]
            oracle = beliefs_by_enumeration(CHAIN, private, queries, CHAIN.P[1], naive((2,), 3))
            assert np.array(found.naive) == pytest.approx(oracle[[0, 2], :, 2])
            assert found.naive[1][2:] == pytest.approx((1, 0, 0))
            hidden = world.watched.hidden[0]
            assert (hidden.step, hidden.private, hidden.choices, hidden.wanted) == (2, False, ("c", NONE), 0)
            assert hidden.ours.bits < 1e-9
            assert hidden.naive.rows[2] == pytest.approx((1, 0))
            habits, ours, other = world.watched.some
            assert habits < 1
            assert ours < 1
            assert other == pytest.approx(1)
            assert world.state()["steps"][2]["naive"] == FULL

    asyncio.run(story())


def test_a_stream_that_cannot_begin_leaves_the_one_before():
    async def story():
        async with EverydaySession(CHAIN) as world:
            world.ask("a", True)
            await answered(world)
            await world.run_server(False)
            with pytest.raises(OnoffError):
                await world.lock("c", True)
            assert (world.stream, world.sensitive, len(world.made)) == (0, (), 1)
            world.ask("b", False)
            await until(lambda: "Step 1 has no answer yet" in world.state()["trouble"])
            with pytest.raises(SessionError, match="another stream can begin after it"):
                await asyncio.wait_for(world.lock("c", True), 60)
            await world.run_server(True)
            await answered(world)
            assert len(world.made) == 2
            assert not world.state()["trouble"]

    asyncio.run(story())


def test_the_beliefs_are_those_about_the_recorded_laws_and_without_a_law_there_is_none(tmp_path):
    """Of a client that asks openly and records that, as much is learned as of the naive one: nothing is assumed."""
    openly = {"sets": [[0], [1], [2]], "masses": [1, 1, 1], "denominator": 3, "rounding": 0.0, "lower_bound": 1.0}
    openly["encoders"] = {"0": [[0, 1, 2], [0, 1, 2], [1, 1, 1]]}
    line = {"format": "onoff-law", "version": 1, "stream": "me", "place": [0], "joined": [0, 0, 0], "charge": "0x0p+0"}
    record = tmp_path / "record"
    others = json.dumps({**line, "stream": "other", "step": 1, "law": {**openly, "masses": [3, 0, 0]}})
    record.write_text(f"{others}\n" + json.dumps({**line, "step": 1, "law": openly}) + "\n")
    made = [Made(0, True, False, 0, "everything", 0, FULL, 1, 1), Made(1, False, False, 1, "past", 1, (1,), 1, 1)]
    watcher = PastObserver(CHAIN, (), record, "me")
    [hidden] = watcher.watch(made).hidden
    expected = CHAIN.stationary() * CHAIN.P[:, 1]
    assert hidden.ours.rows[2] == pytest.approx(expected / expected.sum())
    assert hidden.ours == hidden.naive
    assert hidden.ours.bits > 0.1
    made.append(Made(2, False, False, 2, "past", 1, (1,), 1, 1))
    with pytest.raises(PlanError, match="the law of step 2 is not on record"):
        watcher.watch(made)
    with record.open("a") as file:
        file.write(json.dumps({**line, "step": 2, "law": openly}) + '\n{"format": "onoff-law", "half')
    assert watcher.watch(made).steps == 3


def test_the_page_opens_with_a_stream_in_which_something_sensitive_was_read():
    world = EverydaySession(reader(), opening=True)
    assert world.sensitive == (reader().index(LOCKED),)
    assert "".join(str(int(wish.private)) for wish in world.queue) == OPENING
    assert any(wish.source == LOCKED and not wish.private for wish in world.queue)
    other = EverydaySession(CHAIN, opening=True)
    assert (other.sensitive, len(other.queue)) == ((), len(OPENING))


def test_the_costs_of_all_modes_are_those_of_the_commands_and_are_not_computed_twice(monkeypatch):
    async def gathered(sensitive, known=None):
        return [found async for found in costs(CHAIN, sensitive, known)]

    every = asyncio.run(gathered((2,)))
    found = every[-1]
    past, locked = (
        list(compute_costs({"c": CHAIN}, STEPS, sensitive=sensitive, effort=Effort(streams=streams)))
        for sensitive, streams in (((), STREAMS), ((2,), STREAMS_LOCKED))
    )
    assert found.past == pytest.approx([cost.messages for cost in past])
    assert found.locked == pytest.approx([cost.messages for cost in locked])
    assert 1 < found.long_run < 4
    assert found.both[:2] == (plan(CHAIN, 1).cost, plan(CHAIN, 2).cost)
    assert all(both <= paper + 1e-9 for both, paper in zip(found.both, found.paper, strict=True))
    assert found.gap < 1e-5
    assert [len(part.both) for part in every] == [0, 0, *STEPS]  # more and more is shown
    monkeypatch.setattr("onoff.apps.page.costs.plan", None)  # would fail
    assert asyncio.run(gathered((), found)) == []
    [again] = asyncio.run(gathered((2,), found))
    assert again == found


def test_a_simulation_that_nobody_waits_for_ends():
    streams = 0

    async def story():
        nonlocal streams
        began = asyncio.Event()
        loop = asyncio.get_running_loop()

        class Counting(Chain):
            def __init__(self):
                super().__init__(CHAIN.P, CHAIN.names)

            def stationary(self):  # asked for at the beginning of every stream
                nonlocal streams
                streams += 1
                loop.call_soon_threadsafe(began.set)
                time.sleep(0.05)
                return super().stationary()

        task = asyncio.create_task(anext(costs(Counting(), ())))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())  # waits for the thread
    assert 0 < streams < 2 * STREAMS
