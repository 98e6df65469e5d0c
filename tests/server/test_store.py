"""Both stores, the same tests: rounds are atomic, kept, and seen by other processes."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time

import pytest

from onoff.errors import MissingExtra, StoreError, StoreUnavailable
from onoff.server.store import Message, open_store
from onoff.wire import Catalogue
from redisprocess import REDIS_SERVER, RedisProcess, needs_redis

CATALOGUE = Catalogue(("news", "sports", "science"), 64)
OTHER = Catalogue(("news", "science", "sports"), 64)


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory):
    process = RedisProcess(tmp_path_factory.mktemp("redis"))
    yield process
    process.kill()


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=needs_redis)])
def target(request, tmp_path):
    """Where a new, empty store is."""
    if request.param == "sqlite":
        yield str(tmp_path / "messages.db")
    else:
        import redis

        process = request.getfixturevalue("shared_redis")
        with redis.Redis.from_url(process.url) as database:
            database.flushall()
        yield process.url


@pytest.fixture
def opened(target):
    stores = []

    def open_one(catalogue=CATALOGUE):
        stores.append(open_store(target, catalogue))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


def test_a_new_store_is_empty(opened):
    assert opened().changes(0).round == 0
    assert opened().changes(0).messages == {}


def test_the_latest_message_of_each_source_is_kept_with_its_round(opened):
    store = opened()
    assert store.publish({0: b"one", 2: b"\0two"}) == 1
    assert store.publish({0: b""}) == 2
    assert store.changes(0).round == 2
    assert store.changes(0).messages == {0: Message(2, b""), 2: Message(1, b"\0two")}


def test_only_what_changed_is_reported(opened):
    store = opened()
    store.publish({0: b"one", 1: b"one"})
    store.publish({1: b"two"})
    assert store.changes(1).messages == {1: Message(2, b"two")}
    assert store.changes(2).messages == {}
    assert store.changes(9).round == 2  # the caller sees that rounds were lost


def test_another_process_sees_a_publication_at_once_and_numbers_go_on(opened, target):
    store = opened()
    store.publish({0: b"mine"})
    code = (
        "import sys; from onoff.server.store import open_store; print(open_store(sys.argv[1]).publish({1: b'theirs'}))"
    )
    done = subprocess.run([sys.executable, "-c", code, target], check=True, capture_output=True, text=True)
    assert done.stdout == "2\n"
    assert store.changes(1).messages == {1: Message(2, b"theirs")}


def test_a_store_belongs_to_its_catalogue(opened):
    opened().publish({0: b"kept"})
    with pytest.raises(StoreError, match="catalogue"):
        opened(OTHER).publish({0: b"foreign"})
    with pytest.raises(StoreError, match="catalogue"):
        opened(OTHER).changes(0)
    known = opened(None)
    assert known.catalogue == CATALOGUE
    assert known.changes(0).messages == {0: Message(1, b"kept")}


def test_a_new_store_needs_a_catalogue(target):
    with pytest.raises(StoreError, match="say which sources"):
        open_store(target)


def test_a_reader_never_sees_a_part_of_a_round(opened):
    writer, reader = opened(), opened()
    done = threading.Event()
    problems = []

    def publish():
        for number in range(200):
            writer.publish(dict.fromkeys(range(3), b"%d" % number))
        done.set()

    thread = threading.Thread(target=publish)
    thread.start()
    seen = 0
    while not done.is_set():
        found = reader.changes(0)
        if len(set(found.messages.values())) > 1 or len(found.messages) not in (0, 3):
            problems.append(found)
        seen = max(seen, found.round)
    thread.join()
    assert problems == []
    assert seen > 1, "the reader never ran beside the writer"


def test_rounds_of_several_publishers_are_all_counted(opened):
    stores = [opened() for _ in range(3)]
    threads = [
        threading.Thread(target=lambda store=store: [store.publish({0: b"x"}) for _ in range(10)]) for store in stores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stores[0].changes(0).round == 30


PUBLISH_FOR_EVER = """
import sys
from onoff.server.store import open_store
store = open_store(sys.argv[1])
while True:
    print(store.publish(dict.fromkeys(range(3), b'?')), flush=True)
