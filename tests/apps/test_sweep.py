"""`onoff sweep`: the numbers of direct calls, kept cell by cell through Ctrl-C, kill -9 and errors."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import typer

from clikit import call, on_terminal
from daskcluster import DaskCluster, needs_dask
from onoff import Chain, OnoffError, bounds, plan
from onoff.apps.cli.app import app
from onoff.apps.sweep import COLUMNS, Grid, Sweep, dirichlet, write_parquet
from onoff.apps.workers import Failed
from onoff.errors import ChainError, PlanError

ONOFF = Path(sys.executable).with_name("onoff")


def command(*arguments):
    return [ONOFF, "sweep", *map(str, arguments)]


def run(*arguments):
    return call("sweep", *arguments)


def table(file):
    return pyarrow.parquet.read_table(file).to_pylist()


def kept(out):
    return {file.name: file.stat().st_mtime_ns for file in Path(f"{out}.cells").glob("*.json")}


@pytest.fixture
def chain_file(tmp_path):
    file = tmp_path / "chain.json"
    Chain(np.random.default_rng(2).dirichlet(np.ones(4), 4)).save(file)
    return file


def test_one_lower_bound_is_printed_for_all_schemes_and_gaps_in_per_cent(tmp_path):
    """Every scheme needs more than the outer bound here, which is all that a plan of the paper's scheme proves."""
    Chain.symmetric(3, 0.2).save(tmp_path / "chain.json")
    done = run(tmp_path / "chain.json", "--lags", "1", "--jobs", "1", "--out", tmp_path / "t.parquet")
    rows = [re.split(r" *│ *", line)[1:-1] for line in done.stdout.splitlines() if "chain.json" in line]
    by_scheme = {row["scheme"]: row["lower_bound"] for row in table(tmp_path / "t.parquet")}
    assert by_scheme["paper"] < by_scheme["optimal"]
    assert [row[4] for row in rows] == [f"{by_scheme['optimal']:.4f}"] * 2
    assert all(row[5].endswith(" %") for row in rows)


def test_the_table_has_the_numbers_of_direct_calls(chain_file, tmp_path):
    out, picture = tmp_path / "all.parquet", tmp_path / "all.svg"
    schemes = ("everything", "paper", "comb", "optimal", "race")
    options = [option for scheme in schemes for option in ("--scheme", scheme)]
    generated = ["--symmetric", "3:0.1,0.6", "--dirichlet", "4:5:1"]
    done = run(chain_file, *generated, *options, "--lags", "1-2", "--out", out, "--plot", picture)
    assert done.returncode == 0
    assert done.stdout.endswith(f"\n{out}\n")
    chains = {
        "chain.json": Chain.load(chain_file),
        "symmetric 3:0.1": Chain.symmetric(3, 0.1),
        "symmetric 3:0.6": Chain.symmetric(3, 0.6),
        "dirichlet 4:5:1": Chain(np.random.default_rng(1).dirichlet(np.full(4, 5.0), 4)),
    }
    rows = table(out)
    assert list(rows[0]) == list(COLUMNS)
    expected = [(name, lag, scheme) for name in chains for lag in (1, 2) for scheme in schemes]
    assert [(row["chain"], row["lag"], row["scheme"]) for row in rows] == expected
    for row in rows:
        chain = chains[row["chain"]]
        both = bounds(chain.posterior(row["lag"]))
        assert (row["fingerprint"], row["n"], row["error"]) == (chain.fingerprint, chain.n, None)
        assert (row["outer"], row["inner"]) == (both.outer, both.inner)
        assert row["seconds"] > 0
        if row["scheme"] == "race":  # whose cost is an estimate, and which has no table
            assert (row["cost"] > 1, row["sets"]) == (True, None)
        else:
            made = plan(chain, row["lag"], row["scheme"])
            assert (row["cost"], row["lower_bound"], row["gap"]) == (made.cost, made.lower_bound, made.gap)
            assert (row["rounding"], row["sets"]) == (made.rounding, len(made.sets))
    for words in (*chains, *schemes):
        assert f"<!-- {words} -->" in picture.read_text()  # matplotlib notes each text beside its glyphs


