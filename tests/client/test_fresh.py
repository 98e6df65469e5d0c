"""Fresh copies: what queries leave out, when copies are delivered, and windows in which nobody sees a request.

A copy is fresh from when its step began for as long as its server says, and as the owner says at least. Here a clock
stands still unless a test moves it, and a reader for whom everything is asked for reads at both kinds of server.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from email.utils import formatdate

import pytest

from clientkit import BODIES, CHAIN, FULL, NAMES, ON, client_with, cut_off, planted, public_rows
from clikit import call
from onoff import connect
from onoff.client import status
from onoff.client.client import Client
from onoff.client.connect import Settings
from onoff.client.journal import Journal
from onoff.client.promises import Past
from onoff.client.protocol import Begun, Pending, finish
from onoff.client.transports import Answer, Content
from onoff.client.transports.http import Connections
from onoff.errors import JournalError, NothingPending, OnoffError, PendingRequest, SourceError, Unavailable
from onoff.wire import parse_query
from proxykit import proxied
from recordingserver import OnoffOrigin, RecordingServer, Reply, VersionedOrigin, reply
from sampling import in_turn

BEGIN = 1_800_000_000.0
MINUTE, HOUR = 60.0, 3600.0
MAX_AGE = "Cache-Control: max-age=60"
ROOM = 60  # bytes: for some of the members only


class Clock:
    """The clock on the wall."""

    def __init__(self):
        self.now = BEGIN

    def __call__(self):
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(time, "time", found)
    return found


def says(world, headers):
    """Have the server say this with every answer to a query: lines of headers, or a function of a source and a step."""
    tell = headers if callable(headers) else lambda *_: headers
    if world.kind == "own":
        origin = world.origin

        def respond(request):
            if request.method == "GET":
                return origin(request)
            query = parse_query(request.body, origin.catalogue)
            return reply(b"".join(origin.frames(request)), headers=tell(None, query.step))
    else:
        origin, counts = VersionedOrigin(BODIES), {}

        def respond(request):
            name = request.path[1:]
            counts[name] = counts.get(name, 0) + 1
            more = "\r\n".join([*tell(name, counts[name] - 1), ""])
            answer = origin(request)
            return Reply([answer.parts[0].replace(b"\r\n\r\n", f"\r\n{more}\r\n".encode()), *answer.parts[1:]])

    world.server.respond = respond
    return world


def reader(world, journal="journal", **options):
    """A client for which everything is asked for."""
    settings = {"promise": "all", "delay": 0.0, "attempts": 2, "backoff": 0.01, **options}
    return client_with(None, world.transport(), world.directory / journal, **settings)


def use(world, ask, journal="journal", **options):
    async def run():
        async with reader(world, journal, **options) as client:
            return await ask(client)

    return asyncio.run(run())


def asked(world, since=0):
    """The sources that the server was asked for since some request, in order of their numbers."""
    found = world.server.requests[since:]
    if world.kind == "own":
        return tuple(source for one in found if one.method == "POST" for source in json.loads(one.body)["sources"])
    return tuple(sorted(NAMES.index(one.path[1:]) for one in found))


# What is left out.

LIFETIMES = {"news": 0, "sports": 30, "science": 60, "weather": 200, "culture": 7200}
PACES = [0, 1, 5, 29, 30, 31, 60, 61, 200, 299, 300, 301, 3599, 3600, 3601, -1, -20, -400, -9000]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("owner", [None, "1m", 300])
def test_a_query_has_everything_but_what_is_fresh_whoever_is_wanted(world, clock, owner, seed):
    """The clock goes in all steps, also back. The wanted message is always the server's, with its age."""
    rng, least = random.Random(f"{owner} {seed}"), {None: 0, "1m": 60, 300: 300}[owner]
    says(world, lambda name, _: [f"Cache-Control: max-age={LIFETIMES[name or 'weather']}"])
    copies, sent, steps = {}, 0, 0

    async def run(client):
        nonlocal sent, steps
        for _ in range(40):
            clock.now += rng.choice(PACES)
            wanted = rng.choice(NAMES)
            fresh = {s for s, (begin, end) in copies.items() if begin <= clock.now < end}
            before = len(world.server.requests)
            message = await client.get(wanted, private=rng.random() < 0.5)
            expected = tuple(source for source in FULL if source not in fresh)
            assert asked(world, before) == expected
            sent, steps = sent + bool(expected), steps + bool(expected)
            for source in expected:
                lifetime = 200 if world.kind == "own" else LIFETIMES[NAMES[source]]
                copies[source] = clock.now, clock.now + max(least, min(lifetime, HOUR))
            place = NAMES.index(wanted)
            assert (message.body, message.age) == (BODIES[wanted], clock.now - copies[place][0])
            assert message.query == tuple(NAMES[source] for source in expected)
            open_window = all(begin <= clock.now < end for begin, end in copies.values())
            assert client.private_until == (min(end for _, end in copies.values()) if open_window else None)
            assert client.private_until == status.private_until(client.path, len(NAMES))
            assert (client.journal.state.step, client.journal.state.sent) == (steps, sent)

    use(world, run, fresh=owner)
    assert steps > 8
    assert (steps < 40) == (least > 0 or world.kind == "own")  # else one of them is never fresh


