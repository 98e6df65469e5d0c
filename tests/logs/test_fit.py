from __future__ import annotations

import contextlib
import gzip
import json
import signal
import subprocess
import sys
import zipfile
import zlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logkit
from clikit import call
from onoff import Chain, OnoffError, fit
from onoff.logs import count as counts
from onoff.logs.count import count_sources, count_transitions
from onoff.logs.engines import Columns, DuckDB
from onoff.logs.read import ReadOptions, choose_columns, open_log, read_sequences, unpack
from sampling import examples

COLUMNS = Columns("user", "time", "source")
# Four objects: {"source": "a"}, {"source": "b"} and both once more.
ZSTD = bytes.fromhex("28b52ffd0058fd0000a87b22736f75726365223a2261227d0a626162227d0a03004016202f89671d")
HEADER = """% Different categories found in input file:

front news tech


% Sequences:

"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    made = DuckDB("1GB", tmp_path_factory.mktemp("duckdb"))
    yield made
    made.close()


def count(engine, file, names, other=None, gap=None, depth=3):
    open_log(engine, [file], ReadOptions())
    codes = {name: code for code, name in enumerate(names)}
    return count_transitions(engine, codes, len(names) + (other is not None), other, gap, depth)


def simple(tmp_path, rows=300, users=60, names="abc", seed=3):
    rng = np.random.default_rng(seed)
    return logkit.write(
        [(f"u{rng.integers(users)}", str(t), names[rng.integers(len(names))]) for t in range(rows)],
        tmp_path / "log.csv",
    )


rows = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", "", "d 1"]),
        st.sampled_from(["0", "1", "1", "2.5", "3", "40", "-7", "", "x"]),
        st.sampled_from(["p", "q", " p", "r", "s", ""]),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=examples(25))
@given(rows=rows, gap=st.sampled_from([None, 1.0, 10.0]), other=st.sampled_from([None, 2]))
def test_counts_are_those_of_a_plain_loop(engine, tmp_path_factory, rows, gap, other):
    file = logkit.write(rows, tmp_path_factory.mktemp("log") / "log.csv")
    names = ["p", "q"]
    for depth in (1, 2, 3):
        found = count(engine, file, names, other, gap, depth)
        assert logkit.as_counters(found) == logkit.counted(rows, names, gap, other, depth)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("TRANSITIONS", "PARTITION BY user ORDER BY time, row", "ORDER BY user, time, row"),
        ("CONTEXT", "AND time_{later} - time_{k} <= {gap}", ""),
        ("CONTEXT", "time_{later}", "time_0"),
        ("TRANSITIONS", "WHEN code_0 >= 0 THEN", "WHEN TRUE THEN"),
        ("CONTEXT", "code_{k} >= 0 AND", ""),
        ("FOLD", "1, 1", "2, 1"),
    ],
)
def test_a_context_across_users_pauses_or_other_sources_and_a_wrong_fold_are_seen(
    engine, tmp_path, monkeypatch, name, right, wrong
):
    """The planted mistakes, in the statement itself."""
    rng = np.random.default_rng(2)
    rows = [(f"u{rng.integers(40)}", str(t), "pqr"[rng.integers(3)]) for t in range(600)]
    file, expected = logkit.write(rows, tmp_path / "log.csv"), logkit.counted(rows, ["p", "q"], 30.0)
    assert logkit.as_counters(count(engine, file, ["p", "q"], gap=30.0)) == expected
    assert right in getattr(counts, name)
    monkeypatch.setattr(counts, name, getattr(counts, name).replace(right, wrong))
    assert logkit.as_counters(count(engine, file, ["p", "q"], gap=30.0)) != expected


def test_of_too_many_contexts_those_are_counted_that_came_most_often(engine, tmp_path, monkeypatch):
    rng = np.random.default_rng(4)
    rows = [(f"u{rng.integers(40)}", str(t), "pqr"[rng.integers(9) // 4]) for t in range(2000)]
    file, names = logkit.write(rows, tmp_path / "log.csv"), ["p", "q", "r"]
    came = Counter()
    for (_, *run), number in logkit.counted(rows, names)["after"].items():
        came[tuple(run)] += number * (len(run) == 3)
    monkeypatch.setattr(counts, "MOST_CELLS", 7 * 3)
    level = count(engine, file, names).levels[2]
    assert list(map(tuple, level.contexts.tolist())) == sorted(run for run, _ in came.most_common(7))
    everything = logkit.counted(rows, names)["after"]
    for fold, place, code in np.ndindex(level.counts.shape):
        assert level.counts[fold, place, code] == everything[fold, *level.contexts[place].tolist(), code]


def test_a_log_counted_in_parts_gives_the_same_report_to_the_last_digit(tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    rows = [(f"u{rng.integers(300)}", str(i), "xyz"[rng.integers(3)]) for i in range(6000)]
    file = logkit.write(rows, tmp_path / "log.parquet")
    whole = fit(file, memory=3)
    assert len(whole.report.depths) == 3
    monkeypatch.setattr(DuckDB, "rows_at_once", 1000)
    assert fit(file, memory=3).report == whole.report


def as_json(rows):
    return json.dumps([dict(zip(("user", "time", "source"), row, strict=True)) for row in rows]).encode()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *((name, bytes) for name in ("log.csv", "log.tsv", "log.jsonl", "log.parquet")),
        *((name, lambda data: b"\xef\xbb\xbf" + data) for name in ("log.csv", "log.tsv", "log.jsonl")),
        *(
            (name, lambda data: data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))
            for name in ("log.csv", "log.jsonl")
        ),
        *((name, lambda data: data.replace(b"\r\n", b"\n")) for name in ("log.csv", "log.tsv")),
        ("log.csv", lambda data: data.replace(b"\r\n", b"\r")),
        ("log.csv", lambda data: data.replace(b"\r\n", b"\r\n\r\n")),
        ("log.csv", gzip.compress),
        ("log.csv.gz", lambda data: gzip.compress(data[:50]) + gzip.compress(data[50:])),
        ("log.csv.gz", lambda data: gzip.compress(gzip.compress(b"\xef\xbb\xbf" + data))),
        ("log.json", lambda _: as_json(logkit.AWKWARD)),
    ],
)
def test_every_format_gives_the_same_counts(engine, tmp_path, name, change):
    """With a byte-order mark, with other ends of lines and blank ones, packed once or twice or in two members."""
    file = logkit.write(logkit.AWKWARD, tmp_path / name)
    file.write_bytes(change(file.read_bytes()))
    found = count(engine, file, ["x", "y", "z"], gap=50.0)
    assert logkit.as_counters(found) == logkit.counted(logkit.AWKWARD, ["x", "y", "z"], 50.0)


def test_names_are_taken_as_they_are_written(engine, tmp_path):
    """No word means nothing, no number is rounded, and letters are not made alike."""
    names = ["NULL", "null", "NA", "nan", "01", "1", "1.0", "1e0", "\U0001f986", "e\u0301", "\xe9", '5" disk']
    rows = [(f"u\0{t % 7}", str(t), names[t * t % 12]) for t in range(300)]
    for name in ("log.csv", "log.jsonl", "log.parquet"):
        found = count(engine, logkit.write(rows, tmp_path / name), names)
        assert logkit.as_counters(found) == logkit.counted(rows, names)


@pytest.mark.parametrize("name", ["log.csv.gz", "log.zip"])
def test_no_damage_of_an_archive_passes(engine, tmp_path, name):
    """59 flips of a bit of what is packed, and cuts. Some would decompress to other bytes, if nobody compared sums."""
    content = ("user,time,source\n" + "".join(f"u{t % 7},{t},{'abc'[t * t % 3]}\n" for t in range(900))).encode()
    rng, file, unnoticed = np.random.default_rng(1), tmp_path / name, 0
    if name == "log.zip":
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("log.csv", content)
    else:
        file.write_bytes(gzip.compress(content, mtime=0))
    data = file.read_bytes()
    begin, end = (37, len(data) - 75) if name == "log.zip" else (10, len(data) - 8)
    assert zlib.decompress(data[begin:end], -15) == content
    for bit in rng.choice(np.arange(8 * begin, 8 * end), 59, replace=False):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(zlib.error):
            unnoticed += zlib.decompressobj(-15).decompress(flipped[begin:end]) != content
        refuse(engine, file, bytes(flipped))
    assert unnoticed > 10
    for size in (3, 9, begin + 5, end // 2, end, len(data) - 1):
        refuse(engine, file, data[:size])
    if name == "log.csv.gz":
        refuse(engine, file, data + b"more")
        refuse(engine, file, data + data[:-2])
        file.write_bytes(data + bytes(512))  # tapes and blocks are filled with zeros
        assert unpack(file, tmp_path).read_bytes() == content


def refuse(engine, file, data):
    file.write_bytes(data)
    with pytest.raises(OnoffError, match=rf"{file.name}: (cannot be unpacked|the name does not say)"):
        open_log(engine, [file], ReadOptions())


def test_typed_columns_of_parquet_count_like_texts(engine, tmp_path):
    moments = ["2023-11-14 22:13:20.0005", "2023-11-14 22:13:20.00025", "2023-11-14 22:13:22", None]
    numbers = [1_700_000_000_000_500, 1_700_000_000_000_250, 1_700_000_002_000_000, None]
    for kind, times in {"TIMESTAMP": moments, "TIMESTAMPTZ": moments, "BIGINT": numbers, "DOUBLE": numbers}.items():
        columns = {"user": [7] * 4, "time": times, "source": [1, 2, 1, 2]}
        logkit.write_parquet(tmp_path / "log.parquet", f"BIGINT, {kind}, BIGINT", **columns)
        found = count(engine, tmp_path / "log.parquet", ["1", "2"])
        assert found.levels[0].counts.sum(axis=0).tolist() == [[1, 0], [1, 0]]
        assert found.users == 1


@pytest.mark.parametrize(
    "name", ["log (1).csv", "user=5/log.csv", "a*b.csv", "[a]?'.csv", "log (1).parquet", "user=5/log.parquet"]
)
def test_a_name_of_a_file_is_only_a_name(tmp_path, name):
    """Not a pattern that fits other files, and `user=5` is no column."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    logkit.write(logkit.AWKWARD * 2, tmp_path / "a and b.csv")
    found = fit(logkit.write(logkit.AWKWARD, tmp_path / name))
    assert (found.report.rows, found.report.users) == (38, 10)


