"""The time from call to send has the same distribution in every context: a two-sample test with a stated error rate.

Two clients, each in a context of its own, take turns in random order at a server that looks at its clock; the delays
are compared by the test of Kolmogorov and Smirnov. A client that behaves fails it with probability LEVEL.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import ks_2samp

from clientkit import client_with, scene
from onoff import Chain, plan
from onoff.client.client import DELAY
from onoff.client.clock import SendClock
from onoff.client.transports import Answer, Content
from onoff.client.transports.onoff import OnoffTransport
from recordingserver import OnoffOrigin, RecordingServer

pytestmark = pytest.mark.timing

N = 60
LEVEL = 1e-7  # the rate of false alarms of each test
SAMPLES = 40
DEAR = 0.0103  # seconds that a draw takes longer in one of the contexts; no whole number of the timer's milliseconds


class Watched:
    """A plan, and its own planner, whose draws take longer in the contexts after one source."""

    def __init__(self, inner, dear, seconds):
        self.inner, self.dear, self.seconds = inner, dear, seconds
        self.store = SimpleNamespace(chain=inner.chain)

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def best(self, lag):  # noqa: ARG002
        return self

    def draw(self, request, last, *rest):
        end = time.perf_counter() + (self.seconds if last == self.dear else 0)
        query = self.inner.draw(request, last, *rest)
        while time.perf_counter() < end:
            pass
        return query


@pytest.fixture(scope="module")
def the_plan():
    """Half of the sources are sticky, from the others everything is likely: contexts of very different posteriors."""
    P = np.full((N, N), 0.2 / N)
    generator = np.random.default_rng(1)
    for x in range(N):
        P[x] += 0.8 * (np.eye(N)[x] if x < N // 2 else generator.dirichlet(np.ones(N)))
    return plan(Chain(P / P.sum(axis=1, keepdims=True)), 1, "comb")


def delays(the_plan, directory, delay, dear_seconds):
    """Seconds from call to the first byte at the server, in the context of a sticky source and of another one."""
    chain = the_plan.chain
    contexts = (1, N - 1)
    found = {source: [] for source in contexts}
    origin = OnoffOrigin(dict.fromkeys(chain.names, b"x"))

    async def run(server):
        planner = Watched(the_plan, contexts[1], dear_seconds)
        async with AsyncExitStack() as stack:
            clients = {}
            for source in contexts:
                transport = OnoffTransport(server.url)
                client = client_with(chain, transport, directory / str(source), planner, first_ever=True, delay=delay)
                clients[source] = await stack.enter_async_context(client)
            for sample in range(SAMPLES + 1):
                for source in random.sample(contexts, 2):
                    client, name = clients[source], chain.names[source]
                    client.delay = 0
                    await client.get(name, name)
                    client.delay = delay
                    before = len(server.requests)
                    called = time.monotonic()
                    await client.get(name, name, private=False)
                    if sample:  # the first draw of a plan is slower, in every context
                        found[source].append(server.requests[before].begun - called)

    with RecordingServer(origin) as server:
        asyncio.run(run(server))
    return [found[source] for source in contexts]


def p_value(one, other):
    return ks_2samp(one, other, method="exact").pvalue


@pytest.mark.parametrize("dear", [pytest.param(0.0, marks=pytest.mark.long), DEAR])
def test_the_query_leaves_at_the_same_time_in_every_context(the_plan, tmp_path, dear):
    one, other = delays(the_plan, tmp_path, DELAY, dear)
    assert min(one + other) >= DELAY
    assert p_value(one, other) > LEVEL, (sorted(one), sorted(other))


def caught(directory, measured):
    """Whether a planted mistake is seen. Where a busy machine hides what it adds, 4 and 16 times that is tried."""
    for factor in (1, 4, 16):
        place = directory / str(factor)
        place.mkdir()
        if p_value(*measured(place, factor)) < LEVEL / 10:
            return True
    return False


def test_a_client_without_delay_is_caught(the_plan, tmp_path):
    """The test above can fail: without the delay, the slow draw shows."""
    assert caught(tmp_path, lambda place, factor: delays(the_plan, place, 0, 3 * factor * DEAR))


HANDLED = 0.0103  # seconds that a caller spends on the messages of one source


def gaps(directory, handled=HANDLED):
    """Seconds from one query to the next in `play`, by the source wanted at the first, all ON, in random order."""
    found = {"news": [], "sports": []}
    wanted = random.sample(sorted(found) * SAMPLES, 2 * SAMPLES)

    async def run(world):
        async with world.client(delay=0.03) as client:
            async for message in client.play([(source, True) for source in wanted]):
                end = time.perf_counter() + (handled if message.source == "news" else 0)
                while time.perf_counter() < end:
                    pass

    with scene("own", directory) as world:
        asyncio.run(run(world))
        begun = [request.begun for request in world.server.requests[1:]]
    for source, one, next_one in zip(wanted, begun, begun[1:], strict=False):
        found[source].append(next_one - one)
    return found.values()


def test_what_the_caller_does_with_a_message_does_not_show_in_the_time_of_the_next_query(tmp_path):
    one, other = gaps(tmp_path)
    assert p_value(one, other) > LEVEL, (sorted(one), sorted(other))


def test_a_delay_that_is_counted_from_the_call_is_caught(tmp_path, monkeypatch):
    """The test above can fail. Planted: the grid begins at the call, as it once did."""

    async def from_the_call(self, called, delay):
        self.start = called
        await self._until(1, delay)

    monkeypatch.setattr(SendClock, "after_call", from_the_call)
    assert caught(tmp_path, lambda place, factor: gaps(place, factor * HANDLED))


@pytest.mark.parametrize("seconds", [0.0203, pytest.param(0.0206, marks=pytest.mark.long)])
def test_the_timer_of_the_system_does_not_show_when_the_draw_ended(tmp_path, seconds):
    """A sleep ends a whole number of milliseconds after its start; here that would be 0.3 or 0.6 too late, always.

    One query that leaves sooner shows that it is not so. A busy machine adds to some, but hardly to all of 200.
    """
    late = []

    async def run(client):
        begin = client.journal.begin

        def exactly_so_long(*arguments):
            begin(*arguments)
            while time.monotonic() < called + seconds:
                pass

        async def fetch(stream, step, sources, held):  # noqa: ARG001
            late.append(time.monotonic() - client._clock.start - 2 * client.delay)
            return Answer(tuple(Content(200, b"x") for _ in sources), 0)

        client.journal.begin, client.transport.fetch = exactly_so_long, fetch
        while len(late) < 200 and min(late, default=1.0) >= 0.0003:
            called = time.monotonic()
            await client.get("news")

    with scene("any", tmp_path) as world:

        async def main():
            async with world.client(delay=DELAY) as client:
                await run(client)

        asyncio.run(main())
    assert 0 <= min(late) < 0.0003
