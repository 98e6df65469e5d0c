"""Clients for tests, against a server that keeps every byte: both transports, and plans that draw what they are told.

with scene("own", tmp_path) as world:                   # or "any"
    messages = world.play([("news", True), ...], sets=[(0, 2), ...])
    world.server.recording()
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from onoff import Chain
from onoff.client.client import Client
from onoff.client.connect import connect
from onoff.client.journal import Journal
from onoff.client.message import Message
from onoff.client.transports import Answer, Content
from onoff.client.transports.onoff import OnoffTransport
from onoff.client.transports.web import HttpTransport
from onoff.errors import OnoffError, SourceError
from recordingserver import OnoffOrigin, Origin, RecordingServer, Reply, Request
from waiting import until

NAMES = ("news", "sports", "science", "weather", "culture")
BODIES = {name: f"the latest about {name}".encode() for name in NAMES}
CHAIN = Chain([[0.2] * 5] * 5, NAMES)
ON, OFF = True, False
TRANSPORTS = ("own", "any")
# Two streams with the same statuses. Even the OFF requests differ, which is more than is promised: the sets are given.
STREAMS = [
    [("news", ON), ("weather", OFF), ("science", OFF), ("sports", ON), ("culture", OFF), ("news", ON)],
    [("culture", ON), ("news", OFF), ("culture", OFF), ("news", ON), ("sports", OFF), ("science", ON)],
]
SETS = [(0, 3), (2, 3, 4), (1, 4)]
FULL = tuple(range(len(NAMES)))
ASKED = [FULL, SETS[0], SETS[1], FULL, SETS[2], FULL]
BODY_LIMIT = 2**21


class Told:
    """A plan, and its own planner, that draws the sets it was told, in turn."""

    scheme, name, lag, cost, kind = "told", "told, lag 1", 1, 2.0, "race"

    def __init__(self, chain: Chain, sets: Sequence[tuple[int, ...]]) -> None:
        self.chain, self.sets, self.store = chain, iter(sets), SimpleNamespace(chain=chain)

    def best(self, lag: int) -> Told:  # noqa: ARG002
        return self

    def rounding_at(self, lag: int) -> float:  # noqa: ARG002
        return 0.0

    def draw(self, request, *_: object) -> tuple[int, ...]:
        query = next(self.sets)
        assert request in query
        return query


def client_with(chain, transport, journal, planner=None, **options) -> Client:
    """A client with a transport of the test's own. A new journal is for the promise "both" if there is a planner."""
    if planner is not None and not Path(journal).exists():
        options = {"promise": "both", **options}
    return connect(chain, transport=transport, journal=journal, plans=planner, **options)


def answer_of(bodies, size: int = 1, number: int = 7) -> Answer:
    """A whole answer with these bodies, each of round `number`."""
    return Answer(tuple(Content(200, body, number, size=len(body)) for body in bodies), size)