@pytest.mark.parametrize("name", ["log.csv", "log.txt"])
def test_the_order_of_the_file_does_not_rest_on_a_default_of_duckdb(tmp_path, monkeypatch, name):
    """The planted mistake: a DuckDB that by default may deliver the blocks of a file in any order."""
    import duckdb

    connect, unordered = duckdb.connect, {"preserve_insertion_order": False, "threads": 4}
    monkeypatch.setattr(duckdb, "connect", lambda *a, config=None, **k: connect(*a, config=(config or {}) | unordered))
    made = DuckDB("1GB", tmp_path)
    assert made.rows("SELECT current_setting('preserve_insertion_order')") == [(True,)]
    made.close()
    (tmp_path / name).write_text("source\n" * (name == "log.csv") + "".join(f"s{t % 7}\n" for t in range(400_000)))
    found = fit(tmp_path / name)
    assert (found.counts > 0).sum() == 7  # each is followed by the next one, and by no other


@pytest.mark.parametrize("line", ["# note", "u,1,a,more", "title"])
def test_a_csv_is_read_without_guessing_what_its_lines_mean(tmp_path, line):
    """An engine that guesses would take the line for a comment, or all before it for a title."""
    body = "".join(f"u,{t},{'ab'[t % 2]}\n" for t in range(50))
    (tmp_path / "log.csv").write_text(f"user,time,source\n{line}\n{body}")
    with pytest.raises(
        OnoffError,
        match=r"log.csv: cannot be read \(line 2 has another number of cells \(\d\) than the header \(3\)\)$",
    ):
        fit(tmp_path / "log.csv")


