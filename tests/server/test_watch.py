"""Publishing from a directory: whole files only, changed together published together."""

from __future__ import annotations

import errno
import os

import pytest

from onoff.errors import OnoffError
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


def test_a_file_that_changes_between_the_look_and_the_reading_is_not_published(directory, store):
    watcher = Watcher(directory, store)
    watcher.look()
    stamps = watcher._stamps()
    (directory / "news").write_bytes(b"half")
    assert watcher._publish(stamps) == 1
    assert messages(store) == {"sports": b"old sports"}


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


def test_a_change_of_equal_size_is_seen_though_its_old_date_is_put_back(directory, store):
    watcher, before = Watcher(directory, store), (directory / "news").stat()
    watcher.look()
    watcher.look()
    (directory / "news").write_bytes(b"new news")
    os.utime(directory / "news", ns=(before.st_atime_ns, before.st_mtime_ns))
    watcher.look()
    assert watcher.look() == 2
    assert messages(store)["news"] == b"new news"


def test_a_file_that_cannot_be_read_is_reported_once_and_published_when_it_can(directory, store, caplog, monkeypatch):
    def refuse(path, *arguments, honest=os.open):
        if path == directory / "news":
            raise PermissionError(errno.EACCES, "Permission denied")
        return honest(path, *arguments)

    watcher = Watcher(directory, store)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert [watcher.look() for _ in range(4)] == [None, 1, None, None]
    assert messages(store) == {"sports": b"old sports"}
    [record] = caplog.records
    assert record.message == f"{directory / 'news'}: not published: cannot be read (Permission denied)"
    assert watcher.look() == 2
    assert messages(store)["news"] == b"old news"


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
