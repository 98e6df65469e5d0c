"""What the owner does not want to keep: requests and random numbers of old steps are gone, down to their bytes."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from dataclasses import replace

import pytest

from clientkit import CHAIN, NAMES, OFF, ON, answer_of, client_with
from onoff.client import journal as journal_module
from onoff.client.journal import Journal
from onoff.client.lawstore import laws_beside
from onoff.client.protocol import Begun, Pending, finish
from onoff.client.status import account
from onoff.logs.journals import read_journal


def read(own, count, keep=None):
    """So many requests of the promise `past`, all sources in turn; the first two are ON, the others OFF."""

    async def run():
        settings = {"delay": 0.0, "promise": "past", "keep": keep}
        async with client_with(CHAIN, own.transport(), own.directory / "journal", **settings) as client:
            done = client.journal.state.step
            for step in range(done, done + count):
                await client.get(NAMES[step % 5], private=ON if step < 2 else OFF)
            return [step.request for step in client.journal.steps()]

    return asyncio.run(run())


def rows_of(own):
    journal = Journal(own.directory / "journal", CHAIN.fingerprint, None)
    try:
        return list(journal.steps())
    finally:
        journal.close()


def content(path):
    """All bytes of the journal and of what stands beside it."""
    return b"".join(file.read_bytes() for file in sorted(path.parent.glob(f"{path.name}*")))


def make_step(journal, request, number):
    """A step whose query is as long as chance has it: rows move from page to page."""
    query = (*range(request + 1), *range(5, 5 + number % 40))
    pending = Pending(request, None, False, False, 1, query, "past", 0.0)
    journal.begin(Begun(replace(journal.state, pending=pending), pending, ((2**60, number),)), 5.0)
    journal.finish(finish(journal.state), query, answer_of([b"m"] * len(query)))


def made(path, steps=200):
    """An open journal, and the random numbers of its steps, as they stand in it."""
    journal = Journal(path, CHAIN.fingerprint, "catalogue", promise="past")
    numbers = [secrets.randbelow(2**59) + 2**59 for _ in range(steps)]
    for step, number in enumerate(numbers):
        make_step(journal, step % 5, number)
    return journal, [str(number).encode() for number in numbers]


def test_requests_and_numbers_of_old_steps_are_gone_from_file_log_and_free_pages(tmp_path):
    journal, numbers = made(tmp_path / "journal")
    assert all(number in content(tmp_path / "journal") for number in numbers)
    journal.remember(keep="10")
    journal.erase()
    assert [step.request for step in journal.steps()] == [None] * 190 + [step % 5 for step in range(190, 200)]
    assert [step.numbers is None for step in journal.steps()] == [True] * 190 + [False] * 10
    for _ in range(2):  # while it is open, and when it is closed
        assert [number for number in numbers if number in content(tmp_path / "journal")] == numbers[190:]
        journal.close()


@pytest.mark.parametrize("planted", ["secure_delete=OFF", "wal_checkpoint(PASSIVE)"])
def test_rows_that_are_merely_overwritten_are_found(tmp_path, planted):
    """Planted: deleted bytes stay on their pages, or the log is not cut."""
    journal, numbers = made(tmp_path / "journal")
    database = journal._database

    class Careless:
        def __getattr__(self, name):
            return getattr(database, name)

        def execute(self, text, *arguments):
            return database.execute(text.replace("wal_checkpoint(TRUNCATE)", planted), *arguments)

    if planted.startswith("secure"):
        database.execute(f"PRAGMA {planted}")
    else:
        journal._database = Careless()
    journal.remember(keep="10")
    journal.erase()
    assert any(number in content(tmp_path / "journal") for number in numbers[:190])
    journal.close()


def test_what_the_promise_and_the_counts_need_stays(own):
    read(own, 12)
    before, laws = account(own.directory / "journal"), laws_beside(own.directory / "journal")
    assert laws.exists()
    read(own, 0, keep="3")
    assert not laws.exists()  # they tell of past queries
    after = account(own.directory / "journal")
    assert (after.state, after.public, after.totals) == (before.state, before.public, before.totals)
    assert after.memory.keep == "3"
    assert read_journal(own.directory / "journal").requests == (4, 0, 1)
    read(own, 2)  # remembered
    assert [row.request is None for row in rows_of(own)] == [True] * 9 + [False] * 5
    read(own, 0, keep="0")  # the newest stays: its message may be delivered again
    assert [row.request is None for row in rows_of(own)] == [True] * 13 + [False]


def test_days_are_counted_from_the_end_of_a_step(own, monkeypatch):
    read(own, 4, keep="30d")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 29.9 * 86400)
    read(own, 2)
    assert [row.request is None for row in rows_of(own)] == [False] * 6
    monkeypatch.setattr(time, "time", lambda: now + 30.1 * 86400)
    read(own, 1)
    assert [row.request is None for row in rows_of(own)] == [True] * 4 + [False] * 3


def test_a_client_that_stays_open_erases_every_so_many_steps(own, monkeypatch):
    monkeypatch.setattr(journal_module, "ERASE", 8)
    found = read(own, 17, keep="2")
    assert found == [None] * 14 + [14 % 5, 15 % 5, 16 % 5]


def test_what_is_erased_and_when_depends_on_no_request(tmp_path):
    """Two readers with the same sets: the same rows are erased, by the same statements."""
    said = []
    for wanted in (0, 4):
        journal = Journal(tmp_path / f"journal-{wanted}", CHAIN.fingerprint, "catalogue", promise="past")
        journal.remember(keep="2")
        for _ in range(6):
            pending = Pending(wanted, None, True, True, 0, (0, 1, 2, 3, 4), "everything", 0.0)
            journal.begin(Begun(replace(journal.state, pending=pending), pending), 5.0)
            journal.finish(finish(journal.state), pending.query, answer_of([b"m"] * 5))
        said.append([])
        journal._database.set_trace_callback(lambda text: said[-1].append(re.sub(r"\(.*", "", text)))
        journal.erase()
        journal._database.set_trace_callback(None)
        assert [step.request for step in journal.steps()] == [None] * 4 + [wanted] * 2
        journal.close()
    assert said[0] == said[1]
    assert any("wal_checkpoint" in text for text in said[0])
