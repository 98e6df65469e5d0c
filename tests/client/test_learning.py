"""Learning: without a chain every request asks for everything and is noted. The journal serves nothing else."""

from __future__ import annotations

import asyncio
import json
import logging

import numpy as np
import pytest

import onoff
from clientkit import BODIES, CHAIN, NAMES, client_with, scene
from clikit import call
from onoff import Chain, connect, connect_sync, follows
from onoff.client.journalfile import snapshot
from onoff.client.learning import Learned
from onoff.errors import JournalError, LogError, OnoffError
from onoff.logs.quality import estimate
from onoff.model.misfit import FEW
from recordingserver import reply

EVERYTHING = tuple(range(5))
ASKED = b'if-none-match: "1"'


def learning(world, **options):
    at = {"server": world.server.url} if world.kind == "own" else {"urls": world.origin.urls(world.server)}
    return connect_sync(journal=world.directory / "learned", delay=0, **{"learn": True, **at, **options})


def test_every_request_asks_for_everything_and_is_noted_with_the_status_it_was_asked_with(world):
    with learning(world) as client:
        messages = [client.get(name, private=private) for name in NAMES for private in (True, False)]
        assert client.learned == type(client.learned)(5, 10, 5, 0)
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


def test_it_says_once_when_there_is_enough_and_that_a_chain_becomes_public(tmp_path, caplog):
    wanted = [NAMES[i] for i in np.random.default_rng(1).integers(0, 5, FEW * 5 + 2)]
    with scene("any", tmp_path) as world, caplog.at_level(logging.WARNING, "onoff"), learning(world) as client:
        for name in wanted[:-2]:
            client.get(name)
        assert not caplog.records
        assert "A first, rough chain of 5 sources takes 51" in client.learned.words(tmp_path / "learned")
        client.get(wanted[-2])
        assert client.learned.enough
        client.get(wanted[-1])
    [record] = caplog.records
    assert "give A FIRST, ROUGH CHAIN. After about 40 requests `onoff check` may call it wrong" in record.getMessage()
    assert "becomes public" in record.getMessage()
    assert "50 must come right after another one asked OFF, and 0 do" in record.getMessage()
    with pytest.raises(LogError, match=r"nothing to fit\. Switch OFF .*curl -X PUT -d off"):
        onoff.fit(tmp_path / "learned", open_only=True)
    assert "--open-only" in call("status", "--journal", tmp_path / "learned", check=True).stdout


def test_it_says_again_when_those_asked_off_are_enough_also_in_another_process(tmp_path, caplog):
    with scene("any", tmp_path) as world, caplog.at_level(logging.WARNING, "onoff"):
        for requests in (30, 20, 3):
            with learning(world) as client:
                for i in range(requests):
                    client.get(NAMES[i % 5], private=requests == 30 and i < 2)
    together, asked_off = (record.getMessage() for record in caplog.records)
    assert "51 requests are noted, 49 of them asked OFF. All together give A FIRST, ROUGH CHAIN" in together
    assert "53 requests are noted, 51 of them asked OFF. The ones asked OFF give A FIRST, ROUGH CHAIN" in asked_off
    fit = f"`onoff fit {tmp_path / 'learned'} -o habits.json"
    assert f"{fit} --open-only`. {fit}` uses" in asked_off


def test_enough_of_those_asked_off_counts_what_the_fit_counts(tmp_path, caplog):
    """Of 101 requests 67 are asked OFF, in pairs between private ones: the fit has 33 transitions, and needs 50."""
    with scene("any", tmp_path) as world, caplog.at_level(logging.WARNING, "onoff"), learning(world) as client:
        for i in range(101):
            client.get(NAMES[i % 5], private=i % 3 == 0)
        found = client.learned
        assert (found.open, found.open_pairs, found.enough, found.enough_open) == (67, 33, True, False)
        assert onoff.fit(tmp_path / "learned", open_only=True).counts.sum() == found.open_pairs
        assert len(caplog.records) == 1
        for i in range(18):  # one neighbour of the last one, and the rest
            assert client.learned.enough_open == (i > 16)
            client.get(NAMES[i % 5], private=False)
    assert "The ones asked OFF give A FIRST, ROUGH CHAIN" in caplog.records[1].getMessage()


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
            said = Learned.of(6, [False] * (transitions + 1))
            path = true.simulate(transitions + 1 + 5 * said.lasts_open, rng)
            counts = np.zeros((6, 6))
            np.add.at(counts, (path[:transitions], path[1 : transitions + 1]), 1)
            chain = estimate(counts, np.ones(6), true.names, 1.0)
            found = follows(chain, path[transitions + 1 :]).found_at or np.inf
            soon, late = soon + (found <= said.lasts_open), late + np.isfinite(found)
        assert soon <= 18
        assert late >= 30


