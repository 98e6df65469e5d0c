"""What the page shows: a session of each promise for one chain, what both promises cost, and who is looking on."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

from onoff.apps.costs import Effort, costs
from onoff.apps.page.session import LAGS, BothSession, DemoSession, PastSession
from onoff.errors import OnoffError, SessionError
from onoff.model.chain import Chain
from onoff.types import Advance

LOCKED = "health"  # the source that is sensitive when the page opens, if the chain has it
EFFORT = Effort(time_limit=2.0)
BOTH = "the promise `both`"
AGAIN = f"There are no plans for {BOTH}. Open this tab again to make them."
FIRST_ORDER = f"There is no plan for {BOTH}: it needs a Markov chain, and these habits remember more requests than one."


class Page:
    """The promise `past` is there from the start, `both`, which needs plans, once its tab is opened."""

    past: PastSession

    def __init__(self, chain: Chain, title: str) -> None:
        self.chain, self.title = chain, title
        self.serial = 0  # of the state: the page must know an older one that arrives late
        self.costs: dict[str, list[float]] = {}  # of each curve at lags 1, 2, ...
        self.gap = 0.0  # no scheme for `both` beats its curve by more than this share
        self._listeners: set[asyncio.Event] = set()
        self._closing = False
        self._both: BothSession | None = None
        self._planning: asyncio.Task[None] | None = None
        self._costing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the server and the client of the promise `past`."""
        sensitive = (self.chain.index(LOCKED),) if LOCKED in self.chain.names else ()
        self.past = await PastSession(self.chain, self.notify, opening=True, sensitive=sensitive).__aenter__()
        await self._restart_costs()

    def session(self, promise: str) -> DemoSession:
        """Find the session of a promise. Raises `SessionError` while `both` is being planned, or before."""
        found = self.past if promise == "past" else self._both
        if found is None:
            raise SessionError("the promise `both` has no plans yet: open its tab, and wait until they are there")
        return found

    async def open_both(self) -> None:
        """Plan for the promise `both` and start its server and client, if that was not done before."""
        if self._both is not None or self._closing:
            return
        self.chain.without_memory(BOTH)
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
        """Make a source sensitive, or no longer sensitive: a new stream begins, and its costs are computed."""
        await self.past.lock(source, on)
        if not self._closing:
            await self._restart_costs()

    async def _plan(self) -> None:
        self.notify()
        try:
            self._both = await BothSession(self.chain, self.notify, opening=True).__aenter__()
        finally:
            self._planning = None  # the next click on the tab tries again
            self.notify()

    async def _restart_costs(self) -> None:
        """Compute costs in the background, replacing those for other sensitive sources."""
        await _end(self._costing)
        self._costing = asyncio.create_task(self._compute_costs())

    async def _compute_costs(self) -> None:
        """Add the curves in turn; compute only once those that no lock changes."""
        self.costs.pop("locked", None)
        if "past" not in self.costs:
            self.costs["past"], _ = await self._collect("past")
        if self.past.sensitive:
            self.costs["locked"], _ = await self._collect("past", sensitive=self.past.sensitive)
        if "both" not in self.costs and self.chain.depth == 1:
            self.costs["paper"], _ = await self._collect("both", schemes=("paper",))
            best, bounds = await self._collect("both")
            # Where time was short, the plan of a smaller lag is cheaper, and serves larger lags, too.
            self.costs["both"] = list(accumulate(best, min))
            self.gap = max(cost / bound - 1 for cost, bound in zip(self.costs["both"], bounds, strict=True))
            self.notify()

    async def _collect(self, promise: str, **options: Any) -> tuple[list[float], list[float]]:
        """Compute costs and lower bounds at all lags in a thread, which ends soon after its waiter."""
        stopped = threading.Event()

        @contextmanager
        def bar(_: int | None) -> Iterator[Advance]:
            yield advance

        def advance() -> None:
            if stopped.is_set():
                raise OnoffError("nobody waits for these costs any more")

        work = costs({"": self.chain}, LAGS, (promise,), effort=EFFORT, bar=bar, **options)
        try:
            found = await asyncio.to_thread(list, work)
            return [cost.messages or 0.0 for cost in found], [cost.lower_bound or 1.0 for cost in found]
        finally:
            stopped.set()
            self.notify()

    async def close(self) -> None:
        """Close event streams, computations, then sessions."""
        self._closing = True
        self.notify()
        for work in (self._planning, self._costing):
            await _end(work)
        for session in (getattr(self, "past", None), self._both):
            if session is not None:
                await session.__aexit__(None, None, None)

    def notify(self) -> None:
        self.serial += 1
        for listener in self._listeners:
            listener.set()

    def state(self) -> dict[str, Any]:
        """Describe all that is shown, ready for JSON."""
        return {
            "names": self.chain.names,
            "serial": self.serial,
            "title": self.title,
            "planning": self._planning is not None,
            "unplanned": AGAIN if self.chain.depth == 1 else FIRST_ORDER,
            "past": self.past.state(),
            "both": None if self._both is None else self._both.state(),
            "costs": self.costs,
            "gap": self.gap,
        }

    async def events(self) -> AsyncIterator[str]:
        """Yield the state now, and again whenever it has changed."""
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
