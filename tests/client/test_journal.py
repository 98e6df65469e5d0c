"""The journal: durable, private, exclusive, and suspicious of its own past."""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from clientkit import answer_of
from onoff import Chain
from onoff.audit import files as audit
from onoff.client import journal as journal_module
from onoff.client import status
from onoff.client.cache import read_messages
from onoff.client.disk import connect_to_read
from onoff.client.journal import Journal
from onoff.client.protocol import Begun, Pending, State, begin_both, finish
from onoff.client.status import Totals, snapshot
from onoff.client.transports import Answer, Content
from onoff.errors import JournalError, JournalLocked, OnoffError
from onoff.logs import journals

CHAIN = Chain.symmetric(3, 0.2)


def opened(path, chain=CHAIN.fingerprint, catalogue="catalogue", **options):
    return Journal(path, chain, catalogue, **options)


def make_step(journal, request=1, body=b"hello"):
    begun = begin_both(journal.state, CHAIN, request, None, True, None)
    journal.begin(begun, cost=3.0)
    journal.count_sending()
    bodies = [body if x == request else b"other %d" % x for x in begun.pending.query]
    journal.finish(finish(journal.state), begun.pending.query, answer_of(bodies, size=100))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal"


def test_state_and_message_come_back(path):
    journal = opened(path)
    assert journal.created
    assert journal.state == State(owed=2)
    make_step(journal)
    make_step(journal, request=2, body=b"second")
    before = journal.state
    journal.close()
    again = opened(path)
    assert not again.created
    assert again.state == before
    step, member = again.latest()
    assert (step.step, member.source, member.status, member.round) == (1, 2, 200, 7)
    assert again.read_body(2) == b"second"
    steps = list(again.steps())
    assert [(s.step, s.request, s.query, s.private, s.plan) for s in steps] == [
        (0, 1, (0, 1, 2), True, "everything"),
        (1, 2, (0, 1, 2), True, "everything"),
    ]
    assert [step.step for step in again.steps(since=1)] == [1]
    totals = Totals.of(again.steps())
    assert (totals.steps, totals.bytes, totals.downloaded, totals.attempts, totals.lags) == (2, 200, 6, 4, {0: 2})
    again.close()


def test_a_look_at_a_journal_that_is_to_be_opened_reads_no_steps(path, monkeypatch):
    """They become many, and every command would wait for them."""
    opened(path).close()
    database, said = connect_to_read(path), []
    database.set_trace_callback(said.append)
    monkeypatch.setattr(status, "connect_to_read", lambda _: database)
    snapshot(path)
    assert said
    assert not any("steps" in text for text in said)


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
    with pytest.raises(JournalLocked, match="another client"):
        opened(path)
    code = f"from onoff.client.journal import Journal; Journal({str(path)!r}, {CHAIN.fingerprint!r}, 'catalogue')"
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


def database_of_others():
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)")
        return database.serialize()


@pytest.mark.parametrize("was", [False, True])
@pytest.mark.parametrize("content", [b"", b"not a database", b"SQLite format 3\0" + b"x" * 4096, database_of_others()])
def test_a_file_that_is_no_journal_is_refused_and_left_alone(path, content, was):
    if was:
        opened(path).close()
    path.write_bytes(content)
    for look in (opened, snapshot):
        with pytest.raises(JournalError, match="damaged" if was else "journal: is not a journal; name another file"):
            look(path)
    assert path.read_bytes() == content
    assert was or [file.name for file in path.parent.iterdir()] == ["journal"]  # no lock beside it


# Trouble of the machine is not damage.


def said_of_the_machine(act, *words):
    with pytest.raises(JournalError) as caught:
        act()
    said = str(caught.value)
    assert all(word in said for word in (*words, "cannot be used")), said
    assert "the journal is damaged" not in said
    assert "move it away" not in said


def test_a_read_only_disk_is_not_damage(path, monkeypatch):
    journal = opened(path)
    make_step(journal)
    journal.close()
    monkeypatch.setattr(journal_module, "connect", connect_to_read)
    journal = opened(path)
    begun = begin_both(journal.state, CHAIN, 1, None, True, None)
    said_of_the_machine(lambda: journal.begin(begun, cost=3.0), "readonly database")
    said_of_the_machine(lambda: journal.remember(server="b"), "readonly database")
    assert journal.state.pending is None
    journal.close()


def test_a_database_that_another_program_has_locked_is_not_damage(path, monkeypatch):
    opened(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0.01))
    journal = opened(path)
    said_of_the_machine(lambda: journal.remember(server="b"), "locked")
    journal.close()
    other.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("call", ["open", "pwrite", "rename", "fsync"])
