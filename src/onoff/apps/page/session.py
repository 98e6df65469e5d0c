"""What a tab of the page runs: a real server, a real client with a queue of clicks, and an observer at the server.

    click -> queue -> Client.get -> journal and transcript -> beliefs

There is a session for each promise. No request waits for the beliefs.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from onoff.apps.demo.reader import DELAY, LENGTH, news
from onoff.apps.page.beliefs import BothObserver, Knowledge, Observer, PageStep, PastObserver, Steps
from onoff.client.client import Client
from onoff.client.connect import connect
from onoff.errors import ChainError, ContextError, SessionError
from onoff.model.chain import Chain
from onoff.model.requests import request_law
from onoff.plans.plan import Plan, plan
from onoff.plans.planner import Planner
from onoff.plans.store import PlanStore
from onoff.server.run import LocalServer

MOST_SOURCES = 24  # cards and lines beyond it are unreadable
LONGEST_QUEUE = 12
LINES = 60  # of the timeline
LAGS = range(1, 9)  # planned before the first request of the promise `both`; plans serve all larger lags
PLAN_SECONDS = 2.0  # for each
NO_CACHE = 0  # bytes of messages that clients hold: the messages here never change, and would cost nothing any more
OPENING = "10001000100100"  # statuses of the stream that is there to look at
STORY = 2366  # its seed: a naive client of the demonstration's reader gives away all three requests that are shown


@dataclass(frozen=True)
class Wish:
    """A click: a source, whether privacy was ON at the click, and whether to request it without a next one."""

    source: str
    private: bool
    alone: bool = False


class DemoSession(ABC):
    """Use as `async with PastSession(chain, notify) as session`; `notify()` is called when `state()` has changed.

    With `opening` a short stream of a simulated reader is made at once.
    """

    observer: Observer
    client: Client
    timeline: Steps

    def __init__(
        self,
        chain: Chain,
        notify: Callable[[], None] = lambda: None,
        opening: bool = False,
        sensitive: tuple[int, ...] = (),
    ) -> None:
        if chain.n > MOST_SOURCES:
            raise ChainError(f"the chain has {chain.n} sources: the page shows at most {MOST_SOURCES}")
        self.chain, self.prior = chain, request_law(chain)
        self.queue: deque[Wish] = deque()
        self.sensitive = sensitive
        self.history: list[PageStep] = []  # steps of earlier streams
        self.steps: list[PageStep] = []  # of this stream
        self.knowledge: Knowledge | None = None
        self.private, self.asks = True, False
        self._fault = ""  # an error of ours
        self._notify = notify
        self._wake, self._news = asyncio.Event(), asyncio.Event()  # something to do; steps nobody has thought about
        self.turn = asyncio.Lock()  # a request, or the beginning of a stream
        self.stack = AsyncExitStack()
        if opening:
            path = chain.simulate(len(OPENING), np.random.default_rng(STORY))
            self.queue.extend(Wish(chain.names[x], on == "1") for x, on in zip(path, OPENING, strict=True))
            self.private = self.queue[-1].private

    async def __aenter__(self) -> Self:
        try:
            self.directory = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="onoff-page-")))
            messages = {name: news(name) for name in self.chain.names}
            length = max(LENGTH, *map(len, messages.values()))
            self.server = self.stack.enter_context(LocalServer(self.directory, messages, length))
            await self._open()
            for work in (self._ask(), self._observe()):
                task = asyncio.create_task(work)
                task.add_done_callback(self._note_fault)
                self.stack.push_async_callback(_end, task)
        except BaseException:
            await self.stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stack.aclose()

    @abstractmethod
    async def _open(self) -> None:
        """Open the client, and set `client`, `timeline` and `observer`."""

    def _is_due(self) -> bool:
        """True if the first request of the queue can be made."""
        return bool(self.queue)

    def _next_source(self) -> str | None:
        """Find the queue's second source, if the promise needs it."""
        return None

    def ask(self, source: str, private: bool) -> None:
        """Queue a request with its present status."""
        wanted = self.chain.index(source)
        if len(self.queue) >= LONGEST_QUEUE:
            raise SessionError(f"{LONGEST_QUEUE} requests are waiting: let the server answer some first")
        if not self._habits()[wanted]:
            words = f"the chain calls it impossible to ask for {source!r} now: choose another source"
            raise ContextError(words, request=wanted)
        self.private = private
        self.queue.append(Wish(source, private))
        self.tell()

    def switch(self, private: bool) -> None:
        """Switch privacy ON or OFF for the clicks to come."""
        self.private = private
        self.tell()

    def state(self) -> dict[str, Any]:
        """Describe all that the page shows, ready for JSON."""
        journal = self.client.journal
        latest = journal.latest()
        frame, n = self.server.catalogue.frame_length, self.chain.n
        steps = self._all_steps()
        return {
            "private": self.private,
            "habits": self._habits(),
            "queue": [asdict(wish) for wish in self.queue],
            "sensitive": self.sensitive,
            "steps": [asdict(step) | {"naive": step.naive(n)} for step in steps[-LINES:]],
            "knowledge": None if self.knowledge is None else asdict(self.knowledge),
            "message": "" if latest is None else journal.read_body(latest[1].source).decode("utf-8", "replace"),
            "bytes": {
                "onoff": sum(step.bytes for step in steps),
                "everything": frame * n * len(steps),
                "naive": frame * sum(len(step.naive(n)) for step in steps),
            },
            "trouble": self._fault,
        }

    def _note_fault(self, task: asyncio.Task[None]) -> None:
        """Show our own error on the page. The end of the page raises the error."""
        if not task.cancelled():
            self._fault = f"A part of the page has failed ({task.exception()!r}): start onoff page again."
            self._notify()

    def tell(self) -> None:
        """Wake the task that makes requests, and open pages."""
        self._wake.set()
        self._notify()

    def _habits(self) -> list[float]:
        """Compute how likely each source is requested after the last click."""
        clicked = [self.chain.index(wish.source) for wish in self.queue]
        path = [step.wanted for step in self._all_steps()][-self.chain.depth :] + clicked
        return [float(p) for p in (self.chain.P[self.chain.state_of(path)] if path else self.prior)]

    def _all_steps(self) -> list[PageStep]:
        return [*self.history, *self.steps]

    async def _ask(self) -> None:
        """Make the queued requests, each when due."""
        while True:
            while not self._is_due():
                self._wake.clear()
                await self._wake.wait()
            async with self.turn:
                self.asks = True
                wish = self.queue[0]
                await self.client.get(wish.source, self._next_source(), wish.private)
                self.queue.popleft()
                self.asks = False
                self.steps = self.timeline.read()
            self._news.set()
            self.tell()

    async def _observe(self) -> None:
        """Compute what the server believes after the latest step; of steps in quick succession, only after the last."""
        while True:
            await self._news.wait()
            self._news.clear()
            self.knowledge = await asyncio.to_thread(self.observer.observe, self._all_steps())
            self.tell()


