"""The journal: durable, private, exclusive, and suspicious of its own past."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import secrets
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from functools import partial

import pytest

from onoff import Chain
from onoff.client import journalfile
from onoff.client.journal import COUNTED, Journal
from onoff.client.session import State, begin, finish
from onoff.client.snapshot import snapshot
from onoff.client.stored import Stored
from onoff.errors import JournalError, JournalLocked

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
    assert [(s.step, s.request, s.query, s.private, s.plan) for s in steps] == [
        (0, 1, (0, 1, 2), True, "everything"),
        (1, 2, (0, 1, 2), True, "everything"),
    ]
    assert [step.step for step in again.steps(since=1)] == [1]
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
def test_a_file_that_never_was_a_journal_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    for look in (opened, snapshot):
        with pytest.raises(JournalError, match="journal: is not a journal; name another file"):
            look(path)
    assert path.read_bytes() == content
    assert [file.name for file in path.parent.iterdir()] == ["journal"]  # no lock beside it


def test_a_database_of_others_is_not_turned_into_a_journal(path):
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)")
    database.close()
    content = path.read_bytes()
    with pytest.raises(JournalError, match="is not a journal; name another file"):
        opened(path)
    assert path.read_bytes() == content


def test_a_directory_is_not_a_journal(path):
    path.mkdir()
    for look in (opened, snapshot):
        with pytest.raises(JournalError, match="is not a file; name another one"):
            look(path)


@pytest.mark.parametrize("content", [b"", b"not a database", b"SQLite format 3\0" + b"x" * 4096])
def test_a_file_that_was_a_journal_is_called_damaged_and_left_alone(path, content):
    opened(path).close()
    path.write_bytes(content)
    for look in (opened, snapshot):
        with pytest.raises(JournalError, match="the journal is damaged"):
            look(path)
    assert path.read_bytes() == content


# Trouble of the machine is not damage.


def told_to_keep_it(act, *words):
    said = said_of_the_machine(act, *words)
    assert "keep it" in said


def said_of_the_machine(act, *words):
    with pytest.raises(JournalError) as caught:
        act()
    said = str(caught.value)
    assert all(word in said for word in (*words, "cannot be used")), said
    assert "the journal is damaged" not in said
    assert "move it away" not in said
    return said


def test_a_read_only_disk_is_not_damage(path, monkeypatch):
    journal = opened(path)
    make_step(journal)
    journal.close()
    monkeypatch.setattr(journalfile, "connect", journalfile.connect_to_read)
    journal = opened(path)
    state, pending = begin(journal.state, CHAIN, 1, None, True, None)
    told_to_keep_it(lambda: journal.begin(state, pending, cost=3.0), "readonly database")
    told_to_keep_it(lambda: journal.note("a", "b"), "readonly database")
    assert journal.state.pending is None
    journal.close()


def test_a_database_that_another_program_has_locked_is_not_damage(path, monkeypatch):
    opened(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0.01))
    journal = opened(path)
    told_to_keep_it(lambda: journal.note("a", "b"), "locked")
    journal.close()
    other.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("call", ["open", "pwrite", "rename", "fsync"])
def test_an_error_of_the_disk_is_not_damage(path, monkeypatch, call, number):
    def failing(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, failing)
    said = said_of_the_machine(lambda: opened(path), os.strerror(number)[1:])
    assert ("keep it" in said) == path.exists()  # nobody is told to keep what is not there
    monkeypatch.undo()
    opened(path).close()


def test_an_error_of_writing_asks_whether_the_disk_is_full(path):
    def failing():
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
        with journalfile.explained(path):
            raise error

    told_to_keep_it(failing, "is the disk full?")


def test_a_journal_in_no_directory_says_what_to_do(path):
    said = said_of_the_machine(lambda: opened(path / "none" / "j"), "no such file or directory: is the path right?")
    assert "keep it" not in said


# Version 1, which kept the wanted message alone.

SCHEMA_1 = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE steps (
    step INTEGER PRIMARY KEY, private INTEGER NOT NULL, asked_private INTEGER NOT NULL, lag INTEGER NOT NULL,
    plan TEXT NOT NULL, query TEXT NOT NULL, request INTEGER NOT NULL, next INTEGER,
    cost REAL NOT NULL, bytes INTEGER, attempts INTEGER
) STRICT;
CREATE TABLE message (step INTEGER PRIMARY KEY, source INTEGER NOT NULL, status INTEGER NOT NULL,
    round INTEGER, body BLOB NOT NULL) STRICT;
"""


