"""`connect_sync`: the same client for programs without `async`: scripts, notebooks, threads.

The client lives in a thread with an event loop of its own, so it does not matter whether the caller has one, too. Calls
of several threads are made one after the other, in the order in which they come. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import update_wrapper
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from onoff.client.client import Client
from onoff.client.connecting import connect
from onoff.client.learning import Learned
from onoff.client.message import Message
from onoff.errors import OnoffError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class SyncClient:
    """A `Client` whose methods wait. Use it in `with`, or call `open` and, at the end, `close`.

    A call that is interrupted (Ctrl-C) leaves its request pending, as with a `Client`: `resume` finishes it.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closing, self._gate = threading.Lock(), threading.Lock()

    def open(self) -> Self:
        """Learn what the server offers and open the journal."""
        if self._loop is not None:
            raise RuntimeError("the client is open")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="onoff-client", daemon=True)
        self._thread.start()
        self._turn, self._left = asyncio.Lock(), False
        try:
            self._wait(self._client.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def close(self) -> None:
        """Close the client. A request that is under way stays pending."""
        with self._closing:  # of two that close it the second finds it closed
            if self._loop is None:
                return
            try:
                self._wait(self._leave())
            finally:
                self._end()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get(self, source: str, next: str | None = None, private: bool | None = None) -> Message:
        """As `Client.get`."""
        return self._in_turn(lambda: self._client.get(source, next, private))

    def resume(self) -> Message | None:
        """As `Client.resume`."""
        return self._in_turn(self._client.resume)

    def play(self, items: Iterable[tuple[str, bool]]) -> Iterator[Message]:
        """As `Client.play`. Between two of its requests other threads may make theirs, if the promise is "past"."""
        played = self._client.play(items)
        try:
            while True:
                message = self._in_turn(lambda: _next(played.__anext__()))
                if message is None:
                    return
                yield message
        finally:
            with contextlib.suppress(OnoffError, RuntimeError):
                self._wait(_closed(played))

    @property
    def names(self) -> tuple[str, ...]:
        """The sources."""
        return self._client.chain.names

    @property
    def learned(self) -> Learned | None:
        """As `Client.learned`."""

        async def look() -> Learned | None:
            return self._client.learned

        return self._in_turn(look)

    def _in_turn(self, call: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        async def made() -> Result:
            async with self._turn:
                if self._left:
                    raise RuntimeError("the client is closed")
                return await call()

        return self._wait(made())

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Have it done in the client's thread. If this thread is interrupted, so is the work."""
        with self._gate:  # what is begun before the end is ended by it, and nothing is begun after
            if self._loop is None or threading.current_thread() is self._thread:
                work.close()
                raise RuntimeError("use the client in `with`, and not in its own thread")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def _leave(self) -> None:
        """Cancel what other threads are waiting for, then close the client, and turn away who comes meanwhile."""
        await _cancelled()
        async with self._turn:
            await self._client.__aexit__(None, None, None)
            self._left = True
        await _cancelled()

    def _end(self) -> None:
        loop, thread = self._loop, self._thread
        assert loop is not None
        assert thread is not None
        with self._gate:
            self._loop = None
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


async def _next(upcoming: Any) -> Message | None:
    """The next message, or None at the end: no coroutine may raise StopAsyncIteration."""
    try:
        found: Message = await upcoming
    except StopAsyncIteration:
        return None
    return found


async def _closed(played: Any) -> None:
    await played.aclose()


def _like(
    original: Callable[Parameters, Client],
) -> Callable[[Callable[..., SyncClient]], Callable[Parameters, SyncClient]]:
    """Give a function the parameters of another one."""
    return lambda function: update_wrapper(function, original, assigned=(), updated=())


@_like(connect)
def connect_sync(*args: Any, **options: Any) -> SyncClient:
    """`connect` for programs without `async`, with the same parameters and errors: `with connect_sync(...) as client`.

    `client.get(...)` then waits for the message. It works in scripts, in notebooks and from several threads.
    """
    return SyncClient(connect(*args, **options))
