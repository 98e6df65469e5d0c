"""`connect_sync`: the same client for programs without `async`: scripts, notebooks, threads.

The client lives in a thread with an event loop of its own, so it does not matter whether the caller has one, too. Calls
of several threads are made one after the other, in the order in which they come: `Client` sees to that, and nothing is
decided here.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar

from onoff.client.client import Client, Message
from onoff.client.connect import Settings, with_settings
from onoff.client.habits import HabitsStatus
from onoff.errors import OnoffError, SessionError

Result = TypeVar("Result")

NOT_YET = "the client is not open: use it in `with connect_sync(...) as client`, or call its `open` first"
OVER = "the client is closed: make another one, with the same journal"
OWN_THREAD = "the client was called from its own thread, which would wait for itself: call it from another one"
ELSEWHERE = "the client was opened in another process, from which this one was forked: only that one can use it"


class SyncClient:
    """A `Client` whose methods wait. Use it in `with`, or call `open` and, at the end, `close`.

    A call that is interrupted (Ctrl-C) leaves its request pending, as with a `Client`: `resume` finishes it.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closing, self._gate = threading.Lock(), threading.Lock()
        self._is_over = False

    def open(self) -> Self:
        """Learn what the server offers and open the journal."""
        if self._loop is not None:
            raise SessionError("the client is open already: use it, or make another one with another journal")
        if self._is_over:
            raise SessionError(OVER)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="onoff-client", daemon=True)
        self._thread.start()
        try:
            self._wait(self._client.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def close(self) -> None:
        """Close the client. A request that is under way stays pending. In a process that was forked, do nothing."""
        if self._trouble() == OWN_THREAD:
            raise SessionError(OWN_THREAD)
        with self._closing:  # of two that close it the second finds it closed
            if self._trouble() is not None:
                return
            try:
                self._wait(self._client.__aexit__(None, None, None))
            finally:
                self._end()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> NoReturn:
        raise SessionError("use this client in `with`, or take connect(...), whose client works in `async with`")

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: it was not entered."""

    def get(self, source: str, next: str | None = None, private: bool | None = None) -> Message:
        """As `Client.get`."""
        return self._wait(self._client.get(source, next, private))

    def resume(self, last: bool = False) -> Message:
        """As `Client.resume`."""
        return self._wait(self._client.resume(last))

    def play(self, items: Iterable[tuple[str, bool]]) -> Iterator[Message]:
        """As `Client.play`. Between two of its requests other threads may make theirs, if the promise is "past"."""
        played = self._client.play(items)
        try:
            while True:
                message = self._wait(_next(played))
                if message is None:
                    return
                if isinstance(message, BaseException):
                    raise message
                yield message
        finally:
            with contextlib.suppress(OnoffError, RuntimeError):  # if it was interrupted, it is ending already
                self._wait(_closed(played))

    @property
    def names(self) -> tuple[str, ...]:
        """The sources."""
        return self._client.chain.names

    @property
    def habits(self) -> HabitsStatus | None:
        """As `Client.habits`."""

        async def look() -> HabitsStatus | None:
            return self._client.habits

        return self._wait(look())

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Have it done in the client's thread. If this thread is interrupted, so is the work."""
        with self._gate:  # what is begun before the end is ended by it, and nothing is begun after
            trouble = self._trouble()
            if self._loop is None or trouble is not None:
                work.close()
                raise SessionError(trouble or "the client is not open")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _trouble(self) -> str | None:
        """Why this thread cannot have anything done; None if it can."""
        if self._loop is None or self._thread is None:
            return OVER if self._is_over else NOT_YET
        if threading.current_thread() is self._thread:
            return OWN_THREAD
        return None if self._thread.is_alive() else ELSEWHERE  # a fork has no thread but its own

    def _end(self) -> None:
        loop, thread = self._loop, self._thread
        assert loop is not None
        assert thread is not None
        with self._gate:
            self._loop, self._is_over = None, True
        asyncio.run_coroutine_threadsafe(_cancelled(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _cancelled() -> None:
    """Cancel all other work of the loop, and wait until it has ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _next(played: AsyncIterator[Message]) -> Message | BaseException | None:
    """The next message, or None at the end. What would end the thread of the loop is handed over instead."""
    try:
        return await anext(played, None)
    except (SystemExit, KeyboardInterrupt) as error:  # of the items, which are taken in that thread
        return error


async def _closed(played: Any) -> None:
    await played.aclose()


@with_settings(Settings)
def connect_sync(settings: Settings) -> SyncClient:
    """`connect` for programs without `async`, with the same parameters and errors: `with connect_sync(...) as client`.

    `client.get(...)` then waits for the message. It works in scripts, in notebooks and from several threads.
    """
    return SyncClient(Client(settings.completed()))
