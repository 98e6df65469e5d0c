"""The errors of onoff. Every message says what is wrong, where, and what to do.

    OnoffError
    ├── ChainError         a matrix, its names or its file is not a Markov chain
    │   └── NotUnique          the chain has no unique stationary distribution
    ├── ContextError       the chain gives a context, or a request in it, probability zero
    ├── PlanError          a plan cannot be made as asked, does not fit, or its file fails its own checks
    ├── LogError           a log of requests cannot be read as asked, or says too little to fit a chain
    ├── MissingExtra       a library is needed that an extra of the package brings; also an ImportError
    ├── ClusterError       the processes or the Dask cluster cannot be used, or are lost; what was finished is kept
    ├── SessionError       the rules of the client forbid the call, such as one on a client that is not open
    │   ├── PendingRequest     another request was made while one is pending
    │   ├── NothingPending     a pending request was to be finished, and there is none
    │   └── Announced          another request was made than the one that was announced
    ├── JournalError       the journal is damaged, foreign, restored or cannot be written
    │   └── JournalLocked      another client uses the journal
    ├── TransportError     the server could not be asked
    │   ├── Unavailable        no whole answer arrived; the same query may be sent again
    │   └── RefusedByServer    the server refuses the query; sending it again does not help as long as that is so
    │       └── StaleStep          the server knows another query for this step: the journal was restored or copied
    ├── SourceError        the server has no message for the wanted source; the step is finished
    ├── WireError          bytes between client and server do not follow the format
    │   ├── CatalogueError     the names, the message length or the document are not a catalogue
    │   ├── CatalogueMismatch  a query or publication was made for another catalogue
    │   └── AnswerError        an answer has another length, or a broken frame
    └── StoreError         the store of messages is damaged or holds another catalogue
        └── StoreUnavailable   the store cannot be reached now; what it acknowledged is kept

An error carries the offending data as attributes, so that a program need not read the message. `facts` say what is
wrong, and `advice` what to do, where that depends on the reader; `str` is both. The advice is for Python, unless a
command or a page sets its own.
"""

from __future__ import annotations

import time

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

AFRESH = "move it away: a new journal starts with full-set requests, which is always safe"


class OnoffError(Exception):
    """Base of all errors that onoff raises on purpose. `exit_code` is what a command ends with.

    `data` sets attributes that the class declares: the error survives pickling, on its way from another process.
    """

    exit_code = USAGE
    advice: str | None = None  # what to do about it; None: what `python_advice` says

    def __init__(self, message: str = "", **data: object) -> None:
        super().__init__(message)
        for name, value in data.items():
            getattr(type(self), name)  # AttributeError: the class declares no such data
            setattr(self, name, value)

    @property
    def facts(self) -> str:
        """What is wrong, without advice."""
        return super().__str__()

    def python_advice(self) -> str:
        """What to do about it in Python; empty if the facts say it."""
        return ""

    def __str__(self) -> str:
        advice = self.python_advice() if self.advice is None else self.advice
        stop = "." if advice and not self.facts.endswith((".", "?", "!")) else ""
        return f"{self.facts}{stop} {advice}".rstrip()


class ChainError(OnoffError, ValueError):
    """The input is not a Markov chain. `row` and `value` name the offender where there is one."""

    row: int | None = None
    value: object = None


class NotUnique(ChainError):
    """The stationary distribution is not unique. `classes` holds one source of each closed class."""

    classes: tuple[int, ...] = ()


class ContextError(OnoffError, ValueError):
    """The context (last, next), or a request in it, has probability zero under the chain.

    All three are sources. The promise `past` knows no `last` and `next`: both are None.
    """

    last: int | None = None
    next: int | None = None
    request: int | None = None


class PlanError(OnoffError, ValueError):
    """A plan cannot be made as asked, does not fit, or its file fails its own checks."""


