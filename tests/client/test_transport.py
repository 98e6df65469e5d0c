"""What a server sends is bounded in time and in bytes, whatever it sends, and alike for every query."""

from __future__ import annotations

import asyncio
import json
import time
import tracemalloc

import pytest

from clientkit import BODIES, CHAIN, NAMES, TRANSPORTS, World, faulty
from clikit import call
from onoff import HttpTransport, OnoffTransport, Settings
from onoff.client.transports import http as connection
from onoff.client.transports import onoff
from onoff.client.transports.web import BROKEN
from onoff.errors import UNREACHABLE, CatalogueError, RefusedByServer, StaleStep, Unavailable
from onoff.wire import Catalogue
from recordingserver import Reply, reply

STREAM = "0" * 32
DEADLINE = 0.4
ENDLESS = 120.0  # seconds for which a server goes on: far beyond the deadline, and the test ends it before


def trickle(data, pause=0.02):
    """Byte for byte, each long before any timeout of one read."""
    parts = []
    for i in range(len(data)):
        parts += [data[i : i + 1], pause]
    return parts


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
SLOW = {
    "body": lambda: Reply([HEAD, *trickle(b"x" * int(ENDLESS / 0.02))]),
    "header": lambda: Reply([b"HTTP/1.1 200 OK\r\nX-Slow: ", *trickle(b"x" * int(ENDLESS / 0.02))]),
    "100": lambda: Reply([b"HTTP/1.1 100 Continue\r\n\r\n", 0.01] * int(ENDLESS / 0.01)),
    "103": lambda: Reply([b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 0.01] * int(ENDLESS / 0.01)),
    "chunks": lambda: Reply([
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *[b"1\r\nx\r\n", 0.02] * int(ENDLESS / 0.02)
    ]),
}  # fmt: skip


@pytest.fixture(params=TRANSPORTS)
def world(request, tmp_path):
    found = World(request.param, tmp_path, BODIES)
    with found.server:
        yield found


def transport_of(world, **options):
    if world.kind == "own":
        return OnoffTransport(world.server.url, timeout=60, **options)
    return HttpTransport(world.origin.urls(world.server), timeout=60, **options)


async def fetched(transport, sources=(0, 1, 2)):
    try:
        await transport.connect()
        return await transport.fetch(STREAM, 0, sources)
    finally:
        await transport.close()


@pytest.mark.parametrize("kind", SLOW)
def test_an_answer_that_never_ends_ends_at_the_deadline(world, kind):
    """The second source of three is slow at a web server, the whole answer at ours."""

    def slow(request, answer):  # noqa: ARG001
        return SLOW[kind]() if request.path in ("/v1/query", f"/{NAMES[1]}") else None

    world.server.respond = faulty(world.origin, slow)
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"not whole after 0\.4 seconds"):
        asyncio.run(fetched(transport_of(world, deadline=DEADLINE)))
    assert time.monotonic() - began < ENDLESS / 2


@pytest.mark.parametrize("kind", SLOW)
def test_a_catalogue_that_never_ends_ends_at_the_deadline(tmp_path, kind):
    world = World("own", tmp_path, BODIES)
    with world.server:
        world.server.respond = lambda request: SLOW[kind]()
        with pytest.raises(Unavailable, match="not whole after"):
            asyncio.run(fetched(transport_of(world, deadline=DEADLINE)))


def test_after_the_deadline_the_next_attempt_is_a_new_one(world):
    late = []

    def slow_once(request, answer):  # noqa: ARG001
        if request.path in ("/v1/query", f"/{NAMES[1]}") and not late:
            late.append(request)
            return SLOW["body"]()
        return None

    world.server.respond = faulty(world.origin, slow_once)

    async def twice():
        transport = transport_of(world, deadline=DEADLINE)
        await transport.connect()
        with pytest.raises(Unavailable):
            await transport.fetch(STREAM, 0, (0, 1, 2))
        try:
            return await transport.fetch(STREAM, 0, (0, 1, 2))
        finally:
            await transport.close()

    answer = asyncio.run(twice())
    assert [content.body for content in answer.contents] == [BODIES[name] for name in NAMES[:3]]


def test_commands_take_the_deadline_of_both_transports(world, tmp_path, monkeypatch):
    """Also to finish what was left pending."""
    monkeypatch.setitem(Settings.__init__.__kwdefaults__, "attempts", 1)
    world.server.respond = faulty(
        world.origin, lambda request, _: SLOW["body"]() if request.path in ("/v1/query", f"/{NAMES[1]}") else None
    )
    CHAIN.save(tmp_path / "chain.json")
    (tmp_path / "requests").write_text(f"on {NAMES[0]}\n")
    (tmp_path / "urls.json").write_text(json.dumps(world.origin.urls(world.server) if world.kind == "any" else {}))
    place = ["--server", world.server.url] if world.kind == "own" else ["--urls", tmp_path / "urls.json"]
    place += ["--chain", tmp_path / "chain.json", "--plans", tmp_path / "plans"]
    commands = [
        ["get", NAMES[0], *place, "--journal", tmp_path / "one", "--no-background"],
        ["resume", *place, "--journal", tmp_path / "one"],
        ["play", tmp_path / "requests", *place, "--journal", tmp_path / "two", "--no-background"],
    ]
    for command in commands:
        done = call(*command, "--deadline", DEADLINE)
        assert done.returncode == UNREACHABLE
        assert "not whole after 0.4 seconds" in done.stderr
    for wrong in ("0", "-1", "nan", "inf"):
        assert "a deadline is a number of seconds above 0" in call(*commands[-1], "--deadline", wrong).stderr


