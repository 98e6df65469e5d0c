"""What callers do wrong, and what several of them do at once: refused in plain words, or made in order."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from clientkit import BODIES, CHAIN, NAMES, ON, faulty
from onoff import connect
from onoff.client.clock import SendClock
from onoff.client.status import snapshot
from onoff.errors import (
    NothingPending,
    OnoffError,
    PendingRequest,
    RefusedByServer,
    SessionError,
    TransportError,
    Unavailable,
)
from recordingserver import reply


def refused(world, ask):
    """The error of a call that must leave nothing: no step, no query."""

    async def run():
        async with world.client() as client:
            with pytest.raises(OnoffError) as caught:
                await ask(client)
            assert client.journal.state.step == 0
            assert client.journal.state.pending is None
            assert list(client.journal.steps()) == []
        return caught.value

    found = asyncio.run(run())
    assert not world.queries()
    return found


def test_what_is_no_request_is_refused_before_anything_is_drawn(own):
    for private in ("off", "", [1], 0, 1.0, np.int64(0), np.array([True, False])):
        refused(own, lambda client, private=private: client.get("news", private=private))
    for source in (None, 0, np.int64(1), b"news", ["news"], ""):
        refused(own, lambda client, source=source: client.get(source))
        refused(own, lambda client, source=source: client.get("news", next=[source]))
    for items in (None, 3, "news", ["news"], [("news",)], [("news", "on")], [("news", ON), "sports"], [(None, ON)]):
        refused(own, lambda client, items=items: client.play(items).__anext__())


def rows(client):
    return list(client.journal.steps())


@pytest.mark.parametrize("wrong", [  # values of a wrong type are in tests/package/test_wrong_arguments.py
    {"delay": -1}, {"attempts": 0}, {"deadline": 0}, {"first_ever": "no"}, {"lasting": []}, {"cache": -1},
    {"server": ""}, {"server": None, "urls": []}, {"server": None, "urls": {"a": None}}, {"urls": {}}, {"server": None},
    {"promise": "future"}, {"promise": "both", "sensitive": ["news"]},
    {"sensitive": ["newz"]}, {"sensitive": "news"}, {"sensitive": [7]}, {"promise": "both", "record": "laws"},
    {"chain": None, "sensitive": ["news"]}, {"chain": None, "promise": "both"}, {"promise": "all"}, {"cache": "some"},
    {"keep": ""}, {"keep": -1}, {"keep": "30 days"}, {"keep": "1.5"}, {"keep": "9" * 12},
])  # fmt: skip
def test_an_option_that_cannot_be_meant_is_refused_at_the_door(tmp_path, wrong):
    with pytest.raises(OnoffError):
        connect(**{"chain": CHAIN, "server": "http://127.0.0.1:1", "journal": tmp_path / "j", **wrong})
    assert not list(tmp_path.iterdir())


def test_a_client_that_is_not_open_says_how_to_open_it(own):
    client = own.client()
    calls = [lambda: client.get("news"), client.resume, lambda: client.play([("news", ON)]).__anext__()]

    async def run():
        for call in calls:
            with pytest.raises(SessionError, match="use it in `async with"):
                await call()
        async with client:
            await client.get("news")
        for call in (*calls, client.__aenter__):
            with pytest.raises(SessionError, match="make another one"):
                await call()

    asyncio.run(run())


def test_requests_of_several_tasks_are_made_one_after_the_other_in_the_order_of_the_calls(own):
    wanted = [NAMES[i] for i in (0, 3, 3, 1, 4, 2, 0, 1)]

    async def run(client):
        messages = await asyncio.gather(*(client.get(source, private=ON) for source in wanted))
        return messages, [NAMES[row.request] for row in rows(client)]

    messages, made = own.use(run)
    assert [message.body for message in messages] == [BODIES[source] for source in wanted]
    assert [message.step for message in messages] == list(range(len(wanted)))
    assert made == wanted
    assert len(own.queries()) == 1  # one connection, so that no query left before the answer to the one before


def test_who_waits_behind_a_request_that_stays_pending_draws_nothing(own):
    own.server.respond = faulty(own.origin, lambda request, _: None if is_catalogue(request) else reply(b"", 503))

    async def run(client):
        calls = [client.get("news"), client.get("sports"), client.get("culture")]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        return [type(error) for error in errors], [NAMES[row.request] for row in rows(client)]

    assert own.use(run) == ([Unavailable, PendingRequest, PendingRequest], ["news"])


def is_catalogue(request):
    return request.path == "/v1/catalogue"


def test_who_gives_up_waiting_in_line_makes_no_step_and_the_others_keep_their_order(own):
    async def run(client):
        tasks = [asyncio.create_task(client.get(source, private=ON)) for source in NAMES]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return [NAMES[row.request] for row in rows(client)]

    assert own.use(run) == [NAMES[0], *NAMES[2:]]


@pytest.mark.parametrize(
    ("patience", "errors"), [(0.1, [TimeoutError]), (None, [asyncio.CancelledError, SessionError])]
)
def test_what_is_given_up_ends_at_a_point_for_the_server_sees_it(own, monkeypatch, patience, errors):
    """It stays pending. If the client is closed, who waits in line behind it is turned away."""
    happened = []

    async def run():
        asked, client = asyncio.Event(), own.client()
        await client.__aenter__()

        async def fetch(*_):
            asked.set()
            try:
                await asyncio.sleep(3600)
            finally:
                happened.append("the connection ends")

        async def end_of_call(*_):
            await asyncio.sleep(0.01)
            happened.append("a point of the grid")

        monkeypatch.setattr(client.transport, "fetch", fetch)
        monkeypatch.setattr(SendClock, "end_of_call", end_of_call)
        calls = [asyncio.wait_for(client.get(source), patience) for source in NAMES[: len(errors)]]
        tasks = [asyncio.create_task(call) for call in calls]
        await asked.wait()
        if patience is not None:
            await asyncio.wait(tasks)
        await client.__aexit__(None, None, None)
        return await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(error) for error in asyncio.run(run())] == errors
    assert happened == ["a point of the grid", "the connection ends"]
    state = snapshot(own.directory / "journal").state
    assert (state.step, NAMES[state.pending.request]) == (0, NAMES[0])


def closed_door(world):
    async def run():
        with pytest.raises(TransportError) as caught:
            async with world.client(attempts=1):
                pass
        return caught.value

    return asyncio.run(run())


@pytest.mark.parametrize(("status", "kind"), [(403, RefusedByServer), (503, Unavailable)])
def test_at_a_closed_door_nothing_is_asked_and_what_was_pending_stays_so(own, status, kind):
    own.server.respond = lambda _: reply(b"", status)
    error = closed_door(own)
    assert (type(error), error.pending) == (kind, False)
    assert "Nothing was asked" in str(error)
    own.server.respond = faulty(own.origin, lambda request, _: None if is_catalogue(request) else reply(b"", 503))
    assert own.outcome(lambda client: client.get("news"))[0] is Unavailable
    own.server.respond = lambda _: reply(b"", status)
    error = closed_door(own)
    assert (type(error), error.pending) == (kind, True)
    assert "stays pending" in str(error)


def test_a_message_of_another_request_is_not_handed_over_as_what_was_pending(own):
    async def run(client):
        with pytest.raises(NothingPending, match="nothing is pending") as caught:
            await client.resume(last=True)
        assert caught.value.step == 0
        await client.get("news")
        with pytest.raises(NothingPending, match=r"for 'news' in step 0, comes again with resume\(last=True\)"):
            await client.resume()
        return await client.resume(last=True)

    assert own.use(run).body == BODIES["news"]
    assert sum(map(len, own.queries())) == 1
