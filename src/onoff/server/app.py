"""The application: what the server does for each request, and what is opened and closed with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from onoff.errors import StoreError
from onoff.server import metrics as exposition
from onoff.server.frames import Board, Snapshot
from onoff.server.limits import BODY_SECONDS, AnswerSender, Document, read_body
from onoff.server.metrics import Metrics
from onoff.server.parse import parse_publication, parse_query
from onoff.server.problems import Problem, ProblemResponses, unavailable
from onoff.server.store import open_store
from onoff.server.store.streams import Streams, open_streams
from onoff.server.tokens import matches
from onoff.server.transcript import Transcript
from onoff.wire import Catalogue, Query

QUERY = "/v1/query"

_STALE = (
    "This journal was restored or copied: another query was already made for this step of its stream, or a later step. "
    "Start a new journal."
)
_NO_STORE = {"Cache-Control": "no-store"}


@dataclass(frozen=True)
class Settings:
    """What an operator decides, in one value that can be handed to other processes.

    `publishers` and `readers` are hashes of tokens; no readers' token means that anyone may read.
    """

    store: str
    catalogue: Catalogue
    publishers: tuple[bytes, ...] = ()
    readers: tuple[bytes, ...] = ()
    transcript: Path | None = None
    body_seconds: float = BODY_SECONDS


class Application(Starlette):
    """Starlette, but for the query itself, which goes straight to its endpoint."""

    query: QueryEndpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == QUERY and scope["method"] == "POST":
            await self.query(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def create_app(settings: Settings) -> Application:
    """The server for these settings. It opens the store and the transcript, and closes them at its end."""
    names = settings.catalogue.names
    transcript = Transcript(settings.transcript, names) if settings.transcript is not None else None
    board, metrics = Board(open_store(settings.store, settings.catalogue)), Metrics()
    streams = open_streams(settings.store)
    problems, endpoints = ProblemResponses(metrics), Endpoints(settings, board, metrics)
    query = QueryEndpoint(settings, board, metrics, problems, transcript, streams)
    routes: list[BaseRoute] = [
        Route(QUERY, query, methods=["POST"]),  # for its other methods: 405
        Route("/v1/catalogue", endpoints.catalogue),
        Route("/v1/messages/{name:path}", endpoints.publish_message, methods=["PUT"]),
        Route("/v1/rounds", endpoints.publish_round, methods=["POST"]),
        Route("/health", endpoints.health),
        Route("/metrics", endpoints.metrics),
    ]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        board.close()
        streams.close()
        if transcript is not None:
            transcript.close()

    app = Application(routes=routes, exception_handlers=problems.handlers, lifespan=lifespan)
    app.query = query
    app.router.redirect_slashes = False  # a wrong path is an error, not another request
    return app


def authorize(headers: Headers, hashes: Iterable[bytes]) -> None:
    if not matches(headers.get("authorization"), hashes):
        detail = "A token is needed: Authorization: Bearer TOKEN."
        raise Problem(401, "wrong-token", detail, {"WWW-Authenticate": "Bearer"})


def require_json(headers: Headers) -> None:
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Problem(415, "wrong-media-type", "Send Content-Type: application/json.")


class QueryEndpoint:
    """Answers a set of sources with their frames, joined; short ones for what the reader holds already.

    A plain ASGI application that also answers its own errors: this is the path that carries the load, and Starlette's
    routing, middleware, request and response would cost more than all that is done here.
    """

    def __init__(
        self,
        settings: Settings,
        board: Board,
        metrics: Metrics,
        problems: ProblemResponses,
        transcript: Transcript | None,
        streams: Streams,
    ) -> None:
        self._board, self._metrics, self._problems, self._transcript = board, metrics, problems, transcript
        self._streams, self._sender = streams, AnswerSender()
        self._readers, self._catalogue = settings.readers, settings.catalogue
        self._limit, self._body_seconds = settings.catalogue.query_limit, settings.body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            snapshot, frames = await self._answer(scope, receive)
        except Exception as error:
            await self._problems.response(error)(scope, receive, send)
            return
        await self._sender.send(send, snapshot, frames)

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[Snapshot, list[bytes]]:
        """The snapshot, and those of its frames that are the answer."""
        headers = Headers(scope=scope)
        if self._readers:
            authorize(headers, self._readers)
        require_json(headers)
        body = await read_body(receive, self._limit, self._body_seconds)
        began = time.perf_counter()
        query = parse_query(body, self._catalogue)
        await self._admit(query, body)
        if self._transcript is not None:
            # Before the answer: an adversary has seen the query, whatever becomes of the answer.
            try:
                self._transcript.record(query, scope["client"][0] if scope.get("client") else None)
            except OSError as error:
                raise unavailable(error, "transcript-unavailable") from error
        snapshot = await self._board.current()
        frames = snapshot.answer(query.sources, query.held)
        self._metrics.frames.inc(len(query.sources))
        self._metrics.seconds.observe(time.perf_counter() - began)
        return snapshot, frames

    async def _admit(self, query: Query, body: bytes) -> None:
        """Refuse what only a copy of a journal can ask, before it is recorded or answered.

        This comes first. If the query cannot be recorded or answered after that, its retry is the same again, and is
        admitted; another query for the same step never is.
        """
        try:
            admitted = await self._streams.admit(query.stream, query.step, body)
        except StoreError as error:
            raise unavailable(error) from error
        if not admitted:
            raise Problem(409, "stale-step", _STALE)


class Endpoints:
    """All endpoints except the query."""

    def __init__(self, settings: Settings, board: Board, metrics: Metrics) -> None:
        self._settings, self._board, self._metrics = settings, board, metrics
        self._catalogue = Document(AnswerSender(), settings.catalogue.document)

    async def catalogue(self, request: Request) -> Response:
        if self._settings.readers:
            authorize(request.headers, self._settings.readers)
        return self._catalogue

    async def publish_message(self, request: Request) -> Response:
        """Publish one message: the body."""
        authorize(request.headers, self._settings.publishers)
        name, catalogue = request.path_params["name"], self._settings.catalogue
        if name not in catalogue.index:
            raise Problem(404, "unknown-source", f"There is no source {name[:200]!r}; see /v1/catalogue.")
        message = await read_body(request.receive, catalogue.length, self._settings.body_seconds)
        return await self._publish({catalogue.index[name]: message})

    async def publish_round(self, request: Request) -> Response:
        """Publish several messages that readers get together or not at all."""
        authorize(request.headers, self._settings.publishers)
        require_json(request.headers)
        limit = self._settings.catalogue.publication_limit
        body = await read_body(request.receive, limit, self._settings.body_seconds)
        # In a thread: readers do not wait for the messages of a large round to be read.
        return await self._publish(await asyncio.to_thread(parse_publication, body, self._settings.catalogue))

    async def _publish(self, messages: dict[int, bytes]) -> Response:
        number = await self._board.publish(messages)
        self._metrics.rounds.inc()
        self._metrics.messages.inc(len(messages))
        return JSONResponse({"round": number}, headers=_NO_STORE)

    async def health(self, _: Request) -> Response:
        """Whether a query would be answered now."""
        snapshot = await self._board.current()
        return JSONResponse({"status": "ok", "round": snapshot.round}, headers=_NO_STORE)

    async def metrics(self, _: Request) -> Response:
        self._metrics.round.set(self._board.round)
        return Response(self._metrics.text(), headers={**_NO_STORE, "Content-Type": exposition.CONTENT_TYPE})
