"""Every refusal is a problem document (RFC 9457): a fixed type, a status, and a sentence that says what to do."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from onoff.errors import CatalogueMismatch, StoreError, WireError
from onoff.server.metrics import Metrics

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:onoff:problem:"
RETRY_SECONDS = 1

log = logging.getLogger("onoff.server")

# What is wrong with the bytes is 400, with what they mean 422; the catalogue is a conflict of two states.
_STATUS = {"broken-json": 400, "other-catalogue": 409, "message-too-long": 413}


class Problem(Exception):
    """A refusal on purpose. `reason` names its kind, in the document's type and in the metrics."""

    def __init__(self, status: int, reason: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.reason, self.detail, self.headers = status, reason, detail, dict(headers or {})


def unavailable(error: StoreError | OSError, reason: str = "store-unavailable") -> Problem:
    """503: the same request may succeed in a moment. The cause is for the operator's log, not for strangers."""
    log.warning("%s: %s", reason, error)
    detail = "The messages cannot be reached or kept at the moment; try again in a while."
    return Problem(503, reason, detail, {"Retry-After": str(RETRY_SECONDS)})


class ProblemResponses:
    """Turns each kind of exception into its problem document, and counts it."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.handlers: dict[Any, Any] = {
            Problem: self._problem,
            WireError: self._wire,
            HTTPException: self._http,
            ClientDisconnect: self._gone,
            Exception: self._unexpected,
        }

    def _respond(self, problem: Problem, **members: object) -> Response:
        self._metrics.problems.labels(problem.reason).inc()
        document = {
            "type": TYPE_PREFIX + problem.reason,
            "title": HTTPStatus(problem.status).phrase,
            "status": problem.status,
            "detail": problem.detail,
            **members,
        }
        # ASCII only: a detail may quote what the sender wrote, also half a surrogate pair.
        body = json.dumps(document).encode("ascii")
        headers = {"Cache-Control": "no-store", **problem.headers}
        return Response(body, problem.status, headers, media_type=MEDIA_TYPE)

    async def _problem(self, _: Request, error: Problem) -> Response:
        return self._respond(error)

    async def _wire(self, _: Request, error: WireError) -> Response:
        problem = Problem(_STATUS.get(error.reason, 422), error.reason, str(error))
        if isinstance(error, CatalogueMismatch):
            return self._respond(problem, catalogue=error.expected)
        return self._respond(problem)

    async def _http(self, _: Request, error: HTTPException) -> Response:
        """Starlette's own: no such path, or a method that the path does not have."""
        reasons = {404: "no-such-path", 405: "wrong-method"}
        details = {404: "There is nothing here; see /openapi.json.", 405: "This path does not take this method."}
        status = error.status_code
        reason, detail = reasons.get(status, "refused"), details.get(status, error.detail)
        return self._respond(Problem(status, reason, detail, error.headers))

    async def _gone(self, _: Request, __: ClientDisconnect) -> Response:
        return self._respond(Problem(400, "sender-gone", "The body ended early."))  # counted; nobody reads it

    async def _unexpected(self, _: Request, __: Exception) -> Response:
        return self._respond(Problem(500, "internal-error", "The server made a mistake; its log has the details."))
