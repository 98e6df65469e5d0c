"""What people do today: clients that ask our server without its privacy, and how each of them draws its sets.

They are real as far as the server can tell: same queries on the wire, same changed-only answers, a line each in its
log. How they draw is the audit's (`onoff.audit.models`), so that the attack on them is right.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from onoff.audit.everyday import clients
from onoff.audit.models import Decoys, Encoder, Everything, Model, Naive
from onoff.client.transport.own import OnoffTransport
from onoff.types import Floats, Query

DECOYS = 3  # others that a client with decoys asks for


@dataclass
class Rival:
    """A client with a rule for its sets, and what it has cost so far.

    `model` is how its sets are drawn, for the attack. `draw` gives one, for a request and its status. Without `keeps`
    it downloads everything anew; with it, only what has changed.
    """

    name: str
    model: Model
    draw: Callable[[int, bool], Query]
    keeps: bool = True
    switches: bool = False  # whether it asks differently while ON
    messages: int = 0
    bytes: int = 0
    stream: str = field(default_factory=lambda: secrets.token_hex(16))
    held: dict[int, str] = field(default_factory=dict)

    async def get(self, transport: OnoffTransport, step: int, request: int, private: bool) -> None:
        """Ask for a set, and remember which versions of its members came."""
        query = self.draw(request, private)
        answer = await transport.fetch(self.stream, step, query, tuple(map(self.held.get, query)))
        for source, content in zip(query, answer.contents, strict=True):
            if self.keeps and content.version is not None:
                self.held[source] = content.version
        self.messages += len(query)
        self.bytes += answer.size


@dataclass(frozen=True)
class Marked:
    """How a client draws that asks for everything when the request is sensitive, and openly otherwise."""

    n: int
    sensitive: tuple[int, ...]
    name: str = "naive"

    def draw(self, request: int, private: bool) -> Query:  # noqa: ARG002
        return tuple(range(self.n)) if request in self.sensitive else (request,)

    def encoder(self, last: int, next: int, lag: int) -> Encoder:  # noqa: ARG002
        sets = (*((x,) for x in range(self.n)), tuple(range(self.n)))
        weights = np.array([[query == self.draw(x, False) for query in sets] for x in range(self.n)])
        return Encoder(sets, weights.astype(np.int64))

    def likelihood(self, query: Query, lag: int) -> Floats:  # noqa: ARG002
        return clients.Naive(self.n, self.sensitive).chances(query, private=False)[None, :, None]


def rivals(n: int, sensitive: Sequence[int], rng: np.random.Generator) -> dict[str, Rival]:
    """All of them, by short names."""
    full, few, marked = tuple(range(n)), Decoys(n, DECOYS), Marked(n, tuple(sensitive))
    return {
        "open": Rival("asks openly, always", Naive(n), lambda request, _: (request,)),
        "naive": Rival(
            "asks openly while OFF", Naive(n), lambda request, on: full if on else (request,), switches=True
        ),
        "marked": Rival("all if it is sensitive", marked, marked.draw),
        "decoys": Rival(f"adds {DECOYS} random decoys", few, lambda x, _: tuple(map(int, few.draw(x, rng)))),
        "mirror": Rival("mirrors all that changed", Everything(n), lambda *_: full),
        "everything": Rival("downloads everything", Everything(n), lambda *_: full, keeps=False),
    }
