"""Streams: a query is answered again as often as it is sent, but a step is never asked for in two ways."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import stat
import time
from hashlib import blake2b
from itertools import islice

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onoff.errors import StoreError, StoreUnavailable
from onoff.server.store import streams
from onoff.server.store.redis import RedisStreams
from onoff.server.store.streams import LOOK_SECONDS, FileStreams, open_streams
from onoff.wire import MAX_STEP
from redisprocess import needs_redis
from sampling import examples
from serverprocess import ServerProcess

ONE, OTHER = "1" * 32, "f" * 32


def admitted(target, *asked):
    """Whether each (stream, step, query) is admitted, one after the other."""

    async def run():
        table = open_streams(target)
        try:
            return [await table.admit(*one) for one in asked]
        finally:
            table.close()

    return asyncio.run(run())


STEPS = st.sampled_from([0, 1, 2, 3, MAX_STEP - 1, MAX_STEP])
MOVES = st.lists(st.tuples(st.integers(0, 3), STEPS, st.sampled_from([b"a", b"b"])), max_size=30)


@pytest.mark.parametrize("kind", ["file", pytest.param("redis", marks=needs_redis)])
@given(MOVES)
@settings(max_examples=examples(40), deadline=None)
def test_a_step_may_be_repeated_and_left_but_not_changed_or_gone_back_to(request, tmp_path_factory, kind, moves):
    """Both tables agree with a dictionary."""
    if kind == "redis":
        request.getfixturevalue("redis").clear()
        target = request.getfixturevalue("redis").url
    else:
        target = str(tmp_path_factory.mktemp("streams") / "m.db")
    known, expected, asked = {}, [], []
    for number, step, query in moves:
        stream = f"{number:032x}"
        last = known.get(stream, (-1, b""))
        expected.append(step > last[0] or (step, query) == last)
        if expected[-1]:
            known[stream] = (step, query)
        asked.append((stream, step, query))
    assert admitted(target, *asked) == expected


def test_a_full_bucket_forgets_the_stream_that_was_used_least_recently_whatever_the_clock_says(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "_BUCKETS", 1)
    monkeypatch.setattr(time, "time_ns", iter(range(10**9, 0, -1)).__next__)  # a clock that is put back again and again

    async def run():
        table = FileStreams(str(tmp_path / "streams"))
        names = [f"{i:032x}" for i in range(streams._WAYS + 1)]
        for name in names[:-1]:
            assert await table.admit(name, 5, b"a")
        assert await table.admit(names[0], 5, b"a")  # used again
        assert await table.admit(names[-1], 5, b"a")
        found = [await table.admit(name, 4, b"a") for name in [names[0], *names[2:]]]
        assert not any(found)
        assert await table.admit(names[1], 4, b"a")  # the one that was forgotten
        table.close()

    asyncio.run(run())


@pytest.mark.parametrize("tables", [1, 2])
def test_streams_that_a_stranger_chooses_do_not_push_out_another(tmp_path, tables):
    """Numbers alike in some bits, or in their hash, fall into buckets that a secret of the table chooses."""

    def bucket(stream):
        return int.from_bytes(blake2b(bytes.fromhex(stream), digest_size=4).digest()) % streams._BUCKETS

    async def run():
        opened = [FileStreams(str(tmp_path / "streams")) for _ in range(tables)]  # as several processes do
        assert await opened[0].admit(ONE, 5, b"a")
        hashed = (name for i in range(2**20) if bucket(name := f"{i:032x}") == bucket(ONE))
        for name in islice(hashed, 40):
            assert await opened[-1].admit(name, 5, b"a")
        for i in range(400):
            assert await opened[-1].admit(f"{ONE[:24]}{i:08x}", 5, b"a")
            assert await opened[-1].admit(f"{i:08x}{ONE[8:]}", 5, b"a")
        assert not await opened[-1].admit(ONE, 4, b"a")
        for table in opened:
            table.close()

    asyncio.run(run())


@needs_redis
def test_in_redis_the_streams_that_asked_last_are_remembered(redis):
    redis.clear()

    async def run():
        table = RedisStreams(redis.url, limit=10)
        for number in [*range(10), 0, *range(10, 15)]:
            assert await table.admit(f"{number:032x}", 5, b"a")
        for number in (0, *range(6, 15)):
            assert not await table.admit(f"{number:032x}", 4, b"a")
        assert await table.admit(f"{5:032x}", 4, b"a")
        table.close()
        import redis as client

        with client.Redis.from_url(redis.url) as database:
            assert database.hlen("{onoff}:streams") == database.zcard("{onoff}:recent") == 10

    asyncio.run(run())


@needs_redis
def test_queries_that_redis_is_asked_about_together_are_judged_in_their_order(redis):
    redis.clear()

    async def run():
        table = RedisStreams(redis.url)
        asked = [(ONE, 1, b"a"), (ONE, 2, b"a"), (ONE, 2, b"b"), (ONE, 1, b"a"), (OTHER, 1, b"a"), (ONE, 2, b"a")]
        found = await asyncio.gather(*(table.admit(*one) for one in asked))
        table.close()
        return found

    assert asyncio.run(run()) == [True, True, False, False, True, True]


def test_the_file_is_the_owners_alone_and_another_file_is_not_touched(tmp_path):
    FileStreams(str(tmp_path / "streams")).close()
    assert stat.S_IMODE((tmp_path / "streams").stat().st_mode) == 0o600
    (tmp_path / "text").write_text("mine")
    with pytest.raises(StoreError, match="not a table of streams"):
        FileStreams(str(tmp_path / "text"))
    assert (tmp_path / "text").read_text() == "mine"
    with pytest.raises(StoreUnavailable, match="No such file"):
        FileStreams(str(tmp_path / "none" / "streams"))


def test_a_table_that_was_deleted_is_told_and_no_two_processes_use_two(tmp_path):
    async def run():
        first = FileStreams(str(tmp_path / "streams"))
        assert await first.admit(ONE, 5, b"a")
        (tmp_path / "streams").unlink()
        later = FileStreams(str(tmp_path / "streams"))  # of a process in the place of one that died
        await asyncio.sleep(1.1 * LOOK_SECONDS)
        with pytest.raises(StoreUnavailable, match="deleted or replaced"):
            await first.admit(ONE, 6, b"a")
        assert await later.admit(ONE, 6, b"b")
        first.close()
        later.close()

    asyncio.run(run())


def _race(path, number, start, results):
    table = FileStreams(path)
    found = []
    write = os.pwrite

    def late(*arguments):
        """Between the look and the write there is time for the other process."""
        time.sleep(0.005)
        return write(*arguments)

    os.pwrite = late
    for step in range(50):
        start.wait()
        found.append(asyncio.run(table.admit(ONE, step, b"%d" % number)))
        start.wait()
    results.put(found)


def test_of_two_processes_that_ask_differently_at_the_same_time_one_is_admitted(tmp_path):
    context = multiprocessing.get_context("fork")
    start, results = context.Barrier(2), context.Queue()
    processes = [context.Process(target=_race, args=(str(tmp_path / "s"), i, start, results)) for i in range(2)]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert [sum(pair) for pair in zip(*found, strict=True)] == [1] * 50


def assert_stale(response):
    assert (response.status_code, response.headers["content-type"]) == (409, "application/problem+json")
    document = response.json()
    assert document["type"] == "urn:onoff:problem:stale-step"
    assert "restored or copied" in document["detail"]
    assert "new journal" in document["detail"]


@pytest.mark.parametrize("workers", [pytest.param("1", marks=pytest.mark.long), "3"])
def test_a_restored_journal_is_refused_and_leaves_no_line_in_the_transcript(tmp_path, target, workers):
    with ServerProcess(tmp_path, "--workers", workers, store=target) as server:
        server.ask([0, 1], step=7, stream=ONE)
        server.ask([0, 1], step=7, stream=ONE)  # a retry
        server.ask([2], step=8, stream=ONE)
        before = server.transcript_file.read_bytes()
        for _ in range(6):  # over new connections, which reach other workers
            server.http.close()
            server.http = httpx.Client(base_url=server.url, timeout=60)
            assert_stale(server.query([3], step=8, stream=ONE))
            assert_stale(server.query([0, 1], step=7, stream=ONE))
        assert server.transcript_file.read_bytes() == before
        server.ask([2], step=8, stream=ONE)
        server.ask([3], step=8, stream=OTHER)
        lines = server.http.get("/metrics").text.splitlines()
        [counted] = [line for line in lines if line.startswith('onoff_problems_total{type="stale-step"}')]
        assert float(counted.split()[1]) == 12


def test_what_was_answered_before_a_kill_is_known_after_it(tmp_path, target):
    with ServerProcess(tmp_path, store=target) as server:
        for step in range(3):
            server.ask([0, step + 1], step=step, stream=ONE)
        server.kill()
        server.start()
        assert_stale(server.query([1], step=2, stream=ONE))
        server.ask([0, 3], step=2, stream=ONE)  # a retry
        server.ask([0], step=3, stream=ONE)
