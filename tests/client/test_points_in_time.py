"""What keeps the size of a message out of the time of what follows: in which order, in which thread, until which point.

`benchmarks/bench_timing.py` measures what is left; here each precaution is seen at work, so that none is lost unseen.
"""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from clientkit import NAMES, ON
from onoff.client import play
from onoff.client.client import EXIT
from onoff.client.clock import SendClock
from onoff.client.journal import Journal
from onoff.client.message import Message
from onoff.client.play import Delivery, play_file
from onoff.types import quiet

DELAY = 0.02


def test_play_writes_files_in_a_thread_unsynced_while_the_next_query_leaves(own, monkeypatch):
    """The first file is not written before the last request is answered."""
    written, answered = [], threading.Event()

    def write(*_, sync):
        beside = threading.current_thread() is not threading.main_thread()
        assert not beside or answered.wait(60)
        written.append((beside, sync))

    monkeypatch.setattr(play, "write_atomically", write)
    delivery, items = Delivery(own.directory / "out"), [(name, ON) for name in NAMES[:3]]

    async def run():
        async with own.client(delay=DELAY) as client:
            await play_file(client, own.directory / "requests", items, delivery, False, quiet)

    asyncio.run(run())
    answered.set()
    assert delivery.close() == []
    assert written == [(True, False)] * 3


def test_a_program_of_one_request_ends_at_a_multiple_of_delays_after_its_client_was_closed(own, monkeypatch):
    """Bodies take their time on the disk before that, and would carry what the program does beyond a multiple."""
    closed, slept, honest = [], [], Journal.close
    monkeypatch.setattr(Journal, "close", lambda self: (honest(self), closed.append(time.monotonic())))

    async def run():
        async with own.client(delay=DELAY) as client:
            await client.get("news")
        return client

    client = asyncio.run(run())
    assert closed[-1] < client._closed_at < time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: client._closed_at + 2.25 * EXIT * DELAY)
    monkeypatch.setattr(time, "sleep", slept.append)
    client.wait_to_exit()
    assert slept == [pytest.approx(0.75 * EXIT * DELAY, abs=1e-6)]


def test_a_program_that_runs_asyncio_does_not_make_the_repr_of_a_body():
    """`asyncio.run` makes that of a result: 64 MB take it more than a second, and only where they are wanted."""
    message = Message("news", b"body of a message", 0, True, False, ("news",), 1)
    assert "body" not in repr(message)


def test_the_first_query_of_a_program_leaves_at_a_point_after_the_end_of_the_one_before(own, monkeypatch):
    ends, honest = [], SendClock.restart
    monkeypatch.setattr(SendClock, "restart", lambda self, ended=None: ends.append(ended) or honest(self, ended))

    async def run():
        async with own.client(delay=DELAY) as client:
            await client.get("news")
            return client.journal.ended

    first = asyncio.run(run())
    before = len(ends)
    asyncio.run(run())
    assert ends[0] is None
    assert ends[before : before + 2] == [first, first]  # before the connection is made, and when the client is open


def test_what_is_held_is_read_before_a_query_waits_for_its_point(own, monkeypatch):
    done = []
    for kind, name in ((Journal, "read_held"), (SendClock, "after_call")):
        honest = getattr(kind, name)
        monkeypatch.setattr(
            kind, name, lambda *arguments, honest=honest, name=name: done.append(name) or honest(*arguments)
        )

    async def run():
        async with own.client(delay=DELAY) as client:
            for _ in range(2):
                await client.get("news")

    asyncio.run(run())
    assert done == ["read_held", "after_call"] * 2