def test_a_header_is_read_as_it_is(tmp_path):
    (tmp_path / "log.csv").write_bytes('\ufeff;user;"ti;me";USER\r\n0;u;1;a\r\n'.encode())
    with pytest.raises(OnoffError, match="there are column_0, user, ti;me, USER_3"):
        fit(tmp_path / "log.csv")
    (tmp_path / "log.txt").write_text("\ufeffa b a\n")  # a byte-order mark is no part of a name
    assert fit(tmp_path / "log.txt").chain.names == ("a", "b")


def test_nothing_is_dropped_without_being_counted(tmp_path):
    report = fit(logkit.write(logkit.AWKWARD, tmp_path / "log.zip"), gap=50).report
    expected = logkit.counted(logkit.AWKWARD, ["x", "y", "z"], 50)
    assert (report.rows, report.missing_user, report.missing_time) == (38, 2, 9)
    assert (report.dropped_rows, report.breaks, report.users) == (10, 1, 10)
    assert report.rows == report.dropped_rows + report.breaks + report.events
    assert report.events == report.transitions + report.sequences
    assert report.transitions == sum(number for run, number in expected["after"].items() if len(run) == 3)


def test_text_sequences_are_names_or_numbers_of_the_names_in_their_header(tmp_path):
    (tmp_path / "log.seq").write_text(HEADER + "1 1 2\n2\n3 2 2 1 front\n" * 40)
    found = fit(tmp_path / "log.seq")
    assert found.chain.names == ("front", "news", "tech")
    assert (found.counts == 40 * np.array([[2, 1, 0], [1, 1, 0], [0, 1, 0]])).all()
    report = found.report
    assert (report.users, report.sequences, report.transitions) == (120, 120, 240)
    assert report.unseen_cells == pytest.approx(4 / 9)
    assert report.notes == ()  # and no guess
    (tmp_path / "log.seq").write_text("% a comment\na b\n\n 2 1 7\r\n")
    assert list(read_sequences(tmp_path / "log.seq")) == [["a", "b"], ["2", "1", "7"]]
    assert list(read_sequences(tmp_path / "log.seq", ("a", "b"))) == [["a", "b"], ["b", "a", "7"]]
    assert list(read_sequences(tmp_path / "log.seq", ("1", "2"))) == [["a", "b"], ["2", "1", "7"]]


