"""Both stores, the same tests: rounds are atomic, kept, and seen by other processes."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from clikit import call
from onoff.errors import StoreError, StoreUnavailable
from onoff.server.store import START, Changes, Message, Point, open_store
from onoff.wire import Catalogue
from sampling import LONG

CATALOGUE = Catalogue(("news", "sports", "science"), 64)
OTHER = Catalogue(("news", "science", "sports"), 64)


@pytest.fixture
def opened(target):
    stores = []

    def open_one(catalogue=CATALOGUE):
        stores.append(open_store(target, catalogue))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


def test_only_what_changed_is_reported_and_everything_to_who_knows_another_history(opened):
    store = opened()
    store.publish({0: b"one", 1: b"one"})
    first = store.changes().point
    store.publish({1: b"two"})
    second = store.changes().point
    assert store.changes(first) == Changes(second, {1: Message(2, b"two")}, anew=False)
    assert store.changes(second) == Changes(second, {}, anew=False)
    for other in (Point(1, second.mark), Point(2, first.mark), Point(9, first.mark), Point(1)):
        assert store.changes(other) == store.changes() == Changes(second, store.changes().messages, anew=True)


def test_who_fell_far_behind_is_told_everything(opened, monkeypatch):
    for module in ("sqlite", "redis"):
        monkeypatch.setattr(f"onoff.server.store.{module}.MARKS", 3)
    store, points = opened(), []
    for number in range(5):
        store.publish({number % 2: b"%d" % number})
        points.append(store.changes().point)
    assert [store.changes(point).anew for point in points] == [True, True, False, False, False]


def test_another_process_sees_a_publication_at_once_and_numbers_go_on(opened, target):
    store = opened()
    store.publish({0: b"mine"})
    mine = store.changes().point
    code = (
        "import sys; from onoff.server.store import open_store; print(open_store(sys.argv[1]).publish({1: b'theirs'}))"
    )
    done = subprocess.run([sys.executable, "-c", code, target], check=True, capture_output=True, text=True)
    assert done.stdout == "2\n"
    assert store.changes(mine).messages == {1: Message(2, b"theirs")}


def test_a_store_belongs_to_its_catalogue(opened):
    opened().publish({0: b"kept"})
    with pytest.raises(StoreError, match="catalogue"):
        opened(OTHER).publish({0: b"foreign"})
    with pytest.raises(StoreError, match="catalogue"):
        opened(OTHER).changes()
    known = opened(None)
    assert known.catalogue == CATALOGUE
    assert known.changes().messages == {0: Message(1, b"kept")}


def test_rounds_of_several_publishers_are_all_counted(opened):
    stores = [opened() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda store: len([store.publish({0: b"x"}) for _ in range(10)]), stores)) == [10] * 3
    assert stores[0].changes().point.round == 30


def test_sqlite_writes_to_the_disk_before_it_acknowledges(tmp_path):
    store = open_store(str(tmp_path / "messages.db"), CATALOGUE)
    assert store._writer.execute("PRAGMA synchronous").fetchone() == (2,)
    assert store._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_sqlite_refuses_a_file_of_another_program_and_leaves_it_alone(tmp_path):
    file = tmp_path / "theirs.db"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE theirs (x)")
    database.close()
    before = file.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        open_store(str(file), CATALOGUE)
    assert file.read_bytes() == before
    text = tmp_path / "text.db"
    text.write_text("not a database at all, but long enough to look like one" * 30)
    named = tmp_path / "damaged.db"
    open_store(str(named), CATALOGUE).close()
    named.write_bytes(named.read_bytes().replace(b"CREATE TABLE", b"CREATE T\xffBLE", 1))
    with pytest.raises(StoreError, match=r"damaged\.db: "):  # SQLite quotes it, and it is no text
        open_store(str(named), CATALOGUE)
    with pytest.raises(StoreError, match="not a database"):
        open_store(str(text), CATALOGUE)
    with pytest.raises(StoreUnavailable, match="unable to open"):
        open_store(str(tmp_path / "no" / "such" / "directory.db"), CATALOGUE)


def test_sqlite_that_is_locked_or_full_is_unavailable_and_recovers(tmp_path):
    store = open_store(str(tmp_path / "messages.db"), CATALOGUE)
    store._writer.execute("PRAGMA busy_timeout = 50")
    other = sqlite3.connect(tmp_path / "messages.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        store.publish({0: b"x"})
    assert store.changes().point == START  # readers go on beside a writer
    other.execute("ROLLBACK")
    other.close()
    [pages] = store._writer.execute("PRAGMA page_count").fetchone()
    store._writer.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreUnavailable, match="full"):
        store.publish({0: b"x" * 20_000})
    store._writer.execute("PRAGMA max_page_count = 100000")
    assert store.publish({0: b"x"}) == 1
    store.close()


def test_the_files_of_a_store_are_its_owners_alone(tmp_path):
    store = open_store(str(tmp_path / "messages.db"), CATALOGUE)
    store.publish({0: b"secret"})
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {"messages.db": 0o600, "messages.db-wal": 0o600, "messages.db-shm": 0o600}
    store.close()


def flips(file):
    """Places of a file at which a test flips a bit: all of them, or one in 19."""
    return range(0, file.stat().st_size, 1 if LONG else 19)


def test_a_flipped_bit_is_damage_or_changes_nothing(tmp_path):
    """At every place of the file. What is served is what was published, or nothing: also no message that is missing."""
    whole, file = tmp_path / "whole.db", tmp_path / "messages.db"
    with closing(open_store(str(whole), CATALOGUE)) as store:
        for number in range(3):
            store.publish(dict.fromkeys(range(3), b"message %d" % number))
        expected = store.changes()
    data, damaged, seen = whole.read_bytes(), 0, set()
    for place in flips(whole):
        file.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
        for catalogue in (CATALOGUE, None):
            try:
                with closing(open_store(str(file), catalogue)) as store:
                    found = store.changes()
                    assert (found.point.round, found.messages) == (3, expected.messages), place
            except StoreError as error:
                damaged += 1
                seen.add(str(error).partition(": ")[2][:12])
        for extra in ("-wal", "-shm"):
            (tmp_path / f"messages.db{extra}").unlink(missing_ok=True)
    assert damaged > 40
    assert "is damaged (" in seen


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE state SET catalogue = x'00'", "catalogue"),
        ("UPDATE state SET round = 7", "last round"),
        ("UPDATE message SET data = x'00' WHERE source = 1", "message of source 1"),
        ("UPDATE message SET round = 3.5 WHERE source = 1", "message of source 1"),
        ("DELETE FROM message WHERE source = 1", "a message is missing"),
        ("DROP TABLE mark", "no such table"),
        ("DELETE FROM state", "not of its type"),
        ("ALTER TABLE state RENAME catalogue TO was; ALTER TABLE state ADD catalogue", "not of its type"),
    ],
)
def test_damage_that_sqlite_does_not_see_is_a_sentence(tmp_path, statement, what, monkeypatch):
    monkeypatch.setattr("onoff.server.run.serve", lambda *_, **__: pytest.fail("it did start"))
    file = tmp_path / "messages.db"
    with closing(open_store(str(file), CATALOGUE)) as store:
        store.publish(dict.fromkeys(range(3), b"x"))
    with closing(sqlite3.connect(file)) as database:
        database.executescript(statement)
    done = call("serve", "--port", 0, "--store", file)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = [line for line in done.stderr.splitlines() if not line.startswith("onoff: note:")]
    assert f"{file}: is damaged (" in line
    assert what in line


def replace(file):
    (file.parent / "other").mkdir()
    open_store(str(file.parent / "other" / "o.db"), CATALOGUE).close()
    (file.parent / "other" / "o.db").rename(file)


@pytest.mark.parametrize("take_away", [Path.unlink, replace])
def test_a_file_that_was_deleted_or_replaced_is_noticed_and_nothing_is_acknowledged(tmp_path, take_away):
    file = tmp_path / "messages.db"
    with closing(open_store(str(file), CATALOGUE)) as store:
        store.publish({0: b"kept"})
        file.with_suffix(".copy").hardlink_to(file)
        take_away(file)
        for use in (store.changes, lambda: store.publish({0: b"lost"})):
            with pytest.raises(StoreUnavailable, match="deleted or replaced under the server"):
                use()
        with pytest.raises(StoreError):
            open_store(str(tmp_path / "none.db"), CATALOGUE, create=False)
        file.with_suffix(".copy").replace(file)  # the very file again
        assert store.publish({1: b"on"}) == 2
        assert store.changes().messages == {0: Message(1, b"kept"), 1: Message(2, b"on")}
