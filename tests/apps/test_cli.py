"""The command line: in a process of its own where its environment, its terminal or a signal is the point."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import typer

from clikit import call, interrupt
from onoff import Chain
from onoff.apps.cli.options import parse_lags

ONOFF = Path(sys.executable).with_name("onoff")


@pytest.fixture
def chain_file(tmp_path):
    file = tmp_path / "chain.csv"
    Chain.symmetric(3, 0.25).save(file)
    return file


def test_reproduce_writes_and_names_its_files(tmp_path):
    done = call("reproduce", cwd=tmp_path, check=True)
    assert len(done.stdout.splitlines()) == 6
    assert all((tmp_path / line).stat().st_size for line in done.stdout.splitlines())
    assert {file.name for file in tmp_path.iterdir()} == {"figures"}


def test_an_ascii_terminal_is_enough(chain_file):
    done = call("costs", chain_file, "--lags", "1", encoding="ascii", check=True)
    assert re.search(r"\| past +\| +1 \| ", done.stdout)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan"], "CHAIN"),
        (["costs", "CHAIN", "--lags", "three"], "list of lags"),
        (["costs", "CHAIN", "--plot", "PICTURES.png"], "is not a file"),
        (["costs", "CHAIN", "--plot", "nowhere/costs.png"], "no directory"),
        (["costs", "CHAIN", "--csv", "nowhere/costs.csv"], "no directory"),
        (["costs", "DEEP"], "cannot be read as JSON"),
        (["fit", "CHAIN", "--out", "nowhere/x.json"], "no directory"),
        (["reproduce", "--out", "CHAIN"], "a file is in the way"),
        (["reproduce", "--out", "CHAIN/x"], "a part of this path is a file"),
        (["demo", "--steps", "1"], "--steps"),
        (["nonsense"], "No such command"),
        (["--nonsense"], "No such option"),
    ],
)
@pytest.mark.usefixtures("chain_file")
def test_an_error_is_one_line_on_stderr_and_exit_code_2(tmp_path, arguments, words):
    names = {"CHAIN": "chain.csv", "CHAIN/x": "chain.csv/x", "DEEP": "deep.json"}
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "PICTURES.png").mkdir()
    done = call(*[names.get(a, a) for a in arguments], cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert words in done.stderr
    assert "Errno" not in done.stderr


def test_lags_are_lists_and_ranges():
    assert parse_lags("3") == [3]
    assert parse_lags("5, 1-3,2") == [1, 2, 3, 5]
    assert parse_lags("0,100000") == [0, 100_000]
    for bad in ("5-1,7", "1--3,5", "1-", "-1", "", "1,", "1-2-3", "100001", "1-100001", "1_0", "1.5", "9" * 5000):
        with pytest.raises(typer.BadParameter, match="list of lags"):
            parse_lags(bad)


def test_a_chain_with_rounded_digits_is_refused_with_its_cure_and_the_cure_works(tmp_path):
    rounded, whole = tmp_path / "rounded.csv", tmp_path / "whole.json"
    rounded.write_text("a,b\n0.3333,0.6666\n0.5,0.5\n")
    refused = call("costs", rounded, "--lags", "1")
    assert refused.returncode == 2
    assert "`onoff fit` divides each row by its sum" in refused.stderr
    call("fit", rounded, "-o", whole, check=True)
    assert Chain.load(whole).P.tolist() == [[1 / 3, 2 / 3], [0.5, 0.5]]
    rounded.write_text("a,b\n0.3333,0.4\n0.5,0.5\n")  # what rounded digits do not explain
    refused = call("fit", rounded, "-o", tmp_path / "out.json")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "row 0 ('a') sums to" in refused.stderr


def test_a_table_of_counts_becomes_a_chain_with_a_note(tmp_path):
    """As a spreadsheet writes it: with a byte-order mark, and lines that end in CRLF."""
    (tmp_path / "counts.csv").write_bytes("\ufeffa,b\r\n30,10\r\n0,5\r\n".encode())
    done = call("fit", tmp_path / "counts.csv", "-o", tmp_path / "chain.csv", check=True)
    assert "the whole numbers are taken for counts, and 1 is added to each" in done.stderr
    assert Chain.load(tmp_path / "chain.csv") == Chain.from_counts([[30, 10], [0, 5]], ["a", "b"])


def test_nothing_is_imported_before_ctrl_c_is_silent():
    """What a finder is asked for while Ctrl-C is still a traceback."""
    code = """if True:
        import sys, _signal
        class Finder:
            def find_spec(name, *_):
                if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
                    print(name)
        sys.meta_path.insert(0, Finder)
        import onoff.__main__
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["onoff", "onoff.__main__"]


def test_a_job_in_the_background_goes_on_after_ctrl_c(chain_file):
    """It was started to ignore it; that is not undone."""
    words = [ONOFF, "costs", chain_file, "--lags", "1"]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.02)
        assert process.returncode == 0
        assert process.stdout.read()


def test_ctrl_c_ends_in_a_line_not_in_a_traceback_and_leaves_nothing(tmp_path):
    terminal, end = pty.openpty()
    command = [ONOFF, "demo", "--steps", "100000"]
    environment = {**os.environ, "TERM": "xterm", "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=end, env=environment)
    os.close(end)
    try:
        shown = interrupt(process, terminal, rb"[1-9][0-9]*/1000[0-9][0-9]")  # the progress bar tells that it runs
        assert process.wait(timeout=120) == 130
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    assert shown.endswith(b"onoff: stopped\r\n")
    assert b"Traceback" not in shown
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "ignored"), [(signal.SIGTERM, True), (signal.SIGHUP, False)])
def test_a_fit_that_is_ended_leaves_no_temporary_directory(tmp_path, number, ignored):
    """`plan`, `costs` and `demo` are ended in the same way."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    log = "user,time,source\n" + "".join(f"u,{t},s{t % 7}\n" for t in range(100_000))
    with zipfile.ZipFile(tmp_path / "log.zip", "w") as packed:
        packed.writestr("log.csv", log)
    background = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    command = [ONOFF, "fit", tmp_path / "log.zip", "-o", tmp_path / "chain.json"]
    command = [sys.executable, "-c", background, *command] if ignored else command
    with subprocess.Popen(command, env={**os.environ, "TMPDIR": str(temporary)}, stderr=subprocess.PIPE) as process:
        while not any(temporary.glob("onoff-fit-*/*")):  # the log is being unpacked there
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.002)
        process.send_signal(number)
        assert b"Traceback" not in process.stderr.read()
    assert not any(temporary.iterdir())
    if (tmp_path / "chain.json").exists():  # a library has swallowed the exception
        assert Chain.load(tmp_path / "chain.json").n == 7
    else:
        assert process.returncode == (128 + number if ignored else 130)
