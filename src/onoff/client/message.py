"""The message that a client hands over, and what it keeps of every member of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onoff.client.held import Entry
from onoff.client.stored import Stored
from onoff.client.transport import Content
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


def member_of(step: int, source: int, content: Content, held: tuple[Entry, bytes] | None) -> Stored:
    """What an answer has for a source, taken from what is held if that is unchanged."""
    if content.unchanged and held is not None:
        was, body = held
        return Stored(
            step, source, was.status, was.round, body, was.content_type, was.version, unchanged=True, size=content.size
        )
    # "Unchanged" of what is not held is a failure of the source: to ask again would be a second query.
    status = 304 if content.unchanged else content.status
    version = content.version if status == 200 else None
    return Stored(step, source, status, content.round, content.body, content.content_type, version, size=content.size)


def delivered(message: Message) -> Message:
    """The message, or its error raised."""
    if message.error is not None:
        raise message.error
    return message


def message_of(
    names: Sequence[str], stored: Stored, query: tuple[int, ...], private: bool, made_private: bool
) -> Message:
    """What was stored for the wanted source, as a message, with its `error` set if it is none."""
    name = names[stored.source]
    error = None
    if stored.status != 200:
        words = f"the server answered {stored.status} for {name!r}" + (NOT_HELD if stored.status == 304 else "")
        words += "; the request counts as made, with its query"
        error = SourceError(words, status=stored.status, body=stored.body, content_type=stored.content_type)
    asked = tuple(names[i] for i in query)
    about = (stored.status, stored.content_type, stored.unchanged)
    return Message(name, stored.body, stored.step, private, made_private, asked, stored.round, error, *about)
