"""Publishing from a directory: whole files only, changed together published together."""

from __future__ import annotations

import errno
import os
import threading
import time

import pytest

from onoff.errors import OnoffError
from onoff.server import watch
from onoff.server.store import Message, open_store
from onoff.server.watch import Watcher, source_names
from onoff.wire import Catalogue

CATALOGUE = Catalogue(("news", "sports", "science"), 16)


@pytest.fixture
def store(tmp_path):
    store = open_store(str(tmp_path / "messages.db"), CATALOGUE)
    yield store
    store.close()


@pytest.fixture
def directory(tmp_path):
    directory = tmp_path / "feeds"
    directory.mkdir()
    (directory / "news").write_bytes(b"old news")
    (directory / "sports").write_bytes(b"old sports")
    return directory


def messages(store):
    return {CATALOGUE.names[source]: message.data for source, message in store.changes().messages.items()}


def test_files_are_published_together_once_they_rest(directory, store):
    watcher = Watcher(directory, store)
    assert watcher.look() is None
    assert watcher.look() == 1
    assert store.changes().messages == {0: Message(1, b"old news"), 1: Message(1, b"old sports")}
    assert watcher.look() is None
    (directory / "news").write_bytes(b"new")
    (directory / "science").write_bytes(b"first")
    assert watcher.look() is None
    assert watcher.look() == 2
    assert messages(store) == {"news": b"new", "sports": b"old sports", "science": b"first"}


def test_a_file_that_is_being_written_is_left_alone_and_its_round_waits(directory, store):
    watcher = Watcher(directory, store)
    watcher.look()
    for size in range(5):
        (directory / "news").write_bytes(b"x" * size)
        assert watcher.look() is None
    assert messages(store) == {}
    assert watcher.look() == 1
    assert messages(store) == {"news": b"xxxx", "sports": b"old sports"}


def test_a_file_that_never_rests_does_not_hold_up_the_others_for_ever(directory, store, monkeypatch):
    monkeypatch.setattr(watch, "PATIENCE_SECONDS", 0.2)
    watcher = Watcher(directory, store)
    deadline = time.monotonic() + 60
    size = 0
    while messages(store) == {}:
        assert time.monotonic() < deadline
        (directory / "news").write_bytes(b"x" * (size := size % 16 + 1))
        watcher.look()
    assert messages(store) == {"sports": b"old sports"}


def test_a_file_that_changes_between_the_look_and_the_reading_is_not_published(directory, store):
    watcher = Watcher(directory, store)
    watcher.look()
    stamps = watcher._stamps()
    (directory / "news").write_bytes(b"half")
    assert watcher._publish(stamps) == 1
    assert messages(store) == {"sports": b"old sports"}


def test_a_renamed_file_is_published_and_hidden_and_unknown_ones_are_left_alone(directory, store):
    (directory / ".news.tmp").write_bytes(b"not yet")
    (directory / "stranger").write_bytes(b"unknown")
    watcher = Watcher(directory, store)
    watcher.look()
    assert watcher.look() == 1
    assert messages(store) == {"news": b"old news", "sports": b"old sports"}
    os.replace(directory / ".news.tmp", directory / "news")
    watcher.look()
    assert watcher.look() == 2
    assert messages(store)["news"] == b"not yet"


def test_a_file_that_is_too_long_or_gone_leaves_the_message_as_it_was(directory, store, caplog):
    watcher = Watcher(directory, store)
    watcher.look()
    watcher.look()
    (directory / "news").write_bytes(b"x" * 17)
    (directory / "sports").unlink()
    assert [watcher.look() for _ in range(4)] == [None] * 4
    assert messages(store) == {"news": b"old news", "sports": b"old sports"}
    [record] = caplog.records
    assert record.message == f"{directory / 'news'}: not published: 17 bytes, --length is 16"


def test_after_a_restart_only_what_differs_is_published(directory, store):
    first = Watcher(directory, store)
    first.look()
    first.look()
    (directory / "sports").write_bytes(b"new sports")
    second = Watcher(directory, store)
    second.look()
    assert second.look() == 2
    assert store.changes().messages[1] == Message(2, b"new sports")
    assert store.changes().messages[0].round == 1


def test_it_goes_on_after_the_directory_was_away(directory, store, caplog):
    stop = threading.Event()
    moved = directory.with_name("moved")
    directory.rename(moved)
    thread = threading.Thread(target=Watcher(directory, store).run, args=(stop,))
    thread.start()
    deadline = time.monotonic() + 60
    while "No such file" not in caplog.text:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    moved.rename(directory)
    while messages(store) == {}:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    stop.set()
    thread.join()
    assert messages(store) == {"news": b"old news", "sports": b"old sports"}


def test_the_files_of_a_directory_are_its_sources(directory):
    (directory / ".hidden").write_bytes(b"")
    (directory / "folder").mkdir()
    assert source_names(directory) == ("news", "sports")
    with pytest.raises(OnoffError, match="cannot be watched"):
        source_names(directory / "none")


def test_a_symbolic_link_is_refused_at_the_start(directory, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    os.symlink(tmp_path / "secret", directory / "science")
    with pytest.raises(OnoffError, match="science: is a symbolic link"):
        source_names(directory)


def test_a_link_or_a_pipe_that_is_put_there_later_is_reported_and_never_followed(directory, store, tmp_path, caplog):
    (tmp_path / "secret").write_bytes(b"secret")
    watcher = Watcher(directory, store)
    watcher.look()
    watcher.look()
    os.symlink(tmp_path / "secret", directory / ".link")
    (directory / ".link").rename(directory / "news")
    os.mkfifo(directory / "science")
    assert [watcher.look() for _ in range(4)] == [None] * 4
    assert messages(store) == {"news": b"old news", "sports": b"old sports"}
    assert sorted(record.message for record in caplog.records) == [
        f"{directory / name}: not published, because it is a link or no file" for name in ("news", "science")
    ]


def test_a_change_of_equal_size_with_the_old_time_put_back_is_published(directory, store):
    watcher = Watcher(directory, store)
    watcher.look()
    assert watcher.look() == 1
    before = (directory / "news").stat()
    (directory / "news").write_bytes(b"new news")
    os.utime(directory / "news", ns=(before.st_atime_ns, before.st_mtime_ns))
    watcher.look()
    assert watcher.look() == 2
    assert messages(store)["news"] == b"new news"


def test_a_file_that_cannot_be_read_is_reported_once(directory, store, monkeypatch, caplog):
    def refused(file, *_):
        raise PermissionError(errno.EACCES, "Permission denied", file)

    watcher = Watcher(directory, store)
    watcher.look()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        assert [watcher.look() for _ in range(3)] == [None] * 3
    assert sorted(record.message for record in caplog.records) == [
        f"{directory / name}: not published: cannot be read (Permission denied)" for name in ("news", "sports")
    ]
    assert watcher.look() == 1
