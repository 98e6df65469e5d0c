"""The two tabs of the page: a session for each promise."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from onoff.apps.demo.reader import DELAY
from onoff.apps.page.beliefs import BothObserver, PastObserver
from onoff.apps.page.session import NO_CACHE, DemoSession
from onoff.apps.page.steps import Steps
from onoff.client.connect import connect
from onoff.errors import SessionError
from onoff.plans.plan import Plan, plan
from onoff.plans.planner import Planner
from onoff.plans.store import PlanStore

LAGS = range(1, 9)  # planned before the first request of the promise `both`; plans serve all larger lags
PLAN_SECONDS = 2.0  # for each


class PastSession(DemoSession):
    """The promise `past`: a click is a request, made at once, and sources can be locked.

    Each list of sensitive sources has a stream and a journal of its own, since it is public. The server stays the same
    and remembers earlier streams. So a later stream begins with two full sets.
    """

    observer: PastObserver

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.stream = 0  # how many there were before this one
        self._turn = asyncio.Lock()  # a request, or the beginning of a stream
        self._client_stack = AsyncExitStack()

    def state(self) -> dict[str, Any]:
        beginning = 0 if self.stream == 0 else max(0, 2 - len(self.steps))
        return {**super().state(), "stream": self.stream, "beginning": beginning}

    async def lock(self, source: str, on: bool) -> None:
        """Make a source sensitive, or not sensitive: a new stream begins."""
        wanted = self.chain.index(source)
        if self.failure:
            raise SessionError("a request has no answer yet: another stream can begin after it")
        async with self._turn:
            sensitive = {*self.sensitive} | {wanted} if on else {*self.sensitive} - {wanted}
            if sensitive != {*self.sensitive}:
                await self._begin(tuple(sorted(sensitive)), self.stream + 1)
        self.tell()

    async def _open(self) -> None:
        self.observer = PastObserver(self.chain)
        self.stack.push_async_callback(self._close_client)
        await self._begin(self.sensitive, 0)

    async def _begin(self, sensitive: tuple[int, ...], stream: int) -> None:
        """Begin a stream. If that fails, the stream before it goes on."""
        record = self.directory / f"record-{stream}"
        client = connect(
            self.chain, server=self.server.url, journal=self.directory / f"journal-{stream}", promise="past",
            sensitive=sensitive, record=record, delay=DELAY, attempts=1, first_ever=stream == 0, cache=NO_CACHE,
        )  # fmt: skip
        opened = AsyncExitStack()
        await opened.enter_async_context(client)
        await self._close_client()
        self._client_stack, self.client = opened, client
        self.history, self.steps = [*self.history, *self.steps], []
        first = len(self.history)
        self.timeline = Steps(client.journal, self.server.transcript, self.chain, sensitive, first)
        self.observer.follow(record, client.journal.stream, first)
        self.sensitive, self.stream = sensitive, stream

    async def _close_client(self) -> None:
        """Close the client of the newest stream. Those before it were closed when a stream took their place."""
        await self._client_stack.aclose()

    def _is_due(self) -> bool:
        return bool(self.queue)

    async def _ask_first(self) -> None:
        async with self._turn:
            await self.ask_until_answered(self.queue[0])
            self.queue.popleft()
            self.read_steps()


class BothSession(DemoSession):
    """The promise `both`: a query may depend on the next request.

    So a request waits for the next one, or is made ON without it.
    """

    _now = False  # make the first without waiting for a second

    def make_now(self) -> None:
        """Make the one request that is waiting without knowing the next: it asks for everything and counts as ON."""
        if len(self.queue) != 1 or self.asks:
            raise SessionError("this is for the one request that waits for the next: choose a source first")
        self._now = True
        self.tell()

    async def _open(self) -> None:
        store, plans = PlanStore(self.chain, self.directory / "plans"), []
        for lag in LAGS:  # one by one: between two, the page may end
            plans.append(await asyncio.to_thread(self._plan, lag))
            store.save(plans[-1])
        planner = Planner(self.chain, self.directory / "plans", background=False, usable=_has_table)
        self.observer = BothObserver(self.chain, plans)
        # The server was born with this journal: nothing was ever asked of it before.
        client = connect(
            self.chain, server=self.server.url, journal=self.directory / "journal", promise="both",
            plans=planner, delay=DELAY, attempts=1, first_ever=True, cache=NO_CACHE,
        )  # fmt: skip
        self.client = await self.stack.enter_async_context(client)
        self.timeline = Steps(client.journal, self.server.transcript, self.chain)

    def _plan(self, lag: int) -> Plan:
        """Make a plan with a table, from which beliefs are computed. A race, though cheaper, has none."""
        made = plan(self.chain, lag, time_limit=PLAN_SECONDS)
        return made if _has_table(made) else plan(self.chain, lag, "comb")

    def _is_due(self) -> bool:
        return len(self.queue) > 1 or (self._now and bool(self.queue))

    async def _ask_first(self) -> None:
        self._now = False
        await self.ask_until_answered(self.queue[0], self.queue[1].source if len(self.queue) > 1 else None)
        self.queue.popleft()


def _has_table(found: Plan) -> bool:
    return found.kind == "table"
