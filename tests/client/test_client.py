"""The client with real servers: ours, and a plain web server that knows nothing of us."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import http.server
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from clientkit import client_with
from clikit import call
from onoff import Chain, HttpTransport, OnoffTransport, Planner, Settings, files, plan
from onoff.apps.cli.status import print_status
from onoff.client import play as playing
from onoff.client.journal import Journal
from onoff.client.memory import Memory
from onoff.client.play import read_items
from onoff.client.protocol import Pending, State
from onoff.client.status import Account, Status, Totals, snapshot
from onoff.errors import (
    NO_MESSAGE,
    REFUSED,
    RULES,
    UNREACHABLE,
    USAGE,
    Announced,
    CatalogueError,
    ChainError,
    JournalError,
    JournalLocked,
    NothingPending,
    OnoffError,
    PendingRequest,
    SourceError,
    Unavailable,
)
from onoff.model.bounds import outer_bound
from onoff.plans.planner import compute
from onoff.plans.store import PlanStore
from oracles import random_chain
from serverprocess import ServerProcess

ONOFF = Path(sys.executable).with_name("onoff")
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


@pytest.fixture
def web(tmp_path):
    """A web server of the standard library, serving files."""
    (tmp_path / "files").mkdir()
    for i, name in enumerate(NAMES):
        (tmp_path / "files" / f"{i}.txt").write_text(f"file of {name}" * (i + 1))
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "files")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield {name: f"http://127.0.0.1:{httpd.server_port}/{i}.txt" for i, name in enumerate(NAMES)}
        httpd.shutdown()
        thread.join()


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


def test_a_pending_request_blocks_others_and_is_resumed_with_the_same_query(chain, plans, server, tmp_path):
    class Broken(OnoffTransport):
        async def fetch(self, stream, step, sources, held):
            seen.append((stream, step, sources, held))
            raise Unavailable("no network")

    seen = []

    async def fail():
        async with client_of(
            chain, Broken(server.url), tmp_path / "j", plans, first_ever=True, attempts=3, backoff=0.001
        ) as client:
            with pytest.raises(Unavailable):
                await client.get("sports", private=True)
            with pytest.raises(PendingRequest):
                await client.get("news")

    async def recover():
        async with client_of(chain, OnoffTransport(server.url), tmp_path / "j", plans) as client:
            first = await client.resume()
            with pytest.raises(NothingPending, match="'sports' in step 0"):
                await client.resume()
            again = await client.resume(last=True)
            return first, again

    asyncio.run(fail())
    assert seen == [(seen[0][0], 0, (0, 1, 2, 3), (None,) * 4)] * 3
    before = len(server.transcript())
    first, again = asyncio.run(recover())
    assert first.body == again.body == b"latest of sports"
    assert len(server.transcript()) == before + 1  # the second time it came from the disk


def test_the_last_message_is_had_again_without_a_server(chain, server, tmp_path):
    """Nobody answers at port 1. A pending request is not taken for a message, and no journal is made."""
    nobody = client_with(chain, OnoffTransport("http://127.0.0.1:1"), tmp_path / "j", promise="past")
    with pytest.raises(JournalError, match="there is no journal"):
        nobody.last()
    assert not list(tmp_path.iterdir())

    async def ask():
        async with client_with(chain, OnoffTransport(server.url), tmp_path / "j", promise="past", delay=0.0) as client:
            with pytest.raises(JournalLocked):
                nobody.last()
            return await client.get("sports")

    Journal(tmp_path / "j", chain.fingerprint, asyncio.run(catalogue_of(server)), promise="past").close()
    assert nobody.last() is None
    asked = asyncio.run(ask())
    message, row = nobody.last()
    assert message == asked
    assert (row.step, row.query, row.private) == (0, (0, 1, 2, 3), True)


async def catalogue_of(server):
    """The fingerprint of what a server offers."""
    transport = OnoffTransport(server.url)
    await transport.connect()
    await transport.close()
    return transport.fingerprint


def test_a_server_with_other_sources_is_refused(server, tmp_path):
    other = Chain(random_chain("dense", 4, 1).P, ["news", "sports", "science", "culture"])

    async def run():
        async with client_of(other, OnoffTransport(server.url), tmp_path / "j", tmp_path / "plans"):
            pass

    with pytest.raises(
        ChainError,
        match=r"The chain lacks wetter süd\. The file of URLs, or the server, lacks culture\. A chain is for",
    ):
        asyncio.run(run())
    assert not (tmp_path / "j").exists()


def test_the_order_of_the_chain_need_not_be_that_of_the_server(server, tmp_path):
    turned = Chain(random_chain("dense", 4, 1).P, NAMES[::-1])
    PlanStore(turned, tmp_path / "plans").save(plan(turned, 1))

    async def run():
        async with client_of(
            turned, OnoffTransport(server.url), tmp_path / "j", tmp_path / "plans", first_ever=True
        ) as c:
            return [await c.get(name, next=NAMES[0], private=True) for name in NAMES]

    assert [m.body for m in asyncio.run(run())] == [f"latest of {name}".encode() for name in NAMES]


def test_a_planner_of_another_chain_is_refused(chain, plans, tmp_path):
    with Planner(chain, plans) as planner, pytest.raises(ChainError, match="another chain"):
        client_with(Chain.symmetric(4, 0.5), OnoffTransport("http://127.0.0.1:1"), tmp_path / "j", planner)


# Any web server


def test_a_missing_page_is_that_sources_message_and_the_step_is_over(chain, plans, web, tmp_path):
    async def run():
        (tmp_path / "files" / "1.txt").unlink()
        async with client_of(chain, HttpTransport(web), tmp_path / "j", plans, first_ever=True) as client:
            with pytest.raises(SourceError, match="404 for 'sports'") as caught:
                await client.get("sports", next="news")
            assert caught.value.status == 404
            return await client.get("news")

    assert asyncio.run(run()).step == 1


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ({"a": "http://x/1"}, "at least 2"),
        ({"a": "http://x/1", "b": "http://x/1"}, "same URL"),
        ({"a": "http://x/1", "b": "HTTP://X:80/1"}, "'a' and 'b' have the same URL"),
        ({"a": "https://x", "b": "http://x", "c": "https://x:443/"}, "'a' and 'c' have the same URL"),
        ({"a": "ftp://x/1", "b": "ftp://x/2"}, r"http\(s\)"),
        ({"a": "http://u:p@x/1", "b": "http://u:p@x/2"}, r"http\(s\)"),
        ({"a": "http://x/1#top", "b": "http://x/2"}, r"http\(s\)"),
    ],
)
def test_a_bad_catalogue_of_urls_is_refused(sources, words):
    with pytest.raises(CatalogueError, match=words):
        HttpTransport(sources)


def test_a_bad_file_of_urls_is_refused(tmp_path):
    for content in ("{", "[]", '{"a": 1, "b": 2}'):
        (tmp_path / "urls.json").write_text(content)
        with pytest.raises(CatalogueError):
            HttpTransport.load(tmp_path / "urls.json")


# The command line


def onoff(*arguments, check=True):
    return call(*arguments, check=check)


@pytest.fixture
def chain_file(chain, tmp_path):
    chain.save(tmp_path / "chain.json")
    return tmp_path / "chain.json"


def test_get_remembers_its_settings_and_status_tells_all(chain, chain_file, plans, server, tmp_path):
    journal = ["--journal", tmp_path / "j", "--plans", plans]
    first = onoff("get", "sports", "--next", "news", "--on", "--server", server.url, "--chain", chain_file, *journal)
    assert first.stdout == "latest of sports"
    assert "its first two requests ask for everything" in first.stderr
    assert onoff("get", "news", "--next", "sports", *journal).stdout == "latest of news"
    assert onoff("get", "sports", "--next", "science", "--off", *journal).stdout == "latest of sports"
    told = onoff("status", *journal).stdout
    assert "steps since privacy was last ON: 1" in told
    assert "the next request must be 'science'" in told
    assert "OFF" in told
    assert f"OFF {plan(chain, 2).cost:.3f} (optimal, lag 2)" in told
    assert f"no scheme needs less than {outer_bound(chain.posterior(2)):.3f} on average at lag 2: the plan is" in told
    assert onoff("resume", "--last", *journal).stdout == "latest of sports"
    refused = onoff("get", "news", *journal, check=False)
    assert (refused.returncode, refused.stdout) == (RULES, "")
    assert "'science' was announced" in refused.stderr


def test_play_goes_on_after_a_kill(chain_file, plans, server, tmp_path):
    items = [(NAMES[(i * 7) % 4], i % 3 == 0) for i in range(40)]
    (tmp_path / "requests").write_text("# a comment\n\n" + "".join(f"{'on' if p else 'off'} {s}\n" for s, p in items))
    command = [ONOFF, "play", tmp_path / "requests", "--server", server.url, "--chain", chain_file]
    command += ["--journal", tmp_path / "j", "--plans", plans, "--out", tmp_path / "got"]
    before = len(server.transcript())
    for stop_at in (2, 5):  # far from the end, which a process must not reach before a busy machine has killed it
        slowly = [*command, "--delay", "0.25"]
        process = subprocess.Popen(slowly, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            assert process.poll() is None, "it must not end by itself"
            try:
                if snapshot(tmp_path / "j").state.step >= stop_at:
                    break
            except OnoffError:
                pass  # not there yet
            time.sleep(0.05)
        process.kill()
        process.wait()
    done = call(*command[1:], "--delay", "0", check=True)
    assert "40 requests" in done.stdout
    for step, (source, _) in enumerate(items):
        assert (tmp_path / "got" / f"{step:06d}").read_bytes() == f"latest of {source}".encode()
    queries = {}
    for line in server.transcript()[before:]:
        queries.setdefault(line["step"], set()).add(tuple(line["sources"]))
    assert sorted(queries) == list(range(40))
    assert all(len(sets) == 1 for sets in queries.values())


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


@pytest.mark.parametrize("code", [PENDING, ANNOUNCED])
def test_a_file_that_was_not_played_to_its_end_is_not_forgotten(leave, tmp_path, code):
    common = leave(code)
    before = snapshot(tmp_path / "j")
    refused = onoff("play", tmp_path / "other", *common, "--out", tmp_path / "elsewhere", check=False)
    assert refused.returncode == 2
    words = f"{tmp_path / 'first'} was not played to its end (2 of 5 requests left): play it again, or give it up"
    assert words in refused.stderr
    refused = onoff("play", tmp_path / "other", *common, "--restart", check=False)
    assert refused.returncode == RULES
    resume = f"`onoff resume --journal {tmp_path / 'j'}`"
    get = f"`onoff get 'wetter süd' --journal {tmp_path / 'j'}` makes it"
    assert (resume if code == PENDING else get) in refused.stderr
    assert snapshot(tmp_path / "j") == before  # nothing was changed, not even a note
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / "first").write_text("on news\n")
    assert "has changed since" in onoff("play", tmp_path / "first", *common, check=False).stderr
    (tmp_path / "first").write_text("on news\non sports\noff news\noff wetter süd\non news\n")
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
    refused = onoff("play", tmp_path / "first", *common, check=False)
    assert "requests that are not in" in refused.stderr
    assert "--restart" in refused.stderr
    done = onoff("play", tmp_path / "other", *common, "--restart", "--out", tmp_path / "got")
    assert "8 requests" in done.stdout
    assert (tmp_path / "got" / "000006").read_text() == "latest of sports"


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "no requests"), ("maybe news\n", "line 1"), ("on\n", "line 1"), ("on newz\n", "no source is called")],
)
def test_a_bad_file_of_requests_is_refused(tmp_path, text, words):
    (tmp_path / "requests").write_text(text)
    with pytest.raises(OnoffError, match=words):
        read_items(tmp_path / "requests", NAMES)


def test_a_server_that_cannot_be_reached_is_explained(chain_file, plans, server, tmp_path, monkeypatch):
    monkeypatch.setitem(Settings.__init__.__kwdefaults__, "backoff", 0.01)
    common = ["--chain", chain_file, "--journal", tmp_path / "j", "--plans", plans]
    for url, words, code in (
        ("127.0.0.1:8700", "http://HOST:PORT is needed", USAGE),
        (f"{server.url}/nothing", "is not an onoff server", REFUSED),
        ("http://127.0.0.1:1", "http://127.0.0.1:1 did not answer", UNREACHABLE),
        ("http://no-such-host.invalid", "http://no-such-host.invalid did not answer", UNREACHABLE),
    ):
        done = onoff("get", "news", "--server", url, *common, check=False)
        assert done.returncode == code
        assert words in done.stderr
        assert "Errno" not in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "j").exists()


def test_what_play_makes_on_is_noted(chain_file, plans, server, tmp_path):
    common = [
        "--server",
        server.url,
        "--chain",
        chain_file,
        "--journal",
        tmp_path / "j",
        "--plans",
        plans,
        "--delay",
        "0",
        "--promise",
        "both",
    ]
    (tmp_path / "requests").write_text("off news\noff sports\noff news\noff science\n")
    done = onoff("play", tmp_path / "requests", *common)
    start, last = "2 at the start, since the first two requests of a journal always are", "the last of the file"
    assert f"asked OFF but made ON: {start}" in done.stderr
    assert last in done.stderr
    (tmp_path / "requests").write_text("on news\noff sports\n")
    done = onoff("play", tmp_path / "requests", *common)
    assert f"asked OFF but made ON: {last}" in done.stderr
    assert "was made ON" not in onoff("get", "news", *common).stderr
    assert "was made ON: no --next was given" in onoff("get", "news", "--off", *common).stderr
    common[5] = tmp_path / "new"
    done = onoff("get", "news", "--next", "news", "--off", *common)
    assert "was made ON: the first two requests of a journal always are" in done.stderr


def test_that_nothing_has_been_published_is_said(chain_file, plans, tmp_path):
    with ServerProcess(tmp_path, names=NAMES) as empty:
        empty.publish({"news": b"here"})
        common = ["--journal", tmp_path / "j", "--plans", plans]
        done = onoff("get", "sports", "--server", empty.url, "--chain", chain_file, *common, check=False)
        words = "sports: nothing has been published yet"
        assert (done.stdout, words in done.stderr, done.returncode) == ("", True, NO_MESSAGE)
        done = onoff("resume", "--last", *common, check=False)
        assert (words in done.stderr, done.returncode) == (True, NO_MESSAGE)
        assert "nothing was pending; this is the last message again" in done.stderr
        (tmp_path / "requests").write_text("on news\non sports\non sports\n")
        done = onoff("play", tmp_path / "requests", *common, "--delay", "0")
        assert done.stderr.count("nothing has been published yet") == 1
        assert words in done.stderr


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


def test_play_says_nothing_of_a_message_before_the_connection_is_closed(chain_file, plans, web, tmp_path, monkeypatch):
    (tmp_path / "files" / "1.txt").unlink()
    (tmp_path / "urls.json").write_text(json.dumps(web))
    (tmp_path / "requests").write_text("on sports\non news\non sports\n")
    closed, said = [], []
    honest = HttpTransport.close

    async def close(self):
        await honest(self)
        closed.append(True)

    monkeypatch.setattr(HttpTransport, "close", close)
    monkeypatch.setattr("onoff.apps.cli.read.note", lambda words: said.append((words, bool(closed))))
    common = ["--journal", tmp_path / "j", "--plans", plans, "--chain", chain_file, "--delay", "0", "--no-background"]
    onoff("play", tmp_path / "requests", "--urls", tmp_path / "urls.json", *common)
    assert [words for words, after in said if not after] == ["a new journal: its first two requests ask for everything"]
    assert said[-1] == ("the server answered 404 for 'sports'; the request counts as made, with its query", True)


def test_a_pending_request_is_recalled_while_the_server_is_down(leave, tmp_path, monkeypatch):
    monkeypatch.setitem(Settings.__init__.__kwdefaults__, "backoff", 0.001)
    common = leave(PENDING)[:4]
    down = ["--server", "http://127.0.0.1:1"]
    for command in (["resume"], ["get", "news"]):
        done = onoff(*command, *down, *common, check=False)
        assert done.returncode == UNREACHABLE
        advice = f"`onoff resume --journal {tmp_path / 'j'}` finishes it."
        assert f"The request for 'wetter süd' stays pending: {advice}" in done.stderr
    done = onoff("play", tmp_path / "first", *down, *common, check=False)
    assert "stays pending: run the same command again" in done.stderr
    done = onoff("resume", *common)
    assert done.stdout == "latest of wetter süd"
    assert done.stderr == ""


def test_a_pending_request_is_not_named_after_a_source_of_another_chain(leave, tmp_path, monkeypatch):
    monkeypatch.setitem(Settings.__init__.__kwdefaults__, "backoff", 0.001)
    common = leave(PENDING)[:4]
    for n in (2, 5):
        Chain.symmetric(n, 0.5, ["news", "x", "y", "z", "w"][:n]).save(tmp_path / "other.json")
        words = ["--server", "http://127.0.0.1:1", "--chain", tmp_path / "other.json", "--no-background"]
        done = onoff("get", "news", *words, *common, check=False)
        assert done.returncode == UNREACHABLE
        assert "did not answer" in done.stderr
        assert "stays pending" not in done.stderr


def account_of(state, totals):
    """What a journal of the promise "both" says in this state."""
    return Account(state, Memory(), "", "both", (), {}, None, totals)


def test_status_bounds_the_lag_that_comes_next_not_that_of_the_plan(chain, capsys):
    used, nothing = plan(chain, 3), Totals(0, 0, 0, 0, 0.0, 0, {})
    state = State(step=9, last=0, lag=4, previous=0, unsettled=0)
    pending = Pending(0, 1, False, False, 5, (0, 1), used.name, 0.0)
    for now, lag in ((state, 5), (replace(state, pending=pending), 6)):
        print_status(Status(account_of(now, nothing), chain, chain, plan=used))
        told = capsys.readouterr().out
        assert f"in messages: ON 4, OFF {used.cost:.3f} (optimal, lag 3)\n" in told
        bound = outer_bound(chain.posterior(lag))
        assert bound < used.cost
        assert f"less than {bound:.3f} on average at lag {lag}: the plan is" in told
    assert "must be 'sports'" in told
    assert "PENDING: 'news' was asked for, in a set of 2 sources, and is not answered yet\n" in told
    assert "steps since privacy was last ON: 5\n" in told


def test_status_says_how_many_first_requests_ask_for_everything(chain, capsys):
    full = Pending(0, None, True, False, 0, (0, 1, 2, 3), "everything", 0.0)
    for state, left, made in (
        (State(), "2 requests to go", "0 requests, privacy ON for 0"),
        (State(pending=full), "1 request to go", "0 requests, privacy ON for 0"),
        (State(step=1, previous=0, unsettled=0), "1 request to go", "1 request, privacy ON for 1"),
    ):
        totals = Totals(state.step, state.step, 0, 0, 0.0, 0, {0: state.step})
        print_status(Status(account_of(state, totals), chain, chain))
        told = capsys.readouterr().out
        assert f"whatever is said: {left}\n" in told
        assert made in told


def test_status_of_a_journal_that_no_command_has_used(chain, tmp_path):
    Journal(tmp_path / "j", chain.fingerprint, "catalogue").close()
    done = onoff("status", "--journal", tmp_path / "j", check=False)
    assert done.returncode == 2
    assert "has noted its chain" in done.stderr
    chain.save(tmp_path / "chain.json")
    Chain.symmetric(4, 0.5, NAMES).save(tmp_path / "other.json")
    journal = ["--journal", tmp_path / "j", "--plans", tmp_path]
    assert "steps finished: 0" in onoff("status", *journal, "--chain", tmp_path / "chain.json").stdout
    refused = onoff("status", *journal, "--chain", tmp_path / "other.json", check=False)
    assert "is the journal of another chain" in refused.stderr


def test_a_slip_of_the_pen_leaves_no_journal(chain_file, server, tmp_path):
    common = ["--journal", tmp_path / "j", "--chain", chain_file, "--server", server.url]
    for words in (["newz"], ["news", "--next", "newz"]):
        assert "no source is called 'newz'" in onoff("get", *words, *common, check=False).stderr
    for more in ([], common[2:]):
        assert "there is no journal" in onoff("resume", *common[:2], *more, check=False).stderr
    assert not (tmp_path / "j").exists()
