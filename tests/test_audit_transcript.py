from __future__ import annotations

import json

import pytest

from onoff import Chain
from onoff.audit.transcripts import Line, Step, read_journal, read_log, read_statuses, read_truth, streams
from onoff.errors import OnoffError
from onoff.journal import Journal
from onoff.session import State, begin, finish

CHAIN = Chain([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2], [0.1, 0.1, 0.8]], ("a", "b", "c"))


def write(path, *lines):
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_a_log_is_read_in_the_order_of_its_catalogue(tmp_path):
    file = write(
        tmp_path / "log",
        {"time": 1.5, "step": 0, "sources": [0, 2], "client": "x"},
        {"catalogue": ["c", "a", "b"]},
        {"time": 2, "step": 1, "sources": [0, 1], "client": None, "damaged": True, "unread": True},
    )
    assert read_log(file, CHAIN) == (Line(0, (0, 2), "x", 1.5), Line(1, (2, 0), None, 2.0, True, True))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"step": 1, "sour', "line 2 is not JSON"),
        ([1, 2], "line 2 is not a query"),
        ({"step": 1}, "line 2 is not a query"),
        ({"step": -1, "sources": [0]}, "line 2: the step"),
        ({"step": True, "sources": [0]}, "line 2: the step"),
        ({"step": 1, "sources": [3]}, "line 2: .* not a set of sources"),
        ({"step": 1, "sources": [1, 1]}, "line 2: .* not a set of sources"),
        ({"step": 1, "sources": []}, "line 2: .* not a set of sources"),
        ({"step": 1, "sources": [0], "client": 5}, "line 2: the client"),
        ({"step": 1, "sources": [0], "time": "now"}, "line 2: the time"),
        ({"step": 1, "sources": [0], "unread": 1}, "line 2: `damaged`"),
        ({"catalogue": ["a", "b"]}, "line 2: the sources of this catalogue"),
        ({"catalogue": "abc"}, "line 2: the catalogue is not a list"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, complaint):
    with pytest.raises(OnoffError, match=complaint):
        read_log(write(tmp_path / "log", {"step": 0, "sources": [0]}, line), CHAIN)


def test_files_that_are_missing_or_empty_are_errors(tmp_path):
    for read in (read_log, read_truth, read_journal):
        with pytest.raises(OnoffError, match=r"cannot be read|there is no journal"):
            read(tmp_path / "none", CHAIN)
    for read in (read_log, read_truth):
        with pytest.raises(OnoffError, match="there are no"):
            read(write(tmp_path / "empty"), CHAIN)


def test_a_stream_begins_where_the_steps_of_a_client_go_back_to_0():
    steps = [("x", 0), ("x", 0), ("y", 0), ("x", 1), ("y", 1), ("x", 0), ("y", 2)]
    lines = [Line(step, (0,), client, float(i)) for i, (client, step) in enumerate(steps)]
    found = [[line.time for line in stream] for stream in streams(lines)]
    assert found == [[0, 1, 3], [2, 4, 6], [5]]
    assert [[line.time for line in stream] for stream in streams(lines, "y")] == [[2, 4, 6]]


def test_the_journal_is_read_while_its_client_has_it(tmp_path):
    journal = Journal(tmp_path / "journal", CHAIN.fingerprint, "catalogue")
    try:
        state = State()
        for request, following in ((1, 0), (0, 2), (2, None)):
            state, pending = begin(state, CHAIN, request, following, private=True, plan=None)
            journal.begin(state, pending, 3.0)
            state = finish(state)
        steps = read_journal(tmp_path / "journal", CHAIN)
    finally:
        journal.close()
    assert steps[0] == Step(0, True, True, 0, "everything", (0, 1, 2), 1, 0)
    assert [(step.request, step.next) for step in steps] == [(1, 0), (0, 2), (2, None)]
    with pytest.raises(OnoffError, match="another chain"):
        read_journal(tmp_path / "journal", Chain.symmetric(3, 0.5))
    with pytest.raises(OnoffError, match="cannot be read as a journal"):
        read_journal(write(tmp_path / "other", "text"), CHAIN)


def test_the_truth_is_names_with_or_without_a_status(tmp_path):
    assert read_truth(write(tmp_path / "truth", "# mine", "b", "", "on c", "off a"), CHAIN) == (1, 2, 0)
    assert read_truth(write(tmp_path / "truth", "on c"), Chain.symmetric(2, 0.5, ("on c", "c"))) == (0,)
    with pytest.raises(OnoffError, match="line 2: no source is called 'd'"):
        read_truth(write(tmp_path / "truth", "a", "on d"), CHAIN)


def test_statuses_are_noughts_and_ones_in_a_string_or_a_file(tmp_path):
    assert read_statuses("101") == (True, False, True)
    assert read_statuses(str(write(tmp_path / "statuses", "10", "1"))) == (True, False, True)
    with pytest.raises(OnoffError, match="statuses are written"):
        read_statuses(str(write(tmp_path / "statuses", "1 0")))
