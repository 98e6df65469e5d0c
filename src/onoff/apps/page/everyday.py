"""The tab of the everyday mode, the promise `past`: a click is a request, made at once, and sources can be locked."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Any

from onoff.apps.demo import DELAY
from onoff.apps.page.beliefs import PastObserver, Watched
from onoff.apps.page.session import FRESH, LOCKED, DemoSession
from onoff.apps.page.steps import Made
from onoff.client.connect import connect
from onoff.errors import SessionError


class EverydaySession(DemoSession):
    """The everyday mode. Each list of sensitive sources has a stream and a journal of its own, since it is public.

    The server stays the same and remembers earlier streams. So a later stream begins with two full sets, and what the
    server believes about its first request is what the earlier ones told.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        shown = LOCKED in self.chain.names and self.queue
        self.sensitive: tuple[int, ...] = (self.chain.index(LOCKED),) if shown else ()
        self.watched: Watched | None = None
        self._watcher: PastObserver
        self.stream = 0  # how many there were before this one
        self._previous: int | None = None  # the last request of the streams before
        self._turn = asyncio.Lock()  # a request, or the beginning of a stream

    def state(self) -> dict[str, Any]:
        return {
            **super().state(),
            "sensitive": self.sensitive,
            "stream": self.stream,
            "beginning": 0 if self.stream == 0 else max(0, 2 - len(self.made)),
            "watched": None if self.watched is None else asdict(self.watched),
        }

    async def lock(self, source: str, on: bool) -> None:
        """Make a source sensitive, or not sensitive: a new stream begins."""
        wanted = self.chain.index(source)
        if self.failure:
            raise SessionError("a request has no answer yet: another stream can begin after it")
        async with self._turn:
            changed = {*self.sensitive} | {wanted} if on else {*self.sensitive} - {wanted}
            if changed != {*self.sensitive}:
                await self._begin(tuple(sorted(changed)), self.stream + 1)
        self.tell()

    async def _open(self) -> None:
        await asyncio.to_thread(self.server.start)
        self._client_of_stream = AsyncExitStack()
        self.stack.push_async_callback(self._leave)
        await self._begin(self.sensitive, 0)

    async def _begin(self, sensitive: tuple[int, ...], stream: int) -> None:
        """Begin a stream. If that fails, the one before stays."""
        record = self.directory / f"record-{stream}"
        client = connect(
            self.chain, server=self.server.url, journal=self.directory / f"journal-{stream}", promise="past",
            sensitive=sensitive, record=record, delay=DELAY, attempts=1, first_ever=stream == 0, cache=FRESH,
        )  # fmt: skip
        opened = AsyncExitStack()
        await opened.enter_async_context(client)
        if stream:
            self._previous = self._last()
        watcher = PastObserver(self.chain, sensitive, record, client.journal.stream)
        if stream and self.made:
            watcher.starts_after(await asyncio.to_thread(self._watcher.following, self._finished()))
        elif stream:
            watcher.starts_after(self._watcher.start)
        old, self._client_of_stream = self._client_of_stream, opened
        self.client, self._watcher = client, watcher
        self.sensitive, self.stream, self.made, self.watched = sensitive, stream, [], None
        await old.aclose()

    async def _leave(self) -> None:
        """Close the client of the newest stream. Those before it were closed when a stream took their place."""
        await self._client_of_stream.aclose()

    def _due(self) -> bool:
        return bool(self.queue)

    async def _ask_first(self) -> None:
        async with self._turn:
            await self.answered(self.queue[0])
            self.queue.popleft()
            self.record()

    async def _think(self) -> None:
        watcher, finished = self._watcher, self._finished()
        found = await asyncio.to_thread(watcher.watch, finished) if finished else None
        if watcher is self._watcher:  # else another stream has begun meanwhile
            self.watched = found

    def _finished(self) -> tuple[Made, ...]:
        return tuple(step for step in self.made if step.bytes)

    def _last(self) -> int | None:
        last = self.client.journal.state.previous
        return self._previous if last is None else last

    def _naive(self, made: Made) -> tuple[int, ...]:
        return made.naive(self.chain.n, self.sensitive)
