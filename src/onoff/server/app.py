"""The application: it answers each request, counts, and opens and closes the store."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from onoff.errors import StoreError, WireError
from onoff.server.frames import Board
from onoff.server.limits import Problem, problem_of, read_body, send_answer, unavailable
from onoff.server.store import open_store
from onoff.server.store.streams import open_streams
from onoff.server.tokens import matches
from onoff.server.transcript import Transcript
from onoff.wire import Catalogue, QueryMessage, parse_publication, parse_query

QUERY, CATALOGUE = "/v1/query", "/v1/catalogue"

_STALE = (
    "This journal was restored or copied: another query was already made for this step of its stream, or a later step. "
    "Start a new journal."
)
Answer = tuple[list[bytes], bytes, bytes]  # frames, their media type and their Cache-Control
_NO_STORE = {"Cache-Control": "no-store"}
# Set before the worker processes start: they add up their counts in files there.
SHARED_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


@dataclass(frozen=True)
class Settings:
    """An operator's decisions, in one value that can be handed to other processes.

    `publishers` and `readers` are hashes of tokens; no readers' token means that anyone may read. A message
    counts as the newest for `fresh` seconds.
    """

    store: str
    catalogue: Catalogue
    publishers: tuple[bytes, ...] = ()
    readers: tuple[bytes, ...] = ()
    transcript: Path | None = None
    fresh: float = 0.0


class Metrics:
    """Counters of one application, for Prometheus. Those of worker processes are added up; none counts by source."""

    def __init__(self) -> None:
        mine = self._registry = CollectorRegistry()
        self.frames = Counter("onoff_frames", "Frames sent in answers.", registry=mine)
        said = "Queries: from read to answered."
        self.seconds = Histogram("onoff_query_seconds", said, buckets=_BUCKETS, registry=mine)
        self.rounds = Counter("onoff_rounds", "Rounds published over HTTP.", registry=mine)
        self.problems = Counter("onoff_problems", "Requests refused, by type of problem.", ["type"], registry=mine)

    def text(self) -> bytes:
        if SHARED_DIRECTORY not in os.environ:
            return generate_latest(self._registry)
        everyone = CollectorRegistry()
        MultiProcessCollector(everyone)  # type: ignore[no-untyped-call]
        return generate_latest(everyone)

    def respond(self, error: Exception) -> Response:
        """Count a refusal; return its problem document."""
        problem = problem_of(error)
        self.problems.labels(problem.reason).inc()
        return problem.response()


class Application(Starlette):
    """The server for these settings. It opens the store, and closes it at its end.

    A query goes straight to `_answer`: this path carries the load, and Starlette's routing, middleware, request and
    response would cost more than all that is done here. So does the catalogue, which may be long.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings, self._catalogue = settings, settings.catalogue
        self._transcript = Transcript(settings.transcript, self._catalogue.names) if settings.transcript else None
        self._board = Board(open_store(settings.store, self._catalogue, create=False))
        self._streams = open_streams(settings.store)
        self._metrics = Metrics()
        # Alike in every answer to a query: it must not tell what was asked for, or when something was published.
        self._keep = b"private, max-age=%d" % settings.fresh if settings.fresh else b"no-store"
        self._direct = {("POST", QUERY): self._answer, ("GET", CATALOGUE): self._describe}
        routes: list[BaseRoute] = [
            Route(QUERY, self._health, methods=["POST"]),  # these two are for 405 to other methods alone
            Route(CATALOGUE, self._health),
            Route("/v1/messages/{name:path}", self._publish_message, methods=["PUT"]),
            Route("/v1/rounds", self._publish_round, methods=["POST"]),
            Route("/health", self._health),
            Route("/metrics", self._count),
        ]
        kinds: tuple[type[Exception], ...] = (Problem, WireError, HTTPException, ClientDisconnect, Exception)
        super().__init__(routes=routes, exception_handlers=dict.fromkeys(kinds, self._refuse), lifespan=self._lifespan)
        self.router.redirect_slashes = False  # a wrong path is an error, not another request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        find = self._direct.get((scope.get("method", ""), scope.get("path", "")))
        if find is None:
            await super().__call__(scope, receive, send)
            return
        try:
            answer = await find(Headers(scope=scope), scope, receive)
        except Exception as error:
            await self._metrics.respond(error)(scope, receive, send)
            return
        await send_answer(send, *answer)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        yield
        self._board.close()
        self._streams.close()

    async def _answer(self, headers: Headers, scope: Scope, receive: Receive) -> Answer:
        """Answer a set of sources with their frames, joined; short ones where the reader holds the latest round."""
        self._admit_reader(headers)
        require_json(headers)
        body = await read_body(receive, self._catalogue.query_limit)
        began = time.perf_counter()
        query = parse_query(body, self._catalogue)
        await self._admit(query, body)
        if self._transcript is not None:
            # Before the answer: an adversary has seen the query, whatever becomes of the answer.
            try:
                self._transcript.record(query, scope["client"][0] if scope.get("client") else None)
            except OSError as error:
                raise unavailable(error, "transcript-unavailable") from error
        snapshot = await self._board.current(max(query.held))
        frames = snapshot.answer(query.sources, query.held)
        self._metrics.frames.inc(len(query.sources))
        self._metrics.seconds.observe(time.perf_counter() - began)
        return frames, b"application/octet-stream", self._keep

    async def _admit(self, query: QueryMessage, body: bytes) -> None:
        """Refuse what only a copied journal can ask, before it is recorded or answered.

        This check comes first. If recording or answering fails after it, the retry is the same query again, and is
        admitted; another query for the same step never is.
        """
        try:
            admitted = await self._streams.admit(query.stream, query.step, body)
        except StoreError as error:
            raise unavailable(error) from error
        if not admitted:
            raise Problem(409, "stale-step", _STALE)

    def _admit_reader(self, headers: Headers) -> None:
        """Ask for a reader's token, if readers need one."""
        if self._settings.readers:
            authorize(headers, self._settings.readers)

    async def _describe(self, headers: Headers, _: Scope, __: Receive) -> Answer:
        self._admit_reader(headers)
        return [self._catalogue.document], b"application/json", b"no-store"

    async def _publish_message(self, request: Request) -> Response:
        """Publish one message: the body."""
        authorize(request.headers, self._settings.publishers)
        source = self._catalogue.index.get(request.path_params["name"])
        if source is None:
            raise Problem(404, "unknown-source", "There is no source of this name; see /v1/catalogue.")
        return await self._respond({source: await read_body(request.receive, self._catalogue.length)})

    async def _publish_round(self, request: Request) -> Response:
        """Publish several messages that readers get together or not at all."""
        authorize(request.headers, self._settings.publishers)
        require_json(request.headers)
        body = await read_body(request.receive, self._catalogue.publication_limit)
        # In a thread: readers do not wait for the messages of a large round to be read.
        return await self._respond(await asyncio.to_thread(parse_publication, body, self._catalogue))

    async def publish(self, messages: Mapping[int, bytes]) -> int:
        """Publish the messages of these sources as one round."""
        number = await self._board.publish(messages)
        self._metrics.rounds.inc()
        return number

    async def _respond(self, messages: Mapping[int, bytes]) -> Response:
        return JSONResponse({"round": await self.publish(messages)}, headers=_NO_STORE)

    async def _health(self, _: Request) -> Response:
        """Check that queries are answered now."""
        snapshot = await self._board.current()
        return JSONResponse({"status": "ok", "round": snapshot.point.round}, headers=_NO_STORE)

    async def _count(self, request: Request) -> Response:
        self._admit_reader(request.headers)
        return Response(self._metrics.text(), headers={**_NO_STORE, "Content-Type": CONTENT_TYPE_LATEST})

    async def _refuse(self, _: Request, error: Exception) -> Response:
        return self._metrics.respond(error)


def authorize(headers: Headers, hashes: Iterable[bytes]) -> None:
    if not matches(headers.get("authorization"), hashes):
        detail = "A token is needed: Authorization: Bearer TOKEN."
        raise Problem(401, "wrong-token", detail, {"WWW-Authenticate": "Bearer"})


def require_json(headers: Headers) -> None:
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Problem(415, "wrong-media-type", "Send Content-Type: application/json.")
