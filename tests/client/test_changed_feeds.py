"""Feeds that come and go: journals are fitted together, and a source is left out of a chain, without any code."""

from __future__ import annotations

import numpy as np
import pytest

import onoff
from clientkit import NAMES, scene
from clikit import call
from onoff import Chain, connect_sync
from onoff.errors import JournalError, LogError

FEWER = NAMES[:4]


def read(world, journal, names, wanted, **options):
    """Make these requests, all asked OFF, with the URLs of these sources."""
    urls = world.origin.urls(world.server)
    with connect_sync(
        urls={name: urls[name] for name in names}, journal=world.directory / journal, delay=0, **options
    ) as client:
        for name in wanted:
            client.get(name, private=False)


def test_a_new_feed_is_learned_in_a_second_journal_and_the_chain_is_fitted_to_both(tmp_path):
    old, new = tmp_path / "learned", tmp_path / "learned-2"
    with scene("any", tmp_path) as world:
        read(world, "learned", FEWER, FEWER * 3)
        with pytest.raises(JournalError, match="belongs to another list of sources"):
            read(world, "learned", NAMES, ["culture"])
        read(world, "learned-2", NAMES, ["culture", "news", "culture"])
        call("fit", old, new, "-o", tmp_path / "habits.json", check=True)
        with pytest.raises(LogError, match="would count twice"):
            onoff.fit(old, new, tmp_path / "." / "learned")
        fitted = onoff.fit(old, new)
        assert Chain.load(tmp_path / "habits.json") == fitted.chain
        assert fitted.chain.names == NAMES
        assert fitted.counts.sum() == 11 + 2
        # The end of one journal is not followed by the start of the other.
        assert fitted.counts[NAMES.index(FEWER[-1]), NAMES.index("culture")] == 0
        read(world, "proxied", NAMES, ["culture"], chain=tmp_path / "habits.json")


def test_a_feed_that_died_is_left_out_and_nothing_is_counted_across_it(tmp_path):
    with scene("any", tmp_path) as world:
        read(world, "learned", NAMES, ["news", "culture", "sports", "news", "sports"] * 3)
        call("fit", tmp_path / "learned", "-o", tmp_path / "h.json", "--without", "culture", check=True)
        fitted = onoff.fit(tmp_path / "learned", without=["culture"])
        assert Chain.load(tmp_path / "h.json") == fitted.chain
        assert fitted.chain.names == tuple(name for name in NAMES if name != "culture")
        news, sports = map(fitted.chain.index, ("news", "sports"))
        assert (fitted.counts[news, sports], fitted.counts[sports, news], fitted.counts.sum()) == (3, 5, 8)
        read(world, "proxied", fitted.chain.names, ["sports"], chain=tmp_path / "h.json")


def test_a_chain_without_a_source_is_that_of_a_fit_without_it(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("user,source\n" + "a,x\na,dead\na,y\na,x\na,z\n" * 9)
    onoff.fit(log, smoothing=1).chain.save(tmp_path / "whole.json")
    call("fit", tmp_path / "whole.json", "-o", tmp_path / "less.json", "--without", "dead", check=True)
    expected = onoff.fit(log, smoothing=1, without=["dead"])
    assert (expected.counts.sum(), expected.report.breaks) == (9 + 9 + 8, 9)  # y to x, x to z, z to x
    less = Chain.load(tmp_path / "less.json")
    assert less.names == expected.chain.names == ("x", "y", "z")
    assert np.allclose(less.P, expected.chain.P, rtol=1e-12)
    with pytest.raises(LogError, match="has no source 'w', which --without names"):
        onoff.fit(log, without=["w"])
    Chain(np.array([[0, 1, 0], [0.5, 0, 0.5], [0.5, 0, 0.5]]), ["a", "dead", "b"]).save(tmp_path / "c.json")
    done = call("fit", tmp_path / "c.json", "-o", tmp_path / "d.json", "--without", "dead")
    assert "after 'a' only sources come that are taken out" in done.stderr


def test_only_journals_are_read_together(tmp_path):
    (tmp_path / "log.csv").write_text("user,source\n" + "a,x\na,y\n" * 20)
    with scene("any", tmp_path) as world:
        read(world, "learned", NAMES, NAMES)
    for files in (("log.csv", "learned"), ("learned", "log.csv")):
        with pytest.raises(LogError, match="only journals are read together"):
            onoff.fit(*(tmp_path / name for name in files))
