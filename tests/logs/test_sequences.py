"""Files of request sequences: names or numbers, headers, zip archives, errors."""

from __future__ import annotations

import struct
import zipfile

import pytest

from onoff import OnoffError
from onoff.logs.read import read_sequences as read

MSNBC = "% Different categories found in input file:\n\nfront news tech\n\n\n% Sequences:\n\n1 1 \n2 \n3 2 front\n"


def test_the_header_names_the_categories(tmp_path):
    file = tmp_path / "sequences"
    file.write_text(MSNBC)
    expected = [["front", "front"], ["news"], ["tech", "news", "front"]]
    assert list(read(file)) == expected
    assert list(read(file, ("x", "y", "z"))) == expected


def test_without_a_header_words_are_names_or_numbers_of_the_given_names(tmp_path):
    file = tmp_path / "sequences"
    file.write_text("% a comment\na b\n\n 2 1 7\r\n")
    assert list(read(file)) == [["a", "b"], ["2", "1", "7"]]
    assert list(read(file, ("a", "b"))) == [["a", "b"], ["b", "a", "7"]]
    assert list(read(file, ("1", "2"))) == [["a", "b"], ["2", "1", "7"]]
    assert list(read(file, ("0", "1", "2"))) == [["a", "b"], ["2", "1", "7"]]  # a name counts before a number


def test_an_archive_is_the_file_in_it(tmp_path):
    file = tmp_path / "sequences.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data/sequences.seq", MSNBC)
        archive.writestr("__MACOSX/._sequences.seq", b"\xff")
    assert [len(words) for words in read(file)] == [2, 1, 3]
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("another", "1")
    with pytest.raises(OnoffError, match="holds 2 files"):
        list(read(file))


def test_errors_say_what_to_do(tmp_path):
    with pytest.raises(OnoffError, match="cannot be read"):
        list(read(tmp_path / "none"))
    with pytest.raises(OnoffError, match="cannot be read"):
        list(read(tmp_path))
    (tmp_path / "bytes").write_bytes(b"1 2\n\xff\xfe\n")
    with pytest.raises(OnoffError, match="not UTF-8"):
        list(read(tmp_path / "bytes"))
    file = tmp_path / "damaged.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("sequences", MSNBC)
    file.write_bytes(file.read_bytes().replace(b"front", b"FRONT", 1))
    with pytest.raises(OnoffError, match="zip archive"):
        list(read(file))


def test_archives_that_break_off_or_do_not_unpack_are_errors_in_one_line(tmp_path):
    file = tmp_path / "damaged.zip"
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_STORED):
        with zipfile.ZipFile(file, "w", method) as archive:
            archive.writestr("a.txt", "a b c\n" * 1000)
        data = bytearray(file.read_bytes())
        if method == zipfile.ZIP_STORED:  # more is announced than there is
            struct.pack_into("<LL", data, data.index(b"PK\x01\x02") + 20, 10**6, 10**6)
        else:
            data[35:60] = b"\xff" * 25
        file.write_bytes(data)
        with pytest.raises(OnoffError, match=r"damaged\.zip: (not a zip archive|byte [0-9]+ is not UTF-8)"):
            list(read(file))