def make_version_1(path, pending=False):
    """A journal as version 1 wrote it, with two steps made, one note, and perhaps a third step pending."""
    state = State()
    made = []
    for request in (1, 2):
        state, drawn = begin(state, CHAIN, request, None, True, None)
        made.append(drawn)
        state = finish(state)
    if pending:
        state, drawn = begin(state, CHAIN, 0, None, True, None)
        made.append(drawn)
    path.touch(mode=0o600)
    meta = {
        "version": "1", "chain": CHAIN.fingerprint, "catalogue": "catalogue", "identity": secrets.token_hex(16),
        "inode": str(path.stat().st_ino), "transaction": "7", "state": json.dumps(state.as_dict()),
    }  # fmt: skip
    meta["checksum"] = hashlib.sha256(json.dumps(list(meta.values())).encode()).hexdigest()
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.executescript(SCHEMA_1)
    database.executemany("INSERT INTO meta VALUES (?, ?)", [*meta.items(), ("note server", "http://there")])
    for step, drawn in enumerate(made):
        done = (None, None) if step == 2 else (100, 2)
        row = (step, True, True, 0, drawn.plan, json.dumps(drawn.query), drawn.request, drawn.next, 3.0, *done)
        database.execute(f"INSERT INTO steps VALUES ({', '.join('?' * 11)})", row)
    database.execute("INSERT INTO message VALUES (1, 2, 200, 7, ?)", (b"second",))
    database.close()
    path.with_name("journal.lock").write_text(f"{7:020d} {meta['identity']}\n")
    return state, meta["identity"]


@pytest.mark.parametrize("pending", [False, True])
def test_a_journal_of_version_1_goes_on(path, pending):
    state, identity = make_version_1(path, pending)
    before = snapshot(path)
    assert (before.state, before.notes, before.totals.steps) == (state, {"server": "http://there"}, 2)
    for _ in range(2):  # brought up to date, and then of today
        journal = opened(path)
        assert not journal.created
        assert journal.stream == identity
        assert journal.state == state
        assert journal.latest() == Stored(1, 2, 200, 7, b"second")
        assert journal.recall("server") == "http://there"
        assert [step.request for step in journal.steps()] == [1, 2, 0][: 3 if pending else 2]
        assert snapshot(path) == before
        journal.close()
    journal = opened(path)
    if pending:
        members = [Stored(2, x, 200, 8, b"third %d" % x) for x in range(3)]
        journal.finish(finish(journal.state), members, 100, 1)
        assert journal.latest() == Stored(2, 0, 200, 8, b"third 0")
    make_step(journal)
    journal.close()
    opened(path).close()


def test_a_journal_of_a_later_version_is_not_called_damaged(path):
    """Its owner would move it away, and with it what was asked."""
    opened(path).close()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE meta SET value = '5' WHERE key = 'version'")
    database.close()
    for read in (opened, snapshot):
        with pytest.raises(JournalError, match="version 5 of the journal is not known here; upgrade onoff") as caught:
            read(path)
        assert "move it away" not in str(caught.value)


def test_a_damaged_or_restored_journal_of_version_1_is_refused_and_not_changed(path):
    make_version_1(path)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE meta SET value = replace(value, '2', '1') WHERE key = 'state'")
    database.close()
    with pytest.raises(JournalError, match="checksum does not match"):
        opened(path)
    path.unlink()
    _, identity = make_version_1(path)
    path.with_name("journal.lock").write_text(f"{8:020d} {identity}\n")
    content = path.read_bytes()
    with pytest.raises(JournalError, match="older"):
        opened(path)
    assert path.read_bytes() == content


