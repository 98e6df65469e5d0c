"""`onoff setup`: from a list to a directory that `onoff proxy` runs, and how the list changes."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import urllib.request
from contextlib import suppress

import numpy as np
import pytest

import onoff.apps.setup as directory_of
from clikit import COMMANDS, ONOFF, call
from onoff import Chain
from onoff.apps.setup import Setup, lock_journals, with_sources
from onoff.client.feeds import list_feeds
from onoff.client.status import account, snapshot, used_chain
from onoff.errors import Unavailable
from onoff.files import write_atomically
from onoff.past.habits import requests_needed
from ports import free_port
from proxykit import PlainOrigin, proxied
from recordingserver import OnoffOrigin, RecordingServer, reply

NAMES = ("health", "news", "sports")
TITLES = {"health": 'Health & "you"', "news": "News: 24h", "sports": "Sports"}
RNG = np.random.default_rng(3)
OPEN = [NAMES[x] for x in RNG.integers(0, 3, requests_needed(3) + 1)]
PUBLIC = Chain([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2], [0.1, 0.1, 0.8]], NAMES, weight=[12, 15, 18])


@pytest.fixture
def site(tmp_path):
    """A web server with a page for every path, and a list of three of them. `gone` are paths that are not there."""
    gone = set()
    with RecordingServer(lambda one: reply(one.path.encode(), 404 if one.path in gone else 200)) as server:
        server.gone = gone
        server.list = tmp_path / "list.txt"
        server.list.write_text("".join(f"{server.url}/{name} {TITLES[name]}\n" for name in NAMES))
        yield server


@pytest.fixture
def place(tmp_path):
    return tmp_path / "made"


def setup(place, *words, check=True):
    return call("setup", *words, "--directory", place, check=check)


def plainly(site, place, *words):
    """Set up the three sources under plain names."""
    site.list.write_text("".join(f"{site.url}/{name} {name}\n" for name in NAMES))
    return setup(place, site.list, *words)


def refused(place, *words):
    done = setup(place, *words, check=False)
    assert done.returncode != 0
    assert done.stderr.count("error: ") == 1
    return done.stderr


def journals(place):
    """The journals of which a file is there."""
    return sorted({re.match(r"journal-\d+", file.name)[0] for file in place.glob("journal*")})


def read(place, requests, **options):
    """What the proxy asks for, one set for each (source, private)."""

    async def ask():
        async with Setup.load(place).client(delay=0.001, **options) as client:
            return [(await client.get(name, private=private)).query for name, private in requests]

    return asyncio.run(ask())


def learn(place):
    """Read until the habits are known and a set was drawn with them."""
    return read(place, [(name, False) for name in [*OPEN, *NAMES]])


def test_two_commands_after_pip_lead_to_a_private_read_of_ten_feeds_at_two_servers(tmp_path):
    place, port = tmp_path / "made", free_port()
    for side in "ab":
        (tmp_path / side).mkdir()
        for number in range(5):
            (tmp_path / side / f"{number}.xml").write_text(f"feed {side}{number}")
    with PlainOrigin(tmp_path / "a") as one, PlainOrigin(tmp_path / "b") as two:
        outlines = "".join(
            f'<outline text="Feed {side}{number}" xmlUrl="{origin.url}/{number}.xml"/>'
            for side, origin in (("a", one), ("b", two)) for number in range(5)
        )  # fmt: skip
        (tmp_path / "feeds.opml").write_text(f"<opml><body>{outlines}</body></opml>")
        done = setup(place, tmp_path / "feeds.opml", "--port", port)
        for origin in (one, two):
            origin.log.clear()
        command = re.search(r"^10 sources\. Start the proxy: onoff (proxy .*)$", done.stdout, flags=re.M)[1]
        process = subprocess.Popen([ONOFF, *shlex.split(command)], stdout=subprocess.PIPE, text=True)
        try:
            assert json.loads(process.stdout.readline())["url"] == f"http://127.0.0.1:{port}"
            addresses = {entry.title: entry.url for entry in list_feeds(place / "feeds.opml")}
            with urllib.request.urlopen(addresses["Feed b3"], timeout=60) as answer:
                assert answer.read() == b"feed b3"
                assert answer.headers["onoff-privacy"].startswith("past; learning; 0 of 100")
        finally:
            process.terminate()
            process.communicate()
        assert [origin.log for origin in (one, two)] == [[f"/{number}.xml" for number in range(5)]] * 2


def test_setup_prints_how_to_start_and_what_to_import(site, place):
    done = setup(place, site.list)
    assert done.stdout == (
        f"3 sources. Start the proxy: onoff proxy --directory {place}\nLet your reader import: {place}/feeds.opml\n"
    )
    assert done.stderr == ""
    assert setup(place).stdout == done.stdout  # and again, later
    moved = setup(place, "--port", 8900)
    assert (moved.stdout, journals(place)) == (done.stdout, ["journal-1"])
    assert "http://127.0.0.1:8900/sports" in (place / "feeds.opml").read_text()
    setup(place, "--port", 8800)
    assert json.loads((place / "urls.json").read_text()) == {
        name: f"{site.url}/{plain}" for plain, name in zip(NAMES, ("health-you", "news-24h", "sports"), strict=True)
    }
    imported = [(entry.title, entry.url) for entry in list_feeds(place / "feeds.opml")]
    addresses = [f"http://127.0.0.1:8800/{name}" for name in ("health-you", "news-24h", "sports")]
    assert imported == list(zip(TITLES.values(), addresses, strict=True))
    assert place.stat().st_mode & 0o077 == 0


def test_without_a_directory_it_is_in_the_users_state_and_proxy_and_status_find_it_there(site, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for words in (["proxy"], ["setup"], ["setup", "--add", "http://x/y"]):
        empty = call(*words)
        assert empty.returncode == 2
        assert "nothing is set up here: run `onoff setup LIST`, with your feeds as OPML" in empty.stderr
    assert not (tmp_path / "onoff").exists()
    assert "Start the proxy: onoff proxy\n" in call("setup", site.list, check=True).stdout
    assert (tmp_path / "onoff" / "proxy" / "settings.json").exists()
    assert "learning: 0 transitions of 30 are noted" in call("status", check=True).stdout


def test_a_directory_that_is_set_up_is_set_up_again_by_force_alone(site, place):
    plainly(site, place)
    learn(place)
    site.reset()
    said = refused(place, site.list)
    assert "is set up already: without LIST, --add URL and --remove NAME change its list; --force begins anew" in said
    assert "leave LIST out" in refused(place, site.list, "--add", "http://x/y")
    assert site.requests == []
    assert snapshot(place / "journal-1").state.step > 30
    setup(place, site.list, "--force", "--port", 8900)
    made = Setup.load(place)
    assert (made.port, made.chain, made.journal) == (8900, None, place / "journal-2")
    assert journals(place) == ["journal-2"]
    (place / "settings.json").write_text("{}")
    assert "settings.json: cannot be used" in refused(place)
    setup(place, site.list, "--force")


def test_a_changed_list_keeps_the_chain_that_queries_have_shown_and_begins_with_a_full_set(site, place):
    plainly(site, place)
    learn(place)
    known, before = used_chain(place / "journal-1"), account(place / "journal-1")
    assert known is not None
    site.reset()
    done = setup(place, "--add", f"{site.url}/arts The Arts", "--add", f"{site.url}/x x", "--remove", "news")
    assert [one.path for one in site.requests] == ["/arts", "/x"]  # the others are not asked for again
    assert "has the chain that was given, or shown by queries; the old one is deleted" in done.stderr
    made = Setup.load(place)
    assert list(made.sources) == ["health", "sports", "the-arts", "x"]
    assert made.chain == with_sources(known, tuple(made.sources))
    assert made.chain.weight is not None
    assert journals(place) == ["journal-2"]
    queries = read(place, [(name, False) for name in [*made.sources] * 6])
    assert queries[0] == tuple(made.sources)
    assert min(map(len, queries)) < 4
    # Should the fuse blow, everything is asked for, and what is fresh then makes no step.
    assert snapshot(made.journal).state.step == sum(map(bool, queries)) != before.state.step
    titles = {entry.title for entry in list_feeds(place / "feeds.opml")}
    assert titles == {"health", "sports", "The Arts", "x"}


def test_the_settings_after_a_change_do_not_depend_on_private_requests(site, tmp_path):
    """Two worlds with the same queries: all that servers see of the carried chain follows from them."""
    written = []
    for number, private in enumerate((["news"] * 6, ["health", "sports"] * 3)):
        place = tmp_path / f"made-{number}"
        plainly(site, place)
        learn_alike(place)
        read(place, [(name, True) for name in private])
        setup(place, "--remove", "news")
        written.append((place / "settings.json").read_bytes())
    assert written[0] == written[1]
    assert Setup.load(tmp_path / "made-0").chain is not None


def learn_alike(place):
    """The habits, and a query that was drawn with them."""
    read(place, [(name, False) for name in OPEN])
    return read(place, [(OPEN[-1], False)] * 2, randbelow=lambda _: 0)


def test_a_chain_that_no_query_was_drawn_with_is_learned_anew(site, place):
    plainly(site, place)
    read(place, [(name, False) for name in OPEN])
    assert snapshot(place / "journal-1").public["habits"]["stage"] == "complete"
    assert used_chain(place / "journal-1") is None
    done = setup(place, "--remove", "news")
    assert "begins without a chain" in done.stderr
    made = Setup.load(place)
    assert (made.promise, made.chain) == ("past", None)
    assert snapshot(made.journal).public["habits"]["stage"] == "learning"


def test_a_chain_that_was_forgotten_is_not_taken_over(site, place):
    plainly(site, place)
    learn(place)
    assert used_chain(place / "journal-1") is not None
    read(place, [("news", False)], relearn=True)
    assert used_chain(place / "journal-1") is None


def test_a_chain_that_is_used_by_a_pending_query_alone_is_learned_anew(site, place):
    plainly(site, place)
    read(place, [(name, False) for name in OPEN])

    async def away(*_):
        raise Unavailable("no answer")

    async def ask():
        async with Setup.load(place).client(delay=0.001) as client:
            client.transport.fetch = away
            await client.get("news", private=False)

    with pytest.raises(Unavailable):
        asyncio.run(ask())
    found = snapshot(place / "journal-1")
    assert (found.public["habits"]["stage"], found.state.pending.plan) == ("known", "past")
    assert used_chain(place / "journal-1") is None


def test_where_everything_is_asked_for_it_still_is_after_a_change(site, place):
    """A person may have gone ON while habits were learned: only a person begins to learn again."""
    plainly(site, place)
    read(place, [("news", True)])
    setup(place, "--remove", "news")
    made = Setup.load(place)
    assert (made.promise, made.chain) == ("all", None)
    assert read(place, [("health", False)] * 3) == [("health", "sports"), (), ()]  # which is fresh for 5 minutes
    setup(place, "--promise", "past")
    assert snapshot(Setup.load(place).journal).public["habits"]["stage"] == "learning"
    setup(place, "--promise", "all")
    assert Setup.load(place).promise == "all"


def test_the_switch_and_the_full_sets_that_are_due_go_over_to_the_new_journal(site, place):
    plainly(site, place)
    learn(place)

    async def leave():
        async with proxied(Setup.load(place).client(delay=0.001, keep=100, cache="1MiB")) as (_, queue):
            queue.switch(False)
            for _ in range(3):
                queue.expect_repeat()

    asyncio.run(leave())
    setup(place, "--remove", "news")
    noted = snapshot(Setup.load(place).journal).memory
    assert (noted.privacy, noted.owed, noted.gap, noted.keep, noted.cache) == (False, 3, True, "100", 2**20)


def test_what_is_not_there_cannot_be_removed_and_two_sources_stay(site, place):
    plainly(site, place)
    assert "no source is called 'sport': did you mean 'sports'?" in refused(place, "--remove", "sport")
    assert "at least 2 sources" in refused(place, "--remove", "news", "--remove", "sports")
    assert "leads to the same URL as news" in refused(place, "--add", f"{site.url}/news Other")
    assert "'' is not an address" in refused(place, "--add", " ")
    site.gone.add("/dead")
    assert "answers with 404" in refused(place, "--add", f"{site.url}/dead")
    assert journals(place) == ["journal-1"]


def test_sensitive_sources_are_hidden_by_all_until_a_chain_comes_and_from_its_first_request_on(site, place, tmp_path):
    done = plainly(site, place, "--sensitive", "health,news")
    said = "Everything is asked for, which hides health, news, too, until `onoff setup --chain FILE`."
    assert f"3 sources. {said} Start the proxy: onoff proxy" in done.stdout
    assert read(place, [(name, False) for name in NAMES]) == [NAMES, (), ()]
    PUBLIC.save(tmp_path / "chain.json")
    done = setup(place, "--chain", tmp_path / "chain.json")
    assert "Everything" not in done.stdout
    made = Setup.load(place)
    assert (made.promise, made.chain, made.sensitive) == ("past", PUBLIC, ("health", "news"))
    queries = read(place, [(name, False) for name in NAMES * 3])
    assert {frozenset(query) for query in queries} <= {frozenset(NAMES), frozenset(("health", "news"))}
    setup(place, "--remove", "health")
    made = Setup.load(place)
    assert (made.sensitive, made.chain.names) == (("news",), ("news", "sports"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--sensitive", "helth"), "did you mean 'health'?"),
        (("--sensitive", "health", "--promise", "past"), "sensitive sources need a chain: give --chain"),
        (("--promise", "both"), "a proxy keeps 'past' or 'all'"),
        (("--chain", "other.json"), "The chain lacks news, sports"),
    ],
)
def test_what_does_not_fit_leaves_nothing_behind(site, place, tmp_path, words, said):
    Chain([[0.5, 0.5]] * 2, ("health", "arts")).save(tmp_path / "other.json")
    site.list.write_text("".join(f"{site.url}/{name} {name}\n" for name in NAMES))
    words = [tmp_path / word if word.endswith(".json") else word for word in words]
    assert said in refused(place, site.list, *words)
    assert not place.exists()
    setup(place, site.list)
    before = (place / "settings.json").read_bytes()
    refused(place, *words)
    assert (place / "settings.json").read_bytes() == before
    assert journals(place) == ["journal-1"]


def test_the_list_of_an_onoff_server_is_set_up_by_its_address(place):
    bodies = {name: name.encode() for name in ("b", "a c", "d")}
    with RecordingServer(OnoffOrigin(bodies)) as server:
        done = setup(place, server.url)
        assert "3 sources" in done.stdout
        assert [entry.url for entry in list_feeds(place / "feeds.opml")] == [
            f"http://127.0.0.1:8800/{name}" for name in ("a%20c", "b", "d")
        ]
        assert read(place, [("a c", False)]) == [("b", "a c", "d")]
        assert f"the list is that of {server.url}" in refused(place, "--remove", "b")
    with RecordingServer(lambda _: reply(b"<opml/>", 404)) as web:
        assert "is not an onoff server" in refused(place, web.url, "--force")


def test_a_list_is_not_changed_while_its_proxy_runs(site, place):
    plainly(site, place)
    with lock_journals(place):
        assert "a proxy is running with it: stop the proxy first" in refused(place, "--remove", "news")
        assert "a proxy is running with it" in refused(place, site.list, "--force")


@pytest.mark.parametrize("when", ["settings.json", "urls.json", "feeds.opml"])
def test_a_change_that_is_stopped_has_not_been_made_or_is_completed_by_the_next_proxy(site, place, when, monkeypatch):
    plainly(site, place)

    def stopped(file, data):
        if file.name == when:
            raise KeyboardInterrupt
        write_atomically(file, data)

    with monkeypatch.context() as disk:
        disk.setattr(directory_of, "write_atomically", stopped)
        assert setup(place, "--remove", "news", check=False).returncode == 130
    (place / "journal-77.new-wal").touch()  # what SQLite leaves when it is killed
    made, done = Setup.load(place), when != "settings.json"
    assert list(made.sources) == ["health", *(["news"] * (not done)), "sports"]
    made.settle()  # as the proxy does when it has its journal
    assert list(json.loads((place / "urls.json").read_text())) == list(made.sources)
    assert len(list_feeds(place / "feeds.opml")) == len(made.sources)
    assert journals(place) == [made.journal.name]
    setup(place, "--promise", "all")  # what was left behind is in nobody's way


def test_a_service_starts_this_proxy_from_anywhere(site, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    place = tmp_path / 'a 100% "odd" $place'
    monkeypatch.setenv("PATH", f"{ONOFF.parent}{os.pathsep}{os.environ['PATH']}")
    done = setup(place, site.list, "--service")
    unit = tmp_path / "config" / "systemd" / "user" / "onoff-proxy.service"
    assert done.stdout.splitlines()[:3] == [
        "3 sources. Start the proxy:",
        "    systemctl --user daemon-reload",
        "    systemctl --user enable --now onoff-proxy",
    ]
    command = re.search("^ExecStart=(.*)$", unit.read_text(), flags=re.M)[1]
    assert (command.count("%%"), command.count("$$")) == (1, 1)
    words = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(command)]
    assert words == [str(ONOFF), "proxy", "--directory", str(place)]
    assert {word for word in words if word.startswith("--")} <= {
        option for each in COMMANDS["proxy"].params for option in each.opts
    }
    analyse = shutil.which("systemd-analyze") or pytest.skip("systemd-analyze is not installed")
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    checked = subprocess.run(
        [analyse, "--user", "verify", str(unit)], env=environment, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.long
def test_a_killed_change_has_been_made_or_not_and_the_proxy_starts_with_one_journal(site, place):
    plainly(site, place)
    rng, killed = random.Random(5), 0
    for number in range(12):
        before = set(Setup.load(place).sources)
        gone = sorted(before - {*NAMES})[:1]
        words = ["--add", f"{site.url}/n{number} n{number}", *(word for name in gone for word in ("--remove", name))]
        command = [ONOFF, "setup", *words, "--directory", place]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0.5, 2.5))
        process.kill()
        killed += process.wait(60) != 0
        made = Setup.load(place)
        assert set(made.sources) in (before, {*before, f"n{number}"} - {*gone})
        assert read(place, [("news", False)]) == [tuple(made.sources)]
        made.settle()
        assert journals(place) == [made.journal.name]
    assert killed > 0
