"""The message that a client hands over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onoff.client.cache import Member
from onoff.client.journalfile import Step
from onoff.errors import SourceError

# Not "ask again": a server that chose this for one source would then see whether that was the wanted one.
NOT_HELD = ", which says that it is unchanged, but of another message than is held: the next request gets it whole"


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


def message_of(names: Sequence[str], step: Step, member: Member, body: bytes) -> Message:
    """The wanted message of a finished step, with its `error` set if it is none."""
    name = names[member.source]
    error = None
    if member.status != 200:
        words = f"the server answered {member.status} for {name!r}" + (NOT_HELD if member.status == 304 else "")
        words += "; the request counts as made, with its query"
        error = SourceError(words, status=member.status, body=body, content_type=member.content_type)
    return Message(
        source=name,
        body=body,
        step=step.step,
        private=step.private,
        made_private=step.made_private,
        query=tuple(names[i] for i in step.query),
        round=member.round,
        error=error,
        status=member.status,
        content_type=member.content_type,
        unchanged=member.step != step.step,
    )


def delivered(message: Message) -> Message:
    """The message, or its error raised."""
    if message.error is not None:
        raise message.error
    return message
