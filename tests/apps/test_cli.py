"""The command line: in a process of its own where its environment, its terminal or a signal is the point."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile

import pytest
import typer

from clikit import ONOFF, call, interrupted
from onoff import Chain
from onoff.apps.cli.options import parse_lags
from onoff.apps.terminal import interrupt_on_signals


@pytest.fixture
def chain_file(tmp_path):
    file = tmp_path / "chain.csv"
    Chain.symmetric(3, 0.25).save(file)
    return file


WRONG = {  # a command, and words of its error
    "plan": "CHAIN",
    "nonsense": "No such command",
    "--nonsense": "No such option",
    "demo --steps 1": "--steps",
    "fit chain.csv --out nowhere/x.json": "no directory",
    "reproduce --out chain.csv/x": "a part of this path is a file",
    "plan chain.csv --out plans --lags 1-3 --scheme best": "lags 1, 2, 3: there is no scheme 'best': choose",
    "plan chain.csv --out plans --lags 1 --gap -1": "the gap is -1",
    "plan chain.csv --out plans --lags 1 --time-limit 0": "time limit is 0",
    "plan chain.csv --out plans --lags 1 --jobs 0": "--jobs",
    "costs": "Missing argument",
    "costs none.json": "cannot be read",
    "costs deep.json": "cannot be read as JSON",
    "costs chain.csv --lags three": "list of lags",
    "costs chain.csv --lags 0-2": "(1 to 100000)",
    "costs chain.csv --plot pictures.png": "is not a file",
    "costs chain.csv --plot nowhere/costs.png": "no directory",
    "costs chain.csv --plot a.txt": "a picture ends in",
    "costs chain.csv --csv there.csv": "exists already",
    "costs chain.csv --promise future": "choose past or both",
    "costs chain.csv --scheme paper": "--scheme needs --promise both",
    "costs chain.csv --promise both --sensitive 0": "--sensitive needs --promise past",
    "costs chain.csv --sensitive nobody": "nobody",
    "costs chain.csv --lengths lengths.json": "has no length of '1'",
    "costs chain.csv --lengths list.json": "JSON {name: bytes} is needed",
    "costs chain.csv two.csv --day": "--day is for one chain, and 2 are given",
    "costs chain.csv --day --csv new.csv": "--day has no --csv and no --plot",
    "costs chain.csv --day --private 0": "is not possible",
    "page --no-open --chain two.csv": "not unique",
    "page --no-open --chain many.csv": "at most 24",
    "proxy --on --off": "give --on or --off, not both",
    "get 0 --urls urls.json --chain chain.csv --journal j --on --off": "give --on or --off, not both",
    "get 3 --urls urls.json --chain chain.csv --journal j": "no source is called",
    "get 0 --urls bytes.json --chain chain.csv --journal j": "bytes.json: byte 16 is not UTF-8",
    "token nowhere/tokens": "the hash of the token cannot be written (",
}


@pytest.mark.parametrize("line", WRONG)
@pytest.mark.usefixtures("chain_file")
def test_an_error_is_one_line_on_stderr_and_exit_code_2_and_no_file_is_made(tmp_path, line):
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "two.csv").write_text("a,b\n1,0\n0,1\n")
    Chain.symmetric(25, 0.5).save(tmp_path / "many.csv")
    (tmp_path / "lengths.json").write_text('{"0": 5, "1": -1, "2": 5}')
    (tmp_path / "list.json").write_text("[1, 2, 3]")
    (tmp_path / "urls.json").write_text(json.dumps({name: f"http://127.0.0.1:1/{name}" for name in "012"}))
    (tmp_path / "bytes.json").write_bytes(b'{"0": "http://h/\xff"}')
    (tmp_path / "there.csv").touch()
    (tmp_path / "pictures.png").mkdir()
    before = set(tmp_path.iterdir())
    done = call(*line.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert WRONG[line] in done.stderr
    assert "Errno" not in done.stderr
    assert set(tmp_path.iterdir()) - {tmp_path / "plans"} == before


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


def test_ctrl_c_ends_in_a_line_not_in_a_traceback_and_leaves_nothing(tmp_path):
    bar = rb"[1-9][0-9]*/1000[0-9][0-9]"  # it tells that the command runs
    code, shown, _ = interrupted([ONOFF, "demo", "--steps", "100000"], bar, TMPDIR=str(tmp_path))
    assert code == 130
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


def test_a_hangup_that_was_ignored_stays_ignored():
    """As `nohup onoff plan &` has it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupt_on_signals():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