def test_where_queries_are_drawn_or_habits_learned_nothing_is_left_out(world):
    says(world, [MAX_AGE])

    async def run(client):
        return [await client.get(name, private=True) for name in ("news", "sports", "news")]

    for options in ({"promise": "past"}, {"promise": "both", "sets": []}):
        found = world.use(run, journal=options["promise"], fresh="5m", **options)
        assert [message.query for message in found] == [NAMES] * 3
        assert {message.age for message in found} == {0}

    async def learn(client):
        return [(await client.get(name)).query for name in ("news", "sports")]

    assert use(world, learn, "learning", promise="past", fresh="5m") == [NAMES] * 2


def test_habits_that_end_in_everything_leave_out_what_is_fresh_from_then_on(world):
    """A private request ends the learning. What that query brought counts."""

    async def run(client):
        return [(await client.get(name, private=private)).query for name, private in (("news", False), ("sports", ON))]

    assert use(world, run, promise="past", fresh="5m") == [NAMES] * 2
    assert use(world, run, promise="past", fresh="5m") == [()] * 2


@pytest.mark.parametrize(("status", "headers", "fresh"), [
    (200, [], 300), (404, [], 300), (410, [MAX_AGE], 300), (301, [], 300), (403, [], 300),
    (200, ["Cache-Control: no-cache"], 300), (200, ["Cache-Control: max-age=600"], 600),
    (200, ["Cache-Control: max-age=600", "Age: 200"], 400), (200, ["Cache-Control: max-age=9999999"], HOUR),
    (200, ["Cache-Control: max-age=-1"], 300), (200, ["Cache-Control: max-age=" + "9" * 300], 300),
    (200, [f"Date: {formatdate(0, usegmt=True)}", f"Expires: {formatdate(400, usegmt=True)}"], 400),
    (200, ["Cache-Control: no-store"], 0), (404, ["Cache-Control: no-store"], 0),
    (500, [MAX_AGE], 0), (503, [], 0), (429, [MAX_AGE], 0), (304, [MAX_AGE], 0), (401, [], 300),
])  # fmt: skip
def test_messages_are_fresh_and_what_must_not_be_stored_and_failures_never_are(web, clock, status, headers, fresh):
    web.server.respond = lambda request: (
        reply(b"x", status, headers)
        if request.path == "/news"
        else reply(b"y", headers=["Cache-Control: max-age=9999"])
    )

    async def run(client):
        await client.get("sports")
        for at in sorted({1.0, 299.0, 399.0, 599.0, max(0.0, fresh - 0.001), float(fresh)}):
            clock.now = BEGIN + at
            spared = 0 in client.journal.fresh(clock.now)
            assert spared == (at < fresh)

    use(web, run, fresh="5m")


def test_a_failing_source_is_asked_for_again_and_nothing_else_is(web, clock):
    """It brings no other source onto the wire, and is not held: what it was before is gone."""
    says(web, [MAX_AGE])
    honest, failing = web.server.respond, set()
    web.server.respond = lambda one: reply(b"no", 500, [MAX_AGE]) if one.path in failing else honest(one)

    async def run(client):
        await client.get("news")
        clock.now += 61
        failing.add("/science")
        found = []
        for name in ("news", "sports", "weather"):
            clock.now += 1
            found.append((await client.get(name)).query)
        with pytest.raises(SourceError, match="500"):
            await client.get("science")
        assert client.private_until is None
        failing.clear()
        clock.now += 1
        found.append((await client.get("news")).query)
        assert client.private_until is not None
        return found

    assert use(web, run) == [NAMES, ("science",), ("science",), ("science",)]


