"""What the server does for each request."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from onoff.errors import StoreError
from onoff.server import metrics as exposition
from onoff.server.answer import AnswerSender, Document
from onoff.server.board import Board, Snapshot
from onoff.server.body import BodyReader
from onoff.server.description import describe
from onoff.server.metrics import Metrics
from onoff.server.problems import Problem, ProblemResponses, log, unavailable
from onoff.server.received import parse_publication, parse_query
from onoff.server.settings import Settings
from onoff.server.store.streams import Streams
from onoff.server.tokens import matches
from onoff.server.transcript import Transcript
from onoff.wire import Query

_STALE = (
    "This journal was restored or copied: another query was already made for this step of its stream, or a later step. "
    "Start a new journal."
)
_NO_STORE = {"Cache-Control": "no-store"}


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
        self._limit, self._bodies = settings.catalogue.query_limit, BodyReader(settings.body_seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            snapshot, frames = await self._answer(scope, receive)
        except Exception as error:
            response = self._problems.response(error)
            if response.status_code == 500:
                log.exception("a query was not answered")
            await response(scope, receive, send)
            return
        await self._sender.send(send, snapshot, frames)

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[Snapshot, list[bytes]]:
        """The snapshot, and those of its frames that are the answer."""
        headers = Headers(scope=scope)
        if self._readers:
            authorize(headers, self._readers)
        require_json(headers)
        body = await self._bodies.read(receive, self._limit)
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
        self._bodies = BodyReader(settings.body_seconds)
        sender, description = AnswerSender(), describe(settings.catalogue, readers_need_token=bool(settings.readers))
        self._catalogue = Document(sender, settings.catalogue.document)
        self._description = Document(sender, json.dumps(description).encode())

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
        message = await self._bodies.read(request.receive, catalogue.length)
        return await self._publish({catalogue.index[name]: message})

    async def publish_round(self, request: Request) -> Response:
        """Publish several messages that readers get together or not at all."""
        authorize(request.headers, self._settings.publishers)
        require_json(request.headers)
        body = await self._bodies.read(request.receive, self._settings.catalogue.publication_limit)
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

    async def openapi(self, request: Request) -> Response:
        """The OpenAPI description. It contains the names of the sources."""
        if self._settings.readers:
            authorize(request.headers, self._settings.readers)
        return self._description