def test_finished_cells_are_not_computed_again(chain_file, tmp_path):
    out = tmp_path / "a.parquet"
    assert run(chain_file, "--lags", "1-2", "--out", out).returncode == 0
    before, first = kept(out), table(out)
    assert len(before) == 6
    done = run(chain_file, "--lags", "1-3", "--scheme", "optimal", "--jobs", "1", "--out", out)
    assert "cells (plans and pairs of bounds): 6, 4 of them kept from before" in done.stderr
    after = kept(out)
    assert {name: after[name] for name in before} == before
    assert [row for row in first if row["scheme"] == "optimal"] == table(out)[:2]  # with the seconds they took then
    assert (
        run(chain_file, "--lags", "1", "--gap", "0.01", "--scheme", "optimal", "--jobs", 1, "--out", out).returncode
        == 0
    )
    assert len(kept(out)) == len(after) + 1  # another gap is another cell
    for file in Path(f"{out}.cells").glob("*.json"):
        file.write_text("damaged")
    grid = Grid({"c": Chain.load(chain_file)}, [1, 2], ["paper", "optimal"])
    assert Sweep(grid, Path(f"{out}.cells")).results == {}


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT])
def test_what_is_finished_survives(tmp_path, sign):
    """kill -9, or Ctrl-C for all processes as a terminal sends it; the next sweep goes on."""
    out, arguments = (
        tmp_path / "a.parquet",
        ("--dirichlet", "20:1:1", "--lags", "1-400", "--scheme", "comb", "--jobs", "2"),
    )
    process = subprocess.Popen(command(*arguments, "--out", out), stderr=subprocess.PIPE, text=True, process_group=0)
    deadline = time.monotonic() + 120
    while len(kept(out)) < 6 and time.monotonic() < deadline:
        time.sleep(0.05)
    if sign == signal.SIGKILL:
        process.kill()  # only the parent: its children must end by themselves
    else:
        os.killpg(process.pid, sign)
    _, error = process.communicate(timeout=60)
    before = kept(out)
    assert len(before) >= 6
    if sign == signal.SIGINT:
        assert process.returncode == 130
        assert re.fullmatch(r"(onoff: cells: .*\n)*stopped: \d+ of 800 cells are finished\nonoff: stopped\n", error)
        assert len(table(out)) >= 2
    else:
        assert not out.exists()
    sweep = Sweep(Grid({"c": dirichlet(20, 1, 1)}, range(1, 401), ["comb"]), Path(f"{out}.cells"))
    assert len(sweep.results) == len(before)
    for cell in (cell for cell in sweep.run(jobs=1) if len(sweep.results) > len(before)):
        assert cell.file not in before
        break
    assert {name: kept(out)[name] for name in before} == before


def test_odd_names_and_schemes_made_in_place_of_others_are_shown(tmp_path):
    file = tmp_path / "$\\a$[b].json"
    Chain.symmetric(3, 0.4).save(file)
    grid = ["--dirichlet", "60:5:1", "--scheme", "comb", "--lags", "1", "--time-limit", "0.001"]
    done = run(file, *grid, "--out", tmp_path / "s.parquet", "--plot", tmp_path / "s.svg")
    assert done.returncode == 0, done.stderr
    assert "$\\a$[b]" in done.stdout
    assert "(made:" in done.stdout
    assert table(tmp_path / "s.parquet")[-1]["made"] == "race"


def test_a_cell_that_fails_is_a_row_with_its_error(chain_file, tmp_path):
    out, picture = tmp_path / "a.parquet", tmp_path / "a.png"
    arguments = (chain_file, "--lags", "0-1", "--scheme", "race", "--scheme", "paper", "--jobs", 1, "--out", out)
    done = run(*arguments, "--plot", picture)
    assert done.returncode == 1
    assert done.stdout.endswith(f"\n{out}\n")
    rows = {(row["lag"], row["scheme"]): row for row in table(out)}
    assert len(rows) == 4
    words = "a race is for lags of at least 1"
    assert rows[0, "race"]["cost"] is None
    assert words in rows[0, "race"]["error"]
    assert re.search(rf"^failed: chain.json, lag 0, race: {words}", done.stderr, flags=re.M)
    assert all(row["error"] is None and row["cost"] > 0 for at, row in rows.items() if at != (0, "race"))
    assert picture.stat().st_size > 1000
    assert "6, 5 of them kept from before" in run(*arguments).stderr  # it is tried again


