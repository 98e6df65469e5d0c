"""`onoff plan`: kept plans, Ctrl-C, errors."""

from __future__ import annotations

import signal
import subprocess
import time

import numpy as np
import pytest

from clikit import ONOFF, call
from onoff import Chain, Planner, plan
from onoff.plans.store import PlanStore


def run(*arguments):
    return call("plan", *arguments)


@pytest.fixture
def chain_file(tmp_path):
    file = tmp_path / "chain.json"
    Chain(np.random.default_rng(2).dirichlet(np.ones(5), 5), list("abcde")).save(file)
    return file


def test_plans_are_made_kept_and_not_made_again(chain_file, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = run(chain_file, "--lags", "1-3")  # where clients look for them
    assert done.returncode == 0
    chain = Chain.load(chain_file)
    store = PlanStore(chain)
    before = store.lags()
    assert set(before) == {1, 2, 3}
    assert done.stdout.splitlines()[-1] == str(store.directory)
    assert f"{plan(chain, 2).cost:.4f}" in done.stdout
    assert "cost in messages per request" in done.stdout
    made = []
    monkeypatch.setattr("onoff.apps.cli.plan._make", lambda *cell: made.append(cell[1]) or plan(cell[0], cell[1]))
    again = run(chain_file, "--lags", "1-4", "--jobs", 1)
    assert (again.returncode, made) == (0, [4])
    assert {lag: store.lags()[lag] for lag in before} == before
    assert 4 in store.lags()
    with Planner(chain) as planner:
        assert planner.best(3).scheme == "optimal"


def test_a_kept_plan_that_is_not_as_good_as_wanted_is_made_again(chain_file, tmp_path):
    for last, better in ((("--scheme", "comb"), "comb"), ((), "optimal")):
        store = PlanStore(Chain.load(chain_file), tmp_path / better)
        for words, scheme, gaps in (
            (("--scheme", "paper"), "paper", (1e-6, 9)),
            (("--gap", "9"), "paper", (1e-6, 9)),  # good enough
            (last, better, (0, 1e-6)),
        ):
            assert run(chain_file, "--lags", "1", "--out", tmp_path / better, *words).returncode == 0
            assert store.load(1).scheme == scheme
            assert gaps[0] <= store.load(1).gap <= gaps[1]


def test_ctrl_c_keeps_what_is_finished(tmp_path):
    file = tmp_path / "chain.json"
    chain = Chain(np.random.default_rng(2).dirichlet(np.ones(8), 8))
    chain.save(file)
    store = PlanStore(chain, tmp_path / "plans")
    command = [ONOFF, "plan", file, "--lags", "1-500", "--out", tmp_path / "plans", "--jobs", "1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(store.lags()) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "of 500 plans are in" in error
    assert "Traceback" not in error
    assert len(store.lags()) >= 2
    for lag in store.lags():
        assert store.load(lag).gap <= 1e-6