def test_a_source_that_was_not_changed_is_fresh_again(world, clock):
    """A 304, or a frame that says so, renews the copy by its own words."""
    says(world, lambda name, step: [f"Cache-Control: max-age={(60, 200)[min(step, 1)]}"])

    async def run(client):
        for _, until in ((0, 60), (0, 260)):
            message = await client.get("news")
            assert client.private_until == BEGIN + until
            clock.now = BEGIN + 60
        return message

    assert use(world, run).unchanged


@pytest.mark.parametrize("cache", [ROOM, 0])
def test_a_copy_that_does_not_fit_the_cache_is_not_fresh(world, cache):
    says(world, [MAX_AGE])

    async def run(client):
        first = await client.get("news")
        held = client.journal.fresh(BEGIN)
        then = await client.get("culture")
        return first.query, held, then.query, then.body

    first, held, then, body = use(world, run, cache=cache)
    assert first == NAMES
    assert (0 < len(held) < 5) if cache else not held
    assert then == tuple(name for source, name in enumerate(NAMES) if source not in held)
    assert body == BODIES["culture"]


def test_a_copy_that_is_put_out_in_mid_window_ends_the_window_and_is_delivered_if_it_was_wanted(web, clock):
    """An answer that grew takes the room of a larger one, which was left out of the query."""
    lengths = dict.fromkeys(NAMES, 20) | {"culture": 40}
    web.server.respond = lambda one: reply(
        b"x" * lengths[one.path[1:]], headers=["Cache-Control: max-age=" + ("10" if one.path == "/news" else "100")]
    )

    async def run(client):
        await client.get("news")
        assert client.private_until == BEGIN + 10
        clock.now, lengths["news"] = BEGIN + 10, 30
        message = await client.get("culture")
        assert client.private_until is None
        return message, client.journal.fresh(clock.now), await client.get("sports")

    message, held, then = use(web, run, cache=125)
    assert (message.query, message.body, message.age) == (("news",), b"x" * 40, 10)
    assert held == (0, 1, 2, 3)
    assert (then.query, then.age) == (("culture",), 10)


def test_a_fresh_message_without_a_version_stays_on_disk_until_it_is_stale_whatever_is_asked_for(tmp_path, clock):
    """Sets that are drawn leave nothing out. Should they end, what they brought is there."""
    journal = Journal(tmp_path / "journal", CHAIN.fingerprint, "catalogue", fresh=60)

    def step(query):
        pending = Pending(0, None, True, True, 0, query, "everything", 0.0)
        drawn = journal.name_versions(Begun(replace(journal.state, pending=pending), pending), clock.now)
        journal.begin(drawn, cost=5.0)
        contents = tuple(Content(200, b"%d" % source) for source in query)
        journal.finish(finish(journal.state), query, Answer(contents, 1))
        return [journal.read_body(source) for source in (1, 2)]

    assert step(FULL) == [b"1", b"2"]
    clock.now += 59
    assert step((0, 2)) == [b"1", b"2"]
    assert journal.read_copy(1)[1:] == (59, b"1")
    clock.now += 1
    assert step((0,)) == [None, b"2"]
    journal.close()


# When copies are delivered.


def lingering(world, seconds=0.3):
    """The last byte of what `world` answers comes late; the list of such answers."""
    honest, answers = world.server.respond, []

    def respond(request):
        answer = honest(request)
        if request.path == "/v1/catalogue":
            return answer
        *head, last = answer.parts
        answers.append(Reply([*head, last[:-1], seconds, last[-1:]]))
        return answers[-1]

    world.server.respond = respond
    return answers


def delivered_late(world, clock, journal):
    """For each wanted fresh copy whether it came after the last byte of another one."""
    found = []
    for wanted in ("sports", "culture"):
        clock.now = BEGIN
        says(world, [MAX_AGE])

        async def run(client, wanted=wanted):
            await client.get("news")
            client.journal._copies[0] = replace(client.journal._copies[0], until=BEGIN)
            answers = lingering(world)
            clock.now += 1
            message = await client.get(wanted)
            assert (message.body, message.age) == (BODIES[wanted], 1.0)
            return len(answers) == 1 and answers[0].complete

        found.append(use(world, run, f"{journal}-{wanted}"))
    return found


def test_a_wanted_fresh_copy_comes_after_the_last_byte_with_its_age(world, clock):
    left = []
    assert delivered_late(world, clock, "honest") == [True, True]

    async def at_once(self, pending, *rest, honest=Client._complete):
        """Planted: what is held is delivered while the query is on its way."""
        answered = asyncio.create_task(honest(self, pending, *rest))
        if pending.request not in pending.spared:
            return await answered
        left.append(answered)
        return self._read_copy(self.chain.names[pending.request])

    with planted((Client, "_complete", at_once)):
        assert delivered_late(world, clock, "mutant") == [False, False]


