"""The tab of the announced mode, the promise `both`: the first of the queue is made when the second is known."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from onoff.apps.demo import DELAY
from onoff.apps.page.beliefs import Belief, BothObserver
from onoff.apps.page.session import FRESH, DemoSession
from onoff.apps.page.steps import Made
from onoff.apps.page.tables import ready, tables
from onoff.client.connect import connect
from onoff.errors import OnoffError, SessionError

REACH = 8  # lags planned before the first request; plans serve all larger ones
PLAN_SECONDS = 60.0


class AnnouncedSession(DemoSession):
    """A query may depend on the next request, so a request waits for the next one, or is made ON without it."""

    beliefs: tuple[Belief, ...] = ()
    _now = False  # make the first without waiting for a second

    def make_now(self) -> None:
        """Make the one request that is waiting without knowing the next: it asks for everything and counts as ON."""
        if len(self.queue) != 1 or self.making:
            raise SessionError("this is for the one request that waits for the next: choose a source first")
        self._now = True
        self.tell()

    def state(self) -> dict[str, Any]:
        return {**super().state(), "beliefs": [asdict(belief) for belief in self.beliefs]}

    async def _open(self) -> None:
        planner = tables(self.chain, self.directory / "plans")
        self.stack.callback(planner.close)
        self._onlooker = BothObserver(self.chain, planner.store.load)
        _, plan = await asyncio.gather(asyncio.to_thread(self.server.start), ready(planner, REACH, PLAN_SECONDS))
        if plan.kind != "table":
            raise OnoffError(f"no plan was ready after {PLAN_SECONDS:.0f} seconds: try a chain of fewer sources")
        # The server was born with this journal: nothing was ever asked of it before.
        client = connect(
            self.chain, server=self.server.url, journal=self.directory / "journal", promise="both", plans=planner,
            delay=DELAY, attempts=1, first_ever=True, cache=FRESH,
        )  # fmt: skip
        self.client = await self.stack.enter_async_context(client)

    def _due(self) -> bool:
        return len(self.queue) > 1 or (self._now and bool(self.queue))

    async def _ask_first(self) -> None:
        self._now = False
        await self.answered(self.queue[0], self.queue[1].source if len(self.queue) > 1 else None)
        self.queue.popleft()

    async def _think(self) -> None:
        made = tuple(step for step in self.made if step.bytes)
        for step in self._onlooker.unknown(made):  # one by one: between two, the page may end
            await asyncio.to_thread(self._onlooker.learn, step)
        self.beliefs = await asyncio.to_thread(self._onlooker.beliefs, made)

    def _naive(self, made: Made) -> tuple[int, ...]:
        return made.naive(self.chain.n)
