"""What the page shows: the worlds of both modes for one chain, what all modes cost there, and who is looking on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

from onoff.apps.page.announced import AnnouncedWorld
from onoff.apps.page.costs import Costs, costs
from onoff.apps.page.everyday import EverydayWorld
from onoff.apps.page.world import World
from onoff.errors import OnoffError, SessionError
from onoff.model.chain import Chain


class Page:
    """The everyday mode is there from the start, the announced one, which needs plans, once it is wanted."""

    def __init__(self) -> None:
        self.title, self.busy = "", ""
        self.number = 0  # how many chains have been loaded
        self.serial = 0  # of the state: the page must know an older one that arrives late
        self.costs: Costs | None = None
        self._listeners: set[asyncio.Event] = set()
        self._closing = False
        self._turn = asyncio.Lock()  # one chain after the other
        self._loading: asyncio.Task[None] | None = None
        self._everyday: EverydayWorld | None = None
        self._announced: AnnouncedWorld | None = None
        self._planning: asyncio.Task[None] | None = None
        self._costing: asyncio.Task[None] | None = None

    @property
    def everyday(self) -> EverydayWorld:
        """Raises `SessionError` while another chain is being loaded: the click would be for the old one."""
        self._settled()
        assert self._everyday is not None, "load a chain first"
        return self._everyday

    @property
    def announced(self) -> AnnouncedWorld:
        """Raises `SessionError` while it is being made, or before."""
        self._settled()
        if self._announced is None:
            raise SessionError("the announced mode has no plans yet: open its tab, and wait until they are there")
        return self._announced

    async def load(self, chain: Chain, title: str) -> None:
        """Show another chain: a new server, a new client. If that fails, the old ones stay."""
        async with self._turn:
            if self._closing:
                raise OnoffError("the page is ending: no other chain is loaded")
            self._loading = asyncio.create_task(self._load(chain, title))
            await self._finished(self._loading, "the page has ended before the chain was loaded")

    async def announce(self) -> None:
        """Plan for the announced mode and start its server and client, if that was not done before."""
        if self._announced is not None or self._everyday is None or self._closing:
            return
        if self._planning is None:
            self._planning = asyncio.create_task(self._plan(self._everyday.chain))
        await self._finished(self._planning, "another chain was loaded, or the page has ended, before plans were ready")

    async def lock(self, source: str, on: bool) -> None:
        """Make a source sensitive, or not sensitive any more: a new stream begins, and costs are computed for it."""
        world = self.everyday
        await world.lock(source, on)
        if world is self._everyday and not self._closing:
            await self._cost(world)

    async def _load(self, chain: Chain, title: str) -> None:
        self.busy = f"Starting a server for {title} …"
        self.changed()
        try:
            world = await EverydayWorld(chain, self.changed, opening=True).__aenter__()
            await _ended(self._planning)
            old: list[World | None] = [self._everyday, self._announced]
            self._everyday, self._announced, self._planning = world, None, None
            self.title, self.costs, self.number = title, None, self.number + 1
            await self._cost(world)
        finally:
            self.busy = ""
            self.changed()
        for gone in old:
            if gone is not None:
                await gone.__aexit__(None, None, None)

    async def _plan(self, chain: Chain) -> None:
        self.changed()
        try:
            self._announced = await AnnouncedWorld(chain, self.changed, opening=True).__aenter__()
        finally:
            self._planning = None  # the next click on the tab tries again
            self.changed()

    async def _finished(self, work: asyncio.Task[None], otherwise: str) -> None:
        """Wait for it. Raises its error, and `OnoffError` if it was cancelled."""
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            if work.cancelled():
                raise OnoffError(otherwise) from None
            raise

    async def _cost(self, world: EverydayWorld) -> None:
        """Compute costs in the background, instead of those for other sensitive sources."""
        await _ended(self._costing)
        self._costing = asyncio.create_task(self._show_costs(world))

    async def _show_costs(self, world: EverydayWorld) -> None:
        async for found in costs(world.chain, world.sensitive, self.costs):
            self.costs = found
            self.changed()

    async def close(self) -> None:
        """End all streams, what is being loaded, then the worlds."""
        self._closing = True
        self.changed()
        for work in (self._loading, self._planning, self._costing):
            await _ended(work)
        for world in (self._everyday, self._announced):
            if world is not None:
                await world.__aexit__(None, None, None)

    def _settled(self) -> None:
        if self.busy:
            raise SessionError("another chain is being loaded, and the click was not taken: wait until it is there")

    def changed(self) -> None:
        self.serial += 1
        for listener in self._listeners:
            listener.set()

    def state(self) -> dict[str, Any]:
        world = self._everyday
        assert world is not None, "load a chain first"
        return {
            "names": world.chain.names,
            "serial": self.serial,
            "title": self.title,
            "busy": self.busy,
            "number": self.number,
            "planning": self._planning is not None,
            "everyday": world.state(),
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


async def _ended(work: asyncio.Task[None] | None) -> None:
    if work is not None:
        work.cancel()
        await asyncio.wait({work})