# Private windows.


def content(directory):
    """All files of a directory, with the moments at which they were changed."""
    return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in sorted(directory.iterdir())}


@pytest.fixture
def no_connection(monkeypatch):
    """Connections that a test did not expect."""

    def forbid():
        async def refuse(*_):
            raise AssertionError("a connection in a private window")

        monkeypatch.setattr(Connections, "_connect", refuse)

    return forbid


def test_in_a_private_window_nothing_is_sent_and_nothing_written(world, clock, no_connection):
    says(world, [MAX_AGE])

    async def run(client):
        await client.get("news")
        window, before = client.private_until, content(world.directory)
        requests, state = len(world.server.requests), client.journal.state
        no_connection()
        found = []
        for pause, name in enumerate((*NAMES, "news", "news")):
            clock.now += pause
            found.append(await client.get(name, private=bool(pause % 2)))
        assert content(world.directory) == before
        assert len(world.server.requests) == requests
        assert client.journal.state is state
        assert client.private_until == window == BEGIN + MINUTE
        return found

    found = use(world, run)
    assert [message.body for message in found] == [BODIES[name] for name in (*NAMES, "news", "news")]
    assert [message.age for message in found] == [0, 1, 3, 6, 10, 15, 21]
    assert {message.query for message in found} == {()}
    assert {message.step for message in found} == {0}


def test_a_client_that_is_opened_in_a_window_does_not_connect_and_the_server_may_be_dead(world, clock):
    says(world, ["Cache-Control: max-age=100"])
    path = world.directory / "journal"

    def settings():
        return {**world.address(), "journal": path, "promise": "all", "delay": 0.0, "attempts": 2, "backoff": 0.01}

    async def ask(name):
        async with connect(**settings()) as client:
            return await client.get(name), client.journal.state

    asyncio.run(ask("news"))
    world.server.wait_closed()
    requests = len(world.server.requests)
    clock.now += 40
    assert status.private_until(path, len(NAMES)) == BEGIN + 100
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connections, "_connect", lambda *_: 1 / 0)
        message, state = asyncio.run(ask("sports"))
    assert (message.body, message.age, message.query) == (BODIES["sports"], 40, ())
    assert (state.step, len(world.server.requests)) == (1, requests)
    clock.now += 60  # the end
    assert status.private_until(path, len(NAMES)) is None
    message, state = asyncio.run(ask("sports"))
    assert (message.query, message.age, state.step) == (NAMES, 0, 2)


def test_at_the_end_of_a_window_a_client_that_was_opened_in_it_connects(world, clock):
    says(world, [MAX_AGE])
    use(world, lambda client: client.get("news"))

    async def run(client):
        before = len(world.server.requests)
        inside = await client.get("sports")
        assert len(world.server.requests) == before
        clock.now += 60
        return inside, await client.get("sports"), await client.get("news")

    inside, outside, again = use(world, run)
    assert [message.query for message in (inside, outside, again)] == [(), NAMES, ()]
    assert outside.unchanged


def test_a_dead_server_is_met_at_the_end_of_the_window_and_asked_with_the_next_request(own, clock):
    says(own, [MAX_AGE])
    use(own, lambda client: client.get("news"))
    honest = own.server.respond

    async def run(client):
        clock.now += 60
        own.server.respond = lambda _: Reply([], close=True)
        for _ in range(2):
            with pytest.raises(Unavailable) as caught:
                await client.get("news")
            assert caught.value.pending is False
        own.server.respond = honest
        return await client.get("news")

    assert use(own, run).query == NAMES


def test_a_list_of_sources_that_has_changed_is_found_at_the_end_of_the_window(own, clock):
    says(own, [MAX_AGE])
    use(own, lambda client: client.get("news"))

    async def run(client):
        assert (await client.get("sports")).body == BODIES["sports"]
        clock.now += 60
        own.server.respond = OnoffOrigin({**BODIES, "more": b"x"})
        with pytest.raises(JournalError, match="another list of sources"):
            await client.get("sports")

    use(own, run)


def test_a_clock_that_was_set_back_ends_the_window_and_set_forth_again_goes_on_with_it(world, clock):
    says(world, [MAX_AGE])

    async def run(client):
        await client.get("news")
        clock.now = BEGIN - 1
        assert client.private_until is None
        clock.now = BEGIN + 59
        assert client.private_until == BEGIN + 60
        clock.now = BEGIN - 1
        found = (await client.get("news")).query, client.private_until
        clock.now = BEGIN - 2
        return *found, (await client.get("news")).query

    assert use(world, run) == (NAMES, BEGIN + 59, NAMES)