def test_columns_are_guessed_with_a_note_and_asked_for_by_name():
    names = ["Visitor_ID", "when", "page", "price"]
    columns, notes = choose_columns(ReadOptions(), names)
    assert columns == Columns("Visitor_ID", "when", "page")
    assert len(notes) == 3
    assert choose_columns(ReadOptions(), ["user", "time", "source"]) == (COLUMNS, [])
    columns, notes = choose_columns(ReadOptions(user="price", source="Visitor_ID"), names)
    assert columns == Columns("price", "when", "Visitor_ID")
    assert notes == ["time is taken to be the column 'when'; --time NAME says otherwise"]
    columns, notes = choose_columns(ReadOptions(), ["user", "what"])
    assert columns == Columns("user", None, "what")
    assert "order of the file" in notes[-1]


@pytest.mark.parametrize("ticks", [1, 1_000, 1_000_000, 1_000_000_000])
def test_the_unit_of_numbers_is_told_by_their_size(tmp_path, ticks):
    rows = [
        ("u", str((1_700_000_000 + pause) * ticks), s) for pause, s in zip([0, 10, 100, 110, 300], "ababa", strict=True)
    ]
    for name in ("log.csv", "log.parquet"):
        report = fit(logkit.write(rows, tmp_path / name), gap=60).report
        assert (report.sequences, report.transitions) == (3, 2)
        assert len([note for note in report.notes if "are taken for them" in note]) == (ticks > 1)


def test_a_name_that_says_nothing_asks_for_the_format(tmp_path):
    (tmp_path / "log.old").write_text("a b a\nb a b\n")
    with pytest.raises(OnoffError, match="does not say what the log is: say --format csv, json"):
        fit(tmp_path / "log.old")
    notes = fit(tmp_path / "log.old", kind="text").report.notes
    assert any(note.startswith("4 transitions are few for 2 sources") for note in notes)


def test_without_times_the_order_of_the_file_counts(tmp_path):
    (tmp_path / "log.csv").write_text("user,page\nu,a\nv,b\nu,b\nv,a\nu,a\n")
    found = fit(tmp_path / "log.csv")
    assert found.counts.tolist() == [[0, 1], [2, 0]]
    with pytest.raises(OnoffError, match="--gap means nothing"):
        fit(tmp_path / "log.csv", gap=5)


