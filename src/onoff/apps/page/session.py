"""What a tab of the page shows: a real server, a real client with a queue of clicks, and what the server believes.

    click -> queue -> Client.get -> journal and transcript -> beliefs

`EverydaySession` keeps the promise `past`, `AnnouncedSession` the promise `both`. When the server is away, the pending
query waits in the journal and is sent again unchanged. No request waits for the beliefs. No page here.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from onoff.apps.demo import LENGTH, SWITCHING, news
from onoff.apps.page.steps import Made, Steps
from onoff.client.client import Client
from onoff.errors import ChainError, ContextError, OnoffError, SessionError
from onoff.model.chain import Chain
from onoff.server.local import LocalServer

MOST_SOURCES = 24  # cards and lines beyond it are unreadable
LONGEST_QUEUE = 12
RETRY = 0.4  # seconds before a pending query is sent again
RESTART = 1.5  # seconds before a server that was killed is started again
PACE = 1.1  # seconds between two clicks of the simulated reader
LINES = 60  # of the timeline
FRESH = 0  # bytes of messages that clients hold: the messages here never change, and would cost nothing any more
LOCKED = "health"  # the source that is sensitive when the page opens, if the chain has it
OPENING = "1000100010010"  # statuses of the stream that is there to look at
TRIES = 100  # streams among which it is the first with something to see


@dataclass(frozen=True)
class Wish:
    """A click: a source, and whether privacy was ON when it was clicked."""

    source: str
    private: bool


class DemoSession(ABC):
    """Use as `async with EverydaySession(chain, changed) as session`; `changed()` is called when `state()` has changed.

    With `opening` a short stream of a simulated reader is made at once.
    """

    def __init__(
        self,
        chain: Chain,
        changed: Callable[[], None] = lambda: None,
        pace: float = PACE,
        opening: bool = False,
    ) -> None:
        if chain.n > MOST_SOURCES:
            raise ChainError(f"the chain has {chain.n} sources: the page shows at most {MOST_SOURCES}")
        self.chain, self.prior = chain, chain.stationary()
        self.queue: deque[Wish] = deque()
        self.made: list[Made] = []
        self._steps: Steps | None = None
        self.private, self.autoplay = True, False
        self.client: Client
        self.failure = ""  # why the request being made has no answer yet
        self._fault = ""  # an error of ours
        self._changed, self._pace = changed, pace
        self.making = False
        self._wanted, self._switching = True, False  # that the server runs; it is being started or stopped
        self._wake, self._news = asyncio.Event(), asyncio.Event()  # something to do; steps nobody has thought about
        self.stack = AsyncExitStack()
        if opening:
            self.queue.extend(_opening(chain))
            self.private = self.queue[-1].private

    async def __aenter__(self) -> Self:
        try:
            self.directory = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="onoff-page-")))
            messages = {name: news(name) for name in self.chain.names}
            length = max(LENGTH, *map(len, messages.values()))
            self.server = LocalServer(self.directory, messages, length)
            self.stack.callback(self.server.close)
            await self._open()
            for work in (self._make(), self._believe(), self._guard(), self._play()):
                task = asyncio.create_task(work)
                task.add_done_callback(self._broken)
                self.stack.push_async_callback(_ended, task)
        except BaseException:
            await self.stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stack.aclose()

    @abstractmethod
    async def _open(self) -> None:
        """Start the server and open the client."""

    @abstractmethod
    def _due(self) -> bool:
        """Whether the first request of the queue can be made."""

    @abstractmethod
    async def _ask_first(self) -> None:
        """Make the first request of the queue, which is due."""

    @abstractmethod
    async def _think(self) -> None:
        """Work out what the server believes after the steps that were made."""

    @abstractmethod
    def _naive(self, made: Made) -> tuple[int, ...]:
        """What a naive client asks for at a step."""

    def ask(self, source: str, private: bool) -> None:
        """Queue a request; its status is the one of this moment."""
        wanted = self.chain.index(source)
        if len(self.queue) >= LONGEST_QUEUE:
            raise SessionError(f"{LONGEST_QUEUE} requests are waiting: let the server answer some first")
        if not self._habits()[wanted]:
            raise ContextError(
                f"the chain calls it impossible to ask for {source!r} now: choose another source",
                last=wanted,
                next=wanted,
            )
        self.private = private
        self.queue.append(Wish(source, private))
        self.tell()

    def switch(self, private: bool) -> None:
        """Switch privacy ON or OFF for the clicks to come."""
        self.private = private
        self.tell()

    def play(self, on: bool) -> None:
        """Let a simulated reader click, who follows the chain and switches privacy at random moments."""
        self.autoplay = on
        self.tell()

    async def run_server(self, on: bool) -> None:
        """Stop the server, or start it again."""
        self._wanted, self._switching = on, True
        self.tell()
        try:
            await asyncio.to_thread(self.server.start if on else self.server.stop)
        finally:
            self._switching = False
            self.tell()

    def state(self) -> dict[str, Any]:
        """All that the page shows, ready for JSON."""
        latest = self.client.journal.latest()
        frame, n = self.server.catalogue.frame_length, self.chain.n
        finished = [made for made in self.made if made.bytes]
        return {
            "private": self.private,
            "habits": self._habits(),
            "queue": [asdict(wish) for wish in self.queue],
            "steps": [asdict(made) | {"naive": self._naive(made)} for made in self.made[-LINES:]],
            "message": "" if latest is None else latest[2].decode("utf-8", "replace"),
            "bytes": {
                "onoff": sum(made.bytes for made in finished),
                "everything": frame * n * len(finished),
                "naive": frame * sum(len(self._naive(made)) for made in finished),
            },
            "autoplay": self.autoplay,
            "server": {"url": self.server.url, "pid": self.server.pid, "wanted": self._wanted},
            "trouble": self._trouble(),
        }

    def _trouble(self) -> str:
        """What does not work at the moment, in words."""
        words = [self._fault] if self._fault else []
        if self._missing or not self._wanted:
            words.append("The server has died and is started again." if self._wanted else "You stopped the server.")
        if self.failure and self.client.journal.state.pending is not None:
            words.append(
                f"Step {self.client.journal.state.step} has no answer yet. Its query is on disk, "
                "and that same query is sent again until the server answers."
            )
        elif self.failure:
            words.append(self.failure)
        return " ".join(words)

    @property
    def _missing(self) -> bool:
        """Whether the server has died; one that is being started has not."""
        return self._wanted and not self._switching and self.server.pid is None

    def _broken(self, task: asyncio.Task[None]) -> None:
        """Show an error of our own on the page, and raise it when the page ends."""
        if not task.cancelled():
            self._fault = f"A part of the page has failed ({task.exception()!r}): start onoff page again."
            self._changed()

    def tell(self) -> None:
        """Wake who makes requests, and tell who is looking on."""
        self._wake.set()
        self._changed()

    def _before(self) -> int | None:
        """The request after which the next click comes."""
        return self.chain.index(self.queue[-1].source) if self.queue else self._last()

    def _last(self) -> int | None:
        """The last request that was made."""
        return self.client.journal.state.previous

    def _habits(self) -> list[float]:
        """How likely each source is to be asked for next."""
        before = self._before()
        return [float(p) for p in (self.prior if before is None else self.chain.P[before])]

    async def _make(self) -> None:
        """Make the requests of the queue, each when it is due."""
        while True:
            while not self._due():
                self._wake.clear()
                await self._wake.wait()
            self.making = True
            await self._ask_first()
            self.making, self.failure = False, ""
            self.record()
            self._news.set()
            self.tell()

    async def _believe(self) -> None:
        """What the server believes after the latest step; of steps in quick succession, only after the last."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self._think()
            self.tell()

    async def answered(self, wish: Wish, following: str | None = None) -> None:
        """Ask until there is an answer. What was drawn once is only sent again."""
        while True:
            try:
                if self.client.journal.state.pending is None:
                    await self.client.get(wish.source, following, wish.private)
                else:
                    await self.client.resume()
                return
            except OnoffError as error:
                self.failure = error.facts
                self.record()
                self.tell()
                await asyncio.sleep(RETRY)

    def record(self) -> None:
        """Read the steps that journal and transcript have by now."""
        if self._steps is None or self._steps.journal is not self.client.journal:
            self._steps = Steps(self.client.journal, self.server.transcript, self.chain)
        self.made = self._steps.read()

    async def _guard(self) -> None:
        """Start the server again if it died."""
        while True:
            await asyncio.sleep(0.2)
            if self._missing:
                self.tell()
                await asyncio.sleep(RESTART)
                if self._missing:
                    with contextlib.suppress(OnoffError):  # the next look tries again
                        await asyncio.to_thread(self.server.start)
                self.tell()

    async def _play(self) -> None:
        """The simulated reader. When it switches privacy does not depend on what it reads."""
        rng = np.random.default_rng()
        while True:
            await asyncio.sleep(self._pace)
            if not self.autoplay or len(self.queue) > 2:
                continue
            if rng.random() < 2 * SWITCHING:
                self.private = not self.private
            self.ask(self.chain.names[int(rng.choice(self.chain.n, p=self._habits()))], self.private)


def _opening(chain: Chain) -> list[Wish]:
    """The requests of a stream to look at. If the chain has the source LOCKED, it is read while privacy is OFF."""
    for seed in range(TRIES):
        path = chain.simulate(len(OPENING), np.random.default_rng(seed))
        wishes = [Wish(chain.names[x], on == "1") for x, on in zip(path, OPENING, strict=True)]
        if LOCKED not in chain.names or Wish(LOCKED, False) in wishes:
            break
    return wishes


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
