"""What the page shows: a session of each promise for one chain, what all modes cost there, and who is looking on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

from onoff.apps.page.announced import AnnouncedSession
from onoff.apps.page.costs import Costs, costs
from onoff.apps.page.everyday import EverydaySession
from onoff.errors import OnoffError, SessionError
from onoff.model.chain import Chain


class Page:
    """The promise `past` is there from the start, `both`, which needs plans, once its tab is opened."""

    everyday: EverydaySession

    def __init__(self, chain: Chain, title: str) -> None:
        self.chain, self.title = chain, title
        self.serial = 0  # of the state: the page must know an older one that arrives late
        self.costs: Costs | None = None
        self._listeners: set[asyncio.Event] = set()
        self._closing = False
        self._announced: AnnouncedSession | None = None
        self._planning: asyncio.Task[None] | None = None
        self._costing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the server and the client of the promise `past`."""
        self.everyday = await EverydaySession(self.chain, self.changed, opening=True).__aenter__()
        await self._cost()

    @property
    def announced(self) -> AnnouncedSession:
        """Raises `SessionError` while it is being made, or before."""
        if self._announced is None:
            raise SessionError("the announced mode has no plans yet: open its tab, and wait until they are there")
        return self._announced

    async def announce(self) -> None:
        """Plan for the promise `both` and start its server and client, if that was not done before."""
        if self._announced is not None or self._closing:
            return
        if self._planning is None:
            self._planning = asyncio.create_task(self._plan())
        work = self._planning
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            if work.cancelled():
                raise OnoffError("the page has ended before plans were ready") from None
            raise

    async def lock(self, source: str, on: bool) -> None:
        """Make a source sensitive, or not sensitive any more: a new stream begins, and costs are computed for it."""
        await self.everyday.lock(source, on)
        if not self._closing:
            await self._cost()

    async def _plan(self) -> None:
        self.changed()
        try:
            self._announced = await AnnouncedSession(self.chain, self.changed, opening=True).__aenter__()
        finally:
            self._planning = None  # the next click on the tab tries again
            self.changed()

    async def _cost(self) -> None:
        """Compute costs in the background, instead of those for other sensitive sources."""
        await _end(self._costing)
        self._costing = asyncio.create_task(self._show_costs())

    async def _show_costs(self) -> None:
        async for found in costs(self.chain, self.everyday.sensitive, self.costs):
            self.costs = found
            self.changed()

    async def close(self) -> None:
        """End what people look at, what is being computed, then the sessions."""
        self._closing = True
        self.changed()
        for work in (self._planning, self._costing):
            await _end(work)
        for session in (getattr(self, "everyday", None), self._announced):
            if session is not None:
                await session.__aexit__(None, None, None)

    def changed(self) -> None:
        self.serial += 1
        for listener in self._listeners:
            listener.set()

    def state(self) -> dict[str, Any]:
        """All that is shown, ready for JSON."""
        return {
            "names": self.chain.names,
            "serial": self.serial,
            "title": self.title,
            "planning": self._planning is not None,
            "everyday": self.everyday.state(),
            "announced": None if self._announced is None else self._announced.state(),
            "costs": None if self.costs is None else asdict(self.costs),
        }

    async def events(self) -> AsyncIterator[str]:
        """The state now, and again whenever it has changed."""
        news = asyncio.Event()
        self._listeners.add(news)
        try:
            yield "retry: 500\n\n"
            while not self._closing:
                news.clear()
                yield f"data: {json.dumps(self.state())}\n\n"
                await news.wait()
        finally:
            self._listeners.discard(news)


async def _end(work: asyncio.Task[None] | None) -> None:
    if work is not None:
        work.cancel()
        await asyncio.wait({work})
