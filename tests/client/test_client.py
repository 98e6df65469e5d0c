"""The client with real servers: ours, and a plain web server that knows nothing of us."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from clientkit import client_with
from clikit import call
from onoff import Chain, HttpTransport, OnoffTransport, Planner, files, plan
from onoff.client import play as playing
from onoff.client.play import parse_items
from onoff.client.status import snapshot
from onoff.errors import (
    NO_MESSAGE,
    RULES,
    Announced,
    CatalogueError,
    JournalError,
    JournalLocked,
    OnoffError,
)
from onoff.plans.planner import compute
from onoff.plans.store import PlanStore
from oracles import random_chain
from proxykit import PlainOrigin
from recordingserver import OnoffOrigin, RecordingServer
from serverprocess import ServerProcess

NAMES = ("news", "sports", "science", "wetter süd")


@pytest.fixture(scope="module")
def chain():
    return Chain(random_chain("dense", 4, 1).P, NAMES)


@pytest.fixture(scope="module")
def plans(chain, tmp_path_factory):
    """Plans made ahead, so that no process has to be started for them."""
    directory = tmp_path_factory.mktemp("plans")
    compute(PlanStore(chain, directory), 8)
    return directory


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with ServerProcess(tmp_path_factory.mktemp("server"), names=NAMES, length=64) as process:
        process.publish({name: f"latest of {name}".encode() for name in NAMES})
        yield process


@contextlib.asynccontextmanager
async def client_of(chain, transport, journal, plans, **options):
    with Planner(chain, plans) as planner:
        async with client_with(chain, transport, journal, planner, delay=0.0, **options) as client:
            yield client


def test_messages_arrive_by_name_and_the_result_says_what_was_done(chain, plans, server, tmp_path):
    async def run():
        async with client_of(chain, OnoffTransport(server.url), tmp_path / "j", plans, first_ever=True) as client:
            first = await client.get("sports", next="science", private=False)
            second = await client.get("science", next="news", private=False)
            third = await client.get("news", private=True)
            return first, second, third

    first, second, third = asyncio.run(run())
    assert [m.body for m in (first, second, third)] == [b"latest of sports", b"latest of science", b"latest of news"]
    assert (first.private, first.made_private, first.query) == (True, True, NAMES)
    assert (second.private, second.made_private) == (False, False)
    assert "science" in second.query
    assert (third.private, third.made_private, third.step) == (True, False, 2)
    assert third.round >= 1


def test_play_looks_one_ahead_ends_on_and_keeps_its_announcement_when_left(chain, plans, server, tmp_path):
    items = [("news", True), ("sports", False), ("news", False), ("science", False)]

    async def whole():
        async with client_of(chain, OnoffTransport(server.url), tmp_path / "a", plans, first_ever=True) as client:
            return [message async for message in client.play(items)]

    played = asyncio.run(whole())
    assert [m.source for m in played] == [source for source, _ in items]
    assert [m.private for m in played] == [True, False, False, True]
    assert played[-1].made_private

    async def left_early():
        async with client_of(chain, OnoffTransport(server.url), tmp_path / "b", plans, first_ever=True) as client:
            async with contextlib.aclosing(client.play(items)) as messages:
                async for message in messages:
                    if message.source == "sports":
                        break
            with pytest.raises(Announced, match="'news' was announced"):
                await client.get("science")
            return await client.get("news")

    assert asyncio.run(left_early()).body == b"latest of news"


def test_the_last_message_is_had_again_without_a_server(chain, server, tmp_path):
    """Nobody answers at port 1. No journal is made."""
    nobody = client_with(chain, OnoffTransport("http://127.0.0.1:1"), tmp_path / "j", promise="past")
    with pytest.raises(JournalError, match="there is no journal"):
        nobody.last()
    assert not list(tmp_path.iterdir())

    async def ask():
        async with client_with(chain, OnoffTransport(server.url), tmp_path / "j", promise="past", delay=0.0) as client:
            with pytest.raises(JournalLocked):
                nobody.last()
            return await client.get("sports")

    asked = asyncio.run(ask())
    message, row = nobody.last()
    assert (message, message.age > 0) == (replace(asked, age=message.age), True)
    assert (row.step, row.query, row.private) == (0, (0, 1, 2, 3), True)


def test_the_order_of_the_chain_need_not_be_that_of_the_server(server, tmp_path):
    turned = Chain(random_chain("dense", 4, 1).P, NAMES[::-1])
    PlanStore(turned, tmp_path / "plans").save(plan(turned, 1))

    async def run():
        async with client_of(
            turned, OnoffTransport(server.url), tmp_path / "j", tmp_path / "plans", first_ever=True
        ) as c:
            return [await c.get(name, next=NAMES[0], private=True) for name in NAMES]

    assert [m.body for m in asyncio.run(run())] == [f"latest of {name}".encode() for name in NAMES]


@pytest.mark.parametrize(("sources", "words"), [
    ({"a": "http://x/1"}, "at least 2"), ({"a": 1, "b": 2}, r"http\(s\)"),
    ({"a": "http://x/1", "b": "HTTP://X:80/1"}, "'a' and 'b' have the same URL"),
    ({"a": "https://x", "b": "http://x", "c": "https://x:443/"}, "'a' and 'c' have the same URL"),
    ({"a": "ftp://x/1", "b": "ftp://x/2"}, r"http\(s\)"), ({"a": "http://u:p@x/1", "b": "http://x/2"}, r"http\(s\)"),
    ({"a": "http://x/1#top", "b": "http://x/2"}, r"http\(s\)"),
    ({"a": "http://x/1", "b": "http://a..b/"}, "URL of 'b': .* 1 to 63 letters"),
    ({"a": "http://x/1", "b": f"http://{'b' * 64}.org/"}, "URL of 'b': .* 1 to 63 letters"),
    ({"a": "http://x/1", "b": "http://x:0/2"}, "URL of 'b': .*no server has the port 0"),
])  # fmt: skip
def test_a_bad_catalogue_of_urls_is_refused(sources, words):
    with pytest.raises(CatalogueError, match=words):
        HttpTransport(sources)


# The command line


def onoff(*arguments, check=True):
    return call(*arguments, check=check)


@pytest.fixture
def chain_file(chain, tmp_path):
    chain.save(tmp_path / "chain.json")
    return tmp_path / "chain.json"


def test_get_remembers_its_settings_and_status_tells_what_binds_the_next_request(chain_file, server, tmp_path):
    journal = ["--journal", tmp_path / "j", "--no-background"]
    first = onoff("get", "sports", "--next", "news", "--on", "--server", server.url, "--chain", chain_file, *journal)
    assert first.stdout == "latest of sports"
    assert "its first 2 requests ask for everything" in first.stderr
    assert onoff("get", "news", "--next", "sports", *journal).stdout == "latest of news"
    assert onoff("get", "sports", "--next", "science", "--off", *journal).stdout == "latest of sports"
    told = onoff("status", *journal[:2]).stdout
    assert "steps since privacy was last ON: 1" in told
    assert "the next request must be 'science'" in told
    refused = onoff("get", "news", *journal, check=False)
    assert (refused.returncode, refused.stdout) == (RULES, "")
    assert "'science' was announced" in refused.stderr


def test_a_file_that_was_played_to_its_end_is_played_again_only_with_restart(chain_file, plans, server, tmp_path):
    (tmp_path / "first").write_text("on news\non sports\n")
    common = ["--journal", tmp_path / "j", "--plans", plans, "--delay", "0"]
    onoff("play", tmp_path / "first", "--server", server.url, "--chain", chain_file, *common)
    before = len(server.transcript())
    again = onoff("play", tmp_path / "first", *common, "--out", tmp_path / "got")  # as if killed before its exit
    assert "was played to its end: nothing was asked for now. --restart makes its requests again" in again.stderr
    assert "2 requests" in again.stdout
    assert [file.name for file in (tmp_path / "got").iterdir()] == ["000001"]  # the message that may not be written yet
    onoff("get", "news", *common)
    again = onoff("play", tmp_path / "first", *common, "--out", tmp_path / "elsewhere")
    assert "nothing was asked for now" in again.stderr
    assert not list((tmp_path / "elsewhere").iterdir())  # the last message is not one of the file's
    assert len(server.transcript()) == before + 1
    assert "5 requests" in onoff("play", tmp_path / "first", *common, "--restart").stdout


CUT = """
import os
from onoff.apps.cli.app import main
from onoff.{module} import {kind} as kind
whole = kind.{method}

