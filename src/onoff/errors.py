"""The errors of onoff. Every message says what is wrong, where, and what to do.

    OnoffError
    ├── ChainError         a matrix, its names or its file is not a Markov chain
    │   └── NotUnique      the chain has no unique stationary distribution
    ├── ContextError       a context or request that the chain calls impossible
    └── PlanError          a plan cannot be made as asked, or fails its own checks

An error carries the offending data as attributes, so that a program need not read the message.
"""

from __future__ import annotations

from numbers import Integral
from typing import TypeGuard


def is_whole(value: object, least: int = 0) -> TypeGuard[int]:
    """Whether the value is a whole number of at least `least`, Python's or NumPy's; True and False are not numbers."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


class OnoffError(Exception):
    """Base of all errors raised on purpose by onoff."""


class ChainError(OnoffError, ValueError):
    """The input is not a Markov chain. `row` and `value` name the offender where there is one."""

    def __init__(self, message: str, *, row: int | None = None, value: object = None) -> None:
        super().__init__(message)
        self.row = row
        self.value = value


class NotUnique(ChainError):
    """The stationary distribution is not unique. `classes` holds one source of each closed class."""

    def __init__(self, message: str, *, classes: tuple[int, ...]) -> None:
        super().__init__(message)
        self.classes = classes


class ContextError(OnoffError, ValueError):
    """The context (last, next), or a request in it, has probability zero under the chain."""

    def __init__(self, message: str, *, last: int, next: int, request: int | None = None) -> None:
        super().__init__(message)
        self.last = last
        self.next = next
        self.request = request


class PlanError(OnoffError, ValueError):
    """A plan cannot be made as asked, does not fit, or its file fails its own checks."""


class SessionError(OnoffError):
    """The client was asked for something that its rules forbid."""


class PendingRequest(SessionError):
    """A request is pending, and another one was made (or none is, and one was to be finished)."""

    def __init__(self, message: str, *, step: int) -> None:
        super().__init__(message)
        self.step = step


class Announced(SessionError):
    """Another request than the announced one was made after a query that depends on the announcement."""

    def __init__(self, message: str, *, announced: int) -> None:
        super().__init__(message)
        self.announced = announced


class JournalError(OnoffError):
    """The journal is damaged, foreign, restored or cannot be written. Nothing was sent."""


class JournalLocked(JournalError):
    """Another process is using the journal."""


class TransportError(OnoffError):
    """The server could not be asked."""


class Unavailable(TransportError):
    """No whole answer arrived; the same query may be sent again."""


class RefusedByServer(TransportError):
    """The server refuses the request; sending it again would not help."""


class SourceError(OnoffError):
    """The server has no message for the wanted source; the step is finished. `status` and `body` are what it said."""

    def __init__(self, message: str, *, status: int, body: bytes) -> None:
        super().__init__(message)
        self.status = status
        self.body = body
