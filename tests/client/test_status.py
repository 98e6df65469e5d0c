"""Bytes: what was downloaded and changed, and what other ways of reading would have downloaded."""

from __future__ import annotations

import asyncio
import random

import pytest

from clientkit import CHAIN, NAMES, ON, scene
from clikit import call
from onoff import connect
from onoff.client import status
from onoff.client.status import account, change_chances
from onoff.wire import FRAME_OVERHEAD, UNCHANGED_LENGTH

WHOLE = 64 + FRAME_OVERHEAD


@pytest.fixture
def world(tmp_path):
    with scene("own", tmp_path) as found:
        yield found


def test_bytes_downloaded_and_those_of_other_ways_are_as_counted_by_hand(world):
    """Ten requests, ON, for the first two sources in turn; news changes at each, the others never."""
    for step in range(10):
        world.origin.rounds = {"news": step + 1}
        world.origin.bodies = {**world.origin.bodies, "news": b"news %d" % step}
        world.play([(NAMES[step % 2], ON)])
    found = account(world.directory / "journal").traffic
    assert found.downloaded == (5 + 9) * WHOLE + 9 * 4 * UNCHANGED_LENGTH
    assert found.changed == (5 + 9) * WHOLE
    assert found.openly == pytest.approx((5 + 1) * WHOLE)
    assert found.mirrored == pytest.approx((5 + 9) * WHOLE)
    assert found.everything == 10 * 5 * WHOLE


def test_what_is_sent_anew_without_a_change_does_not_count_as_changed(world):
    world.play([("news", ON)] * 4, cache=0)
    found = account(world.directory / "journal").traffic
    assert (found.downloaded, found.changed) == (4 * 5 * WHOLE, 5 * WHOLE)
    assert found.mirrored == pytest.approx(5 * WHOLE)


def test_the_chance_of_a_change_is_found_from_visits_with_gaps():
    """A source that changes with chance c is seen at every g-th of 6,000 g steps.

    More than five standard errors are allowed: each estimate fails by chance in less than one of 100,000 runs, and the
    seed is fixed. To divide the changes by the steps, as if no change were missed, is told apart.
    """
    rng = random.Random(7)
    for chance, gap in ((0.05, 1), (0.2, 3), (0.3, 4), (0.0, 2), (1.0, 1)):
        steps, changes = [], 0
        for visit in range(6001):
            changed = any(rng.random() < chance for _ in range(gap))
            changes += changed and visit > 0
            steps.append((visit * gap, [3], [3] if changed else []))
        assert change_chances(steps)[3] == pytest.approx(chance, abs=0.025)
        if gap > 2:
            assert changes / (6000 * gap) < chance - 0.025


def test_a_source_that_was_seen_once_counts_as_changing():
    assert change_chances([(0, [1, 2], [1, 2]), (4, [2], [])]) == {1: 1.0, 2: 0.0}


def test_status_prints_the_bytes_of_each_way_of_reading(world):
    CHAIN.save(world.directory / "chain.json")
    where = ["--journal", world.directory / "j", "--delay", "0.001"]
    given = ["--chain", world.directory / "chain.json", "--server", world.server.url]
    for step in range(3):
        call("get", "news", "--on", *where, *(given if step == 0 else []), "--cache", "1MiB", check=True)
    said = call("status", "--journal", world.directory / "j", check=True).stdout
    downloaded = 5 * WHOLE + 2 * 5 * UNCHANGED_LENGTH
    for words in (
        f"downloaded │ {downloaded:,}",
        f"of which changed │ {5 * WHOLE:,}",
        f"asking openly for what was wanted, if changed │ {WHOLE:,}",
        f"mirroring everything, changed only │ {5 * WHOLE:,}",
        f"downloading everything │ {15 * WHOLE:,}",
    ):
        assert " ".join(words.split()) in " ".join(said.split())


def test_only_a_status_computes_the_traffic_of_all_steps_and_does_so_once(world, monkeypatch):
    calls = []
    honest = status._traffic
    monkeypatch.setattr(status, "_traffic", lambda *rows: calls.append(1) or honest(*rows))

    async def read():
        settings = {"server": world.server.url, "journal": world.directory / "j", "delay": 0.001}
        async with connect(CHAIN, **settings) as client:
            await client.get("news")

    for _ in range(3):
        asyncio.run(read())
    assert calls == []
    assert status.status(world.directory / "j").journal.totals.steps == 3
    assert calls == [1]