def test_while_a_query_is_not_answered_there_is_no_window_though_the_clock_was_set_back_into_one(world, clock):
    says(world, [MAX_AGE])

    async def run(client):
        await client.get("news")
        clock.now += 60
        honest = world.server.respond
        await cut_off(world, client, "sports")
        world.server.respond = honest
        clock.now -= 30
        assert client.journal.fresh(clock.now) == FULL
        assert client.private_until is None is status.private_until(client.path, len(NAMES))
        with pytest.raises(PendingRequest):
            await client.get("news")

    use(world, run, attempts=1)


# Requests that were decided on.


def test_decided_requests_in_a_window_are_silent_steps(world, clock, no_connection):
    says(world, [MAX_AGE])

    async def run(client):
        await client.get("news")
        no_connection()
        clock.now += 5
        found = [message async for message in client.play([("sports", ON), ("news", False), ("news", ON)])]
        clock.now += 1
        assert client.journal.ended == BEGIN
        return found, client.journal.state, client.last()

    found, state, (last, step) = use(world, run)
    assert [(message.body, message.age, message.step) for message in found] == [
        (BODIES["sports"], 5, 1), (BODIES["news"], 5, 2), (BODIES["news"], 5, 3),
    ]  # fmt: skip
    assert (state.step, state.sent) == (4, 1)
    assert status.last_end(world.directory / "journal") == BEGIN  # from there points of the clock are counted
    assert (last.body, last.age, step.query, step.spared) == (BODIES["news"], 6, (), FULL)


def test_steps_on_the_wire_have_numbers_without_a_gap(own, clock):
    says(own, [MAX_AGE])

    async def run(client):
        for _ in range(3):
            async for _ in client.play([("news", ON), ("sports", ON), ("news", ON)]):
                clock.now += 1
            clock.now += 60

    use(own, run)
    assert [json.loads(one.body)["step"] for one in own.server.requests if one.method == "POST"] == [0, 1, 2]


def test_play_in_a_window_writes_all_files_and_needs_no_server(tmp_path, monkeypatch):
    """Also in a process that was not connected before."""
    monkeypatch.undo()  # another process has the true clock
    (tmp_path / "requests").write_text("on news\noff sports\non news\n")
    origin = OnoffOrigin({name: BODIES[name] for name in NAMES})
    place = ["--journal", tmp_path / "j", "--promise", "all", "--delay", "0"]
    with RecordingServer(origin) as server:
        call("get", "news", "--server", server.url, "--fresh", "10m", *place, check=True)
        server.wait_closed()
    done = call("play", tmp_path / "requests", *place, "--out", tmp_path / "out", check=True)
    assert done.stderr.count("error") == 0
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == {
        f"{step:06d}": BODIES[name] for step, name in enumerate(("news", "sports", "news"), 1)
    }
    told = json.loads(call("status", "--journal", tmp_path / "j", "--json", check=True).stdout)
    assert told["steps"] == 4
    assert told["private_until"] > time.time()
    assert "is private and costs nothing" in call("status", "--journal", tmp_path / "j", check=True).stdout
    got = call("get", "sports", "--json", *place, check=True)
    data = json.loads(got.stdout)
    assert (data["body"], data["query"], data["bytes"], data["cost"]) == (BODIES["sports"].decode(), [], None, None)
    assert 0 < data["age"] < 600
    late = json.loads(call("resume", "--last", "--json", "--journal", tmp_path / "j", check=True).stdout)
    assert (late["step"], late["body"]) == (3, BODIES["news"].decode())


# Restarts and kills.


def test_a_pending_query_goes_out_as_it_was_drawn_though_other_copies_are_fresh_now(world, clock):
    says(world, lambda name, _: ["Cache-Control: max-age=" + ("10" if name in ("news", "sports") else "100")])

    async def broken_off(client):
        await client.get("news")
        clock.now += 10 if world.kind == "any" else 100
        honest = world.server.respond
        await cut_off(world, client, "culture")
        world.server.respond = honest
        return client.journal.state.pending

    pending = use(world, broken_off, attempts=1)
    assert pending.query == ((0, 1) if world.kind == "any" else FULL)
    for ask in (lambda client: client.resume(), lambda client: client.get("news")):
        clock.now += 3600  # nothing is fresh
        before = len(world.server.requests)

        async def run(client, ask=ask):
            assert client.journal.state.pending in (None, pending)
            return await ask(client), client.journal.fresh(clock.now)

        message, fresh = use(world, run)
        if message.source == "news":  # everything again
            assert asked(world, before) == FULL
        else:
            assert (asked(world, before), message.body) == (pending.query, BODIES["culture"])
            assert message.age == (0 if world.kind == "own" else 3610)
            assert fresh == ()  # it is counted from when the step began


