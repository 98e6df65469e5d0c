"""What the proxy's page tells: read from the journal and the line. No HTML here.

The journal is read in a thread, over a connection of its own: queries leave on time meanwhile.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from onoff.apps.proxy.line import Line, Trouble
from onoff.client.learning import Learned
from onoff.client.status import Account, account
from onoff.logs.following import Following, follows
from onoff.logs.journals import noted
from onoff.logs.requests import of_journal

NEWEST = 2_000  # requests that are tested; a longer look is `onoff check`


@dataclass(frozen=True)
class Facts:
    """How the proxy stands. There is no chain to follow while it learns, and nothing is learned while it has one.

    `path` is where its journal is.
    """

    path: Path
    names: tuple[str, ...]
    sensitive: tuple[str, ...]
    private: bool
    waiting: int
    journal: Account
    following: Following | None
    learned: Learned | None
    troubles: tuple[Trouble, ...]


class Reporter:
    """The facts. The journal is read again after new steps only."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._seen: tuple[tuple[int, bool], Account, Following | None, Learned | None] | None = None
        self._turn = asyncio.Lock()

    async def facts(self) -> Facts:
        line, client = self._line, self._line.client
        names, state = client.chain.names, client.journal.state
        moment = (state.step, state.pending is not None)
        async with self._turn:
            if self._seen is None or self._seen[0] != moment:
                self._seen = (moment, *await asyncio.to_thread(self._look))
            _, journal, following, learned = self._seen
        hidden = tuple(names[source] for source in journal.sensitive)
        return Facts(
            client.path, names, hidden, line.private, line.waiting, journal, following, learned, tuple(line.troubles)
        )

    def _look(self) -> tuple[Account, Following | None, Learned | None]:
        client = self._line.client
        found = account(client.path)
        if client.learns:
            kept = noted(client.path)
            return found, None, Learned.of(client.chain.n, kept.private)
        return found, follows(client.chain, of_journal(client.path, client.chain).indices[-NEWEST:]), None
