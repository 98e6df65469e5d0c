"""Careless HTTP: each answer ends as the message or the failure of its own source, and the stream goes on.

The second source of a set is answered carelessly. Every member of the set is wanted in turn, in a journal of its own.
The wire must be the same for all of them, and every other source must get its own body.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from clientkit import BODIES, CHAIN, NAMES, OFF, ON, Told, client_with
from onoff import HttpTransport
from onoff.client.transports import http
from onoff.client.transports.web import BROKEN
from onoff.errors import SourceError, Unavailable
from poison import CONTENTS, FRAMINGS, HEADERS, LIMIT, said
from recordingserver import Reply, reply

SET = (1, 2, 3, 4)
VICTIM = "science"
BODY = BODIES[VICTIM]
WHOLE = b"".join(reply(BODY).parts)
WAYS = {**FRAMINGS, **CONTENTS, **{name: said(*HEADERS[name]) for name in ("zipped, it says", "two codings")}}
FAILURES = {  # the other ways give the body itself
    "a short length", "a negative length", "a length of words", "a length beyond numbers", "two lengths",
    "a trailer of garbage", "a chunk of words", "no last chunk", "unknown coding", "HTTP/0.9", "HTTP/2", "no colon",
    "a space before the colon", "a NUL", "101", "103 without end", "h2c", "status 1000", "a long head", "status 0",
    "status 99", "no HTTP", "half a head", "above the limit", "zipped in part", "zipped, and more", "a bomb",
    "zipped, it says", "two codings",
}  # fmt: skip
OTHERS = {
    "204 with a body": (204, b""), "304 with a body": (304, b""), "304 to no question": (304, b""),
    "an answer before": b"stale", "empty": b"", "zeros": bytes(1000), "at the limit": b"x" * LIMIT,
}  # fmt: skip


def looks(web, wanted, way, query=SET):
    """What the caller gets in a step that is answered carelessly and in the next one, and what the server sees."""
    web.server.respond, honest = web.origin, web.origin

    def careless(request):
        return way(BODY) if request.path == f"/{VICTIM}" else honest(request)

    async def run():
        options = {"delay": 0.001, "attempts": 1, "first_ever": True}
        transport = HttpTransport(web.origin.urls(web.server), timeout=5, body_limit=LIMIT)
        journal = web.directory / f"{wanted}-{len(list(web.directory.iterdir()))}"
        got = []
        async with client_with(CHAIN, transport, journal, Told(CHAIN, [query, query]), **options) as client:
            await client.get("news", private=ON)
            web.server.reset()
            web.server.respond = careless
            for name, after in ((wanted, wanted), (wanted, "news")):
                try:
                    got.append((await client.get(name, after, OFF)).body)
                except SourceError as error:
                    got.append((error.status, error.body))
                web.server.respond = honest
                await asyncio.sleep(0.3 if query != SET else 0)
        return got

    return asyncio.run(run()), web.server.recording()


@pytest.mark.parametrize("name", sorted(WAYS.keys() - {"nothing"}))
def test_a_careless_answer_is_the_message_or_the_failure_of_its_own_source(web, name):
    recordings = []
    for source in SET:
        wanted = NAMES[source]
        (careless, after), recording = looks(web, wanted, WAYS[name])
        recordings.append(recording)
        assert after == BODIES[wanted]
        if wanted != VICTIM:
            assert careless == BODIES[wanted]
        elif name in FAILURES:
            assert careless[0] == BROKEN
        else:
            assert careless == OTHERS.get(name, BODY)
    assert recordings == [recordings[0]] * len(SET)


def test_a_second_answer_that_comes_when_a_set_is_over_is_nobodys_message(web):
    """The connection on which it waits is closed before the next request."""
    for wanted in ("sports", VICTIM):
        late = lambda body: Reply([*reply(body).parts, 0.15, *reply(b"other").parts])  # noqa: E731
        got, recording = looks(web, wanted, late, query=(1, 2))
        assert got == [BODIES[wanted]] * 2
        assert [len(connection) for connection in recording] == [1, 1]


def test_an_origin_that_mixed_answers_up_gets_a_connection_for_each_request(web):
    _, recording = looks(web, VICTIM, FRAMINGS["two answers"])
    assert [len(connection) for connection in recording][-len(SET) :] == [1] * len(SET)


def fetched(serve, steps):
    """The bodies of `NAMES` in each step, from a server of which `serve` is one connection."""

    async def run():
        server, ended = await started(serve)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        transport = HttpTransport({name: f"{url}/{name}" for name in NAMES}, timeout=5)
        everything = tuple(range(len(NAMES)))
        try:
            answers = [await transport.fetch("", step, everything) for step in range(steps)]
            return [[content.body for content in answer.contents] for answer in answers]
        finally:
            await transport.close()
            await ended()

    return asyncio.run(run())


async def started(serve, host="127.0.0.1"):
    """A server of which `serve` is one connection, and how to end it."""
    connections = []

    async def connected(reader, writer):
        connections.append((asyncio.current_task(), writer))
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(connected, host, 0)

    async def end():
        server.close()
        await asyncio.gather(*(task for task, _ in connections))
        for _, writer in connections:
            writer.transport.abort()
        await asyncio.sleep(0.01)

    return server, end


async def asked(reader):
    """The name that the next request asks for, and an answer to it."""
    name = (await reader.readuntil(b"\r\n\r\n")).split()[1][1:].decode()
    return name, b"".join(reply(BODIES[name]).parts)


@pytest.mark.parametrize("pause", [0, 0.0005, 0.005])
@pytest.mark.parametrize("end", ["close", "abort"])
def test_a_server_that_ends_connections_without_a_word_is_read_like_any_other(end, pause):
    async def serve(reader, writer):
        writer.write((await asked(reader))[1])
        await writer.drain()
        await asyncio.sleep(pause)
        getattr(writer if end == "close" else writer.transport, end)()

    assert fetched(serve, 3) == [list(BODIES.values())] * 3


@pytest.mark.parametrize("pause", [0.002, 0.01, 0.03])
def test_a_second_answer_on_a_long_line_is_nobodys_message(pause):
    """Answers need 40 ms. The first comes once more when the next request is on its way already."""

    async def serve(reader, writer):
        later = asyncio.get_running_loop().call_later
        while True:
            name, answer = await asked(reader)
            later(0.04, writer.write, answer)
            if name == NAMES[0]:
                later(0.04 + pause, writer.write, answer)

    assert fetched(serve, 2) == [list(BODIES.values())] * 2


def test_a_connection_that_speaks_first_is_not_used():
    """The bytes of a server that answers before it is asked are nobody's message."""

    async def serve(reader, writer):
        writer.write(WHOLE)
        writer.close()
        await reader.read(1000)

    async def run():
        server, ended = await started(serve)
        connections = http.Connections(1)
        with pytest.raises(Unavailable):
            await connections.read("GET", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/a", 1000)
        await connections.close()
        await ended()

    asyncio.run(run())
