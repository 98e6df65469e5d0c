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
from onoff.files import told
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
    log.warning("%s: %s", reason, told(error) if isinstance(error, OSError) else error)
    detail = "The messages cannot be reached or kept at the moment; try again in a while."
    return Problem(503, reason, detail, {"Retry-After": str(RETRY_SECONDS)})


class ProblemResponses:
    """Turns each exception into its problem document, and counts it."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def response(self, error: Exception) -> Response:
        problem = _problem(error)
        if problem.status == 500:
            log.error("a request was not answered", exc_info=error)
        self._metrics.problems.labels(problem.reason).inc()
        document = {
            "type": TYPE_PREFIX + problem.reason,
            "title": HTTPStatus(problem.status).phrase,
            "status": problem.status,
            "detail": problem.detail,
        }
        if isinstance(error, CatalogueMismatch):
            document["catalogue"] = error.expected
        # ASCII only: a detail may quote what the sender wrote, also half a surrogate pair.
        body = json.dumps(document).encode("ascii")
        headers = {"Cache-Control": "no-store", **problem.headers}
        return Response(body, problem.status, headers, media_type=MEDIA_TYPE)

    @property
    def handlers(self) -> dict[Any, Any]:
        """For Starlette: the same for every exception."""

        async def handle(_: Request, error: Exception) -> Response:
            return self.response(error)

        return dict.fromkeys((Problem, WireError, HTTPException, ClientDisconnect, Exception), handle)


def _problem(error: Exception) -> Problem:
    match error:
        case Problem():
            return error
        case WireError():
            return Problem(_STATUS.get(error.reason, 422), error.reason, str(error))
        case HTTPException(status_code=404):
            return Problem(404, "no-such-path", "There is nothing at this path.")
        case HTTPException(status_code=405):
            return Problem(405, "wrong-method", "This path does not take this method.", error.headers)
        case ClientDisconnect():
            return Problem(400, "sender-gone", "The body ended early.")  # counted; nobody reads it
        case _:
            return Problem(500, "internal-error", "The server made a mistake; its log has the details.")
