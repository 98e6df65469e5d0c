"""The errors of onoff. Every message says what is wrong, where, and what to do.

    OnoffError
    ├── ChainError         a matrix, its names or its file is not a Markov chain
    │   └── NotUnique      the chain has no unique stationary distribution
    ├── ContextError       a context or request that the chain calls impossible
    ├── PlanError          a plan cannot be made as asked, or fails its own checks
    ├── MissingExtra       a library is needed that an extra of the package brings; also an ImportError
    ├── ClusterError       the processes or the Dask cluster that should compute cannot be used, or are lost
    ├── SessionError       something that the rules of the client forbid
    │   ├── PendingRequest     another request while one is pending
    │   ├── NothingPending     a pending request was to be finished, and there is none
    │   ├── Announced          another request than the one that was announced
    │   └── NotOpen            a client was used before it was opened or after it was closed; also a RuntimeError
    ├── JournalError       the client's state is damaged, foreign, restored or cannot be written
    │   └── JournalLocked      another process is using it
    ├── TransportError     the server could not be asked
    │   ├── Unavailable        no whole answer arrived; the same query may be sent again
    │   └── RefusedByServer    sending it again would not help
    │       └── StaleStep          the stream has gone on without this journal, which was restored or copied
    ├── LogError           a log of requests cannot be read or says too little
    ├── SourceError        the server has no message for the wanted source
    ├── WireError          bytes between client and server that do not follow the format
    │   ├── CatalogueError     not a catalogue: its names, its message length or its document
    │   ├── CatalogueMismatch  a query or publication made for another catalogue
    │   ├── QueryError         not a query: empty, repeated, unsorted or unknown sources, or not canonical
    │   ├── PublicationError   not a publication: an unknown source, or a message that is too long
    │   └── AnswerError        an answer with a broken frame
    └── StoreError         a store of messages that cannot be used: it is damaged or holds another catalogue
        └── StoreUnavailable   it cannot be reached now; the same call may succeed later

An error carries the offending data as attributes, so that a program need not read the message. `facts` say what is
wrong, and `advice` what to do, where that depends on who reads it; `str` is both. The advice is for Python, unless a
command or a page puts its own in the place.
"""

from __future__ import annotations

from typing import ClassVar

# Exit codes of the command line, one for each thing that a script would do next.
FOUND = 1  # a check or an audit found that something is wrong
USAGE = 2  # the command, an option or a file must be mended
UNREACHABLE = 3  # try again later
REFUSED = 4  # the server must be asked why
NO_MESSAGE = 5  # the step is finished: ask for something else
JOURNAL = 6  # wait for the other process, or move the journal away
RULES = 7  # finish what is pending, or make the announced request
NOTHING_PENDING = 8  # ask for what is wanted, or take the last message again
STOPPED = 130  # by Ctrl-C

AFRESH = "move it away: a new journal starts with two full-set requests, which is always safe"


class OnoffError(Exception):
    """Base of all errors raised on purpose by onoff. `exit_code` is what a command ends with."""

    exit_code = USAGE
    _advice: str | None = None

    @property
    def facts(self) -> str:
        """What is wrong, without advice."""
        return super().__str__()

    @property
    def advice(self) -> str:
        """What to do about it; empty if the facts say it."""
        return self.python_advice() if self._advice is None else self._advice

    @advice.setter
    def advice(self, words: str) -> None:
        self._advice = words

    def python_advice(self) -> str:
        """What to do about it in Python."""
        return ""

    def __str__(self) -> str:
        if not self.advice:
            return self.facts
        return f"{self.facts}{'' if self.facts.endswith(('.', '?', '!')) else '.'} {self.advice}"


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
    """The context (last, next), or a request in it, has probability zero under the chain.

    All three are sources. The everyday promise knows no `last` and `next`: both are None.
    """

    def __init__(
        self, message: str, *, last: int | None = None, next: int | None = None, request: int | None = None
    ) -> None:
        super().__init__(message)
        self.last = last
        self.next = next
        self.request = request


class PlanError(OnoffError, ValueError):
    """A plan cannot be made as asked, does not fit, or its file fails its own checks."""


class MissingExtra(OnoffError, ImportError):
    """A library that the base leaves out is not installed: `extra` names the extra that brings it, `name` a module."""

    def __init__(self, message: str, *, extra: str, name: str) -> None:
        super().__init__(message, name=name)
        self.extra = extra


class ClusterError(OnoffError):
    """The processes or the cluster that should compute cannot be used, or are lost. What was finished is kept."""