class LogError(OnoffError, ValueError):
    """A log of requests cannot be read as asked, or says too little to fit a chain."""


class MissingExtra(OnoffError, ImportError):
    """A library that the base leaves out is not installed: `extra` names the extra that brings it, `name` a module."""

    extra: str = ""


class ClusterError(OnoffError):
    """The processes or the cluster that should compute cannot be used, or are lost. What was finished is kept."""


class SessionError(OnoffError):
    """The rules of the client forbid the call, such as one on a client that is not open."""


class PendingRequest(SessionError):
    """A request for `source` is pending in step `step`, and another one was made."""

    exit_code = RULES
    step: int = 0
    source: str = ""
    advice = "Client.resume() finishes it."


class NothingPending(SessionError):
    """A pending request was to be finished, and none is: the last message may be the answer to another request.

    `step` is the number of steps that were finished, and `last` the source of the last message, if one has arrived.
    """

    exit_code = NOTHING_PENDING
    step: int = 0
    last: str | None = None

    def python_advice(self) -> str:
        if self.last is None:
            return ""
        return f"The last message, for {self.last!r} in step {self.step - 1}, comes again with resume(last=True)."


class Announced(SessionError):
    """A query depends on the announcement of `source` (number `announced`), and another request was made."""

    exit_code = RULES
    announced: int = 0
    source: str = ""
    advice = "Ask for it first."


class JournalError(OnoffError):
    """The journal is damaged, foreign, restored or cannot be written."""

    exit_code = JOURNAL


class JournalLocked(JournalError):
    """Another process uses the journal."""


class TransportError(OnoffError):
    """The server could not be asked.

    `pending` is True if a request is kept for `Client.resume`, and False if nothing was asked. It is None if no client
    took part, or if the facts say what to do.
    """

    exit_code = UNREACHABLE
    pending: bool | None = None

    def python_advice(self) -> str:
        if self.pending is None:
            return ""
        kept = "The request stays pending: Client.resume() finishes it, with the same query."
        return kept if self.pending else "Nothing was asked."


class Unavailable(TransportError):
    """No whole answer arrived; the same query may be sent again."""


class RefusedByServer(TransportError):
    """The server refuses the query; sending it again does not help as long as that is so."""

    exit_code = REFUSED


class StaleStep(RefusedByServer):
    """The server knows another query for this step: the journal was restored from a backup, or copied."""

    exit_code = JOURNAL


class SourceError(OnoffError):
    """The server has no message for the wanted source; the step is finished.

    `status`, `body` and `content_type` are the server's answer. `until` (seconds since 1970) is set if people and
    programs ask again after such a failure: until then the next request, if for the same source, gets this
    error again, without a step.
    """

    exit_code = NO_MESSAGE
    status: int = 0
    body: bytes = b""
    content_type: str | None = None
    until: float | None = None

    def python_advice(self) -> str:
        if self.until is None:
            return ""
        return f"Until {time.strftime('%H:%M:%S', time.localtime(self.until))} who asks for it again gets this answer."


class WireError(OnoffError, ValueError):
    """Bytes that do not follow the wire format. `reason` is a fixed word for each kind of fault."""

    reason: str = "broken"


class CatalogueError(WireError):
    """The names, the message length or the document are not a catalogue."""

    reason = "not-a-catalogue"


class CatalogueMismatch(WireError):
    """Made for the catalogue with fingerprint `found`, where `expected` is the one in force."""

    reason = "other-catalogue"
    expected: str = ""
    found: str = ""


class AnswerError(WireError):
    """The answer is broken. `faults` has (position, what is wrong) for every broken frame, in order."""

    faults: tuple[tuple[int, str], ...] = ()


class StoreError(OnoffError):
    """The store of messages is damaged or holds another catalogue."""


class StoreUnavailable(StoreError):
    """The store cannot be reached now; nothing was changed that was acknowledged. Try again later."""

    exit_code = UNREACHABLE
