"""The command line as its users meet it: a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from onoff import Chain, bounds
from onoff.schemes.paper import paper

ONOFF = Path(sys.executable).with_name("onoff")


def run(*arguments, **options):
    return subprocess.run([ONOFF, *map(str, arguments)], capture_output=True, text=True, check=False, **options)


@pytest.fixture
def chain_file(tmp_path):
    file = tmp_path / "chain.csv"
    Chain.symmetric(3, 0.25).save(file)
    return file


def test_rates_prints_a_table(chain_file):
    done = run("rates", chain_file, "--lags", "1-3")
    assert done.returncode == 0
    assert done.stderr == ""
    for number in ("3", "1.5974", "1.2857", "1.1275"):
        assert number in done.stdout
    assert "\x1b[" not in done.stdout


def test_rates_prints_json_with_all_digits(chain_file):
    rows = json.loads(run("rates", chain_file, "--lags", "1,3", "--json").stdout)
    assert [row["lag"] for row in rows] == [1, 3]
    posterior = Chain.load(chain_file).posterior(3)
    assert rows[1]["outer"] == bounds(posterior).outer
    assert rows[1]["inner"] == bounds(posterior).inner
    assert rows[1]["paper"] == paper(posterior).cost
    assert rows[1]["everything"] == 3


def test_beyond_its_limit_the_scheme_is_given_by_its_bound(chain_file, monkeypatch):
    from onoff import report

    monkeypatch.setattr(report, "PAPER_LIMIT", 2)
    [row] = report.rates(Chain.load(chain_file), [1], report.progress("rates"))
    assert row.paper is None
    assert row.inner == bounds(Chain.load(chain_file).posterior(1)).inner


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
def test_rates_draws(chain_file, tmp_path, ending):
    picture = tmp_path / f"rates{ending}"
    done = run("rates", chain_file, "--lags", "1-4", "--plot", picture)
    assert done.returncode == 0
    assert picture.stat().st_size > 1000


def test_reproduce_writes_and_names_its_files(tmp_path):
    done = run("reproduce", "--out", tmp_path / "deep" / "figures")
    assert done.returncode == 0
    names = [Path(line).name for line in done.stdout.splitlines()]
    assert len(names) == 8
    assert all((tmp_path / "deep" / "figures" / name).stat().st_size for name in names)


def test_demo_tells_what_was_downloaded():
    done = run("demo", "--steps", "60", "--seed", "3")
    assert done.returncode == 0
    assert "every wanted message arrived: yes" in done.stdout
    assert "downloading everything" in done.stdout
    assert run("demo", "--steps", "60", "--seed", "3").stdout == done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rates", "none.csv"], "cannot be read"),
        (["rates"], "CHAIN"),
        (["rates", "CHAIN", "--lags", "three"], "list of lags"),
        (["rates", "CHAIN", "--lags", "5-1"], "list of lags"),
        (["rates", "CHAIN", "--lags", "-3"], "list of lags"),
        (["rates", "CHAIN", "--plot", "rates.txt"], "a picture ends in"),
        (["rates", "CHAIN", "--plot", "nowhere/rates.png"], "no directory"),
        (["reproduce"], "--out"),
        (["reproduce", "--out", "CHAIN"], "File exists"),
        (["demo", "--steps", "1"], "--steps"),
        (["nonsense"], "No such command"),
        (["--nonsense"], "No such option"),
    ],
)
def test_an_error_is_one_line_on_stderr_and_exit_code_2(chain_file, arguments, words):
    done = run(*[chain_file if a == "CHAIN" else a for a in arguments])
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert words in done.stderr


def test_every_command_has_help_with_an_example():
    overview = run("--help").stdout
    commands = re.findall(r"^  (\w+) {2,}", overview.split("Commands:")[1], flags=re.M)
    assert {"rates", "reproduce", "demo"} <= set(commands)
    for command in commands:
        assert f"Example: onoff {command}" in " ".join(run(command, "--help").stdout.split())
    assert run().stdout == overview
    assert re.match(r"\d+\.\d+", run("--version").stdout)


def test_ctrl_c_ends_in_a_line_not_in_a_traceback():
    process = subprocess.Popen(
        [ONOFF, "demo", "--steps", "100000"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=20)
    assert process.returncode == 130
    assert error == "onoff: stopped\n"