class LogError(OnoffError, ValueError):
    """A log of requests cannot be read as asked, or says too little to fit a chain."""


class SessionError(OnoffError):
    """The client was asked for something that its rules forbid."""


class PendingRequest(SessionError):
    """A request for `source` is pending, and another one was made."""

    exit_code = RULES

    def __init__(self, message: str, *, step: int, source: str) -> None:
        super().__init__(message)
        self.step = step
        self.source = source

    def python_advice(self) -> str:
        return "Client.resume() finishes it."


class NothingPending(SessionError):
    """A pending request was to be finished, and none is: the last message may be the answer to another request.

    `step` is the number of steps that were finished, and `last` the source of the last message, if one has arrived.
    """

    exit_code = NOTHING_PENDING

    def __init__(self, message: str, *, step: int, last: str | None = None) -> None:
        super().__init__(message)
        self.step = step
        self.last = last

    def python_advice(self) -> str:
        if self.last is None:
            return ""
        return f"The last message, for {self.last!r} in step {self.step - 1}, comes again with resume(last=True)."


class NotOpen(SessionError, RuntimeError):
    """A client was used before it was opened, after it was closed, or in the wrong kind of `with`."""


class Announced(SessionError):
    """Another request than the announced one was made after a query that depends on the announcement.

    `source` is the name of the announced one.
    """

    exit_code = RULES

    def __init__(self, message: str, *, announced: int, source: str) -> None:
        super().__init__(message)
        self.announced = announced
        self.source = source

    def python_advice(self) -> str:
        return "Ask for it first."


class JournalError(OnoffError):
    """The journal is damaged, foreign, restored or cannot be written. No new query was sent."""

    exit_code = JOURNAL


class JournalLocked(JournalError):
    """Another process is using the journal."""


class TransportError(OnoffError):
    """The server could not be asked.

    `pending` says whether a request is kept for `Client.resume`. If it is False, nothing was asked. It is None if no
    client took part, or if the facts say what to do.
    """

    exit_code = UNREACHABLE
    pending: bool | None = None
    kept: ClassVar[str] = "The request stays pending: Client.resume() finishes it, with the same query."
    not_asked: ClassVar[str] = "Nothing was asked: ask again later."

    def python_advice(self) -> str:
        if self.pending is None:
            return ""
        return self.kept if self.pending else self.not_asked


class Unavailable(TransportError):
    """No whole answer arrived; the same query may be sent again."""


class RefusedByServer(TransportError):
    """The server refuses the request; sending it again would not help as long as that is so.

    A step that was refused stays pending: `Client.resume` sends the same query again.
    """

    exit_code = REFUSED
    kept = "The request stays pending: once the server takes it, Client.resume() finishes it, with the same query."
    not_asked = "Nothing was asked."


class StaleStep(RefusedByServer):
    """The server knows another query for this step: the journal was restored from a backup, or copied."""

    exit_code = JOURNAL


class SourceError(OnoffError):
    """The server has no message for the wanted source; the step is finished.

    `status`, `body` and `content_type` are what it said.
    """

    exit_code = NO_MESSAGE

    def __init__(self, message: str, *, status: int, body: bytes, content_type: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.content_type = content_type


class WireError(OnoffError, ValueError):
    """Bytes that do not follow the wire format. `reason` is a fixed word for each kind of fault."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class CatalogueError(WireError):
    """The names, the message length or the document are not a catalogue.

    `problems` has a line for each URL of a list that cannot be used.
    """

    def __init__(self, message: str, *, reason: str = "not-a-catalogue", problems: tuple[str, ...] = ()) -> None:
        super().__init__(message, reason=reason)
        self.problems = problems


class CatalogueMismatch(WireError):
    """Made for the catalogue with fingerprint `found`, where `expected` is the one in force."""

    def __init__(self, message: str, *, expected: str, found: str) -> None:
        super().__init__(message, reason="other-catalogue")
        self.expected = expected
        self.found = found


class QueryError(WireError):
    """The bytes are not a query."""


class PublicationError(WireError):
    """The bytes are not a publication."""


class AnswerError(WireError):
    """The answer is broken. `faults` has (position, what is wrong) for every broken frame, in order."""

    def __init__(self, message: str, *, reason: str, faults: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message, reason=reason)
        self.faults = faults


class StoreError(OnoffError):
    """The store of messages cannot be used."""


class StoreUnavailable(StoreError):
    """The store cannot be reached now; nothing was changed that was acknowledged. Try again later."""

    exit_code = UNREACHABLE
