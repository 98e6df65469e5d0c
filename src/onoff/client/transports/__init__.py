"""Ways to reach a server. Nothing that leaves through them depends on which source of a set was wanted.

A new way is a class with the methods of `Transport`, given to `Client`. `onoff.connect` chooses between the two that
are here: `own` for an onoff server, `web` for any other web server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

FAILURE_SECONDS = 300.0  # for which a source that failed is not asked for again: long enough for most repetitions
OF_THE_WAY = (304, 407, 408, 421, 425, 429)  # about a connection, a condition or a pace, not about the source


def fails(status: int) -> bool:
    """Whether a status is a failure after which people and programs ask again."""
    return not 200 <= status < 500 or status in OF_THE_WAY


@dataclass(frozen=True)
class Content:
    """What a server has for one source: status 200 and a body, or another status, which is then the message.

    `content_type` is what the server calls it, if it says so in a few plain characters. `version` identifies it in
    words of the transport. They come back with a later query that asks for it only if it is newer; None if it cannot be
    asked for in that way. `unchanged`: the server says that it is still what such a query named. Then body, type and
    version are those that the client holds, and none are here. `size` is how many bytes of the answer are for it.
    """

    status: int
    body: bytes
    round: int | None = None
    content_type: str | None = None
    version: str | None = None
    unchanged: bool = False
    size: int = 0


@dataclass(frozen=True)
class Answer:
    """The contents of a whole set, in its order, and how many bytes were downloaded for them.

    `notes` are what the transport remembers of servers from now on, for the journal to keep.
    """

    contents: tuple[Content, ...]
    size: int
    notes: str = ""


class Transport(Protocol):
    """One server. `connect` learns what it offers; `fetch` asks for a set, as often as needed, always alike.

    Sources are indices into `names`; sets are sorted. `held` has for each of them the version that the client holds, or
    None: these, and only these, may come back `unchanged`. That the server has not what is held, and says so all the
    same, is status 304: the failure of that member, whether it is wanted or not. `stream` is the random name of the
    journal that asks. `fetch` returns only when all of the answer has arrived and was checked; it raises `Unavailable`
    if another attempt may help, and `RefusedByServer` if not. `notes` is set to those of the last answer that the
    journal has, before anything is fetched.
    """

    notes: str

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def fingerprint(self) -> str: ...
    async def connect(self) -> None: ...
    async def fetch(self, stream: str, step: int, sources: tuple[int, ...], held: tuple[str | None, ...]) -> Answer: ...
    async def close(self) -> None: ...