KILL = """
import asyncio, os, signal, sys
from onoff import connect
from onoff.client.journal import Journal
from onoff.client.transports.onoff import OnoffTransport

def before(place, name):
    def kill(*_):
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(place, name, kill)

def after(place, name):
    honest = getattr(place, name)
    def kill(*arguments, **options):
        honest(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(place, name, kill)

async def main():
    async with connect(server=sys.argv[1], journal=sys.argv[2], promise="all", fresh="10m", delay=0.0) as client:
        await client.get("news")
        {where}
        async for _ in client.play([("sports", True), ("news", True)]):
            pass

asyncio.run(main())
"""
PLACES = ["after(Journal, 'begin')", "before(Journal, 'finish')", "after(Journal, 'finish')"]


@pytest.mark.parametrize("where", PLACES)
def test_kill_9_in_mid_window_leaves_the_window_and_a_silent_step_that_is_finished_without_a_server(
    tmp_path, monkeypatch, where
):
    monkeypatch.undo()
    with RecordingServer(OnoffOrigin(BODIES)) as server:
        script = KILL.replace("{where}", where)
        done = subprocess.run([sys.executable, "-c", script, server.url, tmp_path / "j"], check=False)
        assert done.returncode == -signal.SIGKILL
        url = server.url
    assert status.private_until(tmp_path / "j", len(NAMES)) is not None
    finished = where == PLACES[2]

    async def run():
        async with connect(server=url, journal=tmp_path / "j", delay=0.0, attempts=1) as client:
            pending = client.journal.state.pending
            assert (pending is None) == finished
            if not finished:
                assert (pending.query, pending.spared) == ((), FULL)
            inside = await client.get("weather")
            message = await client.resume(last=finished)
            with pytest.raises(NothingPending):
                await client.resume()
            return inside, message, client.journal.state

    inside, message, state = asyncio.run(run())
    assert inside.body == BODIES["weather"]
    assert (message.source, message.body, message.step, message.query) == ("sports", BODIES["sports"], 1, ())
    assert message.age > 0
    assert (state.step, state.sent) == (2, 1)


def test_kill_9_between_the_draw_and_the_answer_and_resume_sends_that_set(tmp_path, monkeypatch):
    monkeypatch.undo()
    with RecordingServer(VersionedOrigin(BODIES)) as server:
        server.respond = lambda one: reply(
            BODIES[one.path[1:]], headers=["Cache-Control: " + ("no-store" if one.path == "/news" else "max-age=3000")]
        )
        urls = tmp_path / "urls.json"
        urls.write_text(json.dumps({name: f"{server.url}/{name}" for name in NAMES}))
        script = KILL.replace("{where}", "before(Journal, 'finish')").replace("server=sys", "urls=sys")
        done = subprocess.run([sys.executable, "-c", script, urls, tmp_path / "j"], check=False)
        assert done.returncode == -signal.SIGKILL
        server.wait_closed()
        before = len(server.requests)
        assert server.requests[-1].path == "/news"  # the others were fresh

        async def run():
            async with connect(urls=urls, journal=tmp_path / "j", delay=0.0) as client:
                return await client.resume(), client.journal.state

        message, state = asyncio.run(run())
        assert [one.path for one in server.requests[before:]] == ["/news"]
    assert (message.source, message.body, message.query) == ("sports", BODIES["sports"], ("news",))
    assert message.age > 0
    assert (state.step, state.sent) == (2, 2)


def test_a_state_that_was_read_back_is_the_one_that_was_written(own, clock):
    says(own, [MAX_AGE])

    async def run(client):
        await client.get("news")
        clock.now += 60
        await cut_off(own, client, "sports")
        return client.journal.state

    state = use(own, run, attempts=1)
    assert state.pending.began == clock.now
    with_spared = replace(state, pending=replace(state.pending, spared=(1, 3)))
    assert type(state).from_dict(json.loads(json.dumps(with_spared.as_dict()))) == with_spared


# The owner's constant.


