"""Learning: without a chain every request asks for everything and is noted. The journal serves nothing else."""

from __future__ import annotations

import asyncio
import logging

import numpy as np
import pytest

import onoff
from clientkit import BODIES, CHAIN, NAMES, client_with, scene
from clikit import call
from onoff import Chain, connect, connect_sync, follows
from onoff.client.learning import Learned
from onoff.client.status import snapshot
from onoff.errors import JournalError, LogError, OnoffError
from onoff.logs.quality import estimate
from onoff.model.misfit import FEW
from recordingserver import Reply, reply

ASKED = b'if-none-match: "1"'


def learning(world, **options):
    at = {"server": world.server.url} if world.kind == "own" else {"urls": world.origin.urls(world.server)}
    return connect_sync(journal=world.directory / "learned", delay=0, **{"learn": True, **at, **options})


def test_every_request_asks_for_everything_and_is_noted_with_the_status_it_was_asked_with(world):
    with learning(world) as client:
        messages = [client.get(name, private=private) for name in NAMES for private in (True, False)]
        assert client.learned == Learned(5, 10, 5)
        assert not client.learned.enough
    assert [message.body for message in messages] == [BODIES[name] for name in NAMES for _ in range(2)]
    assert {message.query for message in messages} == {NAMES}
    assert all(message.private for message in messages)
    assert [message.made_private for message in messages] == [False, True] * 5
    assert snapshot(world.directory / "learned").rows is None


def test_what_is_held_is_asked_for_only_if_newer(tmp_path):
    with scene("any", tmp_path) as world, learning(world) as client:

        def tagged(request):
            return reply(b"", 304) if ASKED in request.raw else reply(b"body", headers=['ETag: "1"'])

        world.server.respond = tagged
        messages = [client.get(name, private=True) for name in NAMES[:2]]
        sent = [ASKED in request.raw for request in world.server.requests]
    assert sent == [False] * len(NAMES) + [True] * len(NAMES)
    assert [(message.body, message.unchanged) for message in messages] == [(b"body", False), (b"body", True)]


def test_it_says_once_when_there_is_enough_also_in_another_process(tmp_path, caplog):
    wanted = [NAMES[i] for i in np.random.default_rng(1).integers(0, 5, FEW * 5 + 2)]
    with scene("any", tmp_path) as world, caplog.at_level(logging.WARNING, "onoff"):
        with learning(world) as client:
            for name in wanted[:-2]:
                client.get(name, private=False)
            assert not caplog.records
            assert "A first, rough chain of 5 sources takes 51" in client.learned.words(tmp_path / "learned")
        with learning(world) as client:
            client.get(wanted[-2], private=False)
            assert client.learned.enough
            client.get(wanted[-1], private=False)
    [record] = caplog.records
    assert "They give A FIRST, ROUGH CHAIN. After about 40 requests `onoff check` may call it" in record.getMessage()
    fit = f"To fit it, before the first private request: `onoff fit {tmp_path / 'learned'} -o habits.json`"
    assert record.getMessage().endswith(fit)
    assert fit in call("status", "--journal", tmp_path / "learned", check=True).stdout


def test_a_private_request_ends_learning_and_that_is_said_at_once(tmp_path, caplog):
    with scene("any", tmp_path) as world, caplog.at_level(logging.WARNING, "onoff"), learning(world) as client:
        for i in range(60):
            client.get(NAMES[i % 5], private=i == 3)
    assert "4 requests are noted, 1 of them asked ON. NO CHAIN can be fitted" in caplog.records[0].getMessage()
    assert all("NO CHAIN" in record.getMessage() for record in caplog.records)
    with pytest.raises(LogError, match=r"has requests that were asked ON \(1\): a chain is public.*learn with a new"):
        onoff.fit(tmp_path / "learned")


