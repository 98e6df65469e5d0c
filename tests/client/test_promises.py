"""The journal decides the promise: what the client does with each, and what is said where they do not fit."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import threading
import time
from contextlib import closing
from functools import partial

import pytest

from clientkit import BODIES, NAMES, OFF, ON
from clikit import call
from onoff import Chain, connect, files
from onoff.client import promises
from onoff.client.clock import SendClock
from onoff.client.journal import Journal
from onoff.client.laws import HEAD, law_digest
from onoff.client.laws import record as append
from onoff.client.lawstore import LawStore
from onoff.client.promises import Ahead
from onoff.client.status import snapshot
from onoff.errors import (
    ContextError,
    JournalError,
    OnoffError,
    PendingRequest,
    SessionError,
    Unavailable,
)
from onoff.past import PastState, RaceStep, StepLaw, step
from oracles import random_chain

CHAIN = Chain(random_chain("dense", 5, 3).P, NAMES)
STATUSES = [ON, ON, OFF, OFF, OFF, ON, OFF, OFF]
READ = [NAMES[i % 5] for i in range(len(STATUSES))]


def client_of(world, journal="journal", chain=CHAIN, **options):
    return connect(chain, **world.address(), journal=world.directory / journal, **{"delay": 0.001, **options})


def read(world, items=(), journal="journal", **options):
    """The messages of some requests, by a client of its own."""

    async def run():
        async with client_of(world, journal, **options) as client:
            return [await client.get(source, private=private) for source, private in items]

    return asyncio.run(run())


def queries_of(journal):
    with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as database:
        return [tuple(json.loads(query)) for (query,) in database.execute("SELECT query FROM steps ORDER BY step")]


# What a reader gets.


@pytest.mark.parametrize("sensitive", [(), ("weather",), ("news", "culture")])
def test_a_reader_calls_get_and_nothing_else(world, sensitive):
    messages = read(world, zip(READ, STATUSES, strict=True), sensitive=sensitive)
    assert [message.body for message in messages] == [BODIES[source] for source in READ]
    assert [message.private for message in messages] == STATUSES
    for message in messages:
        assert {message.source, *sensitive} <= {*message.query}
        assert not message.private or len(message.query) == 5
    found = snapshot(world.directory / "journal")
    assert (found.promise, [NAMES[s] for s in found.sensitive]) == ("past", sorted(sensitive, key=NAMES.index))
    assert found.state.rounding > 0


@pytest.mark.parametrize(("sensitive", "default"), [((), ON), (("weather",), OFF)])
def test_a_request_is_on_unless_told_otherwise_but_off_where_sources_are_hidden_all_the_time(own, sensitive, default):
    messages = read(own, [("news", None)] * 2 + [("sports", None)] * 2, sensitive=sensitive)
    assert [message.private for message in messages] == [ON, default, default, default]
    assert [message.made_private for message in messages] == [not default, False, False, False]


def test_if_all_sources_are_sensitive_every_request_asks_for_everything_and_that_is_said(own, tmp_path):
    CHAIN.save(tmp_path / "chain.json")
    words = ["--chain", tmp_path / "chain.json", "--server", own.server.url, "--delay", "0"]
    first = call("get", "news", *words, "--journal", tmp_path / "j", "--sensitive", ",".join(NAMES), check=True)
    assert "every request asks for everything" in first.stderr
    for source in ("news", "sports", "news"):
        call("get", source, "--journal", tmp_path / "j", check=True)
    assert queries_of(tmp_path / "j") == [(0, 1, 2, 3, 4)] * 4


# One promise for a journal.


def unchanged(own, journal, act, error, words):
    """The act is refused in these words, nothing is asked and nothing is changed."""
    before = queries_of(journal), snapshot(journal)
    own.server.reset()
    with pytest.raises(error, match=words):
        act()
    assert not own.queries()
    assert (queries_of(journal), snapshot(journal)) == before


def test_a_journal_keeps_its_promise_and_its_sensitive_sources(own):
    journal = own.directory / "journal"
    read(own, [("news", None)], sensitive=["weather"])
    for options, words in (
        ({"promise": "both"}, "was made for the promise 'past'"),
        ({"sensitive": ["news"]}, "was made for other sensitive sources"),
        ({"sensitive": ["news", "weather"]}, "was made for other sensitive sources"),
    ):
        unchanged(own, journal, lambda o=options: read(own, [("news", None)], **o), JournalError, words)
    read(own, [("news", None)], promise="past", sensitive=["weather"])
    read(own, [("news", None)])
    other = own.directory / "other"
    read(own, [("news", None)], "other", promise="both", background=False)
    for options, words in (
        ({"promise": "past"}, "was made for the promise 'both'"),
        ({"sensitive": ["news"]}, "was made without sensitive sources"),
    ):
        unchanged(own, other, lambda o=options: read(own, [("news", None)], "other", **o), JournalError, words)


def test_a_next_request_is_refused_by_a_journal_that_does_not_hide_it(own):
    async def run():
        async with client_of(own) as client:
            await client.get("news", "sports")

    read(own, [("news", ON)])
    unchanged(own, own.directory / "journal", lambda: asyncio.run(run()), SessionError, "leave the next request out")


def test_a_request_that_the_chain_calls_impossible_changes_nothing(own):
    read(own, [("sports", ON), ("news", ON)], chain=LONGER)
    ask = partial(read, own, [("weather", OFF)], chain=LONGER)
    words = "impossible to ask for 'weather' right after 'sports' -> 'news'"
    unchanged(own, own.directory / "journal", ask, ContextError, words)
    assert read(own, [("weather", ON)], chain=LONGER)  # while ON any request will do


# What is prepared between requests.


def test_the_source_is_looked_at_only_when_the_step_is_prepared(own, monkeypatch):
    read(own, [("news", ON)] * 2)
    monkeypatch.setattr(LawStore, "step", lambda *_: 1 / 0)
    for source in ("news", "there is no such source"):
        with pytest.raises(ZeroDivisionError):
            read(own, [(source, OFF)], ahead=False)
    assert read(own, [("news", ON)], ahead=False)[0].private  # while ON nothing has to be prepared


@pytest.mark.parametrize("looks_ahead", [True, False])
def test_a_request_that_comes_too_early_counts_as_made_when_the_step_is_prepared(own, monkeypatch, looks_ahead):
    """From then on the query has a whole delay: how long the record of its law and the draw take does not show."""
    events = []

    def watch(place, name, kind, seconds=0.0):
        honest = getattr(place, name)

        def watched(*arguments, **options):
            threading.Event().wait(seconds)
            found = honest(*arguments, **options)
            events.append((kind, time.monotonic()))  # the clock of the loop
            return found

        monkeypatch.setattr(place, name, watched)

    async def after_call(self, called, delay, honest=SendClock.after_call):
        events.append(("called", called))
        await honest(self, called, delay)

    read(own, [("news", ON)] * 2)
    watch(LawStore, "step", "prepared", 0.05)
    watch(promises, "record", "recorded")
    watch(promises, "begin_past", "drawn")
    monkeypatch.setattr(SendClock, "after_call", after_call)
    monkeypatch.setattr(promises, "HELD", 0.0)
    read(own, [("news", OFF), ("sports", OFF)], ahead=looks_ahead, record=own.directory / "record")
    kinds = [kind for kind, _ in events]
    assert kinds[:8] == ["prepared", "recorded", "drawn", "called"] * 2  # (a third preparation may be under way)
    for prepared, recorded, drawn, called in ([moment for _, moment in events[i : i + 4]] for i in (0, 4)):
        assert prepared <= called <= recorded <= drawn


def test_a_message_is_held_back_until_the_next_step_is_prepared_but_not_for_ever(own, monkeypatch):
    honest, release, prepared = LawStore.step, threading.Event(), []

    def slow(self, candidates):
        release.wait(20)
        threading.Event().wait(0.2)
        prepared.append(candidates)
        return honest(self, candidates)

    async def run():
        async with client_of(own) as client:
            await client.get("news", private=ON)
            return len(prepared)

    read(own, [("news", ON)])
    monkeypatch.setattr(LawStore, "step", slow)
    monkeypatch.setattr(promises, "HELD", 0.01)
    assert asyncio.run(run()) == 0  # the next step is not prepared, and the message came
    release.set()
    prepared.clear()
    monkeypatch.setattr(promises, "HELD", 30.0)
    assert asyncio.run(run()) >= 1


def test_nothing_that_is_computed_again_decides_anything(own, monkeypatch):
    """The drawn query, and the state after it, are those on disk, though no law can be made now."""
    read(own, [("news", ON), ("sports", ON)])
    with pytest.MonkeyPatch.context() as patch:

        async def lost(*_):
            raise Unavailable("the wire is cut")

        patch.setattr("onoff.client.transports.onoff.OnoffTransport.fetch", lost)
        with pytest.raises(Unavailable):
            read(own, [("news", OFF)], attempts=1)
    before = snapshot(own.directory / "journal")
    assert before.state.pending is not None
    with pytest.raises(PendingRequest):
        read(own, [("sports", OFF)])
    monkeypatch.setattr(LawStore, "step", lambda *_: 1 / 0)

    async def resume():
        async with client_of(own, ahead=False) as client:
            return await client.resume()

    own.server.reset()
    message = asyncio.run(resume())
    assert (message.body, message.private) == (BODIES["news"], OFF)
    after = snapshot(own.directory / "journal")
    assert after.public == before.public
    assert after.state.reader == before.state.reader
    assert queries_of(own.directory / "journal")[-1] == before.state.pending.query


def test_a_query_that_is_on_disk_counts_though_its_seal_cannot_be_written(own):
    """The transaction is there and the lock beside it fails: the client resumes, and draws after the query on disk."""

    async def run():
        async with client_of(own, sensitive=["weather"], first_ever=True) as client:
            await client.get("news", private=ON)
            sound = os.dup(client.journal._guard._lock)
            unwritable = os.open(own.directory / "journal.lock", os.O_RDONLY)
            os.dup2(unwritable, client.journal._guard._lock)
            with pytest.raises(JournalError, match="cannot be used"):
                await client.get("sports", private=OFF)
            os.dup2(sound, client.journal._guard._lock)
            os.close(sound)
            os.close(unwritable)
            assert (await client.resume()).body == BODIES["sports"]
            await client.get("news", private=OFF)
            return [step.law for step in client.journal.steps()]

    law = asyncio.run(run())[-1]
    *_, resumed, _ = queries_of(own.directory / "journal")
    assert law == law_digest(PastState(CHAIN, (3,), (resumed,)).prepare().law)


# The record.


def test_the_record_has_each_law_once_with_encoders_of_every_reader_and_no_secret(own):
    file = own.directory / "record"
    read(own, zip(READ, STATUSES, strict=True), record=file, sensitive=["weather"])
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert {tuple(line) for line in lines} == {("format", "version", "stream", "maker", "chain", "states", "law")}
    assert len({tuple(line["states"]) for line in lines}) == len(lines) > 1
    assert lines[0]["law"] == json.loads(json.dumps(PastState.start(CHAIN, ["weather"]).prepare().as_dict()))
    assert lines[0]["law"]["encoders"].keys() == set("01234")


def test_a_line_is_recorded_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "record"
    one, two, three, four = (HEAD + word + b"\n" for word in (b"1}", b"22}", b"333}", b"too long to fit}"))
    append(file, one)
    with file.open("ab") as stream:
        stream.write(b"half a li")  # what a crash may leave
    append(file, two)
    assert file.read_bytes() == one + two
    with file.open("ab") as stream:
        stream.write(b"x" * (3 * files.BLOCK))
    append(file, three)
    assert file.read_bytes() == one + two + three

    def full(descriptor, data, place, honest=os.pwrite):
        if place >= len(one + two + three) + 4:
            raise OSError(28, "No space left on device")
        return honest(descriptor, data[:4], place)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OnoffError, match=r"nothing was asked: .*no space left"):
        append(file, four)
    monkeypatch.undo()
    assert file.read_bytes() == one + two + three
    file.write_bytes(one[:9])  # all that there is of the first line
    append(file, two)
    assert file.read_bytes() == two


def test_a_file_that_is_no_record_is_refused_and_stays_as_it_is(own):
    """What stands behind the last line of a record is cut off: of a file of others that may be all of it."""
    chain, journal = own.directory / "chain.json", own.directory / "journal"
    chain.write_text(json.dumps(CHAIN.as_dict()))
    read(own, [("news", ON)] * 2)
    (own.directory / "directory").mkdir()
    for file in (chain, journal, own.directory / "journal.lock", own.directory / "directory"):
        before = file.read_bytes() if file.is_file() else None
        ask = partial(read, own, [("news", OFF)], record=file)
        unchanged(own, journal, ask, OnoffError, "cannot be recorded, and nothing was asked")
        assert before is None or file.read_bytes() == before
    read(own, [("news", OFF)])


# The commands.


def test_a_file_whose_first_request_is_made_on_after_a_killed_proxy_is_not_played_twice(own, tmp_path):
    read(own, [("news", ON), ("sports", ON)])
    with closing(Journal(own.directory / "journal", CHAIN.fingerprint, None)) as kept:
        kept.remember(gap=True)
    (tmp_path / "requests").write_text("off weather\noff news\n")
    words = ["play", tmp_path / "requests", "--journal", own.directory / "journal", "--delay", "0"]
    words += ["--server", own.server.url]
    call(*words, check=True)
    assert "was played to its end: nothing was asked for now" in call(*words, check=True).stderr
    with closing(Journal(own.directory / "journal", CHAIN.fingerprint, None)) as kept:
        assert [step.private for step in kept.steps(since=2)] == [True, False]


@pytest.mark.parametrize(
    ("words", "promise"),
    [([], "past"), (["--next", "sports"], "both"), (["--promise", "both"], "both"), (["--promise", "past"], "past")],
)
def test_without_a_promise_what_the_reader_knows_decides(own, tmp_path, words, promise):
    CHAIN.save(tmp_path / "chain.json")
    given = ["--chain", tmp_path / "chain.json", "--server", own.server.url, "--delay", "0", "--no-background"]
    call("get", "news", *words, *given, "--journal", tmp_path / "j", "--plans", tmp_path / "plans", check=True)
    assert snapshot(tmp_path / "j").promise == promise


LONGER = Chain([[0.2] * 5] * 5 + [[0.5, 0.5, 0, 0, 0]], NAMES, states=[*((x,) for x in range(5)), (1, 0)])


def test_a_file_with_an_impossible_request_is_refused_before_anything_is_asked(own, tmp_path):
    """To stop in its middle would tell the server where the request stands. What was asked before the file counts."""
    read(own, [("news", ON), ("sports", ON)], chain=LONGER)
    (tmp_path / "requests").write_text("off news\noff weather\n")
    own.server.reset()
    words = ["--server", own.server.url, "--delay", "0"]
    found = call("play", tmp_path / "requests", *words, "--journal", own.directory / "journal")
    assert found.returncode == 2
    assert "impossible to ask for 'weather' right after 'sports' -> 'news'" in found.stderr
    assert not own.queries()


def test_a_preparation_that_failed_is_tried_again():
    tries = []

    def prepare(candidates):
        tries.append(candidates)
        if len(tries) == 1:
            raise MemoryError("for once")
        return [candidates]

    async def twice():
        ahead = Ahead(prepare)
        with pytest.raises(MemoryError):
            await ahead.take_prepared("these")
        found = await ahead.take_prepared("these")
        assert await ahead.take_prepared("these") is found
        ahead.close()
        return found

    assert asyncio.run(twice()) == ["these"]
    assert tries == ["these"] * 2


@pytest.mark.parametrize(("kind", "most"), [(StepLaw, 100), (RaceStep, 0)])
def test_nothing_that_many_sources_make_long_is_left_for_between_call_and_query(own, monkeypatch, kind, most):
    """The cost of a law takes 20 ms for some thousands of sources."""
    monkeypatch.setattr(step, "is_race", lambda n, rows: most < rows)
    counting = set()
    monkeypatch.setattr(kind, "cost", property(lambda _: counting.add(threading.current_thread()) or 2.0))
    read(own, zip(READ, STATUSES, strict=True))
    assert counting
    assert threading.main_thread() not in counting
