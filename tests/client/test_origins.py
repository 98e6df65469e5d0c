"""The sources of one set at two web servers that share all they saw, and of which one may hang, refuse or lie."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from itertools import pairwise

import pytest

from clientkit import BODIES, BODY_LIMIT, CHAIN, NAMES, OFF, Told, client_with, faulty
from hostilekit import ANY_FAULTS
from onoff import HttpTransport
from onoff.client.transports import http as connection
from onoff.client.transports.web import BROKEN
from onoff.errors import OnoffError, SourceError, Unavailable
from ports import free_port
from recordingserver import Origin, RecordingServer, Reply, reply

LEFT, RIGHT = 0, 1
AT = {"news": LEFT, "sports": RIGHT, "science": LEFT, "weather": RIGHT, "culture": LEFT}
SET = (1, 2, 3, 4)  # right, left, right, left: both servers have two of them
VICTIM = "weather"  # the source for which its server misbehaves


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
        return HttpTransport(self.urls(), timeout=60, body_limit=BODY_LIMIT, **options)

    def outcome(self, ask, journal, sets=(SET,), attempts=3, **options):
        """What a caller sees; nothing that tells what was wanted."""

        async def run():
            async with client_with(
                CHAIN, self.transport(**options), self.directory / journal, Told(CHAIN, sets),
                delay=0.001, attempts=attempts, backoff=0.01, first_ever=True,
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

    def watch(self, wanted=SET, **options):
        """For every wanted source: what the caller saw, what each server saw, and in which order."""
        found = []
        for source in wanted:
            for server in self.both:
                server.reset()
            outcome = self.outcome(
                lambda client, name=NAMES[source]: client.get(name, "news", OFF), f"j-{source}", **options
            )
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


def test_an_origin_that_breaks_off_makes_the_whole_set_go_out_again_at_both(servers):
    """Every attempt asks for the same URLs with the same bytes, whichever source was wanted, up to the broken one."""
    servers.settle()
    servers.both[RIGHT].respond = faulty(
        servers.origin, lambda request, _: Reply([], close=True) if request.path == f"/{VICTIM}" else None
    )
    found = servers.watch()
    assert found == [found[0]] * len(SET)
    outcome, seen, order = found[0]
    assert outcome[0] is Unavailable
    attempt = ["sports", "science", "weather"]
    assert order == [*attempt, "weather", *attempt, *attempt]  # it might have ended the first connection before
    assert len({raw for connections in seen for connection in connections for raw in connection}) == len(attempt)
    servers.both[RIGHT].respond = servers.origin
    before = {raw for connections in seen for connection in connections for raw in connection}
    for wanted in SET:
        for server in servers.both:
            server.reset()
        assert servers.outcome(lambda client: client.resume(), f"j-{wanted}") == ("message", BODIES[NAMES[wanted]])
        assert servers.order() == [NAMES[i] for i in SET]
        after = {raw for server in servers.both for connection in server.recording() for raw in connection}
        assert after > before


@pytest.mark.parametrize(
    "fault", ["a short length", "above the limit", "no HTTP", "a chunk of words", "a negative length"]
)
def test_what_one_origin_breaks_is_the_failure_of_its_source_alike_at_both(servers, fault):
    """It is asked for twice, unless it is too long, whichever source was wanted."""
    servers.settle()
    servers.both[RIGHT].respond = faulty(
        servers.origin, lambda request, _: ANY_FAULTS[fault](BODIES[VICTIM]) if request.path == f"/{VICTIM}" else None
    )
    found = servers.watch()
    assert [each[1:] for each in found] == [found[0][1:]] * len(SET)
    assert found[0][2] == ["sports", "science", *["weather"] * (1 if fault == "above the limit" else 2), "culture"]
    for wanted, (outcome, _, _) in zip(SET, found, strict=True):
        assert outcome[:2] == ((SourceError, BROKEN) if NAMES[wanted] == VICTIM else ("message", BODIES[NAMES[wanted]]))


def test_an_origin_that_refuses_connections_stops_every_set_with_a_member_of_it_alike(servers):
    servers.dead = free_port()
    for wanted in SET:  # a journal that has begun: its first set, all sources, cannot be had either
        for server in servers.both:
            server.reset()
        outcome = servers.outcome(lambda client, name=NAMES[wanted]: client.get(name), f"j-{wanted}")
        assert outcome[0] is Unavailable
        assert f"http://127.0.0.1:{servers.dead} did not answer" in outcome[1]
        assert servers.order() == ["news"] * 3
        if wanted == SET[0]:
            first = outcome, servers.both[LEFT].recording()
        assert (outcome, servers.both[LEFT].recording()) == first


def test_an_origin_that_hangs_ends_the_step_of_all_by_the_one_deadline(servers):
    servers.settle()
    servers.both[RIGHT].respond = faulty(
        servers.origin, lambda request, answer: Reply([0.8]) if request.path == f"/{VICTIM}" else None
    )
    found = servers.watch(wanted=SET[:2], attempts=1, deadline=0.5)  # one at each origin
    assert found[0] == found[1]
    outcome, _, order = found[0]
    assert outcome[0] is Unavailable
    assert "not whole after 0.5 seconds" in outcome[1]
    assert order == ["sports", "science", "weather"]


def test_two_origins_that_are_each_in_time_but_together_are_not(servers):
    servers.settle()
    for server in servers.both:
        server.respond = faulty(servers.origin, lambda request, answer: Reply([0.15, *answer.parts]))
    found = servers.watch(wanted=SET[:2], attempts=1, deadline=0.5)
    assert [outcome[0] for outcome, _, _ in found] == [Unavailable] * 2


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