class PastSession(DemoSession):
    """The promise `past`: a click is a request, made at once, and sources can be locked.

    Each list of sensitive sources has a stream and a journal of its own, since it is public. A later one begins with
    as many full sets as the habits remember requests.
    """

    observer: PastObserver
    stream = 0  # how many there were before this one

    def state(self) -> dict[str, Any]:
        beginning = 0 if self.stream == 0 else max(0, self.chain.depth - len(self.steps))
        return {**super().state(), "stream": self.stream, "beginning": beginning}

    async def lock(self, source: str, on: bool) -> None:
        """Make a source sensitive, or not sensitive: a new stream begins."""
        wanted = self.chain.index(source)
        async with self.turn:
            sensitive = {*self.sensitive} | {wanted} if on else {*self.sensitive} - {wanted}
            if sensitive != {*self.sensitive}:
                await self._begin(tuple(sorted(sensitive)), self.stream + 1)
        self.tell()

    async def _open(self) -> None:
        self.observer, self._client_stack = PastObserver(self.chain), AsyncExitStack()
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
        self.observer.follow(record)
        self.sensitive, self.stream = sensitive, stream

    async def _close_client(self) -> None:
        """Close the newest stream's client. Older ones were closed when a stream took their place."""
        await self._client_stack.aclose()


class BothSession(DemoSession):
    """The promise `both`: a query may depend on the next request.

    So a request waits for the next one, or is made ON without it.
    """

    def make_now(self) -> None:
        """Make the waiting request without knowing the next: it asks for everything and counts as ON."""
        if len(self.queue) != 1 or self.asks:
            raise SessionError("this is for the one request that waits for the next: choose a source first")
        self.queue[0] = replace(self.queue[0], alone=True)
        self.tell()

    async def _open(self) -> None:
        store, plans = PlanStore(self.chain, self.directory / "plans"), []
        for lag in LAGS:  # one by one: between two, the page may end
            plans.append(await asyncio.to_thread(self._plan, lag))
            store.save(plans[-1])
        planner = Planner(
            self.chain, self.directory / "plans", background=False, usable=lambda plan: plan.kind == "table"
        )
        self.observer = BothObserver(self.chain, plans)
        # The server was born with this journal: nothing was ever asked of it before.
        client = connect(
            self.chain, server=self.server.url, journal=self.directory / "journal", promise="both",
            plans=planner, delay=DELAY, attempts=1, first_ever=True, cache=NO_CACHE,
        )  # fmt: skip
        self.client = await self.stack.enter_async_context(client)
        self.timeline = Steps(client.journal, self.server.transcript, self.chain)

    def _plan(self, lag: int) -> Plan:
        """Make a plan with a table, for computing beliefs. A race, though cheaper, has none."""
        made = plan(self.chain, lag, time_limit=PLAN_SECONDS)
        return made if made.kind == "table" else plan(self.chain, lag, "comb")

    def _is_due(self) -> bool:
        return len(self.queue) > 1 or (bool(self.queue) and self.queue[0].alone)

    def _next_source(self) -> str | None:
        return self.queue[1].source if len(self.queue) > 1 else None


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
