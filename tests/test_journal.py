"""The journal: durable, private, exclusive, and suspicious of its own past."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys

import pytest

from onoff import Chain
from onoff.errors import JournalError, JournalLocked
from onoff.journal import Journal, Stored, snapshot
from onoff.session import State, begin, finish

CHAIN = Chain.symmetric(3, 0.2)


def opened(path, chain=CHAIN.fingerprint, catalogue="catalogue", **options):
    return Journal(path, chain, catalogue, **options)


def make_step(journal, request=1, body=b"hello"):
    state, pending = begin(journal.state, CHAIN, request, None, True, None)
    journal.begin(state, pending, cost=3.0)
    step = journal.state.step
    members = [Stored(step, x, 200, 7, body if x == request else b"other %d" % x) for x in pending.query]
    journal.finish(finish(journal.state), members, size=100, attempts=2)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal"


def test_state_and_message_come_back(path):
    journal = opened(path)
    assert journal.created
    assert journal.state == State(unsettled=1)
    make_step(journal)
    make_step(journal, request=2, body=b"second")
    before = journal.state
    journal.close()
    again = opened(path)
    assert not again.created
    assert again.state == before
    assert again.latest() == Stored(1, 2, 200, 7, b"second")
    steps = list(again.steps())
    assert [(s["step"], s["request"], s["query"], s["private"], s["plan"]) for s in steps] == [
        (0, 1, [0, 1, 2], 1, "everything"),
        (1, 2, [0, 1, 2], 1, "everything"),
    ]
    assert [step["step"] for step in again.steps(since=1)] == [1]
    totals = again.totals()
    assert (totals.steps, totals.bytes, totals.downloaded, totals.attempts, totals.lags) == (2, 200, 6, 4, {0: 2})
    again.close()


def test_a_drawn_query_is_on_disk_before_it_is_sent(path):
    journal = opened(path)
    state, pending = begin(journal.state, CHAIN, 1, None, True, None)
    journal.begin(state, pending, cost=3.0)
    assert snapshot(path).state.pending == pending  # read by another connection, while it is open
    journal.close()


def test_the_promise_of_a_first_ever_request(path):
    journal = opened(path, first_ever=True)
    assert journal.state.unsettled == 0
    journal.close()


def test_old_messages_are_gone_from_the_file(path):
    journal = opened(path)
    make_step(journal, body=b"the-first-secret" * 50)
    make_step(journal, body=b"another")
    journal.close()
    assert b"the-first-secret" not in path.read_bytes()
    assert b"another" in path.read_bytes()


def test_only_the_owner_can_read_it(path):
    old = os.umask(0)
    try:
        journal = opened(path)
        make_step(journal)
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
        journal.close()
    finally:
        os.umask(old)
    assert set(modes.values()) == {0o600}
    assert {"journal", "journal.lock", "journal-wal"} <= set(modes)


def test_writes_are_synchronous_and_logged_ahead(path):
    journal = opened(path)
    assert journal._database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert journal._database.execute("PRAGMA synchronous").fetchone() == (2,)
    journal.close()


def test_a_second_process_is_kept_out_and_let_in_afterwards(path):
    journal = opened(path)
    with pytest.raises(JournalLocked, match="another process"):
        opened(path)
    code = f"from onoff.journal import Journal; Journal({str(path)!r}, {CHAIN.fingerprint!r}, 'catalogue')"
    refused = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "JournalLocked" in refused.stderr
    journal.close()
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("chain", "catalogue", "words"),
    [("other", "catalogue", "another chain"), (CHAIN.fingerprint, "x", "another list of sources")],
)
def test_a_foreign_journal_is_refused(path, chain, catalogue, words):
    opened(path).close()
    with pytest.raises(JournalError, match=words):
        opened(path, chain, catalogue)
    opened(path).close()


def test_a_copy_is_refused(path, tmp_path):
    journal = opened(path)
    make_step(journal)
    journal.close()
    copy = tmp_path / "copy"
    shutil.copy2(path, copy)
    with pytest.raises(JournalError, match="copy or a restored backup"):
        opened(copy)


def test_a_backup_restored_in_place_is_refused(path):
    journal = opened(path)
    make_step(journal)
    journal.close()
    old = path.read_bytes()
    journal = opened(path)
    make_step(journal, request=2)
    journal.close()
    path.write_bytes(old)  # the same inode, an older content
    with pytest.raises(JournalError, match="older than what was last written"):
        opened(path)
    path.unlink()
    opened(path).close()  # starting afresh is allowed: with two full-set requests
    path.write_bytes(old)
    with pytest.raises(JournalError):
        opened(path)


@pytest.mark.parametrize("content", [b"", b"not a database", b"SQLite format 3\0" + b"x" * 4096])
def test_a_damaged_file_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    with pytest.raises(JournalError, match=r"damaged|cannot be used"):
        opened(path)
    assert path.read_bytes() == content
    with pytest.raises(JournalError):
        snapshot(path)


def test_a_journal_with_nonsense_in_it_is_refused(path):
    opened(path).close()
    for change in (
        "UPDATE meta SET value = '{}' WHERE key = 'state'",
        "DELETE FROM meta WHERE key = 'state'",
        "UPDATE meta SET value = '9' WHERE key = 'version'",
    ):
        with sqlite3.connect(path) as database:
            database.execute(change)
        database.close()
        with pytest.raises(JournalError):
            opened(path)


def test_a_process_killed_while_making_it_leaves_nothing_in_the_way(path):
    (path.parent / "journal.new").write_bytes(b"half")
    journal = opened(path)
    assert journal.created
    journal.close()
    assert not (path.parent / "journal.new").exists()


def test_the_log_of_a_journal_that_was_moved_away_is_not_taken_for_the_new_ones(path):
    code = (
        "import os, signal; from onoff.journal import Journal;"
        f"journal = Journal({str(path)!r}, {CHAIN.fingerprint!r}, 'catalogue'); journal.note('a', 'b');"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    assert (path.parent / "journal-wal").stat().st_size > 0
    path.rename(path.parent / "elsewhere")
    journal = opened(path)
    assert journal.created
    assert journal.recall("a") is None
    make_step(journal)
    journal.close()
    opened(path).close()


def test_a_full_disk_changes_nothing(path):
    journal = opened(path)
    make_step(journal)
    before = journal.state
    pages = journal._database.execute("PRAGMA page_count").fetchone()[0]
    journal._database.execute(f"PRAGMA max_page_count = {pages}")
    state, pending = begin(journal.state, CHAIN, 1, None, True, None)
    journal.begin(state, pending, cost=3.0)
    big = Stored(journal.state.step, 1, 200, 7, b"x" * 100_000)
    with pytest.raises(JournalError, match="full") as caught:
        journal.finish(finish(journal.state), [big], size=1, attempts=1)
    assert "keep it" in str(caught.value)
    assert "damaged" not in str(caught.value)
    assert journal.state == state
    assert journal.latest().step == before.step - 1
    journal.close()
    again = opened(path)
    assert again.state == state
    again.close()


def test_it_cannot_be_made_where_nothing_can_be_written(tmp_path):
    with pytest.raises(JournalError, match="cannot be used"):
        opened(tmp_path / "nowhere" / "journal")
    with pytest.raises(JournalError, match="no journal"):
        snapshot(tmp_path / "journal")


def test_notes_are_kept(path):
    journal = opened(path)
    assert journal.recall("play") is None
    journal.note("play", json.dumps({"first": 3}))
    journal.note("play", json.dumps({"first": 4}))
    assert json.loads(journal.recall("play")) == {"first": 4}
    assert snapshot(path).notes == {"play": '{"first": 4}'}
    journal.close()
