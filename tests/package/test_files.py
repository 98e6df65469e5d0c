"""Files: read or refused with a reason, written whole or not at all; archives unpacked by one rule."""

import gzip
import os
import stat
import zipfile

import pytest

from onoff import files
from onoff.errors import ChainError, LogError, OnoffError
from onoff.files import (
    append_line,
    check_file,
    error_sentence,
    read_json,
    read_regular,
    read_text,
    write_atomically,
)
from onoff.logs.read import read_sequences, unpack

ADDED = (".DS_Store", "data/.DS_Store", "__MACOSX/._log.txt", "data/")


def archive(file, *names):
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in names:
            packed.writestr(name, "" if name.endswith("/") else "a b a\n" * 100)
    return file


@pytest.mark.parametrize("read", [read_text, read_json])
def test_a_file_that_cannot_be_read_is_an_error_of_the_kind_asked_for(tmp_path, read):
    with pytest.raises(ChainError, match=r"none: cannot be read \(No such file or directory\)"):
        read(tmp_path / "none", ChainError)
    with pytest.raises(LogError, match=r"cannot be read \(Is a directory\)"):
        read(tmp_path, LogError)


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "1" * 5000, ""])
def test_json_that_is_none_is_refused_however_it_fails(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(OnoffError, match=r"x\.json: cannot be read as JSON"):
        read_json(tmp_path / "x.json")


def test_an_archive_holds_exactly_one_file_beside_what_an_archiver_adds(tmp_path):
    file = archive(tmp_path / "log.zip", "data/log.txt", *ADDED)
    assert unpack(file, tmp_path).read_text() == "a b a\n" * 100  # as `onoff fit` reads it
    assert list(read_sequences(file)) == [["a", "b", "a"]] * 100  # as `onoff audit people` does
    for names in ((), ("one", "two")):
        archive(file, *names, *ADDED)
        for read in (lambda: unpack(file, tmp_path), lambda: list(read_sequences(file))):
            with pytest.raises(OnoffError, match=f"holds {len(names)} files; an archive with one file"):
                read()


def test_a_damaged_archive_is_refused_by_all(tmp_path):
    file = archive(tmp_path / "log.zip", "log.txt")
    content = bytearray(file.read_bytes())
    start = content.index(b"log.txt") + len("log.txt")
    content[start : start + 4] = b"\xff\xff\xff\xff"  # the packed bytes: no archiver writes these
    file.write_bytes(content)
    for read in (lambda: unpack(file, tmp_path), lambda: list(read_sequences(file))):
        with pytest.raises(OnoffError, match=r"log\.zip: cannot be unpacked"):
            read()
    packed = tmp_path / "log.txt.gz"
    packed.write_bytes(gzip.compress(b"a b a\n" * 100)[:12] + b"\xff" * 20)
    with pytest.raises(LogError, match=r"log\.txt\.gz: cannot be unpacked"):
        unpack(packed, tmp_path)


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    file = tmp_path / "file"
    write_atomically(file, b"old")
    file.chmod(0o640)
    with pytest.raises(TypeError):
        write_atomically(file, "not bytes")
    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
    write_atomically(file, b"new")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"new", 0o640)
    with pytest.raises(OSError, match="missing") as caught:
        write_atomically(tmp_path / "missing" / "file", b"new")
    assert caught.value.filename == str(tmp_path / "missing" / "file")


def test_a_file_that_was_renamed_into_its_place_is_on_disk_with_its_name(tmp_path, monkeypatch):
    """The directory is synced after the rename, or a loss of power might bring the old file back."""
    actions = []
    replace, fsync = os.replace, os.fsync

    def synced(descriptor):
        actions.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    monkeypatch.setattr(os, "replace", lambda *names: actions.append("rename") or replace(*names))
    monkeypatch.setattr(os, "fsync", synced)
    write_atomically(tmp_path / "a", b"1")
    write_atomically(tmp_path / "a", b"2", sync=False)
    assert actions == ["file", "rename", "directory", "rename"]


def test_a_new_file_of_lines_is_on_disk_with_its_name(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(files, "sync_directory", synced.append)
    for line in (b"1\n", b"2\n"):
        append_line(tmp_path / "lines", line, head=b"")
    assert synced == [tmp_path]


@pytest.mark.parametrize("place", ["pipe", "link", "directory"])
def test_what_is_no_file_is_not_written_to_and_stays_what_it_is(tmp_path, place):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    with pytest.raises(OnoffError, match=f"{place}: is not a file"):
        check_file(tmp_path / place)
    with pytest.raises(OSError, match=place) as caught:
        write_atomically(tmp_path / place, b"data")
    assert "a file is needed" in error_sentence(caught.value)
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(os.listdir(tmp_path)) == ["directory", "link", "pipe"]


def test_what_a_stranger_puts_in_the_place_of_a_file_is_not_read(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"0123456789")
    assert read_regular(file, 10) == b"0123456789"
    with pytest.raises(ChainError, match="file: is larger than 9 bytes"):
        read_regular(file, 9, ChainError)
    (tmp_path / "link").symlink_to(file)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "."):
        with pytest.raises(OnoffError, match="is not a file"):
            read_regular(tmp_path / name, 10)