def cut(self, *arguments):
    state = getattr(arguments[0], "state", None)
    return os._exit(9) if 3 in arguments or getattr(state, "step", None) == 3 else whole(self, *arguments)

kind.{method} = cut
main()
"""
PENDING = CUT.format(module="client.transports.onoff", kind="OnoffTransport", method="fetch")
ANNOUNCED = CUT.format(module="client.journal", kind="Journal", method="begin")


@pytest.fixture
def leave(chain_file, plans, server, tmp_path):
    """Play five requests, but die at the fourth: with its query on disk, or only announced."""
    (tmp_path / "first").write_text("on news\non sports\noff news\noff wetter süd\non news\n")
    (tmp_path / "other").write_text("on sports\non news\n")
    common = ["--journal", tmp_path / "j", "--plans", plans, "--delay", "0"]

    def play(code):
        given = [tmp_path / "first", "--server", server.url, "--chain", chain_file, "--out", tmp_path / "got", *common]
        given += ["--promise", "both"]
        done = subprocess.run([sys.executable, "-c", code, "play", *map(str, given)], capture_output=True, check=False)
        assert done.returncode == 9
        assert snapshot(tmp_path / "j").state.step == 3
        return common

    return play


@pytest.mark.parametrize("code", [PENDING, pytest.param(ANNOUNCED, marks=pytest.mark.long)])
def test_a_file_that_was_not_played_to_its_end_is_not_forgotten(leave, tmp_path, code):
    common = leave(code)
    before = snapshot(tmp_path / "j")
    refused = onoff("play", tmp_path / "other", *common, "--out", tmp_path / "elsewhere", check=False)
    assert refused.returncode == 2
    assert "was not played to its end (2 of 5 requests left): play it again, or give it up" in refused.stderr
    assert onoff("play", tmp_path / "other", *common, "--restart", check=False).returncode == RULES
    assert snapshot(tmp_path / "j") == before  # nothing was changed, not even a note
    assert not (tmp_path / "elsewhere").exists()
    requests = (tmp_path / "first").read_text()
    (tmp_path / "first").write_text("on news\n")
    assert "has changed since" in onoff("play", tmp_path / "first", *common, check=False).stderr
    (tmp_path / "first").write_text(requests)
    onoff("play", tmp_path / "first", *common, "--out", tmp_path / "got")
    assert [(tmp_path / "got" / f"{step:06d}").read_text() for step in range(5)] == [
        f"latest of {name}" for name in ("news", "sports", "news", "wetter süd", "news")
    ]
    assert "to its end" not in onoff("play", tmp_path / "other", *common).stderr


def test_a_file_can_be_given_up(leave, tmp_path):
    common = leave(PENDING)
    assert onoff("resume", *common[:4]).stdout == "latest of wetter süd"
    onoff("get", "news", "--next", "science", "--off", *common)  # the file goes on with it, but ON
    onoff("get", "science", "--next", "news", *common)
    assert "requests that are not in" in onoff("play", tmp_path / "first", *common, check=False).stderr
    done = onoff("play", tmp_path / "other", *common, "--restart", "--out", tmp_path / "got")
    assert "8 requests" in done.stdout
    assert (tmp_path / "got" / "000006").read_text() == "latest of sports"


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "no requests"), ("maybe news\n", "line 1"), ("on\n", "line 1"), ("on newz\n", "no source is called")],
)
def test_a_bad_file_of_requests_is_refused(tmp_path, text, words):
    with pytest.raises(OnoffError, match=words):
        parse_items(text, tmp_path / "requests", NAMES)


def test_that_nothing_has_been_published_is_said(chain_file, plans, tmp_path):
    origin = OnoffOrigin(dict.fromkeys(NAMES, b""))
    origin.rounds = dict.fromkeys(NAMES, 0)
    with RecordingServer(origin) as empty:
        (tmp_path / "requests").write_text("on news\non sports\non sports\n")
        common = ["--server", empty.url, "--chain", chain_file, "--journal", tmp_path / "j", "--plans", plans]
        done = onoff("play", tmp_path / "requests", *common, "--delay", "0")
        assert done.stderr.count("sports: nothing has been published yet") == 1
        done = onoff("get", "sports", *common, check=False)
        assert (done.stdout, done.returncode) == ("", NO_MESSAGE)


def test_a_message_that_cannot_be_written_stops_no_stream(chain_file, plans, server, tmp_path, monkeypatch):
    """The server chooses the length of a body: to stop where it does not fit would tell that it was wanted."""

    def full(file, data, *, sync=True, honest=files.write_atomically):
        if len(data) > len("latest of news"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))
        honest(file, data, sync=sync)

    monkeypatch.setattr(playing, "write_atomically", full)
    lines, ends = [], []
    for wanted in ("news", "sports"):
        before = len(server.transcript())
        (tmp_path / wanted).write_text(f"on news\non {wanted}\non {wanted}\non news\n")
        common = ["--journal", tmp_path / f"{wanted}.journal", "--plans", plans, "--delay", "0", "--no-background"]
        words = ["--server", server.url, "--chain", chain_file, "--out", tmp_path / f"{wanted}.got"]
        ends.append(onoff("play", tmp_path / wanted, *words, *common, check=False))
        lines.append([line["sources"] for line in server.transcript()[before:]])
    assert lines[0] == lines[1]
    assert [end.returncode for end in ends] == [0, 2]
    assert "the messages of 2 steps are not in" in ends[1].stderr
    assert "(steps 1, 2)" in ends[1].stderr
    assert "no space left on device" in ends[1].stderr


def test_play_says_nothing_of_a_message_before_the_connection_is_closed(chain_file, plans, tmp_path, monkeypatch):
    (tmp_path / "files").mkdir()
    for name in ("0", "2", "3"):
        (tmp_path / "files" / name).write_text("a file")
    (tmp_path / "requests").write_text("on sports\non news\non sports\n")
    closed, said = [], []
    honest = HttpTransport.close

    async def close(self):
        await honest(self)
        closed.append(True)

    monkeypatch.setattr(HttpTransport, "close", close)
    for module in ("read", "output"):
        monkeypatch.setattr(f"onoff.apps.cli.{module}.note", lambda words: said.append((words, bool(closed))))
    common = ["--journal", tmp_path / "j", "--plans", plans, "--chain", chain_file, "--delay", "0", "--no-background"]
    with PlainOrigin(tmp_path / "files") as origin:
        urls = {name: f"{origin.url}/{number}" for number, name in enumerate(NAMES)}
        (tmp_path / "urls.json").write_text(json.dumps(urls))
        onoff("play", tmp_path / "requests", "--urls", tmp_path / "urls.json", *common)
    assert [words for words, after in said if not after] == ["a new journal: its first request asks for everything"]
    assert said[-1] == ("the server answered 404 for 'sports'; the request counts as made, with its query", True)
