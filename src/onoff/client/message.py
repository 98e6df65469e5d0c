"""What a caller gets: the wanted message of a step, or the failure of its source."""

from __future__ import annotations

from dataclasses import dataclass

from onoff.client.cache import Member
from onoff.client.disk import Step
from onoff.client.transports import FAILURE_SECONDS, fails
from onoff.errors import SourceError

NOT_HELD = ", which says that it is unchanged, but of another message than is held"


@dataclass(frozen=True)
class Message:
    """The wanted message. `private` says whether the step was ON, `made_private` that it was asked OFF but made ON.

    `round` is the server's number for the publication; 0 means that nothing was published for the source yet. `status`
    and `content_type` are those of a web server. `error` is set if it answered something else than 200 for the source;
    `body` is then what it said. `unchanged`: the server said that this is what the client held already, and it comes
    from the disk.
    """

    source: str
    body: bytes
    step: int
    private: bool
    made_private: bool
    query: tuple[str, ...]
    round: int | None
    error: SourceError | None = None
    status: int = 200
    content_type: str | None = None
    unchanged: bool = False

    @classmethod
    def of(cls, names: tuple[str, ...], step: Step, member: Member, body: bytes) -> Message:
        """The wanted message of a finished step, with its `error` set if it is none."""
        name, error = names[member.source], None
        if member.status != 200:
            error = _failure(name, step, member, "the request counts as made, with its query", body)
        made = step.step, step.private, step.made_private, tuple(names[i] for i in step.query)
        about = member.round, error, member.status, member.content_type
        return cls(name, body, *made, *about, unchanged=member.step != step.step)

    @classmethod
    def failed(cls, names: tuple[str, ...], step: Step, member: Member) -> Message:
        """The failure that a source had in an earlier step, whatever was wanted there. It has no body."""
        name, made = names[member.source], (step.step, step.private, step.made_private)
        error = _failure(name, step, member, f"that was in step {step.step}, and no other was made now")
        return cls(name, b"", *made, tuple(names[i] for i in step.query), member.round, error, member.status)

    def delivered(self) -> Message:
        """The message itself, or its error raised."""
        if self.error is not None:
            raise self.error
        return self


def failure_end(step: Step) -> float:
    """Until when what failed in a step is answered from the journal, in seconds since 1970."""
    return (step.ended or 0.0) + FAILURE_SECONDS


def _failure(name: str, step: Step, member: Member, made: str, body: bytes = b"") -> SourceError:
    words = f"the server answered {member.status} for {name!r}" + (NOT_HELD if member.status == 304 else "")
    if member.status == 504:
        words = f"the server did not answer for {name!r} (504)"  # its own words, or the client's
    until = failure_end(step) if fails(member.status) else None
    about = {"body": body, "content_type": member.content_type if body else None, "until": until}
    return SourceError(f"{words}; {made}", status=member.status, **about)