def test_by_default_copies_are_fresh_only_if_a_server_says_so(world):
    async def run(client):
        assert client.private_until is None
        return [(await client.get("news")).query for _ in range(3)]

    assert use(world, run) == [NAMES] * 3


def test_the_constant_of_a_journal_stays(world, clock):
    use(world, lambda client: client.get("news"), fresh="2m")
    for fresh in ("1m", 0, 121):
        with pytest.raises(JournalError, match="are fresh for 120 seconds in this journal, and that stays so"):
            use(world, lambda client: client.get("news"), fresh=fresh)
    clock.now += 119
    for fresh in (None, "2m", 120, "120s"):
        assert use(world, lambda client: client.get("news"), fresh=fresh).query == ()
    clock.now += 1
    assert use(world, lambda client: client.get("news")).query == NAMES


@pytest.mark.parametrize(
    "fresh", ["5 parsecs", "-5m", "-1", "", "m", "nan", "inf", "1e3", "2h", 3601, float("nan"), True]
)
def test_what_is_no_time_or_more_than_an_hour_is_refused_in_a_sentence_before_anything_is_made(tmp_path, fresh):
    with pytest.raises(OnoffError, match=r"is not a length of time: write|fresh for at most an hour") as caught:
        Settings(server="http://127.0.0.1:1", journal=tmp_path / "j", fresh=fresh)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_command_refuses_a_bad_time_in_a_sentence(tmp_path):
    for fresh in ("5 parsecs", "2h"):
        done = call("get", "news", "--server", "http://127.0.0.1:1", "--journal", tmp_path / "j", "--fresh", fresh)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert fresh in done.stderr


# Programs.


def test_a_proxy_says_how_old_a_message_is_and_until_when_reading_is_private(world, clock):
    says(world, [MAX_AGE])

    async def run():
        async with proxied(reader(world)) as (http, queue):
            first = await http.get("/news")
            clock.now += 12.7
            again = await http.get("/sports")
            page = await http.get("/")
            clock.now += 50
            assert queue.client.private_until is None
            return first, again, page, (await http.get("/")).text

    first, again, page, later = asyncio.run(run())
    until = time.strftime("%H:%M:%S", time.localtime(BEGIN + 60))
    assert [(one.status_code, one.headers["age"]) for one in (first, again)] == [(200, "0"), (200, "12")]
    for one in (first, again):
        assert f"; private until {until}; see /" in one.headers["onoff-privacy"]
        assert one.headers["cache-control"] == "no-cache" or "no-cache" in one.headers["cache-control"]
    assert (again.content, again.headers["onoff-step"]) == (BODIES["sports"], first.headers["onoff-step"])
    assert f"everything that you read until {until} is private and costs nothing" in page.text
    assert "is private and costs nothing" not in later


# Two worlds: other sources are wanted, and wire and disk are alike.

PATHS = [
    ["news", "weather", "science", "sports", "culture", "news", "science", "news", "culture", "weather", "news"],
    ["culture", "news", "culture", "news", "sports", "science", "sports", "weather", "science", "news", "culture"],
]
PAUSES = [0, 7, 13, 41, 60, 1, -30, 90, 100, -4000, 3999]


def by_name(*lifetimes):
    ages = dict(zip(NAMES, lifetimes, strict=True))
    return lambda name, step: [f"Cache-Control: max-age={ages.get(name, 10 * step)}"]


def dated(expires, date=0.0):
    return lambda *_: [f"Date: {formatdate(BEGIN + date, usegmt=True)}",
                       f"Expires: {formatdate(BEGIN + expires, usegmt=True)}"]  # fmt: skip