def test_it_says_when_a_chain_lasts_and_how_many_requests_that_takes(tmp_path):
    rough, long = (Learned.of(5, [False] * (pairs + 1)) for pairs in (374, 375))
    assert (rough.lasts_open, long.lasts_open) == (299, 300)
    assert "With 376 requests learned it is one that lasts for 300. To fit it now: `onoff fit" in rough.words(tmp_path)
    assert "give A CHAIN that lasts for about 300 requests. To fit it now: `onoff fit" in long.words(tmp_path)


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
        honest, world.server.respond = world.server.respond, lambda _: reply(b"", length=5)
        with pytest.raises(onoff.errors.Unavailable), learning(world, attempts=1) as client:
            client.get("sports")
        world.server.respond = honest
        with learning(world) as client:
            assert client.resume().body == BODIES["sports"]


def test_a_chain_is_fitted_to_the_journal_for_all_sources_in_their_order(tmp_path):
    """Weather and culture were never asked for; the order is that of the URLs."""
    wanted = ["sports", "news", "science"] * 20
    with scene("any", tmp_path) as world, learning(world) as client:
        for i, name in enumerate(wanted):
            client.get(name, private=i < 30)
    done = call("fit", tmp_path / "learned", "-o", tmp_path / "habits.json", check=True)
    assert "A chain is public" in done.stderr
    assert f"`onoff costs {tmp_path / 'habits.json'} --promise past` says how much" in done.stdout
    fitted = json.loads((tmp_path / "habits.json").read_text())
    assert fitted["names"] == list(NAMES)
    assert np.sum(fitted["counts"]) == 59
    assert fitted["counts"][1][0] == 20
    assert fitted["counts"][3] == [0] * 5
    open_only = onoff.fit(tmp_path / "learned", open_only=True)
    assert open_only.counts.sum() == 29  # the thirty requests that were asked OFF, in a row
    assert any(
        "30 requests that were asked ON, or for sensitive sources, are left out" in note
        for note in open_only.report.notes
    )
    assert "of 1 training user," in done.stdout
    shown = call("fit", tmp_path / "learned", "-o", tmp_path / "open.json", "--open-only", check=True).stdout
    assert "rows that name no source, or one that is left out" in shown
    checked = call("check", tmp_path / "learned", "--chain", tmp_path / "habits.json")
    assert "59 requests tested" in checked.stdout
    assert "if the chain was fitted to this journal, this is no test" in checked.stderr
    assert "give the one to test, --chain FILE" in call("check", tmp_path / "learned").stderr
    with scene("any", tmp_path) as world:
        new = connect_sync(tmp_path / "habits.json", urls=world.origin.urls(world.server), journal=tmp_path / "new")
        with new as client:
            assert client.get("culture").body == BODIES["culture"]


def test_open_requests_across_a_private_one_are_not_taken_for_neighbours(tmp_path):
    with scene("any", tmp_path) as world, learning(world) as client:
        for name, private in [("news", False), ("sports", True), ("science", False), ("weather", False)] * 3:
            client.get(name, private=private)
    counts = onoff.fit(tmp_path / "learned", open_only=True).counts
    assert counts[NAMES.index("news"), NAMES.index("science")] == 0
    assert counts[NAMES.index("science"), NAMES.index("weather")] == 3
    assert counts[NAMES.index("weather"), NAMES.index("news")] == 2
    assert counts[NAMES.index("sports")].sum() == 0


def test_open_only_is_for_journals(tmp_path):
    (tmp_path / "log.csv").write_text("user,source\n" + "a,x\na,y\n" * 20)
    with pytest.raises(LogError, match="only a journal"):
        onoff.fit(tmp_path / "log.csv", open_only=True)


def test_a_journal_has_no_times_for_a_gap(tmp_path):
    with scene("any", tmp_path) as world, learning(world) as client:
        for name in (*NAMES, *NAMES):
            client.get(name)
    with pytest.raises(LogError, match="--gap means nothing"):
        onoff.fit(tmp_path / "learned", gap=60)
