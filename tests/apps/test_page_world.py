"""The announced mode of the page, without the page: a real server, a real client, and the server's beliefs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from onoff import Chain
from onoff.apps.page.announced import AnnouncedSession
from onoff.apps.page.beliefs import BothObserver
from onoff.apps.page.everyday import EverydaySession
from onoff.apps.page.session import LONGEST_QUEUE, MOST_SOURCES, Wish
from onoff.apps.page.steps import Made, Steps
from onoff.apps.page.tables import ready, tables
from onoff.errors import ChainError, ContextError, NotUnique, PlanError, SessionError
from onoff.plans.plan import plan
from onoff.plans.planner import Planner
from onoff.plans.race import RacePlan
from onoff.plans.table import TablePlan
from pagekit import CHAIN, FULL, until


def test_a_request_is_made_when_the_next_is_known_with_the_status_of_its_click():
    async def story():
        async with AnnouncedSession(CHAIN) as world:
            with pytest.raises(ChainError, match="no source is called"):
                world.ask("d", True)
            world.ask("a", True)
            world.ask("b", True)
            await until(lambda: len(world.made) == 1)
            assert list(world.queue) == [Wish("b", True)]
            world.switch(False)  # too late for b
            world.ask("c", False)
            world.ask("c", True)
            await until(lambda: len(world.beliefs) == 2 and len(world.made) == 3)
            assert [(made.private, made.lag, made.wanted) for made in world.made] == [
                (True, 0, 0),
                (True, 0, 1),
                (False, 1, 2),
            ]
            assert world.made[0].saw == world.made[1].saw == FULL
            assert 2 in world.made[2].saw
            assert world.state()["habits"] == [0.5, 0.0, 0.5]
            with pytest.raises(ContextError, match="impossible"):
                world.ask("b", False)
            world.ask("a", False)
            with pytest.raises(SessionError, match="choose a source"):
                world.make_now()  # two are waiting
            await until(lambda: len(world.queue) == 1)
            world.make_now()
            await until(lambda: len(world.made) == 5 and not world.queue)
            assert world.made[4].made_private  # asked OFF, but without a next request
            assert world.made[4].saw == FULL
            state = world.state()
            frame = world.server.catalogue.frame_length
            assert state["message"] == "the latest of a"
            assert state["bytes"] == {
                "onoff": frame * sum(len(made.saw) for made in world.made),
                "everything": frame * 15,
                "naive": frame * (4 * 3 + 1),
            }

    asyncio.run(story())


def test_the_server_believes_what_it_did_before_but_for_a_naive_client_and_a_reader_clicks_by_itself():
    async def story():
        async with AnnouncedSession(CHAIN, pace=0.01) as world:
            for source, private in zip("abbca", (True, False, False, True, True), strict=True):
                world.ask(source, private)
            await until(lambda: len(world.made) == 4 and len(world.beliefs) == 2)
            latest, first = world.beliefs
            assert (latest.step, first.step) == (3, 0)
            prior, P = CHAIN.stationary(), CHAIN.P
            for belief in world.beliefs:
                assert belief.ours == pytest.approx(prior, abs=1e-12)
                assert belief.ours_bits < 1e-12
                assert belief.naive_bits > 0.05
            # The naive client has shown that b was asked for right after step 0 and right before step 3.
            before = prior * P[:, 1]
            assert first.naive == pytest.approx(before / before.sum())
            assert latest.naive == pytest.approx(P[1])
            world.play(True)
            await until(lambda: len(world.made) >= 16 and any(made.lag for made in world.made[4:]))
            world.play(False)
            assert any(made.private for made in world.made[4:])

    asyncio.run(story())


def test_requests_do_not_wait_for_the_beliefs_and_go_on_when_these_fail():
    async def story():
        async with AnnouncedSession(CHAIN) as world:
            load, go = world._onlooker._load, threading.Event()
            world._onlooker._load = lambda lag: go.wait(60) and load(lag)
            for source, private in zip("abbbca", (True, False, False, False, True, False), strict=True):
                world.ask(source, private)
            try:
                await until(lambda: len(world.made) == 5 and len(world.queue) == 1)
                assert not world.beliefs or [belief.step for belief in world.beliefs] == [0]
            finally:
                go.set()
            await until(lambda: len(world.beliefs) == 2)
            assert world.beliefs == BothObserver(CHAIN, load).beliefs(world.made)
            world._onlooker = BothObserver(CHAIN, lambda _: plan(CHAIN, 13))
            world.ask("b", False)
            await until(lambda: "A part of the page has failed" in world.state()["trouble"])
            world.ask("b", False)
            await until(lambda: len(world.made) == 7 and len(world.queue) == 1)
            troubles.append(world.state()["trouble"])

    troubles = []
    with pytest.raises(PlanError, match="has been replaced"):  # in the end it is raised
        asyncio.run(story())
    assert "has been replaced" in troubles[0]


def test_lines_of_the_transcript_that_were_read_are_not_read_again(tmp_path):
    class Noted:
        stream, rows = "s", []

        def steps(self, since):
            return self.rows[since:]

    def row(step):
        return SimpleNamespace(step=step, private=True, made_private=True, lag=0, plan="", request=1, bytes=9)

    file, journal = tmp_path / "transcript", Noted()
    steps = Steps(journal, file, CHAIN)
    assert steps.read() == []
    lines = [{"catalogue": ["c", "b", "a"]}, {"stream": "s", "step": 0, "sources": [0, 1]}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    journal.rows.append(row(0))
    assert [(made.saw, made.times) for made in steps.read()] == [((1, 2), 1)]
    size = file.stat().st_size
    with file.open("r+") as stream:
        stream.write("x" * size)  # whoever reads it again fails
        stream.write(
            '{"stream": "other", "step": 1, "sources": [0]}\n{"stream": "s", "step": 1, "sources": [2]}\n{"str'
        )
    journal.rows.append(row(1))
    assert [(made.saw, made.times) for made in steps.read()] == [((1, 2), 1), ((0,), 1)]


def test_what_is_known_of_a_step_is_not_worked_out_again(monkeypatch):
    monkeypatch.setattr("onoff.audit.clients.KEPT", 1)  # the tables of one lag are kept
    table, asked = plan(CHAIN, 1), []
    monkeypatch.setattr(
        TablePlan, "encoder", lambda *context, real=TablePlan.encoder: asked.append(1) or real(*context)
    )
    made = [Made(0, True, False, 0, "everything", 0, FULL, 1, 1)]
    onlooker = BothObserver(CHAIN, lambda _: table)
    for lag in range(1, 9):
        made.append(Made(lag, False, False, lag, table.name, 0, FULL, 1, 1))
        onlooker.beliefs(made)
    assert len(asked) == 8 * CHAIN.n**2


def test_sources_that_are_left_for_good_are_never_next_and_nothing_is_learned_about_the_others():
    async def story():
        chain = Chain([[0.5, 0.5, 0], [0.5, 0.5, 0], [0.3, 0.3, 0.4]], ["a", "b", "c"])
        async with AnnouncedSession(chain) as world:
            assert world.state()["habits"] == [0.5, 0.5, 0]
            with pytest.raises(ContextError, match="impossible to ask for 'c' now"):
                world.ask("c", True)
            for source, private in zip("ababa", (True, False, True, True, True), strict=True):
                world.ask(source, private)
            await until(lambda: len(world.made) == 4 and len(world.beliefs) == 3)
            for belief in world.beliefs:
                assert belief.prior == belief.ours == (0.5, 0.5, 0)
                assert belief.ours_bits == 0

    asyncio.run(story())


def test_the_beliefs_are_about_the_queries_in_the_transcript():
    """Of a client that leaks, the same onlooker learns: here one whose plan is for another chain than its requests."""
    steps = [Made(0, True, False, 0, "everything", 0, FULL, 1, 1)]
    other = plan(Chain.symmetric(3, 0.05, ["a", "b", "c"]), 1)
    query = next(query for query in other.sets if query != FULL)
    steps.append(Made(1, False, False, 1, other.name, query[0], query, 1, 1))
    [flat] = BothObserver(CHAIN, lambda lag: plan(CHAIN, lag)).beliefs(steps[:1])
    assert flat.ours_bits < 1e-12
    [learned] = BothObserver(CHAIN, lambda _: other).beliefs(steps)
    assert learned.ours_bits > 0.01


def test_a_long_stream_is_summed_up_exactly():
    rng, table, made, last = np.random.default_rng(5), plan(CHAIN, 1), [], 0
    path, lag = CHAIN.simulate(61, rng), 0
    for t, (x, following) in enumerate(pairwise(map(int, path))):
        private = t == 0 or rng.random() < 0.3
        lag, last = (0, x) if private else (lag + 1, last)
        saw = FULL if private else table.draw(x, last, following, lag)
        made.append(Made(t, private, False, lag, "everything" if private else table.name, x, saw, 1, 1))
    short, whole = (BothObserver(CHAIN, lambda _: table, window) for window in (7, 1000))
    for end in range(1, len(made) + 1):
        for summed, full in zip(short.beliefs(made[:end]), whole.beliefs(made[:end]), strict=True):
            assert (summed.step, summed.wanted) == (full.step, full.wanted)
            assert summed.ours == pytest.approx(full.ours, abs=1e-12)
            assert summed.naive == pytest.approx(full.naive, abs=1e-12)
    assert short._start > 40


def test_there_is_a_table_even_where_a_race_costs_less(tmp_path):
    async def story():
        race = RacePlan(CHAIN, 1, cost=1.0, interval=(1.0, 1.0), lower_bound=1.0)
        with tables(CHAIN, tmp_path) as planner:
            planner._first = race
            assert isinstance(await ready(planner, 1, 60), TablePlan)
        with Planner(CHAIN, tmp_path, background=False) as planner:
            planner._first = race
            assert planner.best(1) is race  # what is avoided here

    asyncio.run(story())


@pytest.mark.long
def test_a_server_that_comes_back_gets_the_same_query_and_nothing_is_left_behind():
    async def story():
        async with AnnouncedSession(CHAIN) as world:
            await world.run_server(False)
            assert world.state()["trouble"] == "You stopped the server."
            world.ask("a", True)
            world.ask("b", False)
            await until(lambda: "Step 0 has no answer yet" in world.state()["trouble"])
            await world.run_server(True)
            await until(lambda: len(world.queue) == 1)
            await world.run_server(False)
            world.ask("c", True)
            await until(lambda: "Step 1 has no answer yet" in world.state()["trouble"])
            drawn = world.client.journal.state.pending.query
            assert world.made[-1].saw == ()
            assert not world.made[-1].bytes
            while len(world.queue) < LONGEST_QUEUE:
                world.ask("c", True)
            with pytest.raises(SessionError, match="are waiting"):
                world.ask("c", True)
            await world.run_server(True)
            await until(lambda: len(world.queue) == 1 and not world.state()["trouble"])
            assert world.made[1].saw == drawn
            assert world.made[1].bytes
            old = world.server.pid
            os.kill(old, signal.SIGKILL)
            await until(lambda: world.state()["trouble"] == "The server has died and is started again.")
            await until(lambda: not world.state()["trouble"])
            assert world.server.pid not in (None, old)
            directory, pid = world.server.transcript.parent, world.server.pid
            assert directory.exists()
        assert not directory.exists()
        assert not Path(f"/proc/{pid}").exists()

    asyncio.run(story())


def test_a_server_that_is_slow_to_start_has_not_died_and_one_that_dies_soon_after_is_told():
    async def story():
        said = []
        async with EverydaySession(CHAIN, lambda: said.append(world._trouble())) as world:
            await world.run_server(False)
            start = world.server.start
            world.server.start = lambda: (time.sleep(0.6), start())  # the guard looks every 0.2 seconds
            said.clear()
            await world.run_server(True)
            assert said == ["", ""]
            world.server.start = start
            os.kill(world.server.pid, signal.SIGKILL)
            await until(lambda: "The server has died and is started again." in said)
            await until(lambda: world.server.pid is not None and not world._trouble())

    asyncio.run(story())


def test_chains_that_cannot_be_shown_are_refused():
    async def story():
        with pytest.raises(ChainError, match="at most"):
            EverydaySession(Chain.symmetric(MOST_SOURCES + 1, 0.5))
        with pytest.raises(NotUnique):
            EverydaySession(Chain(np.eye(2)))

    asyncio.run(story())
