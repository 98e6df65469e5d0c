"""Ways to reach a server. Nothing that leaves through them depends on which source of a set was wanted.

A new way is a class with the methods of `Transport`, given to `Client`. `onoff.connect` chooses between the two that
are here: `own` for an onoff server, `web` for any other web server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Content:
    """What a server has for one source: status 200 and a body, or another status, which is then the message."""

    status: int
    body: bytes
    round: int | None = None


@dataclass(frozen=True)
class Answer:
    """The contents of a whole set, in its order, and how many bytes were downloaded for them."""

    contents: tuple[Content, ...]
    size: int


class Transport(Protocol):
    """One server. `connect` learns what it offers; `fetch` asks for a set, as often as needed, always alike.

    Sources are indices into `names`; sets are sorted. `stream` is the random name of the journal that asks. `fetch`
    returns only when all of the answer has arrived and was checked; it raises `Unavailable` if another attempt may
    help, and `RefusedByServer` if not.
    """

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def fingerprint(self) -> str: ...
    async def connect(self) -> None: ...
    async def fetch(self, stream: str, step: int, sources: tuple[int, ...]) -> Answer: ...
    async def close(self) -> None: ...
