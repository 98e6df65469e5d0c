"""Ways to reach a server. Nothing that leaves through them depends on which source of a set was wanted.

A new way is a class with the methods of `Transport`, given to `Client`. `onoff.connect` chooses between the two that
are here: `onoff` for an onoff server, `web` for any other web server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

FAILURE_SECONDS = 300.0  # for which a source that failed is not asked for again: long enough for most repetitions
OF_THE_WAY = (304, 407, 408, 421, 425, 429)  # about a connection, a condition or a pace, not about the source


def fails(status: int) -> bool:
    """True if people and programs ask again after a failure of this status."""
    return not 200 <= status < 500 or status in OF_THE_WAY


@dataclass(frozen=True)
class Content:
    """A server's answer for one source: status 200 and a body, or another status, which is then the message.

    `content_type` is the server's word for the body, if it is a few plain characters. `version` identifies the body in
    words of the transport; later queries name it to get a newer body only. None if the server cannot be asked so.
    `unchanged`: the server says that this version is still the newest. Then body, type and version are those that the
    client holds, and are not here. `size` is how many bytes of the answer are for the source.

    `fresh` is for how many seconds after the query left the server's answer counts as the newest, at most an hour; 0
    if it says nothing. None: never, whatever the reader says. That is a failure, or what must not be stored.
    """

    status: int
    body: bytes
    round: int | None = None
    content_type: str | None = None
    version: str | None = None
    unchanged: bool = False
    size: int = 0
    fresh: float | None = 0.0


@dataclass(frozen=True)
class Answer:
    """The contents of a whole set, in its order, and how many bytes were downloaded for them.

    `notes` is the transport's memory of servers, for the journal to keep.
    """

    contents: tuple[Content, ...]
    size: int
    notes: str = ""


class Transport(Protocol):
    """One server. `connect` learns what it offers; `fetch` asks for a set, as often as needed, always alike.

    Sources are indices into `names`; sets are sorted. `held` has for each source the version that the client holds, or
    None: only sources with a version may come back `unchanged`. If another one does, its status is 304: the failure of
    that member, wanted or not. `stream` is the random name of the journal that asks. `fetch` returns only when all of
    the answer has arrived and was checked; it raises `Unavailable` if another attempt may help, and `RefusedByServer`
    if not. The client sets `notes` to those of the journal's last answer before anything is fetched.
    """

    notes: str

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def fingerprint(self) -> str: ...
    async def connect(self) -> None: ...
    async def fetch(self, stream: str, step: int, sources: tuple[int, ...], held: tuple[str | None, ...]) -> Answer: ...
    async def close(self) -> None: ...
