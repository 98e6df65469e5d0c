"""Habits of a client: the promise `all`, learning, the change to a chain, and the fuse, over both transports."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import sqlite3
import tracemalloc
from contextlib import ExitStack, closing, suppress

import numpy as np
import pytest

import onoff
from clientkit import BODIES, CHAIN, NAMES, client_with, scene
from clikit import call
from onoff import Chain, connect_sync
from onoff.client import journal as journal_module
from onoff.client.disk import connect_to_read, newest_chain
from onoff.client.habits import HabitsStatus, chain_of_row, chain_row, forgotten_row
from onoff.client.journal import Journal
from onoff.client.protocol import ANEW, begin_past
from onoff.client.status import snapshot, status
from onoff.errors import ChainError, JournalError, LogError, OnoffError
from onoff.model.chain import UnknownChain
from onoff.past.habits import Habits, requests_needed
from onoff.plans.planner import Planner
from recordingserver import OnoffOrigin, RecordingServer, reply

ASKED = b'if-none-match: "1"'
NEEDED = requests_needed(5) + 1
OPEN = [NAMES[i] for i in np.random.default_rng(1).integers(0, 5, NEEDED)]


def reader(world, name="habits", **options):
    return connect_sync(journal=world.directory / name, delay=0, **{**world.address(), **options})


def learn(client, requests=OPEN):
    for name in requests:
        client.get(name, private=False)


def test_without_a_chain_everything_is_asked_for_and_open_requests_are_noted(world):
    with reader(world) as client:
        messages = [client.get(name) for name in NAMES]
        assert client.habits == HabitsStatus("learning", 4, NEEDED - 1, False, 0.0)
    assert [message.body for message in messages] == [BODIES[name] for name in NAMES]
    assert {message.query for message in messages} == {NAMES}
    assert all(message.made_private for message in messages)


def test_a_complete_chain_is_used_from_the_next_open_request_on(world):
    with reader(world) as client:
        learn(client)
        assert client.habits.stage == "complete"
    with reader(world) as client:  # another process
        client.get(OPEN[-1])
        assert client.habits.stage == "known"
        small = [client.get(name, private=False).query for name in NAMES * 2]
        assert client.get("news", private=True).query == NAMES
    assert min(map(len, small)) < 5
    found = status(world.directory / "habits")
    assert found.chain.weight.sum() == requests_needed(5) + 5 * 20  # OPEN are in no order: the strongest pull
    assert found.stated is None


def test_a_private_request_that_comes_too_early_ends_the_learning(tmp_path, caplog):
    for early in (3, NEEDED):
        with scene("any", tmp_path) as world, caplog.at_level(logging.WARNING), reader(world, f"j{early}") as client:
            learn(client, OPEN[:early])
            client.get("news", private=True)
            assert client.habits.stage == "all"
            learn(client)
            assert client.get("sports", private=False).query == NAMES
            assert "every request asks for everything" in caplog.records[-1].getMessage()
            caplog.clear()
        with pytest.raises(LogError, match=r"has requests that were asked ON \(1\): a chain is public"):
            onoff.fit(tmp_path / f"j{early}")


def test_a_chain_that_did_not_fit_on_the_disk_is_written_with_the_next_query(tmp_path, monkeypatch):
    """The step that completes the chain fails before its end is on disk, and is made again by the same client."""
    written, honest = [], journal_module.write_row

    def full(database, table, row):
        honest(database, table, row)
        written.append(table)
        if written[-2:] == ["chains", "meta"] and written.count("chains") == 1:
            raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(journal_module, "write_row", full)
    with scene("any", tmp_path) as world:
        with reader(world) as client:
            learn(client, OPEN[:-1])
            for _ in range(2):
                with suppress(JournalError):
                    client.get(OPEN[-1], private=False)
        assert written.count("chains") == 2
        with reader(world) as client:
            assert client.get(OPEN[0], private=False)
            assert client.habits.stage == "known"


def test_habits_are_forgotten_from_the_step_after_a_pending_one_on(tmp_path):
    unknown = UnknownChain(NAMES)
    journal = Journal(tmp_path / "habits", unknown.fingerprint, "catalogue", promise="past", names=NAMES)
    journal.begin(begin_past(journal.state, journal.public_state(unknown), 0, False, None), 5.0)
    journal.relearn(unknown)
    journal.close()
    with closing(connect_to_read(tmp_path / "habits")) as database:
        assert newest_chain(database)["step"] == 1


def test_a_request_that_was_lost_does_not_end_the_learning(tmp_path):
    with scene("any", tmp_path) as world:
        with reader(world) as client:
            learn(client, OPEN[:3])
        journal = Journal(tmp_path / "habits", UnknownChain(NAMES).fingerprint, None)
        journal.remember(gap=True)
        journal.close()
        with reader(world) as client:
            client.get("news")
            assert client.habits.stage == "learning"


def test_a_complete_chain_is_not_used_for_the_request_after_a_lost_one_but_for_the_next(tmp_path):
    """A request that is repeated does not follow the chain, and what is drawn for it would tell of the one before."""
    with scene("any", tmp_path) as world:
        with reader(world) as client:
            learn(client)
        journal = Journal(tmp_path / "habits", UnknownChain(NAMES).fingerprint, None)
        journal.remember(gap=True)
        journal.close()
        with reader(world) as client:
            assert client.get(OPEN[-1]).made_private
            assert client.habits.stage == "complete"
            client.get(OPEN[0])
            assert client.habits.stage == "known"
        journal = Journal(tmp_path / "habits", UnknownChain(NAMES).fingerprint, None)
        plans, laws = zip(*((step.plan, step.law) for step in [*journal.steps()][-2:]), strict=True)
        journal.close()
    assert plans == (ANEW, "past")
    assert laws[0] is None


def test_requests_in_a_fixed_order_blow_the_fuse_and_then_all_are_made_on(tmp_path, caplog):
    with scene("any", tmp_path) as world:
        with reader(world) as client, caplog.at_level(logging.WARNING):
            learn(client)
            messages = [client.get(NAMES[i % 5], private=False) for i in range(60)]
            assert client.habits.blown
            assert client.habits.bits > 1
        said = call("status", "--journal", tmp_path / "habits", check=True).stdout
        with reader(world, relearn=True) as anew:
            assert anew.habits.stage == "learning"
            learn(anew)
            assert anew.habits.stage == "complete"
    blown = next(i for i in range(60) if all(message.query == NAMES for message in messages[i:]))
    assert 5 < blown < 45
    assert any(len(message.query) == 1 for message in messages[:blown])
    assert messages[-1].made_private
    assert "DO NOT FOLLOW the chain" in caplog.records[-1].getMessage()
    assert "DO NOT FOLLOW the chain" in said


def test_the_promise_all_asks_for_everything_that_changed_and_needs_no_chain(tmp_path):
    with scene("any", tmp_path) as world, reader(world, promise="all") as client:

        def tagged(request):
            return reply(b"", 304) if ASKED in request.raw else reply(b"body", headers=['ETag: "1"'])

        world.server.respond = tagged
        messages = [client.get(name, private=False) for name in NAMES[:2]]
        sent = [ASKED in request.raw for request in world.server.requests]
        assert client.habits.stage == "all"
    assert sent == [False] * len(NAMES) + [True] * len(NAMES)
    assert [(message.body, message.unchanged) for message in messages] == [(b"body", False), (b"body", True)]
    assert snapshot(tmp_path / "habits").promise == "all"


def test_a_journal_without_a_chain_is_never_used_with_one_nor_the_other_way_round(world):
    with reader(world) as client:
        client.get("news")
    for chain in (CHAIN, Chain(np.full((5, 5), 0.2), NAMES)):
        with pytest.raises(JournalError, match="was made without a chain"):
            reader(world, chain=chain)

    async def use():
        async with client_with(CHAIN, world.transport(), world.directory / "usual", promise="past") as client:
            await client.get("news")

    asyncio.run(use())
    with pytest.raises(OnoffError, match="does not remember it: give --chain"):
        reader(world, "usual")


# Many sources


@pytest.fixture
def server_of():
    """A server of so many sources."""
    with ExitStack() as stack:
        yield lambda n: stack.enter_context(
            RecordingServer(OnoffOrigin({f"source-{i}": b"body" for i in range(n)}, length=16))
        )


def test_while_habits_are_unknown_nothing_grows_with_the_square_of_the_sources(server_of, tmp_path):
    n = 6000  # a matrix of floats takes 288 MB
    server = server_of(n)
    tracemalloc.start()
    try:
        for source in ("source-7", "source-8"):
            with connect_sync(server=server.url, journal=tmp_path / "j", promise="all", delay=0) as client:
                assert len(client.get(source).query) == n
        assert status(tmp_path / "j").habits.stage == "all"
        assert call("audit", "log", tmp_path / "no", "--journal", tmp_path / "j").returncode == 2
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < n * n  # one byte for each pair


@pytest.mark.parametrize("options", [{}, {"chain": Chain.symmetric(1001, 0.5), "relearn": True}])
def test_habits_of_more_than_1000_sources_are_not_learned(server_of, tmp_path, options):
    server = server_of(1001)
    if "chain" in options:
        options = {**options, "chain": Chain(options["chain"].P, server.respond.bodies)}
    with pytest.raises(OnoffError, match="habits are learned for at most 1,000 sources, and these are 1,001: take"):
        connect_sync(server=server.url, journal=tmp_path / "j", delay=0, **options).__enter__()
    assert [request.path for request in server.requests] == ["/v1/catalogue"]
    assert not list(tmp_path.iterdir())
    with connect_sync(server=server_of(1000).url, journal=tmp_path / "j", delay=0) as client:
        assert client.habits.stage == "learning"


def test_a_list_of_more_than_1000_feeds_is_refused_before_any_is_asked_for(server_of, tmp_path):
    server = server_of(2)
    (tmp_path / "feeds").write_text("".join(f"{server.url}/{i}\n" for i in range(1001)))
    done = call("setup", tmp_path / "feeds", "--directory", tmp_path / "made")
    assert (done.returncode, done.stderr.count("\n"), server.requests) == (2, 1, [])
    assert "at most 1,000 sources" in done.stderr


def test_an_unknown_chain_is_for_its_names_and_survives_pickling():
    unknown = UnknownChain(NAMES)
    assert pickle.loads(pickle.dumps(unknown)) == unknown != UnknownChain(NAMES[::-1])
    assert unknown != Chain(unknown.P, NAMES)
    assert unknown.known_state([2, 3]) == 3


# Habits with memory

STATES = [*((x,) for x in range(5)), (0, 1), (1, 1), (2, 0)]
ROWS = np.random.default_rng(3).dirichlet(np.ones(5), len(STATES))


def test_a_chain_comes_back_from_its_row_bit_for_bit():
    for chain in (Chain(ROWS, NAMES, range(1, 9), STATES), Chain(ROWS[:5], NAMES)):
        again = chain_of_row(json.loads(json.dumps(chain_row(3, Habits(chain, "known")))), NAMES)
        assert again == chain
        assert again.states == chain.states
        assert (again.weight is None) == (chain.weight is None)
        assert chain.weight is None or again.weight.tolist() == chain.weight.tolist()
    assert chain_of_row(forgotten_row(3), NAMES) == UnknownChain(NAMES)


def test_a_tree_serves_across_processes_and_is_forgotten_when_habits_are_learned_anew(own, tmp_path):
    tree = Chain(ROWS, NAMES, states=STATES)
    made, asked = [], []
    for name in ("news", "sports", "sports", "weather", "news", "sports"):
        with reader(own, chain=tree if not made else None) as client:
            made.append(client.get(name, private=False).private)
        asked.append(NAMES.index(name))
        assert snapshot(tmp_path / "habits").state.reader == tree.state_of(asked)
    assert made == [True, True, False, False, False, False]
    assert status(tmp_path / "habits").chain == tree
    with reader(own, relearn=True) as anew:
        learn(anew)
        assert anew.habits.stage == "complete"
    assert status(tmp_path / "habits").chain.depth == 1


def test_the_promise_both_refuses_a_tree_before_anything_is_done(tmp_path):
    tree = Chain(ROWS, NAMES, states=STATES)
    words = "these habits remember 2 requests, and the promise `both` needs a Markov chain"
    for start in (
        lambda: connect_sync(tree, server="http://127.0.0.1:9", journal=tmp_path / "both", promise="both"),
        lambda: onoff.plan(tree, 1),
        lambda: Planner(tree, tmp_path / "plans"),
    ):
        with pytest.raises(ChainError, match=words):
            start()
    assert not list(tmp_path.iterdir())