def test_an_error_of_the_disk_is_not_damage(path, monkeypatch, call, number):
    def failing(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, failing)
    said_of_the_machine(lambda: opened(path), os.strerror(number)[1:])
    monkeypatch.undo()
    opened(path).close()


@pytest.mark.parametrize(("version", "age"), [("8", "an older"), ("13", "another")])
def test_a_journal_of_another_version_is_refused_in_one_sentence_and_not_changed(path, version, age):
    journal = opened(path)
    make_step(journal)
    journal.close()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE meta SET value = ? WHERE key = 'version'", (version,))
    database.close()
    content = path.read_bytes()
    for read in (opened, snapshot, journals.read_journal, lambda file: audit.read_journal(file, None)):
        complaint = rf"is a journal of {age} version \({version}; this onoff reads 12\).*a new journal"
        with pytest.raises(OnoffError, match=complaint):
            read(path)
    assert path.read_bytes() == content


def test_the_log_of_a_journal_that_was_moved_away_is_not_taken_for_the_new_ones(path):
    code = (
        "import os, signal; from onoff.client.journal import Journal;"
        f"journal = Journal({str(path)!r}, {CHAIN.fingerprint!r}, 'catalogue'); journal.remember(server='b');"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    assert (path.parent / "journal-wal").stat().st_size > 0
    path.rename(path.parent / "elsewhere")
    journal = opened(path)
    assert journal.created
    assert journal.memory.server is None
    make_step(journal)
    journal.close()
    opened(path).close()


def test_a_new_journal_is_on_disk_with_its_name(path, monkeypatch):
    """Its directory is synced after the rename: without that a loss of power might take the journal away."""
    actions = []
    rename, fsync = os.rename, os.fsync

    def synced(descriptor):
        actions.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    monkeypatch.setattr(os, "rename", lambda *names: actions.append("rename") or rename(*names))
    monkeypatch.setattr(os, "fsync", synced)
    opened(path).close()
    assert actions[actions.index("rename") :] == ["rename", "directory"]


@pytest.mark.parametrize("cache", [0, 40, 10_000])
def test_messages_stay_on_disk_until_they_are_in_files(path, cache):
    """Whatever was asked, changed or forgotten since, and however late the files are; afterwards they go."""
    rng = random.Random(cache)
    journal, told, written = opened(path, cache=cache), [], 0
    journal.deliver_all()
    for step in range(60):
        query = tuple(sorted(rng.sample(range(3), rng.randint(1, 3))))
        pending = Pending(rng.choice(query), None, True, True, 0, query, "everything", 0.0)
        begun = journal.name_versions(Begun(replace(journal.state, pending=pending), pending), time.time())
        journal.begin(begun, cost=3.0)
        contents = [
            Content(200, b"", unchanged=True)
            if version is not None and rng.random() < 0.5
            else Content(200, b"%d of step %d" % (source, step), version=f"v{step}")
            for source, version in zip(query, begun.pending.held, strict=True)
        ]
        held, wanted = journal.read_held(), contents[query.index(pending.request)]
        told.append(held[pending.request] if wanted.unchanged else wanted.body)
        journal.finish(finish(journal.state), query, Answer(tuple(contents), 1))
        if rng.random() < 0.1:  # killed, and opened by the next process
            journal.close()
            journal = opened(path, cache=cache)
            journal.deliver_all()
        assert [body for _, _, body in journal.messages(written)] == told[written:]
        if rng.random() < 0.4:
            written = journal.unwritten = rng.randint(written, step + 1)
    journal.close()
    journal = opened(path, cache=cache)  # of a caller who delivers each message before the next
    for _ in range(2):
        make_step(journal)
    assert [step.step for step, _, _ in journal.messages()] == [61]
    journal.close()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT COUNT(*) FROM replaced").fetchone() == (0,)


def test_a_message_that_is_replaced_while_it_is_read_is_not_missed(path):
    """`onoff play --out`, after a kill, reads messages in a thread while the next step replaces them."""
    for overtaken in range(6):
        journal = opened(path.with_name(f"journal-{overtaken}"))
        journal.deliver_all()
        for step in range(2):
            make_step(journal, request=step, body=b"wanted %d" % step)
        with closing(connect_to_read(journal.path)) as database:
            statements = itertools.count()

            def overtake(_, journal=journal, statements=statements, overtaken=overtaken):
                if next(statements) == overtaken:
                    make_step(journal, request=2, body=b"wanted 2")

            database.set_trace_callback(overtake)
            found = [body for _, _, body in read_messages(database)]
            assert found[:2] == [b"wanted 0", b"wanted 1"], f"overtaken before statement {overtaken}"
            assert next(statements) > overtaken
        journal.close()
