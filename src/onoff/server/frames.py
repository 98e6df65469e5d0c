"""The frames of all sources, ready to be sent, and never older than the store by more than a moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from onoff.errors import StoreError
from onoff.server.limits import log, unavailable
from onoff.server.store import START, Point, Store
from onoff.wire import Frame, Unchanged

# Others' publications are seen at most this much later, which is well within the promised second.
MAX_AGE = 0.25


@dataclass(frozen=True)
class Snapshot:
    """All frames as of one point of the store.

    `unchanged` has, for every source, the round of its frame and the answer to a reader who holds that round.
    """

    point: Point
    frames: tuple[bytes, ...]
    unchanged: tuple[tuple[int, bytes], ...]

    def answer(self, sources: Sequence[int], held: Sequence[int]) -> list[bytes]:
        """List the frames for a reader who holds these rounds, 0 for none: whole ones unless the round is held."""
        frames, unchanged = self.frames, self.unchanged
        return [
            unchanged[source][1] if number and number == unchanged[source][0] else frames[source]
            for source, number in zip(sources, held, strict=True)
        ]


class Board:
    """A copy of the store's messages as frames, renewed when a reader comes and the last look is too old.

    A reader gets frames of one snapshot, hence of one moment of the store. If the store cannot be reached the reader
    is refused (503), since the copy may be old; the next reader tries again.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshot = self._empty()
        self._seen = float("-inf")  # when the look began that confirmed the snapshot
        self._published = float("-inf")  # when this process last published
        self._look: asyncio.Task[StoreError | None] | None = None
        # A thread each: publications that wait for the store's lock must not hold up readers.
        self._reading = ThreadPoolExecutor(1, "onoff-reading")
        self._publishing = ThreadPoolExecutor(1, "onoff-publishing")

    async def current(self, held: int = 0) -> Snapshot:
        """Get the snapshot, confirmed within `MAX_AGE` and after all publications made through this board.

        A reader who holds a later round, `held`, got it from another server: look at the store again. So rounds go
        back for a reader only if the store itself has gone back.
        """
        now = time.monotonic()
        needed = now if held > self._snapshot.point.round else max(now - MAX_AGE, self._published)
        while self._seen < needed:  # twice at most: a look that was already under way, then one of our own
            if self._look is None:
                self._look = asyncio.create_task(self._renew())
            # Shielded: others wait for the same look, and a reader that hangs up must not end it.
            error = await asyncio.shield(self._look)
            if error is not None:
                raise unavailable(error) from error
        return self._snapshot

    async def publish(self, messages: Mapping[int, bytes]) -> int:
        """Publish a round; from now on `current` contains it."""
        try:
            loop = asyncio.get_running_loop()
            number = await loop.run_in_executor(self._publishing, self._store.publish, messages)
        except StoreError as error:
            raise unavailable(error) from error
        self._published = time.monotonic()
        return number

    def close(self) -> None:
        """Wait for running calls, not for publications queued behind, and close the store."""
        self._publishing.shutdown(cancel_futures=True)
        self._reading.shutdown()
        self._store.close()

    async def _renew(self) -> StoreError | None:
        """Look at the store. Return an error instead of raising: all readers who wait may have hung up."""
        began = time.monotonic()
        loop = asyncio.get_running_loop()
        try:
            self._snapshot = await loop.run_in_executor(self._reading, self._next, self._snapshot)
        except StoreError as error:
            return error
        finally:
            self._look = None
        self._seen = began
        return None

    def _next(self, old: Snapshot) -> Snapshot:
        changes = self._store.changes(old.point)
        if changes.point == old.point:
            return old
        if changes.anew and old.point != START:
            log.warning("the store was emptied or restored, or has lost its last rounds: all of it is loaded anew")
            old = self._empty()
        frames, unchanged = list(old.frames), list(old.unchanged)
        for source, message in changes.messages.items():
            frame = Frame(source, message.round, message.data).encode(self._store.catalogue.length)
            frames[source], unchanged[source] = frame, (message.round, Unchanged.of(frame).encode())
        return Snapshot(changes.point, tuple(frames), tuple(unchanged))

    def _empty(self) -> Snapshot:
        catalogue = self._store.catalogue
        frames = tuple(Frame(i, 0, b"").encode(catalogue.length) for i in range(catalogue.n))
        return Snapshot(START, frames, ((0, b""),) * catalogue.n)
