"""What a tab of the page runs: a real server, a real client with a queue of clicks, and an observer at the server.

    click -> queue -> Client.get -> journal and transcript -> beliefs

`onoff.apps.page.tabs` has a session for each promise. When the server is away, the pending query waits in the journal
and is sent again unchanged. No request waits for the beliefs.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from onoff.apps.demo.reader import LENGTH, news
from onoff.apps.page.beliefs import SHOWN, Knowledge, Observer, naive_views
from onoff.apps.page.steps import PageStep, Steps
from onoff.audit.bayes import infer
from onoff.client.client import Client
from onoff.errors import ChainError, ContextError, OnoffError, SessionError
from onoff.model.chain import Chain
from onoff.model.requests import Requests
from onoff.server.local import LocalServer

MOST_SOURCES = 24  # cards and lines beyond it are unreadable
LONGEST_QUEUE = 12
RETRY = 0.4  # seconds before a pending query is sent again
LINES = 60  # of the timeline
NO_CACHE = 0  # bytes of messages that clients hold: the messages here never change, and would cost nothing any more
OPENING = "10001000100100"  # statuses of the stream that is there to look at
TRIES = 200  # streams of which the one is shown that betrays a naive client most


@dataclass(frozen=True)
class Wish:
    """A click: a source, and whether privacy was ON when it was clicked."""

    source: str
    private: bool


class DemoSession(ABC):
    """Use as `async with PastSession(chain, changed) as session`; `changed()` is called when `state()` has changed.

    With `opening` a short stream of a simulated reader is made at once.
    """

    observer: Observer
    client: Client
    timeline: Steps

    def __init__(
        self,
        chain: Chain,
        changed: Callable[[], None] = lambda: None,
        opening: bool = False,
        sensitive: tuple[int, ...] = (),
    ) -> None:
        if chain.n > MOST_SOURCES:
            raise ChainError(f"the chain has {chain.n} sources: the page shows at most {MOST_SOURCES}")
        self.chain, self.prior = chain, chain.stationary()
        self.queue: deque[Wish] = deque()
        self.sensitive = sensitive
        self.history: list[PageStep] = []  # steps of earlier streams
        self.steps: list[PageStep] = []  # of this stream
        self.knowledge: Knowledge | None = None
        self.private, self.asks = True, False
        self.failure = ""  # why the request that is asked has no answer yet
        self._fault = ""  # an error of ours
        self._changed = changed
        self._wake, self._news = asyncio.Event(), asyncio.Event()  # something to do; steps nobody has thought about
        self.stack = AsyncExitStack()
        if opening:
            self.queue.extend(self._opening())
            self.private = self.queue[-1].private

    async def __aenter__(self) -> Self:
        try:
            self.directory = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="onoff-page-")))
            messages = {name: news(name) for name in self.chain.names}
            length = max(LENGTH, *map(len, messages.values()))
            self.server = LocalServer(self.directory, messages, length)
            self.stack.callback(self.server.close)
            await asyncio.to_thread(self.server.start)
            await self._open()
            for work in (self._ask(), self._observe()):
                task = asyncio.create_task(work)
                task.add_done_callback(self._note_fault)
                self.stack.push_async_callback(_end, task)
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
        """Open the client, and set `client`, `timeline` and `observer`."""

    @abstractmethod
    def _is_due(self) -> bool:
        """True if the first request of the queue can be made."""

    @abstractmethod
    async def _ask_first(self) -> None:
        """Make the first request of the queue, which is due."""

    def ask(self, source: str, private: bool) -> None:
        """Queue a request; its status is the one of this moment."""
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

    async def run_server(self, on: bool) -> None:
        """Stop the server, or start it again."""
        try:
            await asyncio.to_thread(self.server.start if on else self.server.stop)
        finally:
            self.tell()

    def state(self) -> dict[str, Any]:
        """Describe all that the page shows, ready for JSON."""
        journal = self.client.journal
        latest = journal.latest()
        frame, n = self.server.catalogue.frame_length, self.chain.n
        steps = [*self.history, *self.steps]
        finished = [step for step in steps if step.bytes]
        return {
            "private": self.private,
            "habits": self._habits(),
            "queue": [asdict(wish) for wish in self.queue],
            "sensitive": self.sensitive,
            "steps": [asdict(step) | {"naive": step.naive(n)} for step in steps[-LINES:]],
            "knowledge": None if self.knowledge is None else asdict(self.knowledge),
            "message": "" if latest is None else journal.read_body(latest[1].source).decode("utf-8", "replace"),
            "bytes": {
                "onoff": sum(step.bytes for step in finished),
                "everything": frame * n * len(finished),
                "naive": frame * sum(len(step.naive(n)) for step in finished),
            },
            "server": {"url": self.server.url, "runs": self.server.runs},
            "trouble": self._trouble(),
        }

    def _trouble(self) -> str:
        """Say what does not work at the moment."""
        words = [self._fault] if self._fault else []
        if not self.server.runs:
            words.append("You stopped the server.")
        if self.failure and self.client.journal.state.pending is not None:
            words.append(
                f"Step {len(self.history) + self.client.journal.state.step} has no answer yet. Its query is on disk, "
                "and that same query is sent again until the server answers."
            )
        elif self.failure:
            words.append(self.failure)
        return " ".join(words)

    def _note_fault(self, task: asyncio.Task[None]) -> None:
        """Show an error of our own on the page. It is raised when the page ends."""
        if not task.cancelled():
            self._fault = f"A part of the page has failed ({task.exception()!r}): start onoff page again."
            self._changed()

    def tell(self) -> None:
        """Wake what makes requests, and the pages that are open."""
        self._wake.set()
        self._changed()

    def _habits(self) -> list[float]:
        """How likely each source is to be asked for next, after the last click."""
        steps = [*self.history, *self.steps]
        before = self.chain.index(self.queue[-1].source) if self.queue else steps[-1].wanted if steps else None
        return [float(p) for p in (self.prior if before is None else self.chain.P[before])]

    async def _ask(self) -> None:
        """Make the requests of the queue, each when it is due."""
        while True:
            while not self._is_due():
                self._wake.clear()
                await self._wake.wait()
            self.asks = True
            await self._ask_first()
            self.asks, self.failure = False, ""
            self.read_steps()
            self._news.set()
            self.tell()

    async def ask_until_answered(self, wish: Wish, following: str | None = None) -> None:
        """Ask until there is an answer. A query that was drawn is only sent again."""
        while True:
            try:
                if self.client.journal.state.pending is None:
                    await self.client.get(wish.source, following, wish.private)
                else:
                    await self.client.resume()
                return
            except OnoffError as error:
                self.failure = error.facts
                self.read_steps()
                self.tell()
                await asyncio.sleep(RETRY)

    def read_steps(self) -> None:
        """Read the steps that journal and transcript have by now."""
        self.steps = self.timeline.read()

    async def _observe(self) -> None:
        """Compute what the server believes after the latest step; of steps in quick succession, only after the last."""
        while True:
            await self._news.wait()
            self._news.clear()
            finished = [step for step in (*self.history, *self.steps) if step.bytes]
            self.knowledge = await asyncio.to_thread(self.observer.observe, finished)
            self.tell()

    def _opening(self) -> list[Wish]:
        """Choose the requests to look at: of many streams the one whose hidden requests a naive client betrays most."""
        paths = [self.chain.simulate(len(OPENING), np.random.default_rng(seed)) for seed in range(TRIES)]
        best = max(paths, key=lambda path: self._betrayal([int(x) for x in path]))
        return [Wish(self.chain.names[x], on == "1") for x, on in zip(best, OPENING, strict=True)]

    def _betrayal(self, path: Sequence[int]) -> float:
        """The least that a naive client's query and later ones add to the belief in the truth, over hidden requests.

        A stream in which no sensitive source is read shows too little.
        """
        steps = [
            PageStep(t, on == "1", False, 0, "", x, (), 1, 1, self.sensitive)
            for t, (x, on) in enumerate(zip(path, OPENING, strict=True))
        ]
        views = naive_views(self.chain.n, steps)
        found = infer(Requests(self.prior, self.chain.P), [step.private for step in steps], views.__getitem__)
        if self.sensitive and not any(step.wanted in self.sensitive and not step.private for step in steps):
            return -1.0
        hidden = [step.step for step in steps if step.private or step.wanted in self.sensitive]
        return min(float(found.after[t, path[t]] - found.before[t, path[t]]) for t in hidden[-SHOWN:])


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
