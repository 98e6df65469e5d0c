"""What the proxy's page tells: read from the client, its journal and the line. No HTML here."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from onoff.apps.proxy.line import Line, Trouble
from onoff.client.stored import Totals
from onoff.errors import LogError
from onoff.logs.following import Following, follows
from onoff.logs.requests import of_journal

NEWEST = 2_000  # requests that are tested; a longer look is `onoff check`


@dataclass(frozen=True)
class Facts:
    """How the proxy stands. While it learns there is no chain that requests could follow, and `learning` has words."""

    names: tuple[str, ...]
    sensitive: tuple[str, ...]
    private: bool
    waiting: int
    pending: bool
    totals: Totals
    rounding: float
    following: Following | None
    learning: str | None
    troubles: tuple[Trouble, ...]


class Reporter:
    """The facts, with the test of whether requests follow the chain, which is made anew after new steps only."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._tested: tuple[int, Following | None] = (-1, None)
        self._turn = asyncio.Lock()

    async def facts(self) -> Facts:
        line, client = self._line, self._line.client
        following = await self._following()
        journal = client.journal
        learned = client.learned
        return Facts(
            names=client.chain.names,
            sensitive=tuple(client.chain.names[source] for source in journal.sensitive),
            private=line.private,
            waiting=line.waiting,
            pending=journal.state.pending is not None,
            totals=journal.totals(),
            rounding=journal.state.rounding,
            following=following,
            learning=None if learned is None else learned.words(),
            troubles=tuple(line.troubles),
        )

    async def _following(self) -> Following | None:
        """The test of the newest requests, made in a thread: queries leave on time meanwhile."""
        client = self._line.client
        if client.learned is not None:
            return None
        async with self._turn:
            step = client.journal.state.step
            if self._tested[0] != step:
                self._tested = step, await asyncio.to_thread(self._test)
        return self._tested[1]

    def _test(self) -> Following | None:
        client = self._line.client
        try:
            requests = of_journal(client.path, client.chain).indices
        except LogError:  # it cannot be read just now: the next look will tell
            return None
        return follows(client.chain, requests[-NEWEST:])
