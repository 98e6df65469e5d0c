"""Every refusal is a problem document (RFC 9457): a fixed type, a status, and a sentence that says what to do."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from onoff.errors import StoreError, WireError
from onoff.files import told

log = logging.getLogger("onoff.server")

# Bytes that cannot be read are 400, and values that cannot be meant 422. The catalogue is a conflict of two states.
_STATUS = {"broken-json": 400, "other-catalogue": 409, "message-too-long": 413}


class Problem(Exception):
    """A refusal on purpose. `reason` names its kind, in the document's type and in the metrics."""

    def __init__(self, status: int, reason: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.reason, self.detail, self.headers = status, reason, detail, dict(headers or {})

    def response(self) -> Response:
        """The problem document."""
        document = {
            "type": f"urn:onoff:problem:{self.reason}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        # ASCII only: a detail may quote what the sender wrote, also half a surrogate pair.
        body = json.dumps(document).encode("ascii")
        headers = {"Cache-Control": "no-store", **self.headers}
        return Response(body, self.status, headers, media_type="application/problem+json")


def unavailable(error: StoreError | OSError, reason: str = "store-unavailable") -> Problem:
    """503: the same request may succeed in a moment. The cause is for the operator's log, not for strangers."""
    log.warning("%s: %s", reason, told(error) if isinstance(error, OSError) else error)
    detail = "The messages cannot be reached or kept at the moment; try again in a while."
    return Problem(503, reason, detail, {"Retry-After": "1"})


def problem_of(error: Exception) -> Problem:
    """The problem that an exception is for the sender of the request. Mistakes of our own are logged."""
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
            log.error("a request was not answered", exc_info=error)
            return Problem(500, "internal-error", "The server made a mistake; its log has the details.")
