"""What people do today: clients that ask our server without its privacy, and how each of them draws its sets.

They are real as far as the server can tell: same queries on the wire, same changed-only answers, a line each in its
log. How they draw is the audit's (`onoff.audit.clients`), so that the attack on them is right.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from onoff.audit.bayes import View
from onoff.audit.clients import Client, Decoys, Everything, Naive, Step
from onoff.client.transport.own import OnoffTransport
from onoff.types import Query

DECOYS = 3  # others that a client with decoys asks for


@dataclass
class Rival:
    """A client with a rule for its sets, and what it has cost so far.

    `rules` is how its sets are drawn, as the server knows it. Without `keeps` it downloads everything anew; with it,
    only what has changed.
    """

    name: str
    rules: Client
    rng: np.random.Generator
    keeps: bool = True
    switches: bool = False  # whether it asks differently while ON
    messages: int = 0
    bytes: int = 0
    stream: str = field(default_factory=lambda: secrets.token_hex(16))
    held: dict[int, str] = field(default_factory=dict)

    def view(self, query: Query, private: bool) -> View:
        """What a query says to a server that knows these rules."""
        return self._step(private).view(query)

    def _step(self, private: bool) -> Step:
        on = self.rules.on()
        return on if private and self.switches else self.rules.off(on, ())

    async def get(self, transport: OnoffTransport, step: int, request: int, private: bool) -> None:
        """Ask for a set, and remember which versions of its members came."""
        query = self._step(private).draw(0, request, 0, self.rng)
        answer = await transport.fetch(self.stream, step, query, tuple(map(self.held.get, query)))
        for source, content in zip(query, answer.contents, strict=True):
            if self.keeps and content.version is not None:
                self.held[source] = content.version
        self.messages += len(query)
        self.bytes += answer.size


def rivals(n: int, sensitive: Sequence[int], rng: np.random.Generator) -> dict[str, Rival]:
    """All of them, by short names."""
    other = np.random.default_rng()  # the rules of the others leave nothing to chance
    return {
        "open": Rival("asks openly, always", Naive(n), other),
        "naive": Rival("asks openly while OFF", Naive(n), other, switches=True),
        "marked": Rival("all if it is sensitive", Naive(n, sensitive), other),
        "decoys": Rival(f"adds {DECOYS} random decoys", Decoys(n, DECOYS), rng),
        "mirror": Rival("mirrors all that changed", Everything(n), other),
        "everything": Rival("downloads everything", Everything(n), other, keeps=False),
    }
