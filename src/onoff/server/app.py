"""The application: paths, what answers them, and what is opened and closed with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from onoff.server.board import Board
from onoff.server.endpoints import Endpoints, QueryEndpoint
from onoff.server.metrics import Metrics
from onoff.server.problems import ProblemResponses
from onoff.server.settings import Settings
from onoff.server.store import open_store
from onoff.server.store.streams import open_streams
from onoff.server.transcript import Transcript

QUERY = "/v1/query"


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
        Route("/openapi.json", endpoints.openapi),
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