SAID = {
    "a minute": [MAX_AGE],
    "nothing": [],
    "other lifetimes": by_name(0, 10, 40, 60, 200),
    "one without": by_name(0, 100, 100, 100, 100),
    "every time another": lambda name, step: [f"Cache-Control: max-age={(step * 37 + len(name or '') * 11) % 120}"],
    "old": ["Cache-Control: max-age=100", "Age: 50"],
    "very old": ["Cache-Control: max-age=100", "Age: 5000"],
    "a negative age": ["Cache-Control: max-age=100", "Age: -50"],
    "expires": dated(90),
    "expired": dated(-90),
    "a date to come": dated(10**9, 10**9 - 50),
    "a date long gone": dated(-(10**9), -(10**9) - 50),
    "for ever": ["Cache-Control: max-age=" + "9" * 10],
    "more digits than any sense": ["Cache-Control: max-age=1" + "0" * 300],
    "two of them": ["Cache-Control: max-age=10", "Cache-Control: max-age=90"],
    "not to be stored": lambda name, step: ["Cache-Control: no-store"] if name == "science" or step % 2 else [MAX_AGE],
    "no cache": ["Cache-Control: no-cache, max-age=60"],
}  # fmt: skip
FAULTS = {
    "honest": None,
    "missing": lambda name, _: reply(b"gone", 404, [MAX_AGE]) if name == "science" else None,
    "comes and goes": lambda name, count: reply(b"gone", 410, [MAX_AGE]) if name == "science" and count % 2 else None,
    "fails": lambda name, _: reply(b"no", 500, [MAX_AGE]) if name == "science" else None,
    "fails at times": lambda name, count: reply(b"no", 503, [MAX_AGE]) if name == "science" and count % 3 else None,
    "unchanged, always": lambda name, _: Reply([f"HTTP/1.1 304 So\r\n{MAX_AGE}\r\n\r\n".encode()])
    if name == "science" else None,
    "grows": lambda name, count: reply(b"x" * 20 * count, headers=[MAX_AGE]) if name == "science" else None,
}  # fmt: skip


def look(world, clock, which, name, fault=None, fresh=None, cache=2**20, headers=()):
    """What a server sees of a world, and what is on disk: with restarts in between."""
    world.server.reset()
    clock.now, counts = BEGIN, {}
    says(world, headers)
    if fault is not None:
        honest = world.server.respond

        def respond(request):
            source = request.path[1:]
            counts[source] = counts.get(source, 0) + 1
            return fault(source, counts[source]) or honest(request)

        world.server.respond = respond
    journal, pauses = f"{name}-{which}", iter(PAUSES)
    disk = []
    for part in (PATHS[which][:4], PATHS[which][4:]):

        async def run(client, part=part):
            for wanted in part:
                clock.now += next(pauses)
                await client.ask(wanted)

        use(world, run, journal, fresh=fresh, cache=cache)
        disk.append(public_rows(world.directory / journal))
    return world.server.recording(), disk


def alike(world, clock, name="j", **more):
    return look(world, clock, 0, name, **more) == look(world, clock, 1, name, **more)


OPTIONS = [{}, {"fresh": "5m", "cache": ROOM}, {"fresh": "1m"}, {"cache": ROOM}]


@pytest.mark.parametrize(("headers", "options"), in_turn(SAID, OPTIONS))
def test_wire_and_disk_do_not_depend_on_what_was_wanted(world, clock, headers, options):
    assert alike(world, clock, headers=SAID[headers], **options)


@pytest.mark.parametrize(("fault", "options"), in_turn(FAULTS, OPTIONS))
def test_a_web_server_that_fails_or_has_nothing_learns_nothing(web, clock, fault, options):
    assert alike(web, clock, headers=[MAX_AGE], fault=FAULTS[fault], **options)


# Planted mistakes.


def wanted_alone(self, now, source, *rest, honest=Past.begin, **options):
    """Planted: of what is fresh only the wanted one is left out."""
    place = self._chain.index(source)
    return honest(self, now._replace(spared=tuple(x for x in now.spared if x == place)), source, *rest, **options)


def wanted_anyway(self, now, source, *rest, honest=Past.begin, **options):
    """Planted: what is wanted is asked for, fresh or not."""
    place = self._chain.index(source)
    return honest(self, now._replace(spared=tuple(x for x in now.spared if x != place)), source, *rest, **options)


async def skipped_if_fresh(self, source, *rest, honest=Client.ask, **options):
    """Planted: no step if the wanted one is fresh."""
    if self.chain.index(source) in self.journal.fresh(time.time()):
        return self._read_copy(source)
    return await honest(self, source, *rest, **options)


def window_of_the_wanted(self, moment, honest=Journal.fresh):
    """Planted: what was wanted last stays fresh for longer."""
    last = next(self.steps(self.state.step - 1), None)
    return tuple(sorted({*honest(self, moment), *({last.request} if last is not None and last.bytes else ())}))


MISTAKES = [(Past, "begin", wanted_alone), (Past, "begin", wanted_anyway), (Client, "ask", skipped_if_fresh),
            (Journal, "fresh", window_of_the_wanted)]  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: one[2].__name__)
def test_a_client_that_looks_at_the_wanted_one_is_seen(web, clock, mistake):
    headers = SAID["other lifetimes"]
    assert alike(web, clock, "honest", headers=headers)
    with planted(mistake):
        assert not alike(web, clock, "mutant", headers=headers)
