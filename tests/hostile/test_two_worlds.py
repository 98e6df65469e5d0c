"""Two worlds: the same sets, other wanted sources, and a server that poisons the answers of one source, the victim.

In one world the victim is wanted where it is in the set, in the other it never is. Every byte on the wire, in its order
and on its connection, and all that the journal writes must be the same, but for the request itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from itertools import product

import pytest

from clientkit import BODIES, NAMES, OFF, ON, faulty, planted, public_rows
from hostilekit import keep_the_wanted_only
from onoff import HttpTransport, connect
from onoff.client.journal import Journal
from onoff.client.transports import origins
from onoff.errors import OnoffError, SourceError
from poison import OWN, WEB
from ports import free_port
from recordingserver import RecordingServer, Reply, VersionedOrigin, reply
from sampling import one_in

VICTIM = "science"
SETS = [(1, 2, 4), (2, 3)]
WORLDS = {  # the victim is wanted at steps 1, 2 and 3, and nowhere
    "wanted": [("news", ON), (VICTIM, OFF), (VICTIM, OFF), (VICTIM, ON), ("news", ON)],
    "not wanted": [("news", ON), ("culture", OFF), ("weather", OFF), ("sports", ON), ("news", ON)],
}


@pytest.fixture
def web(web):
    web.origin = VersionedOrigin(BODIES)
    return web


def seen(world, which, poisoned):
    """What a server sees of one world, and what the journal has written there. Steps that fail end the stream."""
    journal = f"{which}-{poisoned.__name__}"
    world.server.respond = faulty(world.origin, poisoned)
    world.server.reset()
    with contextlib.suppress(OnoffError):
        world.play(WORLDS[which], SETS, journal=journal, attempts=2)
    return world.server.recording(), public_rows(world.directory / journal)


def alike(world, poisoned):
    return seen(world, "wanted", poisoned) == seen(world, "not wanted", poisoned)


@pytest.mark.parametrize("poison", one_in(6, WEB))
def test_a_poisoned_web_answer_shows_nothing_of_what_was_wanted(web, poison):
    def poisoned(request, _):
        return WEB[poison](BODIES[VICTIM]) if request.path == f"/{VICTIM}" else None

    assert alike(web, poisoned)


@pytest.mark.parametrize("poison", one_in(4, OWN))
def test_a_poisoned_answer_of_our_server_shows_nothing_of_what_was_wanted(own, poison):
    def poisoned(request, _):
        if request.method != "POST":
            return None
        return OWN[poison](own.origin.frames(request), json.loads(request.body)["sources"].index(NAMES.index(VICTIM)))

    assert alike(own, poisoned)


def test_a_client_that_stores_the_wanted_answer_alone_is_seen(web):
    """Planted: the next query names other versions."""

    def not_poisoned(request, _):  # noqa: ARG001
        return None

    assert alike(web, not_poisoned)
    web.directory /= "mutant"
    web.directory.mkdir()
    with planted((Journal, "finish", keep_the_wanted_only)):
        assert not alike(web, not_poisoned)


# Programs that ask again, and two web servers that fail in every way.

LEFT = ("news", "science", "culture")  # the others are at the right server
ASKED = {"wanted": ("news", VICTIM, "weather", "news"), "not wanted": ("news", "culture", "sports", "news")}
SHARES = {"slow": [b"HTTP/1.1 200 OK\r\n", *[b"X-Slow: 1\r\n", 0.03] * 2000], "silent": [60.0]}
FAULTS = {
    "honest": None,
    "dead": None,
    "slow": lambda _: Reply(SHARES["slow"]),
    "silent": lambda _: Reply(SHARES["silent"]),
    "resetting": lambda _: Reply([], close=True),
    "lying": lambda request: reply(b"?", 500, ["Retry-After: 9"]) if request.path[1:] in (VICTIM, "weather") else None,
    "resting": lambda request: reply(b"", 503, ["Retry-After: 9"]) if request.path[1:] in (VICTIM, "weather") else None,
}


async def persist(client, names):
    """What a program does that asks again, up to twice, for what has failed."""
    for name in names:
        for _ in range(3):
            try:
                await client.get(name)
                break
            except SourceError:
                pass


class Mix:
    """Two servers that fail in some way, and what they see of a program."""

    def __init__(self, directory, ways):
        self.directory, self.ways, self.origin = directory, ways, VersionedOrigin(BODIES)
        self.servers = [RecordingServer(faulty(self.origin, self.fault(way))) for way in ways]
        self.deadline, self.short = (0.8, 0.1) if self.waits else (60.0, 10.0)

    @property
    def waits(self):
        """Whether times decide what servers see. On a busy machine they may decide otherwise in one of two worlds."""
        return bool({"slow", "silent"} & set(self.ways))

    @staticmethod
    def fault(way):
        return lambda request, _: FAULTS[way] and FAULTS[way](request)

    def __enter__(self):
        self.stack = contextlib.ExitStack()
        urls = [self.stack.enter_context(server).url for server in self.servers]
        dead = f"http://127.0.0.1:{free_port()}"
        places = [dead if way == "dead" else url for way, url in zip(self.ways, urls, strict=True)]
        self.urls = {name: f"{places[name not in LEFT]}/{name}" for name in NAMES}
        return self

    def __exit__(self, *_):
        self.stack.close()

    def seen(self, which, mutant=""):
        """What both servers see of one world, in which order, and what the journal has written there."""
        journal = self.directory / f"{which}{mutant}"
        for server in self.servers:
            server.reset()

        async def run():
            transport = HttpTransport(self.urls, deadline=self.deadline, attempts=2, backoff=0.01)
            async with connect(transport=transport, journal=journal, promise="all", delay=0.001) as client:
                await persist(client, ASKED[which])

        asyncio.run(run())
        recordings = [server.recording() for server in self.servers]
        asked = sorted((r.begun, r.raw) for server in self.servers for r in server.requests)
        return recordings, [raw for _, raw in asked], public_rows(journal)

    def alike(self, mutant=""):
        return self.seen("wanted", mutant) == self.seen("not wanted", mutant)


@pytest.mark.parametrize(("left", "right"), one_in(8, product(FAULTS, FAULTS)))
def test_servers_that_fail_see_the_same_of_a_program_that_asks_again(tmp_path, left, right, monkeypatch):
    """Whatever it wants. A difference that comes back three times is none of the machine's."""
    with Mix(tmp_path, (left, right)) as mix:
        monkeypatch.setattr(origins, "SHORT", mix.short)
        assert any(mix.alike(f"try {number}") for number in range(3 if mix.waits else 1))


def not_known(*_):
    """Planted: who asks again makes a step like any other."""


def of_any_member(self, source):
    """Planted: what failed beside another source is not asked for either."""
    step = self._failed
    return (step, step.failures[source]) if source in step.failures else None


@pytest.mark.parametrize("mistake", [not_known, of_any_member])
def test_a_repetition_that_is_a_step_and_a_first_request_that_is_none_are_seen(tmp_path, mistake):
    with Mix(tmp_path, ("lying", "honest")) as mix:
        assert mix.alike()
        with planted((Journal, "failure", mistake)):
            assert not mix.alike("mutant")
