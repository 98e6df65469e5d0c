"""The wire format: canonical bytes, strict reading, and answers judged as a whole."""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_right
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onoff import errors
from onoff.wire import (
    FRAME_OVERHEAD,
    MAX_ROUND,
    UNCHANGED_LENGTH,
    Catalogue,
    Frame,
    Unchanged,
    decode_answer,
)

CATALOGUE = Catalogue(("news", "sports", "wetter/süd", "science"), 32)
MESSAGES = [b"", b"a", b"\0\0", b"x" * 32]
FRAMES = [Frame(i, 7, message).encode(32) for i, message in enumerate(MESSAGES)]


def test_the_fingerprint_is_the_hash_of_the_document_and_never_changes():
    assert CATALOGUE.document == (
        b'{"format":"onoff-catalogue","length":32,"names":["news","sports","wetter/s\\u00fcd","science"],"version":1}'
    )
    assert CATALOGUE.fingerprint == hashlib.sha256(CATALOGUE.document).hexdigest()
    assert Catalogue.parse(CATALOGUE.document) == CATALOGUE


@pytest.mark.parametrize(
    ("names", "length", "words"),
    [
        (("one",), 8, "2 to"),
        (("a", "a"), 8, "twice"),
        (("a", ""), 8, "not a name"),
        (("a", "b\n c"), 8, "not a name"),
        (("a", "\ud800"), 8, "not a name"),
        (("a", "b" * 201), 8, "not a name"),
        (("a", "b"), 0, "length"),
        (("a", "b"), 2**24 + 1, "length"),
        (("a", "b"), True, "length"),
    ],
)
def test_what_is_not_a_catalogue_is_refused(names, length, words):
    with pytest.raises(errors.CatalogueError, match=words):
        Catalogue(names, length)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{}",
        CATALOGUE.document + b"\n",
        CATALOGUE.document.replace(b'"version":1', b'"version":2'),
        CATALOGUE.document.replace(b'["news","sports","wetter/s\\u00fcd","science"]', b'"news"'),
        CATALOGUE.document.replace(b'"version":1', b'"version":1,"more":0'),
    ],
)
def test_only_the_canonical_catalogue_document_is_read(document):
    with pytest.raises(errors.CatalogueError):
        Catalogue.parse(document)


def test_frames_are_equally_long_and_bytes_as_documented():
    assert {len(frame) for frame in FRAMES} == {32 + FRAME_OVERHEAD}
    content = struct.pack(">4sIQI", b"ONF1", 1, 7, 1) + b"a" + bytes(31)
    assert FRAMES[1] == content + hashlib.sha256(content).digest()
    with pytest.raises(ValueError, match="does not fit"):
        Frame(0, 1, b"x" * 33).encode(32)


def test_an_answer_is_the_frames_of_the_query_in_order():
    frames = decode_answer(CATALOGUE, (0, 1, 3), FRAMES[0] + FRAMES[1] + FRAMES[3])
    assert frames == (Frame(0, 7, b""), Frame(1, 7, b"a"), Frame(3, 7, b"x" * 32))
    last = Frame(0, MAX_ROUND, b"z")
    assert decode_answer(CATALOGUE, (0,), last.encode(32)) == (last,)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (struct.pack(">4sIQI", b"ONF2", 0, 7, 1) + b"a" + bytes(31), "version"),
        (struct.pack(">4sIQI", b"ONF1", 1, 7, 1) + b"a" + bytes(31), "source 1 instead of 0"),
        (struct.pack(">4sIQI", b"ONF1", 0, 7, 33) + b"a" * 32, "padding"),
        (struct.pack(">4sIQI", b"ONF1", 0, 7, 1) + b"a" * 32, "padding"),
        (struct.pack(">4sIQI", b"ONF1", 0, 0, 1) + b"a" + bytes(31), "padding"),
        (struct.pack(">4sIQI", b"ONF1", 0, MAX_ROUND + 1, 1) + b"a" + bytes(31), "its round is above"),
    ],
)
def test_a_frame_with_a_right_checksum_over_wrong_content_is_broken(content, fault):
    with pytest.raises(errors.AnswerError, match=fault):
        decode_answer(CATALOGUE, (0,), content + hashlib.sha256(content).digest())


SHORT = [Unchanged.of(frame).encode() for frame in FRAMES]


def test_an_unchanged_frame_is_short_and_bytes_as_documented():
    content = struct.pack(">4sIQ", b"ONU1", 1, 7) + FRAMES[1][-32:-16]
    assert SHORT[1] == content + hashlib.sha256(content).digest()[:16]
    assert {len(frame) for frame in SHORT} == {UNCHANGED_LENGTH}
    assert Catalogue(CATALOGUE.names, 1).frame_length > UNCHANGED_LENGTH


def test_an_answer_has_short_frames_for_what_is_held_and_whole_ones_for_the_rest():
    frames = decode_answer(CATALOGUE, (0, 1, 3), SHORT[0] + FRAMES[1] + SHORT[3], held=(7, 6, 7))
    assert frames == (Unchanged.of(FRAMES[0]), Frame(1, 7, b"a"), Unchanged.of(FRAMES[3]))
    assert frames[1].tag == Unchanged.of(FRAMES[1]).tag != b""


def test_a_whole_frame_of_a_round_that_is_held_is_not_the_canonical_answer():
    with pytest.raises(errors.AnswerError, match="its round is held"):
        decode_answer(CATALOGUE, (0, 1), SHORT[0] + FRAMES[1], held=(7, 7))
    assert decode_answer(CATALOGUE, (1,), FRAMES[1], held=(8,)) == (Frame(1, 7, b"a"),)  # the store was emptied
    nothing = Frame(1, 0, b"")
    assert decode_answer(CATALOGUE, (1,), nothing.encode(32), held=(0,)) == (nothing,)


@pytest.mark.parametrize(
    ("frames", "held"), [(FRAMES, (0, 0, 0, 0)), ([FRAMES[0], SHORT[1], FRAMES[2], SHORT[3]], (0, 7, 0, 7))]
)
@given(data=st.data())
def test_a_single_wrong_bit_anywhere_is_found_and_placed(frames, held, data):
    """In a mixed answer the bit may be in a marker, and the lengths are wrong then."""
    answer = bytearray(b"".join(frames))
    position = data.draw(st.integers(0, len(answer) - 1))
    answer[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(errors.AnswerError) as caught:
        decode_answer(CATALOGUE, (0, 1, 2, 3), bytes(answer), held)
    if caught.value.reason != "wrong-length":
        ends = list(accumulate(map(len, frames)))
        assert [where for where, _ in caught.value.faults] == [bisect_right(ends, position)]
    assert caught.value.reason == "broken-frame" or any(held)


@pytest.mark.parametrize(
    "answer",
    [
        b"", FRAMES[0], FRAMES[0] + FRAMES[1][:-1], b"".join(FRAMES[:3]), SHORT[0], SHORT[0] + SHORT[1][:-1],
        SHORT[0] + FRAMES[1] + SHORT[2], FRAMES[0] + SHORT[1] + b"x",
    ],
)  # fmt: skip
def test_an_answer_of_another_length_is_refused(answer):
    with pytest.raises(errors.AnswerError) as caught:
        decode_answer(CATALOGUE, (0, 1), answer, held=(7, 7))
    assert caught.value.reason == "wrong-length"
