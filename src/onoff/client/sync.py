"""`connect_sync`: the same client for programs without `async`: scripts, notebooks, threads.

The client lives in a thread with an event loop of its own, so the caller may have one, too. `Client` makes the requests
of several threads one after the other, in the order of the calls; nothing is decided here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Self, TypeVar

from onoff.client.client import NOT_OPEN, Client
from onoff.client.connect import Settings, with_settings
from onoff.client.habits import HabitsStatus
from onoff.client.message import Message
from onoff.client.protocol import look_one_ahead
from onoff.errors import SessionError

Result = TypeVar("Result")
Inner = TypeVar("Inner", bound=AbstractAsyncContextManager[object])


class LoopThread(Generic[Inner]):
    """A client, or what uses one, open in the event loop of a thread of its own. Use it in `with`."""

    def __init__(self, inner: Inner) -> None:
        self._inner = inner
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(name="onoff-client", daemon=True)
        self._closing, self._gate = threading.Lock(), threading.Lock()

    def open(self) -> Self:
        """Start the thread and open what is used there."""
        if self._loop is not None:
            raise SessionError("the client is open already: use it, or make another one with another journal")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="onoff-client", daemon=True)
        self._thread.start()
        try:
            self.wait(self._inner.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def close(self) -> None:
        """Close it. A request that is under way stays pending. In a process that was forked, do nothing."""
        with self._closing:  # of two that close it the second finds it closed
            if self._loop is None or not self._thread.is_alive():
                return
            try:
                self.wait(self._inner.__aexit__(None, None, None))
            finally:
                self._end()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run work in the client's thread. An interruption of this thread ends it."""
        with self._gate:  # what is begun before the end is ended by it, and nothing is begun after
            if self._loop is None or not self._thread.is_alive():  # a fork has no thread but its own
                work.close()
                raise SessionError(NOT_OPEN)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _end(self) -> None:
        with self._gate:
            loop, self._loop = self._loop, None
        assert loop is not None
        asyncio.run_coroutine_threadsafe(_cancel_all(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.close()


class SyncClient(LoopThread[Client]):
    """A `Client` whose methods wait. Use it in `with`, or call `open` and, at the end, `close`.

    A call that is interrupted (Ctrl-C) leaves its request pending, as with a `Client`: `resume` finishes it.
    """

    def get(self, source: str, next: str | None = None, private: bool | None = None) -> Message:
        """As `Client.get`."""
        return self.wait(self._inner.get(source, next, private))

    def resume(self, last: bool = False) -> Message:
        """As `Client.resume`."""
        return self.wait(self._inner.resume(last))

    def play(self, items: Iterable[tuple[str, bool]]) -> Iterator[Message]:
        """As `Client.play`. Between two of its requests other threads may make theirs, if the promise is "past"."""
        for request in look_one_ahead(items, self._inner.journal.promise):
            yield self.wait(self._inner.ask(*request, decided=True))

    @property
    def names(self) -> tuple[str, ...]:
        """The sources."""
        return self._inner.chain.names

    @property
    def private_until(self) -> float | None:
        """As `Client.private_until`."""

        async def look() -> float | None:
            return self._inner.private_until

        return self.wait(look())

    @property
    def habits(self) -> HabitsStatus | None:
        """As `Client.habits`."""

        async def look() -> HabitsStatus | None:
            return self._inner.habits

        return self.wait(look())


async def _cancel_all() -> None:
    """Cancel all other work of the loop, and wait until it has ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@with_settings(Settings)
def connect_sync(settings: Settings) -> SyncClient:
    """`connect` for programs without `async`, with the same parameters and errors: `with connect_sync(...) as client`.

    `client.get(...)` then waits for the message. It works in scripts, in notebooks and from several threads.
    """
    return SyncClient(Client(settings.complete()))
