"""What a stranger can hold open: connections that wait for nothing are closed, and those who ask are served."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import uvloop

from onoff.server.limits import HEAD_BYTES
from onoff.server.run import reserve, serve_requests

HALF = b"PUT /body HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
SLOW = GET.replace(b"/", b"/slow", 1)


def through(act, limit=100, seconds=0.3, loop=asyncio.new_event_loop):
    """What `act` gives, called with a function that opens a connection to a server, and the event it waits for."""
    release = asyncio.Event()

    async def application(scope, receive, send):
        if scope["type"] != "http":
            return
        if scope["path"] == "/slow":
            await release.wait()
        if scope["path"] == "/body":
            while (await receive()).get("more_body"):
                pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def run():
        with reserve("127.0.0.1", 0) as listening:
            async with serve_requests(application, listening, limit, seconds):
                return await asyncio.wait_for(
                    act(lambda: asyncio.open_connection(*listening.getsockname()), release), 60
                )

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(run())


async def until_closed(reader):
    """All that arrives until the server closes the connection."""
    with contextlib.suppress(ConnectionResetError):
        return await reader.read()
    return b"reset"


@pytest.mark.parametrize(
    ("sent", "answers"),
    [
        (b"", 0),
        (b"GET / HT", 0),
        (GET, 1),
        (GET + b"GET / HT", 1),
        (GET + GET, 2),
        (b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nnever all of it", 0),
        (b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nall", 1),
        (HALF, 0),
        (GET + HALF, 1),
    ],
)
def test_a_connection_on_which_no_request_arrives_is_closed_in_time(sent, answers):
    async def act(opened, _):
        reader, writer = await opened()
        writer.write(sent)
        received = await until_closed(reader)
        writer.close()
        return received

    assert through(act).count(b"200 OK") == answers


def test_a_sender_is_answered_when_all_has_been_sent_and_one_that_sends_far_too_much_is_cut_off():
    async def act(opened, _):
        reader, writer = await opened()
        writer.write(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n" + bytes(3_999_999))
        await asyncio.sleep(0.1)
        assert not reader._buffer
        writer.write(b"x")
        first = await reader.readuntil(b"ok")
        writer.write(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 90000000\r\n\r\n" + bytes(9_000_000))
        second = await until_closed(reader)
        writer.close()
        return first, second

    first, second = through(act, seconds=20)
    assert b"connection: close" not in first
    assert b"connection: close" in second or second == b"reset"


@pytest.mark.parametrize("head", [b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET /", HALF.replace(b" 9", b" 90000")])
def test_bytes_that_trickle_in_do_not_make_the_wait_longer(head):
    async def act(opened, _):
        reader, writer = await opened()
        writer.write(head)

        async def trickle():
            while True:
                writer.write(b"x")
                await asyncio.sleep(0.02)

        trickling = asyncio.create_task(trickle())
        await asyncio.wait_for(until_closed(reader), 20)
        trickling.cancel()
        writer.close()

    through(act)


@pytest.mark.parametrize(
    "start",
    [
        b"GET / HTTP/1.1\r\nX: ",
        b"GET /",
        b"POST /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX: ",
    ],
)
def test_a_head_or_a_trailer_without_end_is_refused(start):
    async def act(opened, _):
        _, writer = await opened()
        writer.write(start)
        sent = 0
        with contextlib.suppress(ConnectionError):
            while not writer.is_closing() and sent < 2**24:
                writer.write(b"x" * HEAD_BYTES)
                await writer.drain()
                sent += HEAD_BYTES
                await asyncio.sleep(0.01)
        writer.close()
        return sent

    assert through(act, seconds=60) < 2**23


def test_a_request_under_way_is_no_idle_connection():
    async def act(opened, release):
        reader, writer = await opened()
        writer.write(SLOW)
        await asyncio.sleep(0.6)
        release.set()
        answer = await reader.readuntil(b"ok")
        writer.close()
        return answer

    assert through(act).startswith(b"HTTP/1.1 200 OK")


def test_beyond_the_limit_who_waits_longest_gives_way_and_requests_under_way_stay(caplog):
    async def act(opened, release):
        slow = [await opened() for _ in range(2)]
        for _, writer in slow:
            writer.write(SLOW)
        await asyncio.sleep(0.1)
        first, second = await opened(), await opened()
        await asyncio.sleep(0.05)
        new = await opened()
        assert await until_closed(first[0]) in (b"", b"reset")
        for _, writer in (second, new):
            writer.write(SLOW)
        await asyncio.sleep(0.1)
        late = await opened()  # all others have requests under way
        assert await until_closed(late[0]) in (b"", b"reset")
        release.set()
        answers = [await reader.readuntil(b"ok") for reader, _ in (*slow, second, new)]
        for _, writer in (*slow, first, second, new, late):
            writer.close()
        return answers

    assert all(answer.startswith(b"HTTP/1.1 200 OK") for answer in through(act, limit=4, seconds=20))
    assert {record.message.partition(",")[0] for record in caplog.records} == {"4 connections are open"}


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize(("sent", "answers"), [(SLOW, 1), (SLOW + GET, 2), (HALF, 0), (b"", 0)])
def test_a_client_that_half_closes_gets_its_answers(sent, answers, loop):
    async def act(opened, release):
        reader, writer = await opened()
        writer.write(sent)
        writer.write_eof()
        await asyncio.sleep(0.2)
        release.set()
        received = await asyncio.wait_for(until_closed(reader), 20)
        writer.close()
        return received

    assert through(act, seconds=60, loop=loop).count(b"200 OK") == answers