"""


def test_what_was_acknowledged_survives_kill_9_of_the_publisher(opened, target):
    store = opened()
    assert store.changes(0).round == 0
    process = subprocess.Popen([sys.executable, "-c", PUBLISH_FOR_EVER, target], stdout=subprocess.PIPE, text=True)
    acknowledged = [process.stdout.readline() for _ in range(20)]
    os.kill(process.pid, signal.SIGKILL)
    rest = process.stdout.read().split("\n")
    process.stdout.close()
    process.wait()
    last = int(([line for line in rest[:-1] if line] or acknowledged)[-1])
    found = store.changes(0)
    assert found.round >= last >= 20
    assert {message.round for message in found.messages.values()} == {found.round}
    assert store.publish({0: b"on"}) == found.round + 1


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
    assert store.changes(0).round == 0  # readers go on beside a writer
    other.execute("ROLLBACK")
    other.close()
    [pages] = store._writer.execute("PRAGMA page_count").fetchone()
    store._writer.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreUnavailable, match="full"):
        store.publish({0: b"x" * 20_000})
    store._writer.execute("PRAGMA max_page_count = 100000")
    assert store.publish({0: b"x"}) == 1
    store.close()


@needs_redis
def test_redis_killed_and_back_has_lost_nothing_that_was_acknowledged(tmp_path):
    process = RedisProcess(tmp_path)
    store = open_store(process.url, CATALOGUE)
    try:
        for number in range(1, 21):
            assert store.publish({0: b"%d" % number, 1: b"%d" % number}) == number
        process.kill()
        with pytest.raises(StoreUnavailable):
            store.publish({0: b"lost?"})
        with pytest.raises(StoreUnavailable):
            store.changes(0)
        process.start()
        assert store.changes(0).messages == {0: Message(20, b"20"), 1: Message(20, b"20")}
        assert store.publish({2: b"on"}) == 21
    finally:
        store.close()
        process.kill()


@needs_redis
def test_redis_that_does_not_answer_is_unavailable_within_seconds(tmp_path):
    process = RedisProcess(tmp_path)
    store = open_store(process.url, CATALOGUE)
    try:
        store.publish({0: b"kept"})
        process.freeze()
        start = time.monotonic()
        with pytest.raises(StoreUnavailable):
            store.changes(0)
        assert time.monotonic() - start < 60
        process.thaw()
        assert store.changes(0).messages == {0: Message(1, b"kept")}
    finally:
        store.close()
        process.kill()


@needs_redis
def test_redis_that_may_forget_says_so(tmp_path, shared_redis):
    careful = open_store(shared_redis.url, CATALOGUE)
    assert careful.caveat() is None
    careful.close()
    process = RedisProcess(tmp_path, "--appendonly", "no")
    store = open_store(process.url, CATALOGUE)
    assert "appendonly yes" in store.caveat()
    process.kill()
    assert "could not be asked" in store.caveat()
    store.close()


def test_a_wrong_redis_url_is_a_clear_error():
    pytest.importorskip("redis")
    with pytest.raises(StoreError, match="not the URL"):
        open_store("redis://host:port/", CATALOGUE)
    with pytest.raises(StoreUnavailable) as caught:
        open_store("redis://:secret@127.0.0.1:1/0")
    assert "secret" not in str(caught.value)


def test_redis_server_is_installed_where_nothing_may_be_skipped():
    assert REDIS_SERVER or os.environ.get("CI") != "true", "apt-get install redis-server"


def test_the_files_of_a_store_are_its_owners_alone(tmp_path):
    store = open_store(str(tmp_path / "messages.db"), CATALOGUE)
    store.publish({0: b"secret"})
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {"messages.db": 0o600, "messages.db-wal": 0o600, "messages.db-shm": 0o600}
    store.close()


def test_a_store_in_redis_without_its_library_says_what_to_install(monkeypatch):
    monkeypatch.setattr("onoff.extras.find_spec", lambda name: None if name == "redis" else name)
    with pytest.raises(MissingExtra, match=r"pip install 'onoff-privacy\[redis\]'"):
        open_store("redis://127.0.0.1:1/0")