@pytest.mark.parametrize(
    ("name", "data", "options", "words"),
    [
        ("none.csv", None, {}, r"none.csv: cannot be read \(No such file"),
        ("log.csv", "", {}, "log.csv: is empty"),
        ("log.csv", "user,time,source\n", {}, "no row has a user, a time and a source"),
        ("log.csv", "user,time,source\nu,1,a\nu,2,a\n", {}, "it has 1 source, and a chain needs 2"),
        ("log.csv", "user,time,source\nu,1,a\nv,2,b\n", {}, "no two events in a row"),
        ("log.csv", "u,v,w\n1,2,3\n", {}, "which column is the source\\? Say --source NAME: there are u, v, w"),
        ("log.parquet", "not parquet", {}, "log.parquet: cannot be read"),
        ("log.jsonl", '{"source": "a"}\n{\n', {}, r"it is not JSON near object 3: unexpected end"),
        ("log.csv", "user,source\nu,a\r\nu,b\n", {}, "its lines do not all end alike"),
        ("log.csv", "user,source\nu,a\n".encode("utf-16-le"), {}, "first line is not text; save the file as UTF-8"),
        ("log.csv", "user,source\nu,a\nu,b\0\n", {}, r"log.csv: the name of source 1 is 'b\\x00': a printable"),
        ("log.csv.gz", gzip.compress(b"", mtime=0), {}, "/log.csv.gz: is empty"),
        ("log.txt", "% only a comment\n", {}, "no sequences"),
        ("log.jsonl.zst", ZSTD, {"kind": "json"}, "cannot be read"),
        ("log.csv.gz", b"user,source\nu,a\n", {}, "log.csv.gz: cannot be unpacked"),
        ("log.csv", "user,time,source\nu,1,a\n", {"smoothing": -1}, "at least 0"),
        ("log.csv", "user,time,source\nu,1,a\n", {"kind": "xml"}, "one of csv, json"),
    ],
)  # fmt: skip
def test_a_bad_log_is_refused_in_one_line(tmp_path, name, data, options, words):
    file = tmp_path / name
    if data is not None:
        file.write_bytes(data if isinstance(data, bytes) else data.encode())
    with pytest.raises(OnoffError, match=words):
        fit(file, **options)


def test_rare_sources_become_one(engine, tmp_path):
    rows = [("u", str(t), s) for t, s in enumerate(["a"] * 9 + ["b"] * 5 + ["c"] * 5 + ["other"] * 2 + ["d"] + ["a"])]
    file = logkit.write(rows, tmp_path / "log.csv")
    found = fit(file, top=2)
    assert found.chain.names == ("a", "b", "other")
    assert found.report.merged_sources == 3
    assert any("became 'other'" in note for note in found.report.notes)
    found = fit(file, top=4)
    assert found.chain.names == ("a", "b", "c", "other", "other (merged)")
    assert found.counts.sum() == len(rows) - 1
    open_log(engine, [file], ReadOptions())
    assert count_sources(engine, 100).kept == ("a", "b", "c", "d", "other")


def test_after_a_dead_end_a_new_sequence_starts(tmp_path):
    (tmp_path / "log.txt").write_text("a b a end\nb a b end\nb b end\n")
    found = fit(tmp_path / "log.txt", smoothing=0.5)
    assert found.report.dead_ends == ("end",)
    assert found.counts[2].tolist() == [0, 0, 0]  # what was counted is not embellished
    assert found.chain.P[2] == pytest.approx(np.array([1.5, 2.5, 0.5]) / 4.5)
    assert found.chain.P[0] == pytest.approx(np.array([0.5, 2.5, 1.5]) / 4.5)


def test_the_command_writes_the_chain_and_prints_what_it_is_worth(tmp_path):
    simple(tmp_path, rows=3000, users=900)
    report = json.loads(call("fit", "log.csv", "-o", "a.json", "--json", cwd=tmp_path).stdout)
    assert [one["states"] for one in report["depths"]] == [3, 3]  # uniform requests: no context is worth a row
    shown = call("fit", "log.csv", "-o", "b.json", cwd=tmp_path, check=True).stdout
    assert report["verdict"] in shown
    assert Chain.load(tmp_path / "a.json") == Chain.load(tmp_path / "b.json")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_stop_a_query(tmp_path, number):
    code = f"""
import os, pathlib, signal, sys, threading
from contextlib import closing
from onoff.logs.engines import DuckDB, explain_errors
engine = DuckDB("1GB", pathlib.Path({str(tmp_path)!r}))
threading.Timer(0.5, os.kill, (os.getpid(), {number:d})).start()
signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # as the command does in the background
try:
    with closing(engine), explain_errors(pathlib.Path("log")):
        engine.rows("SELECT sum(sqrt(range)) FROM range(1000000000000)")
except (KeyboardInterrupt, SystemExit):
    print("stopped")
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "stopped\n"


def test_the_plain_loop_itself_on_a_case_counted_by_hand():
    rows = [("u", "1", "p"), ("u", "2", "q"), ("u", "9", "p"), ("u", "9", "q"), ("v", "1", "q"), ("u", "3", "")]
    found = logkit.counted(rows, ["p", "q"], gap=5)
    assert found["after"] == Counter({(logkit.fold("u"), 0, 1): 2})
    assert found["starts"] == Counter({0: 2, 1: 1})
    assert found["breaks"] == 1
