"""The transcript: whole lines or nothing, on a full disk and after a kill, and nothing answered that it cannot show."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onoff.errors import OnoffError
from onoff.server.transcript import Transcript
from onoff.wire import QueryMessage
from serverprocess import ServerProcess


def query(step=0, sources=(0, 1)):
    return QueryMessage("0" * 64, secrets.token_hex(16), step, sources)


def lines_of(file):
    """Every line, each of which must be whole."""
    text = file.read_bytes()
    assert text == b"" or text.endswith(b"\n")
    return [json.loads(line) for line in text.splitlines()]


TORN = [
    b"{",
    b'{"tim',
    b'{"time": 17',
    b'{"time": 1.5, "stream": "' + b"a" * 200_000,
    b'{"catalogue": ["ne',
]


@pytest.mark.parametrize("torn", TORN, ids=[str(len(torn)) for torn in TORN])
@pytest.mark.parametrize("before", [b"", b'{"catalogue": ["a", "b"]}\n'], ids=["alone", "after a line"])
def test_a_torn_last_line_is_cut_off_on_opening_and_before_the_next_line(tmp_path, torn, before):
    file = tmp_path / "transcript"
    file.write_bytes(before + torn)
    opened = Transcript(file)
    assert file.read_bytes() == before
    with file.open("ab") as other:  # a process that was killed while this one runs
        other.write(torn)
    opened.record(query(7), "here")
    assert [line.get("step") for line in lines_of(file)] == [None] * (before != b"") + [7]


def test_a_file_that_is_not_a_transcript_is_not_touched(tmp_path):
    file = tmp_path / "diary"
    file.write_text("dear diary,\nno newline at the end")
    with pytest.raises(OnoffError, match="another kind of file"):
        Transcript(file)
    assert file.read_text() == "dear diary,\nno newline at the end"


def test_a_pipe_is_not_a_transcript(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OnoffError, match="the transcript cannot be written"):
        Transcript(tmp_path / "pipe")


@pytest.mark.parametrize(
    "gone", [Path.unlink, lambda file: file.rename(f"{file}.1"), lambda file: os.truncate(file, 0)]
)
def test_where_the_file_was_taken_away_a_new_one_begins_with_the_catalogue(tmp_path, gone):
    """Lines that went to a deleted file would be lost, and no audit can read them without the order of the sources."""
    file = tmp_path / "transcript"
    workers = [Transcript(file, ("a", "b")) for _ in range(2)]
    workers[0].begin(("a", "b"))
    workers[0].record(query(1), None)
    gone(file)
    for step, worker in enumerate(workers, 2):
        worker.record(query(step), None)
    assert [line.get("step", line.get("catalogue")) for line in lines_of(file)] == [["a", "b"], 2, 3]


def test_a_line_that_waited_while_the_file_was_moved_away_goes_to_the_new_file(tmp_path):
    """Whoever rotates files may have read the old one to its end."""
    file = tmp_path / "transcript"
    transcript = Transcript(file, ("a", "b"))
    transcript.record(query(1), None)
    with file.open() as other, ThreadPoolExecutor() as pool:
        fcntl.flock(other, fcntl.LOCK_EX)
        writing = pool.submit(transcript.record, query(2), None)
        time.sleep(0.2)
        file.rename(tmp_path / "old")
        fcntl.flock(other, fcntl.LOCK_UN)
        writing.result()
    assert [line.get("step") for line in lines_of(tmp_path / "old")] == [None, 1]
    assert [line.get("step") for line in lines_of(file)] == [None, 2]


WRITER = """
import resource, sys
from pathlib import Path
from onoff.server.transcript import Transcript
from onoff.wire import QueryMessage
limit, worker = int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
transcript = Transcript(Path(sys.argv[1]))
for step in range(400):
    try:
        transcript.record(QueryMessage("0" * 64, f"{worker:032x}", step, tuple(range(step % 50 + 1))), None)
        print(step)
    except OSError:
        pass
"""


def test_processes_that_write_until_the_disk_is_full_leave_whole_lines_only(tmp_path):
    """The system takes a part of the line that crosses the limit, as a full disk does."""
    file = tmp_path / "transcript"
    command = [sys.executable, "-c", WRITER, str(file), "40001"]
    processes = [subprocess.Popen([*command, str(i)], stdout=subprocess.PIPE, text=True) for i in range(3)]
    told = [[int(step) for step in process.communicate(timeout=120)[0].split()] for process in processes]
    assert all(process.returncode == 0 for process in processes)
    assert sum(map(len, told)) < 1200
    found = lines_of(file)
    for worker, steps in enumerate(told):
        assert [line["step"] for line in found if int(line["stream"], 16) == worker] == steps


def test_the_line_of_a_query_is_there_before_its_answer(tmp_path):
    with ServerProcess(tmp_path) as server:
        for step in range(20):
            server.ask([0], step=step)
            assert lines_of(Path(server.transcript_file))[-1]["step"] == step