def test_killed_while_it_is_brought_up_to_date_it_is_as_it_was(path):
    state, _ = make_version_1(path)
    content = path.read_bytes()
    code = (
        "import os, signal, sqlite3; from onoff.client import journalfile\n"
        "class Deadly(sqlite3.Connection):\n"
        "    def execute(self, sql, *rest):\n"
        "        if sql == 'COMMIT': os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return super().execute(sql, *rest)\n"
        "honest = sqlite3.connect\n"
        "sqlite3.connect = lambda *a, **o: honest(*a, factory=Deadly, **o)\n"
        "from onoff.client.journal import Journal\n"
        f"Journal({str(path)!r}, {CHAIN.fingerprint!r}, 'catalogue')"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -9
    assert path.read_bytes() == content
    journal = opened(path)
    assert journal.state == state
    journal.close()


# Version 3, which held nothing of earlier answers.

TO_VERSION_3 = """
CREATE TABLE older (source INTEGER PRIMARY KEY, step INTEGER NOT NULL, status INTEGER NOT NULL,
    round INTEGER, body BLOB NOT NULL) STRICT;
INSERT INTO older SELECT source, step, status, round, body FROM members;
DROP TABLE members;
ALTER TABLE older RENAME TO members;
DROP TABLE seen;
ALTER TABLE steps DROP COLUMN changed;
ALTER TABLE steps DROP COLUMN changed_bytes;
DELETE FROM meta WHERE key = 'held';
UPDATE meta SET value = '3' WHERE key = 'version';
"""
SUMMED_3 = [
    "version",
    "chain",
    "catalogue",
    "identity",
    "inode",
    "transaction",
    "state",
    "notes",
    "promise",
    "sensitive",
    "rows",
]


def make_version_3(path, pending):
    """A journal as version 3 wrote it, for the promise past, with two steps made and perhaps a third one pending."""
    journal = opened(path, promise="past", sensitive=(1,))
    make_step(journal)
    make_step(journal, request=2, body=b"second")
    journal.note("server", "http://there")
    if pending:
        state, drawn = begin(journal.state, CHAIN, 0, None, True, None)
        journal.begin(state, drawn, cost=3.0, rows={"some": "rows"})
    state = journal.state
    journal.close()
    with sqlite3.connect(path) as database:
        database.executescript(TO_VERSION_3)
        meta = dict(database.execute("SELECT key, value FROM meta").fetchall())
        data = json.loads(meta["state"])
        if pending:
            del data["pending"]["held"]
        meta["state"] = json.dumps(data)
        meta["checksum"] = hashlib.sha256(json.dumps([meta[key] for key in SUMMED_3]).encode()).hexdigest()
        database.executemany("UPDATE meta SET value = ? WHERE key = ?", [(meta[k], k) for k in ("state", "checksum")])
    database.close()
    return state


@pytest.mark.parametrize("pending", [False, True])
def test_a_journal_of_version_3_goes_on_and_holds_nothing_yet(path, pending):
    state = make_version_3(path, pending)
    before = snapshot(path)
    assert (before.state, before.promise, before.sensitive, before.traffic) == (state, "past", (1,), None)
    for _ in range(2):  # brought up to date, and then of today
        journal = opened(path)
        assert journal.state == state
        assert (journal.promise, journal.sensitive) == ("past", (1,))
        assert journal.rows == ({"some": "rows"} if pending else None)
        assert journal.latest() == Stored(1, 2, 200, 7, b"second")
        assert snapshot(path) == before
        if pending:
            assert state.pending.held == (None, None, None)
            assert journal.held(journal.state.pending) == {}
        journal.close()


def test_a_damaged_journal_of_version_3_is_refused_and_not_changed(path):
    make_version_3(path, pending=False)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE meta SET value = '[2]' WHERE key = 'sensitive'")
    database.close()
    content = path.read_bytes()
    with pytest.raises(JournalError, match="checksum does not match"):
        opened(path)
    assert path.read_bytes() == content


# Random damage.


def everything(path):
    """All that can be read of a journal, as a program would."""
    journal = opened(path)
    try:
        notes = {key: journal.recall(key) for key in ("chain", "play")}
        return journal.state, notes, list(journal.steps()), journal.totals((1.0, 2.0, 3.0)), journal.latest()
    finally:
        journal.close()


def test_random_damage_is_never_a_traceback_nor_another_state(path, in_memory):
    """400 journals with 1 to 30 bytes changed, or a piece cut out, filled or moved; repeatable."""
    path = in_memory / "journal"
    journal = opened(path)
    for request in (1, 2, 0, 1, 2):
        make_step(journal, request)
    journal.note("chain", json.dumps({"names": CHAIN.names, "matrix": CHAIN.P.tolist()}))
    journal.note("play", json.dumps({"digest": "0" * 64, "first": 1, "file": "requests", "count": 4}))
    journal.close()
    whole, seen = everything(path), snapshot(path)
    content = path.read_bytes()
    generator = random.Random(1)
    outcomes = Counter()
    for _ in range(400):
        damaged = bytearray(content)
        if generator.random() < 0.7:
            for _ in range(generator.choice((1, 1, 1, 3, 30))):
                damaged[generator.randrange(len(content))] = generator.randrange(256)
        else:
            start, length = generator.randrange(len(content)), generator.randrange(1, 5000)
            piece = generator.choice((b"", bytes(length), generator.randbytes(length), content[:length]))
            damaged[start : start + length] = piece
        with path.open("r+b") as stream:  # the same inode
            stream.truncate(0)
            stream.write(damaged)
        for log in ("journal-wal", "journal-shm"):
            path.with_name(log).unlink(missing_ok=True)
        for look, right in ((snapshot, seen), (everything, whole)):
            try:
                found = look(path)
            except JournalError:
                outcomes["refused"] += 1
            else:
                state, notes = (found.state, found.notes) if look is snapshot else found[:2]
                assert (state, notes) == ((right.state, right.notes) if look is snapshot else right[:2])
                outcomes["taken"] += 1
    assert min(outcomes.values()) > 100


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
        "import os, signal; from onoff.client.journal import Journal;"
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


def test_a_note_is_kept_and_the_last_of_its_name_counts(path):
    journal = opened(path)
    assert journal.recall("play") is None
    journal.note("play", json.dumps({"first": 3}))
    journal.note("play", json.dumps({"first": 4}))
    assert json.loads(journal.recall("play")) == {"first": 4}
    assert snapshot(path).notes == {COUNTED: "0", "play": '{"first": 4}'}
    journal.close()