class World:
    """A recording server of one kind, and clients of it."""

    def __init__(self, kind: str, directory: Path, bodies: dict[str, bytes]) -> None:
        self.kind, self.directory = kind, directory
        self.origin = OnoffOrigin(bodies) if kind == "own" else Origin(bodies)
        self.server = RecordingServer(self.origin)

    def transport(self, **options: object) -> OnoffTransport | HttpTransport:
        """A new one. The options are for web servers."""
        if self.kind == "own":
            return OnoffTransport(self.server.url, timeout=60)
        settings = {"timeout": 60, "body_limit": BODY_LIMIT, "attempts": 3, "backoff": 0.01, **options}
        return HttpTransport(self.origin.urls(self.server), **settings)

    def address(self) -> dict[str, object]:
        """How `connect` is told of the server."""
        return {"server": self.server.url} if self.kind == "own" else {"urls": self.origin.urls(self.server)}

    def client(self, sets: Sequence[tuple[int, ...]] = (), journal: str = "journal", **options: object) -> Client:
        settings = {"delay": 0.001, "attempts": 3, "backoff": 0.01, "first_ever": True, **options}
        return client_with(CHAIN, self.transport(), self.directory / journal, Told(CHAIN, sets), **settings)

    def use(self, ask: Callable[[Client], object], sets: Sequence[tuple[int, ...]] = (), **options: object) -> object:
        """What a coroutine function makes of an open client."""

        async def run() -> object:
            async with self.client(sets, **options) as client:
                return await ask(client)

        return asyncio.run(run())

    def play(
        self, items: Sequence[tuple[str, bool]], sets: Sequence[tuple[int, ...]] = (), **options: object
    ) -> list[Message]:
        """A whole stream, with a client of its own."""

        async def play(client: Client) -> list[Message]:
            return [message async for message in client.play(items)]

        return self.use(play, sets, **options)

    def outcome(
        self, ask: Callable[[Client], object], sets: Sequence[tuple[int, ...]] = (), journal: str = "journal"
    ) -> tuple[object, ...]:
        """What a caller sees: a message's place and size, or the error; nothing that tells what was wanted."""

        async def look(client: Client) -> tuple[object, ...]:
            try:
                await ask(client)
            except SourceError as error:
                return SourceError, error.status, error.body
            except OnoffError as error:
                return type(error), str(error)
            return ("message",)

        return self.use(look, sets, journal=journal)

    def queries(self) -> list[list[bytes]]:
        """The requests that ask for messages, connection by connection."""
        found = [[raw for raw in requests if b"/v1/catalogue" not in raw] for requests in self.server.recording()]
        return [requests for requests in found if requests]


async def cut_off(world: World, client: Client, source: str) -> None:
    """Ask a server that says nothing, and give up when it has been asked: the request stays pending."""
    world.server.respond, before = lambda _: Reply([60.0]), len(world.server.requests)
    asking = asyncio.create_task(client.get(source))
    await until(lambda: len(world.server.requests) > before)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


@contextmanager
def scene(kind: str, directory: Path, bodies: dict[str, bytes] = BODIES) -> Iterator[World]:
    world = World(kind, directory, bodies)
    with world.server:
        yield world


def faulty(honest: Callable[[Request], Reply], fault: Callable[[Request, Reply], Reply | None]):
    """Honest answers, but for those that the fault replaces."""

    def respond(request: Request) -> Reply:
        answer = honest(request)
        return fault(request, answer) or answer

    return respond


@contextmanager
def planted(*mistakes: tuple[object, str, object]) -> Iterator[None]:
    """A client with mistakes in it: (class or module, name, what stands there instead)."""
    with pytest.MonkeyPatch.context() as patch:
        for place, name, mistake in mistakes:
            patch.setattr(place, name, mistake)
        yield


def public_rows(path: Path) -> list[list[tuple]]:
    """What a journal has written, without the request and the reader's state, of which only the length counts.

    Times are left out as well: how many digits they have is chance.
    """
    tables = [
        "SELECT * FROM members ORDER BY source",
        "SELECT step, private, lag, query, spared, bytes, attempts FROM steps ORDER BY step",
        "SELECT source, round(max(until - arrived, 0), 3) FROM copies ORDER BY source",
        "SELECT key, length(value) FROM meta WHERE key <> 'state' ORDER BY key",
        "SELECT length(replace(value, coalesce(value -> '$.pending.began', ''), '')) FROM meta WHERE key = 'state'",
    ]
    with closing(sqlite3.connect(path)) as database:
        return [database.execute(table).fetchall() for table in tables]


def sizes_on_disk(path: Path, journal: Journal) -> tuple[int, list[tuple]]:
    """Bytes of the log beside an open journal, and of content and pages of every table."""
    query = "SELECT name, SUM(payload), SUM(pgsize) FROM dbstat GROUP BY name ORDER BY name"
    return path.with_name(path.name + "-wal").stat().st_size, journal._database.execute(query).fetchall()