def test_a_request_that_is_cancelled_at_any_moment_does_not_keep_the_next_one_waiting(world):
    """By a deadline or by the caller."""

    async def cancelled_and_asked_again():
        transport = transport_of(world)
        await transport.connect()
        for turns in range(40):
            asked = asyncio.create_task(transport.fetch(STREAM, 0, (0, 1, 2)))
            for _ in range(turns):
                await asyncio.sleep(0)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            async with asyncio.timeout(10):
                assert len((await transport.fetch(STREAM, 0, (0, 1, 2))).contents) == 3
        await transport.close()

    asyncio.run(cancelled_and_asked_again())


def test_the_deadline_is_the_same_for_every_set_and_grows_with_the_catalogue_only(world):
    """It is set when the catalogue is known, before anything was asked for."""

    async def known():
        transport = transport_of(world)
        await transport.connect()
        await transport.close()
        return transport._deadline

    everything = world.origin.catalogue.frame_length * len(NAMES) / 2**20 if world.kind == "own" else len(NAMES)
    assert asyncio.run(known()) == connection.DEADLINE + everything


def test_what_is_beyond_the_limit_of_all_bodies_is_the_failure_of_its_source(tmp_path):
    world = World("any", tmp_path, dict.fromkeys(NAMES, b"x" * 1000))
    with world.server:
        answer = asyncio.run(fetched(transport_of(world, answer_limit=3000)))
        assert answer.size == 3000
        answer = asyncio.run(fetched(transport_of(world, answer_limit=2999)))
        assert [content.status for content in answer.contents] == [200, 200, BROKEN]
        assert b"longer than 999 bytes" in answer.contents[2].body


def test_a_catalogue_whose_full_set_is_beyond_the_limit_is_refused_before_any_query(tmp_path, monkeypatch):
    world = World("own", tmp_path, BODIES)
    monkeypatch.setattr(onoff, "ANSWER_LIMIT", world.origin.catalogue.frame_length * len(NAMES))
    with world.server:
        asyncio.run(fetched(transport_of(world)))
        world.server.reset()
        monkeypatch.setattr(onoff, "ANSWER_LIMIT", world.origin.catalogue.frame_length * len(NAMES) - 1)
        with pytest.raises(RefusedByServer, match="serve fewer sources, or shorter messages"):
            asyncio.run(fetched(transport_of(world)))
        assert [request.path for request in world.server.requests] == ["/v1/catalogue"]


MANY = {
    "lists": lambda: b"[]," * (9 * 2**20) + b"[]",
    "objects": lambda: b"{}," * (9 * 2**20) + b"{}",
    "short names": lambda: b",".join(b'"%x"' % i for i in range(3 * 10**6)),
    "a list in the last place": lambda: b'"a",' * 90_000 + b"[" + b"[]," * (8 * 2**20) + b"1]",
}


@pytest.mark.parametrize("kind", MANY)
def test_a_long_document_that_is_no_catalogue_is_not_read_as_json(kind):
    document = b'{"format":"onoff-catalogue","length":64,"names":[' + MANY[kind]() + b'],"version":1}'
    tracemalloc.start()
    try:
        with pytest.raises(CatalogueError):
            Catalogue.parse(document)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20


def test_a_long_catalogue_is_read():
    names = tuple(f'"näme", \\ [{i}' for i in range(20_000))
    catalogue = Catalogue(names, 16)
    assert len(catalogue.document) > 2**16
    assert Catalogue.parse(catalogue.document) == catalogue
    with pytest.raises(CatalogueError):
        Catalogue.parse(catalogue.document.replace(b",", b", ", 1))


def test_a_stale_step_says_that_the_journal_was_restored(tmp_path):
    """Alike for every wanted source."""
    world = World("own", tmp_path, BODIES)
    problem = b'{"type":"urn:onoff:problem:stale-step","title":"Conflict"}'
    with world.server:
        for body, words in (
            (problem, "the journal was restored from a backup, or copied; move it away"),
            (b'{"type":"other","title":"No"}', "the server answered 409 to the query: No"),
        ):
            answer = reply(body, 409)
            world.server.respond = faulty(
                world.origin, lambda request, _, a=answer: a if request.method == "POST" else None
            )
            outcomes = {
                world.outcome(lambda client, wanted=wanted: client.get(wanted), journal=f"{len(body)}-{wanted}")
                for wanted in NAMES
            }
            [(kind, said)] = outcomes
            assert kind is (StaleStep if body == problem else RefusedByServer)
            assert words in said
