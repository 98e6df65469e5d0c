"""Files of request sequences: names or numbers, headers."""

from __future__ import annotations

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
