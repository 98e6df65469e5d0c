"""The sources of one set at two web servers that share all they saw, and of which one may hang, refuse or lie."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from itertools import pairwise

import pytest

from clientkit import BODIES, BODY_LIMIT, CHAIN, NAMES, OFF, Told, client_with, faulty
from onoff import HttpTransport
from onoff.client.transports import http as connection
from onoff.client.transports import origins
from onoff.client.transports.web import SILENT
from onoff.errors import OnoffError, SourceError
from ports import free_port
from recordingserver import Origin, RecordingServer, Reply, reply

LEFT, RIGHT = 0, 1
AT = {"news": LEFT, "sports": RIGHT, "science": LEFT, "weather": RIGHT, "culture": LEFT}
SET = (1, 2, 3, 4)  # right, left, right, left: both servers have two of them


class Servers:
    """Two recording servers, and clients of both."""

    def __init__(self, directory):
        self.directory, self.origin = directory, Origin(BODIES)
        self.both = RecordingServer(self.origin), RecordingServer(self.origin)
        self.dead = None  # a port where nobody listens, in place of the right one's

    def urls(self):
        places = [self.both[LEFT].url, self.both[RIGHT].url if self.dead is None else f"http://127.0.0.1:{self.dead}"]
        return {name: f"{places[AT[name]]}/{name}" for name in NAMES}

    def transport(self, **options):
        settings = {"timeout": 60, "body_limit": BODY_LIMIT, "attempts": 3, "backoff": 0.01, **options}
        return HttpTransport(self.urls(), **settings)

    def outcome(self, ask, journal, sets=(SET,), **options):
        """What a caller sees; nothing that tells what was wanted."""

        async def run():
            async with client_with(
                CHAIN, self.transport(**options), self.directory / journal, Told(CHAIN, sets),
                delay=0.001, first_ever=True,
            ) as client:  # fmt: skip
                try:
                    return ("message", (await ask(client)).body)
                except SourceError as error:
                    return SourceError, error.status, error.body
                except OnoffError as error:
                    return type(error), str(error)

        return asyncio.run(run())

    def settle(self):
        """Journals that have had their first request, ON, so that the next may be OFF."""
        for wanted in SET:
            assert self.outcome(lambda client: client.get("news"), f"j-{wanted}")[0] == "message"

    def watch(self, wanted=SET, ask=lambda client, name: client.get(name, "news", OFF), **options):
        """For every wanted source: what the caller saw, what each server saw, and in which order."""
        found = []
        for source in wanted:
            for server in self.both:
                server.reset()
            outcome = self.outcome(lambda client, name=NAMES[source]: ask(client, name), f"j-{source}", **options)
            found.append((outcome, [server.recording() for server in self.both], self.order()))
        return found

    def order(self):
        """The paths that both were asked for, one after the other: no request began before the last one had come."""
        requests = sorted((request for server in self.both for request in server.requests), key=lambda r: r.begun)
        for before, after in pairwise(requests):
            assert before.ended <= after.begun
        return [request.path[1:] for request in requests]


@pytest.fixture
def servers(tmp_path):
    found = Servers(tmp_path)
    with ExitStack() as stack:
        for server in found.both:
            stack.enter_context(server)
        yield found


def test_a_set_at_two_origins_is_asked_for_in_the_order_of_the_catalogue_over_one_connection_to_each(servers):
    servers.settle()
    found = servers.watch()
    assert [outcome for outcome, _, _ in found] == [("message", BODIES[NAMES[wanted]]) for wanted in SET]
    seen = found[0][1:]
    assert [each[1:] for each in found] == [seen] * len(SET)
    assert seen[1] == [NAMES[i] for i in SET]
    for place in (LEFT, RIGHT):
        [requests] = seen[0][place]  # one connection
        assert [raw.split(b" ")[1].decode()[1:] for raw in requests] == [NAMES[i] for i in SET if AT[NAMES[i]] == place]
        assert {b"Host: " + servers.both[place].url[7:].encode() in raw for raw in requests} == {True}


def test_an_origin_that_serves_nothing_of_a_set_is_not_connected_to(servers):
    assert servers.outcome(lambda client: client.get("news"), "j")[0] == "message"
    for server in servers.both:
        server.reset()
    outcome = servers.outcome(lambda client: client.get("science", "news", OFF), "j", sets=[(0, 2)])
    assert outcome == ("message", BODIES["science"])
    assert [len(server.recording()) for server in servers.both] == [1, 0]


def failed(found):
    """Which of the wanted sources got 504 in `watch`; all others must have got their message."""
    outcomes = {NAMES[source]: outcome for source, (outcome, _, _) in zip(SET, found, strict=False)}
    bad = {name for name, outcome in outcomes.items() if outcome[0] is SourceError}
    for name, outcome in outcomes.items():
        assert outcome[:2] == ((SourceError, SILENT) if name in bad else ("message", BODIES[name]))
    return bad


def test_an_origin_that_refuses_connections_fails_its_members_and_the_others_arrive(servers):
    servers.dead = free_port()
    found = servers.watch(ask=lambda client, name: client.get(name))
    assert failed(found) == {"sports", "weather"}
    assert [each[1:] for each in found] == [found[0][1:]] * len(SET)
    assert found[0][2] == ["news", "science", "culture"]
    said = next(outcome for outcome, _, _ in found if outcome[0] is SourceError)
    assert f"http://127.0.0.1:{servers.dead} did not answer".encode() in said[2]


def test_an_origin_that_hangs_is_left_out_of_the_round_and_the_others_arrive(servers):
    """It is asked again in the next round, as long as the deadline lets it be."""
    servers.settle()
    servers.both[RIGHT].respond = lambda _: Reply([60.0])
    found = servers.watch(deadline=0.6)
    assert failed(found) == {"sports", "weather"}
    assert [each[1:] for each in found] == [found[0][1:]] * len(SET)
    assert found[0][2] == ["sports", "science", "culture", "sports"]


def test_an_origin_that_was_silent_is_asked_once_for_a_number_of_steps_and_then_as_before(servers, monkeypatch, caplog):
    monkeypatch.setattr(origins, "SHORT", 0.1)
    monkeypatch.setattr(origins, "SHORT_STEPS", 2)
    servers.settle()
    servers.both[RIGHT].respond = lambda _: Reply([60.0])
    asked, took = [], []
    for _ in range(5):  # each in a process of its own: the journal knows
        servers.both[RIGHT].reset()
        began = time.monotonic()
        got = servers.outcome(lambda client: play_one(client, "science", "science"), "j-1", deadline=1.0)
        took.append(time.monotonic() - began)
        assert got == ("message", BODIES["science"])
        asked.append(len(servers.both[RIGHT].recording()))
    assert asked == [2, 1, 1, 2, 1]
    assert max(took[1], took[2], took[4]) < 0.9 < took[0]
    servers.both[RIGHT].respond = servers.origin
    servers.outcome(lambda client: play_one(client, "science", "science"), "j-1")
    servers.both[RIGHT].respond = lambda _: Reply([60.0])
    servers.both[RIGHT].reset()
    servers.outcome(lambda client: play_one(client, "science", "science"), "j-1", deadline=1.0)
    assert len(servers.both[RIGHT].recording()) == 2  # it had answered: forgotten
    said = [record.getMessage().partition(" ")[2] for record in caplog.records if record.name == "onoff.client"]
    assert said == ["does not answer: its sources fail", "answers again", "does not answer: its sources fail"]


async def play_one(client, source, next):
    """One OFF request that is made as a step whatever failed before."""
    return await client.ask(source, next, OFF, decided=True)


def test_a_server_that_ends_every_connection_gets_a_new_one_for_each_url_alike(servers):
    servers.settle()
    servers.both[LEFT].respond = faulty(
        servers.origin, lambda request, _: reply(BODIES[request.path[1:]], 200, ["Connection: close"])
    )
    found = servers.watch()
    assert [each[1:] for each in found] == [found[0][1:]] * len(SET)
    assert [len(connections) for connections in found[0][1]] == [2, 1]


def test_more_origins_than_connections_are_asked_alike_and_the_oldest_connection_makes_room(servers, monkeypatch):
    monkeypatch.setattr(connection, "CONNECTIONS", 1)
    servers.settle()
    found = servers.watch()
    assert [each[1:] for each in found] == [found[0][1:]] * len(SET)
    assert [len(connections) for connections in found[0][1]] == [2, 2]  # never two open at once: each URL has its own