def test_bounds_that_fail_are_told_in_every_row_of_theirs(tmp_path):
    grid = Grid({"c": Chain.symmetric(3, 0.5)}, [1], ["paper"])
    sweep = Sweep(grid, tmp_path)
    assert len(list(sweep.run(1))) == 2
    sweep.results[grid.bounds_cell(grid.chains["c"], 1)] = Failed("no memory")
    [row] = sweep.rows()
    assert (row["error"], row["outer"]) == ("bounds: no memory", None)
    assert row["cost"] == plan(grid.chains["c"], 1, "paper").cost
    write_parquet([row], tmp_path / "a.parquet")
    assert table(tmp_path / "a.parquet") == [row]


@pytest.mark.long
@needs_dask
def test_a_cluster_that_loses_a_worker_computes_the_whole_grid(chain_file, tmp_path):
    cluster, out = DaskCluster(tmp_path, workers=2), tmp_path / "a.parquet"
    arguments = (chain_file, "--dirichlet", "12:1:1", "--lags", "1-12", "--out", out, "--dask", cluster.address)
    process = subprocess.Popen(command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 120
        while len(kept(out)) < 6 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert process.poll() is None
        cluster.kill_workers(1)
        _, error = process.communicate(timeout=120)
    finally:
        process.kill()
        cluster.close()
    assert process.returncode == 0
    told = [line for line in error.splitlines() if not line.startswith("onoff: cells: ")]  # how far it is, if slow
    assert told == ["cells (plans and pairs of bounds): 72, 0 of them kept from before"]
    rows = table(out)
    assert len(rows) == 48
    chain = Chain.load(chain_file)
    for row in rows[:24]:
        assert (row["chain"], row["error"]) == ("chain.json", None)
        assert row["cost"] == plan(chain, row["lag"], row["scheme"]).cost


def test_a_terminal_sees_how_many_cells_are_done(chain_file, tmp_path):
    done = on_terminal(command(chain_file, "--lags", "1-3", "--jobs", 1, "--out", tmp_path / "a.parquet"))
    assert done.returncode == 0
    assert b"9/9" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to sweep over"),
        (["none.json"], "cannot be read"),
        (["--symmetric", "3"], "write 30:0.1"),
        (["--symmetric", "3:2"], "alpha is 2.0"),
        (["--symmetric", "3:1.2.3"], "not a number"),
        (["--dirichlet", "3:5"], "write N:CONCENTRATION:SEED"),
        (["--dirichlet", "3:0:1"], "positive concentration"),
        (["--symmetric", "3:.5", "--scheme", "best"], "no scheme 'best' to sweep over"),
        (["--symmetric", "3:.5", "--gap", "-1"], "a gap of at least 0"),
        (["--symmetric", "3:.5", "--time-limit", "0"], "more than 0 seconds"),
        (["--symmetric", "3:.5", "--plot", "a.txt"], "a picture ends in"),
        (["--symmetric", "3:.5", "--out", "a.csv"], "the table ends in .parquet"),
    ],
)
def test_errors_say_what_to_do(tmp_path, arguments, words):
    with pytest.raises((OnoffError, typer.BadParameter), match=re.escape(words)):
        app(["sweep", "--out", str(tmp_path / "a.parquet"), *arguments], standalone_mode=False)
    assert not (tmp_path / "a.parquet").exists()


@needs_dask
def test_a_wrong_address_is_one_clear_line(tmp_path):
    done = run("--symmetric", "3:.5", "--out", tmp_path / "a.parquet", "--dask", "nonsense")
    assert done.returncode == 2
    first, last = done.stderr.splitlines()
    assert first == "stopped: 0 of 30 cells are finished"
    assert "no Dask scheduler can be reached" in last


def test_a_grid_is_checked_before_anything_is_computed():
    with pytest.raises(PlanError, match="no scheme 'best'"):
        Grid({"c": Chain.symmetric(3, 0.5)}, [1], ["best"])
    with pytest.raises(ChainError, match="n >= 2"):
        dirichlet(1, 5, 1)
