"""A caller's result: the wanted message of a step, or its source's failure."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from onoff.client.cache import Member
from onoff.client.disk import Step
from onoff.client.transports import FAILURE_SECONDS, fails
from onoff.errors import SourceError

NOT_HELD = ", which says that it is unchanged, but of another message than is held"


@dataclass(frozen=True)
class Message:
    """The wanted message. `private` says whether the step was ON, `made_private` that it was asked OFF but made ON.

    `round` is the server's number for the publication; 0 means that nothing was published for the source yet. `status`
    and `content_type` are those of a web server. If it did not answer 200 for the source, `error` is set, and `body` is
    its answer. `unchanged`: the server said that the client holds this message, which comes from the disk. `age`: for
    how many seconds the client has held it. A fresh message may come without a step: then `query` is empty.
    """

    source: str
    body: bytes = field(repr=False)  # asyncio.run makes the repr of a result, and a long one takes time that shows
    step: int
    private: bool
    made_private: bool
    query: tuple[str, ...]
    round: int | None
    error: SourceError | None = None
    status: int = 200
    content_type: str | None = None
    unchanged: bool = False
    age: float = field(default=0.0, compare=False)  # of the same message, later

    @classmethod
    def of(cls, names: tuple[str, ...], step: Step, member: Member, body: bytes, age: float = 0.0) -> Message:
        """The wanted message of a finished step; a failure has its `error` set."""
        name, error = names[member.source], None
        if member.status != 200:
            made = "the request counts as made, with its query"
            error = _failure(name, step, member.status, made, body, member.content_type)
        about = member.round, error, member.status, member.content_type
        unchanged = member.step != step.step and member.source in step.query
        return cls(name, body, *_step_fields(names, step), *about, unchanged=unchanged, age=age)

    @classmethod
    def of_copy(cls, names: tuple[str, ...], step: int, member: Member, body: bytes, age: float) -> Message:
        """A held message, for a request that is no step; `step` is the newest one."""
        name, error = names[member.source], None
        if member.status != 200:
            words = f"the server answered {member.status} for {name!r}, and its answer is fresh: no step was made"
            error = SourceError(words, status=member.status, body=body, content_type=member.content_type, until=None)
        return cls(
            source=name,
            body=body,
            step=step,
            private=True,
            made_private=False,
            query=(),
            round=member.round,
            error=error,
            status=member.status,
            content_type=member.content_type,
            age=age,
        )

    @classmethod
    def of_failure(cls, names: tuple[str, ...], step: Step, status: int) -> Message:
        """The failure of an earlier step's wanted source, without a body."""
        assert step.request is not None, "a request that is late is not erased"
        name = names[step.request]
        error = _failure(name, step, status, f"that was in step {step.step}, and no other was made now")
        return cls(name, b"", *_step_fields(names, step), None, error, status)

    def unwrap(self) -> Message:
        """Return the message, or raise its error."""
        if self.error is not None:
            raise self.error
        return self


def failure_end(step: Step) -> float:
    """When the journal ceases to answer for a step's failure, in seconds since 1970."""
    return (step.ended or 0.0) + FAILURE_SECONDS


def newest_failure(steps: Iterable[Step]) -> Step | None:
    """The newest step with a failed member whose five minutes may not be over."""
    late = [step for step in steps if failure_end(step) > time.time() and step.failures]
    return max(late, key=lambda step: step.step, default=None)


def is_failing(newest: Step | None) -> bool:
    """True for five minutes after the newest step with a failed member, whichever was wanted."""
    left = 0.0 if newest is None else failure_end(newest) - time.time()
    return 0 < left < 2 * FAILURE_SECONDS  # more: the clock was set back


def _step_fields(names: tuple[str, ...], step: Step) -> tuple[int, bool, bool, tuple[str, ...]]:
    return step.step, step.private, step.made_private, tuple(names[i] for i in step.query)


def _failure(
    name: str, step: Step, status: int, made: str, body: bytes = b"", content_type: str | None = None
) -> SourceError:
    words = f"the server answered {status} for {name!r}" + (NOT_HELD if status == 304 else "")
    if status == 504:  # a server's own word, or the client's for one that is silent
        words = f"the server did not answer for {name!r} (504)"
    until = failure_end(step) if fails(status) else None
    return SourceError(f"{words}; {made}", status=status, body=body, content_type=content_type, until=until)