def test_what_is_said_of_a_learned_chain_holds_in_the_test_of_later_requests():
    """120 readers of 6 sources learn 60 transitions, said to last for 40 requests, or 450, said to last for 300.

    The same habits are then called wrong for at most 18 of 60 in each group. If one in ten were, which is more than was
    measured (`benchmarks/bench_learning.py`), that would fail with probability 1e-5. After five times as many requests
    most are called wrong: so the number is not said for nothing.
    """
    rng = np.random.default_rng(1)
    for transitions in (60, 450):
        soon = late = 0
        for _ in range(60):
            true = Chain(rng.dirichlet(np.ones(6), 6))
            said = Learned(6, transitions + 1, 0)
            path = true.simulate(transitions + 1 + 5 * said.lasts, rng)
            counts = np.zeros((6, 6))
            np.add.at(counts, (path[:transitions], path[1 : transitions + 1]), 1)
            chain = estimate(counts, np.ones(6), true.names, 1.0)
            found = follows(chain, path[transitions + 1 :]).found_at or np.inf
            soon, late = soon + (found <= said.lasts), late + np.isfinite(found)
        assert soon <= 18
        assert late >= 30


def test_it_says_when_a_chain_lasts_and_how_many_requests_that_takes(tmp_path):
    rough, long = (Learned(5, requests, 0) for requests in (375, 376))
    assert (rough.lasts, long.lasts) == (299, 300)
    assert "With 376 requests it lasts for 300. To fit it," in rough.words(tmp_path)
    assert "They give A CHAIN that lasts for about 300 requests. To fit it," in long.words(tmp_path)


def test_a_journal_made_while_learning_is_never_used_with_a_chain_nor_another_one_to_learn(world):
    with learning(world) as client:
        client.get("news")
    uniform = Chain(np.full((5, 5), 0.2), NAMES)
    for chain in (None, CHAIN, uniform):
        with pytest.raises(JournalError, match="was made while learning"), learning(world, chain=chain, learn=False):
            pass
    path = world.directory / "learned"
    with pytest.raises(JournalError, match="was made while learning"):
        client_with(uniform, world.transport(), path, promise="past")

    async def use_then_learn():
        async with client_with(uniform, world.transport(), world.directory / "usual", promise="past") as client:
            await client.get("news")
        async with client_with(None, world.transport(), world.directory / "usual"):
            pass

    with pytest.raises(JournalError, match="was made with a chain"):
        asyncio.run(use_then_learn())


@pytest.mark.parametrize("given", [{"chain": CHAIN}, {"sensitive": ("news",)}, {"promise": "both"}])
def test_what_belongs_to_a_chain_is_refused_while_learning(given, tmp_path):
    with pytest.raises(OnoffError, match="while learning"):
        connect(server="http://127.0.0.1:1", journal=tmp_path / "j", learn=True, **given)


def test_a_pending_request_is_finished_by_the_next_process(tmp_path):
    with scene("any", tmp_path) as world:
        honest, world.server.respond = world.server.respond, lambda _: Reply([], close=True)
        with pytest.raises(onoff.errors.Unavailable), learning(world, attempts=1) as client:
            client.get("sports")
        world.server.respond = honest
        with learning(world) as client:
            assert client.resume().body == BODIES["sports"]


def test_a_chain_is_fitted_to_the_journal_for_all_sources_in_their_order(tmp_path):
    """Weather and culture were never asked for; the order is that of the URLs."""
    wanted = ["sports", "news", "science"] * 20
    with scene("any", tmp_path) as world, learning(world) as client:
        for name in wanted:
            client.get(name, private=False)
    done = call("fit", tmp_path / "learned", "-o", tmp_path / "habits.json", check=True)
    assert f"`onoff costs {tmp_path / 'habits.json'} --promise past` says how much" in done.stdout
    fitted = onoff.fit(tmp_path / "learned")
    assert Chain.load(tmp_path / "habits.json") == fitted.chain
    assert fitted.chain.names == NAMES
    assert fitted.counts.sum() == 59
    assert fitted.counts[1, 0] == 20
    assert not fitted.counts[3].any()
    checked = call("check", tmp_path / "learned", "--chain", tmp_path / "habits.json")
    assert "59 requests tested" in checked.stdout
    assert "if the chain was fitted to this journal, this is no test" in checked.stderr
    assert "give the one to test, --chain FILE" in call("check", tmp_path / "learned").stderr
    with scene("any", tmp_path) as world:
        new = connect_sync(tmp_path / "habits.json", urls=world.origin.urls(world.server), journal=tmp_path / "new")
        with new as client:
            assert client.get("culture").body == BODIES["culture"]
