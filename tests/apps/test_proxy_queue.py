"""The proxy's queue over a real client: what fails, waits or is turned away decides when the next request is ON."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from clientkit import BODIES, NAMES, client_with, faulty
from onoff import Chain
from onoff.apps.proxy.app import Application
from onoff.client.queue import AGAIN, KEPT, NOT_BEGUN, RequestQueue
from onoff.errors import ChainError
from proxykit import no_frames, past, proxied, steps, through, true_status
from recordingserver import reply
from waiting import until

HOST = [(b"host", b"127.0.0.1:8800")]


async def leave_pending(web, http):
    """Ask for the news, and for sports while the server does not answer: it is back, and that step is pending."""
    honest = web.server.respond
    await http.get("/news")
    web.server.respond = no_frames(web)
    await http.get("/sports")
    web.server.respond = honest


def test_a_step_that_failed_is_finished_with_the_same_query_before_the_next(own):
    honest = own.server.respond

    async def ask(http, queue):
        await http.get("/news")
        await http.put("/onoff/privacy", content="off")
        await http.get("/news")
        own.server.respond = no_frames(own)
        lost = await http.get("/sports")
        still = await http.get("/sports")
        pending = queue.client.journal.state.pending
        own.server.respond = honest
        found = await http.get("/sports")
        return lost, still, pending, found, [(row.step, row.request, row.query) for row in queue.client.journal.steps()]

    lost, still, pending, found, rows = through(own, ask)
    assert [true_status(lost), true_status(still)] == [504, 504]
    assert lost.text.startswith("http://127.0.0.1")
    assert f". {KEPT} {AGAIN} [" in lost.text
    assert f". {NOT_BEGUN} {AGAIN} [" in still.text
    assert (found.status_code, found.content) == (200, BODIES["sports"])
    assert [row[:2] for row in rows] == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 1)]  # each try is a step of its own
    assert rows[2][2] == pending.query


def full_disk(queue):
    """Let the journal refuse to note step 2; the way back."""
    database = queue.client.journal._database
    database.execute(
        "CREATE TEMP TRIGGER refused BEFORE INSERT ON steps WHEN NEW.step = 2 BEGIN SELECT RAISE(ABORT, ''); END"
    )
    return lambda: database.execute("DROP TRIGGER refused")


def broken_library(queue):
    """Let every fetch fail as nobody has thought of; the way back."""

    async def fetch(*_):
        raise ValueError("a library that stumbles over an answer")

    queue.client.transport.fetch = fetch
    return lambda: vars(queue.client.transport).pop("fetch")


@pytest.mark.parametrize(("fail", "logged"), [(full_disk, ""), (broken_library, "a library that stumbles")])
def test_a_request_that_could_not_be_begun_stays_in_the_queue_whatever_went_wrong(own, caplog, fail, logged):
    """Otherwise a server that finds such a fault would decide which requests the stream lacks."""

    async def ask(http, queue):
        await leave_pending(own, http)
        mend = fail(queue)
        late = await http.get("/weather")
        waiting = queue.waiting
        mend()
        await http.get("/culture")
        return late, waiting, [NAMES[row.request] for row in queue.client.journal.steps()]

    late, waiting, asked = through(own, ask)
    assert (true_status(late), waiting) == (500, 1)
    assert NOT_BEGUN in late.text
    assert asked == ["news", "sports", "weather", "culture"]
    assert logged in caplog.text


def test_after_a_request_that_was_turned_away_the_next_one_is_on(web):
    async def ask(http, queue):
        for _ in range(2):
            await http.get("/news")
        await http.put("/onoff/privacy", content="off")
        queue._longest = 0
        refused = await http.get("/news")
        queue._longest = 9
        for name in ("sports", "weather"):
            await http.get(f"/{name}")
        return refused, [row.private for row in queue.client.journal.steps()]

    refused, private = through(web, ask)
    assert (true_status(refused), private) == (503, [True, True, True, False])

    async def stopped(http, queue):  # what waits at the end is left out as well, and the next process knows
        before = steps(queue)
        asked = [asyncio.create_task(http.get(f"/{name}")) for name in NAMES]
        await asyncio.sleep(0)
        while not queue.waiting:
            await asyncio.sleep(0)
        await queue.__aexit__()
        assert true_status(await http.get("/sports")) == 503  # too late
        answers = await asyncio.gather(*asked)
        made = steps(queue) - before
        assert [answer.status_code for answer in answers] == [200] * made + [424] * (5 - made)
        assert queue.client.journal.state.pending is None
        return steps(queue)

    made = through(web, stopped, first_ever=False)

    async def again(http, queue):
        for name in ("sports", "weather"):
            await http.get(f"/{name}")
        return [row.private for row in queue.client.journal.steps(since=made)]

    assert through(web, again, first_ever=False) == [True, False]


def test_after_a_gap_as_many_requests_are_on_as_the_habits_remember(web):
    deep = Chain([[0.2] * 5] * 6, NAMES, states=[*((x,) for x in range(5)), (1, 0)])

    async def ask(http, queue):
        await http.put("/onoff/privacy", content="off")
        for _ in range(3):
            await http.get("/news")
        queue._longest = 0
        await http.get("/news")
        queue._longest = 9
        for name in ("sports", "weather", "news"):
            await http.get(f"/{name}")
        queue.expect_repeat()
        for name in ("sports", "weather", "news"):
            await http.get(f"/{name}")
        return [row.private for row in queue.client.journal.steps()]

    assert through(web, ask, chain=deep) == [True, True, False, True, True, False, True, True, False]

    async def killed():
        async with past(web, deep, first_ever=False) as client:
            await (await RequestQueue(client).__aenter__()).submit("news")  # the queue has no end of its own

    async def again(http, queue):
        for name in ("sports", "weather", "news"):
            await http.get(f"/{name}")
        return [row.private for row in queue.client.journal.steps(since=10)]

    asyncio.run(killed())
    assert through(web, again, chain=deep, first_ever=False) == [True, True, False]


def test_for_every_program_that_got_no_message_one_request_to_come_is_on(own):
    """A server that fails, or is slow, makes programs ask again for the same source, which no habit says."""
    honest = own.server.respond

    async def ask(http, queue):
        await http.put("/onoff/privacy", content="off")
        for name in ("news", "sports"):
            await http.get(f"/{name}")
        own.server.respond = no_frames(own)
        lost = [true_status(await http.get("/weather")) for _ in range(2)]
        own.server.respond = honest
        for name in ("weather", "news"):
            await http.get(f"/{name}")
        return lost, [(NAMES[row.request], row.private) for row in queue.client.journal.steps(since=1)]

    lost, made = through(own, ask)
    assert lost == [504, 504]
    assert made == [("sports", False), ("weather", False), ("weather", True), ("weather", True), ("news", False)]


@pytest.mark.parametrize("together", [False, True])
def test_a_request_without_a_step_leaves_it_to_the_next_one_to_be_on(web, together):
    """Servers see the same as if it had not been made. The second step after it is made ON, too: a source failed."""
    honest = web.server.respond

    async def ask(http, queue):
        await http.put("/onoff/privacy", content="off")
        await http.get("/news")
        web.server.respond = faulty(honest, lambda r, _: reply(b"", 503) if r.path == "/weather" else None)
        failed = [true_status(await http.get("/weather"))]
        queue.expect_repeat()
        if together:
            answers = [queue.submit(name) for name in ("weather", "sports", "news")]
            failed.append((await asyncio.gather(*answers))[0].status)
        else:
            failed.append(true_status(await http.get("/weather")))
            for name in ("sports", "news"):
                await http.get(f"/{name}")
        rows = queue.client.journal.steps(since=1)
        return failed, [(NAMES[row.request], row.private, row.asked_private) for row in rows]

    failed, made = through(web, ask)
    assert failed == [503, 503]
    assert made == [("weather", False, False), ("sports", True, True), ("news", True, False)]


def test_what_failed_is_made_at_public_times_when_the_server_is_back(own, monkeypatch):
    monkeypatch.setattr("onoff.client.queue.RETRY_SECONDS", 0.3)
    honest = own.server.respond

    async def ask(http, queue):
        await leave_pending(own, http)
        own.server.respond = no_frames(own)
        late = await http.get("/weather")
        own.server.respond = honest
        await until(lambda: steps(queue) >= 3)
        await asyncio.sleep(0.5)  # nothing is left to be made
        return late, [NAMES[row.request] for row in queue.client.journal.steps()]

    late, asked = through(own, ask)
    assert true_status(late) == 504
    assert asked == ["news", "sports", "weather"]


@pytest.mark.parametrize("ends", [True, False])
def test_a_repetition_is_on_if_the_habits_are_known_when_its_step_is_made_and_else_the_learning_goes_on(own, ends):
    honest, count = own.server.respond, 51 if ends else 9
    asked = [("sports", False), ("weather", False), ("news", ends), ("news", False)]

    async def run():
        client = client_with(None, own.transport(), own.directory / "learned", delay=0.001, attempts=1)
        async with proxied(client) as (http, queue):
            for number in range(count):
                await http.get(f"/{NAMES[number % 5]}")
            own.server.respond = no_frames(own)
            for request in asked:
                await asyncio.wait([queue.submit(*request)])
            own.server.respond = honest
            await queue.submit("weather", False)
            assert queue.client.habits.stage == ("known" if ends else "learning")
            return [(NAMES[row.request], row.asked_private) for row in queue.client.journal.steps(since=count)]

    assert asyncio.run(run()) == [asked[0], ("weather", ends), *[("news", ends)] * 2, ("weather", ends)]


def test_full_sets_that_were_made_are_not_due_again_after_a_kill(web):
    async def leave(_, queue):
        for answer in [queue.submit(name) for name in NAMES[:3]]:
            queue.abandon(answer)
        await until(lambda: steps(queue) >= 3)

    async def pay_and_die():
        async with past(web, first_ever=False) as client:
            queue = await RequestQueue(client).__aenter__()
            due = queue.full_sets_due
            for name in NAMES[:3]:
                await queue.submit(name)
            return due  # the queue has no end of its own

    async def look(_, queue):
        return queue.full_sets_due

    through(web, leave)
    assert asyncio.run(pay_and_die()) == 3
    assert through(web, look, first_ever=False) == 1


def test_after_a_program_that_went_away_before_its_message_the_next_request_is_on(web):
    honest, slow = web.server.respond, threading.Event()

    def waiting(path):
        slow.wait(60)
        return honest(path)

    async def ask(http, queue):
        await http.put("/onoff/privacy", content="off")
        for name in ("news", "sports"):
            await http.get(f"/{name}")
        web.server.respond = waiting

        async def gives_up():
            await until(lambda: queue.client.journal.state.pending is not None)
            return {"type": "http.disconnect"}

        async def sent(_):
            return

        hasty = {"type": "http", "method": "GET", "path": "/weather", "query_string": b"", "headers": HOST}
        await Application(queue)(hasty, gives_up, sent)
        slow.set()
        for name in ("weather", "news"):
            await http.get(f"/{name}")
        return [(NAMES[row.request], row.private) for row in queue.client.journal.steps(since=1)]

    assert through(web, ask) == [("sports", False), ("weather", False), ("weather", True), ("news", False)]


@pytest.mark.parametrize("alone", [False, True])
def test_the_first_request_after_a_killed_proxy_is_on_whoever_makes_it(web, alone):
    """Requests may have waited in its queue, and nobody knows of them."""

    async def killed():
        async with past(web) as client:
            queue = await RequestQueue(client).__aenter__()
            queue.switch(False)
            for _ in range(2):
                await queue.submit("news")  # the queue has no end of its own

    async def ask(*names):
        async with past(web, first_ever=False) as client:
            for name in names:
                await client.get(name, private=False)
            return [row.private for row in client.journal.steps(since=2)]

    def again(*names):
        async def reload(http, queue):
            for name in names:
                await http.get(f"/{name}")
            return [row.private for row in queue.client.journal.steps(since=2)]

        return asyncio.run(ask(*names)) if alone else through(web, reload, first_ever=False)

    asyncio.run(killed())
    if alone:
        with pytest.raises(ChainError):  # a request that is refused does not count
            again("nothing")
    assert again("sports", "weather") == [True, False]
    assert again("news") == [True, False, False]


def test_the_log_says_once_that_a_server_does_not_answer_and_once_that_all_do_again(own, caplog):
    honest = own.server.respond

    async def ask(http, _):
        for respond in (honest, None, None, honest, honest, None, honest):
            own.server.respond = respond or no_frames(own)
            await http.get("/sports")

    with caplog.at_level(logging.WARNING, "onoff.proxy"):
        through(own, ask)
    said = [record.getMessage() for record in caplog.records]
    assert ["does not answer" in words for words in said] == [True, False] * 2
    assert said[1] == "the servers answer again"
    assert not any(name in words for words in said for name in (*NAMES, "127.0.0.1"))


def test_after_a_request_that_the_chain_calls_impossible_the_next_one_is_on(web):
    """It was wanted, but the stream lacks it: whether the next waits already, or comes later."""
    round_trip = Chain([[0.5 * (y in (x, (x + 1) % 5)) for y in range(5)] for x in range(5)], NAMES)

    async def ask(http, queue):
        await http.put("/onoff/privacy", content="off")
        answers = [await http.get(f"/{name}") for name in (NAMES[0], NAMES[3], NAMES[0], NAMES[1])]
        assert [answer.status_code for answer in answers] == [200, 409, 200, 200]
        together = [queue.submit(name) for name in (NAMES[4], NAMES[1], NAMES[1])]
        await asyncio.gather(*together, return_exceptions=True)
        return [row.private for row in queue.client.journal.steps()]

    assert through(web, ask, chain=round_trip) == [True, True, False, True, False]
