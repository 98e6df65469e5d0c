"""What a server sends is bounded in time and in bytes, whatever it sends, and alike for every query."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from clientkit import BODIES, NAMES, faulty, scene
from onoff import HttpTransport, OnoffTransport
from onoff.client.transports import http as connection
from onoff.client.transports import onoff
from onoff.client.transports.web import BROKEN, SILENT
from onoff.errors import (
    CatalogueError,
    RefusedByServer,
    StaleStep,
    Unavailable,
)
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


def answered_at(world, path, answer=SLOW["body"]):
    world.server.respond = faulty(world.origin, lambda request, _: answer() if request.path == path else None)


@pytest.mark.parametrize("path", ["/v1/catalogue", "/v1/query", f"/{NAMES[1]}"])
@pytest.mark.parametrize("kind", SLOW)
def test_an_answer_that_never_ends_ends_at_the_deadline(tmp_path, kind, path):
    """The second source of three is slow at a web server, the catalogue or the whole answer at ours."""
    with scene("own" if path.startswith("/v1") else "any", tmp_path) as world:
        answered_at(world, path, SLOW[kind])
        if world.kind == "own":
            with pytest.raises(Unavailable, match=r"not whole after 0\.2 seconds"):
                asyncio.run(fetched(transport_of(world, deadline=0.2)))
        else:
            began = time.monotonic()
            answer = asyncio.run(fetched(transport_of(world, deadline=0.2)))
            assert time.monotonic() - began < 2  # a person waits for the deadline, and a little for what comes late
            assert [content.status for content in answer.contents] == [200, SILENT, SILENT]


def test_after_the_deadline_the_next_attempt_is_a_new_one(world):
    async def twice():
        transport = transport_of(world, deadline=DEADLINE)
        await transport.connect()
        answered_at(world, slow_path(world))
        with contextlib.suppress(Unavailable):  # of our server; a web server's failure is an answer
            await transport.fetch(STREAM, 0, (0, 1, 2))
        world.server.respond = world.origin
        try:
            return await transport.fetch(STREAM, 0, (0, 1, 2))
        finally:
            await transport.close()

    answer = asyncio.run(twice())
    assert [content.body for content in answer.contents] == [BODIES[name] for name in NAMES[:3]]


def slow_path(world):
    return "/v1/query" if world.kind == "own" else f"/{NAMES[1]}"


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
    with scene("any", tmp_path, dict.fromkeys(NAMES, b"x" * 1000)) as world:
        answer = asyncio.run(fetched(transport_of(world, answer_limit=3000)))
        assert answer.size == 3000
        answer = asyncio.run(fetched(transport_of(world, answer_limit=2999)))
        assert [content.status for content in answer.contents] == [200, 200, BROKEN]
        assert b"longer than 999 bytes" in answer.contents[2].body


def test_a_catalogue_whose_full_set_is_beyond_the_limit_is_refused_before_any_query(own, monkeypatch):
    full = own.origin.catalogue.frame_length * len(NAMES)
    monkeypatch.setattr(onoff, "ANSWER_LIMIT", full)
    asyncio.run(fetched(transport_of(own)))
    own.server.reset()
    monkeypatch.setattr(onoff, "ANSWER_LIMIT", full - 1)
    with pytest.raises(RefusedByServer, match="serve fewer sources, or shorter messages"):
        asyncio.run(fetched(transport_of(own)))
    assert [request.path for request in own.server.requests] == ["/v1/catalogue"]


def test_a_long_catalogue_is_read():
    names = tuple(f'"näme", \\ [{i}' for i in range(10_000))
    catalogue = Catalogue(names, 16)
    assert len(catalogue.document) > 2**16
    assert Catalogue.parse(catalogue.document) == catalogue
    with pytest.raises(CatalogueError):
        Catalogue.parse(catalogue.document.replace(b",", b", ", 1))


def test_a_stale_step_says_that_the_journal_was_restored_alike_for_every_wanted_source(own):
    problem = b'{"type":"urn:onoff:problem:stale-step","title":"Conflict"}'
    answered_at(own, "/v1/query", lambda: reply(problem, 409))
    found = {own.outcome(lambda client, wanted=wanted: client.get(wanted), journal=wanted) for wanted in NAMES}
    [(kind, said)] = found
    assert kind is StaleStep
    assert "the journal was restored from a backup, or copied; move it away" in said
