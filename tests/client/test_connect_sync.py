"""`connect_sync`: the same client for programs without `async`, from any thread, beside any loop."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from clientkit import BODIES, CHAIN, NAMES
from onoff import connect, connect_sync
from onoff.client.status import snapshot
from onoff.errors import ChainError, SessionError
from recordingserver import Reply


def client_of(web, **options):
    options = {**web.address(), "delay": 0, "attempts": 1, **options}
    return connect_sync(CHAIN, journal=web.directory / "j", **options)


def test_it_gives_what_the_client_gives_and_sends_what_it_sends(web):
    with client_of(web) as client:
        messages = [client.get("news"), client.get("sports", private=False), *client.play([("culture", True)])]
        assert client.names == NAMES
        assert client.habits.stage == "known"
    assert [message.body for message in messages] == [BODIES[name] for name in ("news", "sports", "culture")]
    sent = web.queries()
    web.server.reset()

    async def same():
        options = {**web.address(), "journal": web.directory / "k", "delay": 0, "attempts": 1}
        async with connect(CHAIN, **options) as client:
            await client.get("news")
            await client.get("sports", private=False)  # the second of a journal: everything, as above
            [_] = [message async for message in client.play([("culture", True)])]

    asyncio.run(same())
    assert web.queries() == sent


def test_it_has_the_parameters_of_connect():
    assert inspect.signature(connect_sync).parameters == inspect.signature(connect).parameters


def test_many_threads_make_one_stream_beside_a_running_loop_as_in_a_notebook(web):
    wanted = [NAMES[i % 5] for i in range(40)]

    async def cell():
        with client_of(web) as client, ThreadPoolExecutor(8) as pool:
            return list(pool.map(client.get, wanted))

    messages = asyncio.run(cell())
    assert [message.body for message in messages] == [BODIES[name] for name in wanted]
    assert sorted(message.step for message in messages) == list(range(40))


def test_a_call_that_is_cut_off_stays_pending(web):
    asked = threading.Event()

    def never(_):
        asked.set()
        return Reply([60.0])

    web.server.respond = never
    client = client_of(web).open()
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(client.get, "news")
        assert asked.wait(60)
        client.close()
        assert lost.exception(timeout=60) is not None
    assert snapshot(web.directory / "j").state.pending.request == 0


def test_who_asks_while_it_is_being_closed_is_turned_away_and_not_kept_waiting(web):
    client = client_of(web, delay=0.2).open()
    client.get("news")
    with ThreadPoolExecutor(8) as pool:
        closing = [pool.submit(client.close) for _ in range(2)]
        asking = [pool.submit(client.get, "sports") for _ in range(6)]
        errors = [each.exception(timeout=60) for each in asking]
        assert [each.exception(timeout=60) for each in closing] == [None, None]
    assert all(isinstance(error, SessionError | CancelledError | None) for error in errors)
    assert not [thread for thread in threading.enumerate() if thread.name == "onoff-client"]


def test_an_interrupted_play_raises_what_interrupted_it(web):
    interrupts = [signal.SIGINT]  # one: another would hit the tests after this one

    def never(_):
        if interrupts:
            signal.pthread_kill(threading.main_thread().ident, interrupts.pop())
        return Reply([60.0])

    with client_of(web, delay=0.05) as client:
        web.server.respond = never
        with pytest.raises(KeyboardInterrupt):
            list(client.play([("news", True)]))
    assert snapshot(web.directory / "j").state.pending.request == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Python 3.12, since there are threads
def test_a_process_that_was_forked_is_turned_away_and_the_other_one_goes_on(web):
    with client_of(web) as client:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                client.get("news")
            except SessionError as error:
                client.close()
                os._exit(7 if "in this process" in str(error) else 1)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert client.get("news").body == BODIES["news"]


def test_outside_of_with_and_after_what_fails_at_the_door_there_is_no_thread(web, tmp_path):
    client = client_of(web)
    with pytest.raises(SessionError, match="is not open in this process"):
        client.get("news")
    with client as opened, pytest.raises(SessionError, match="is open already"):
        opened.open()
    client.close()
    for call in (client.open, lambda: client.get("news"), client.resume, lambda: list(client.play([("news", True)]))):
        with pytest.raises(SessionError):
            call()
    urls = {name: f"http://127.0.0.1:1/{name}" for name in "ab"}
    with pytest.raises(ChainError, match="not those of the chain"):
        connect_sync(CHAIN, urls=urls, journal=tmp_path / "x").open()
    assert not [thread for thread in threading.enumerate() if thread.name == "onoff-client"]
