"""The planner with its real background process, and plans shared on disk."""

from __future__ import annotations

import itertools
import math
import os
import random
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from onoff import Chain, Planner, plan
from onoff.errors import PlanError
from onoff.model.bounds import outer_bound
from onoff.model.posterior import Posterior
from onoff.plans.plan import MAX_LAG
from onoff.plans.planner import EXCESS, FAR, WORTH, cheapest, compute, grid
from onoff.plans.race import RacePlan, race_plan
from onoff.plans.store import PlanStore
from oracles import random_chain
from planfiles import wait
from waiting import within


@pytest.fixture
def chain():
    return Chain(np.random.default_rng(8).dirichlet(np.full(6, 2.0), 6))


@contextmanager
def before_the_background(chain, directory):
    """A planner whose background has not begun: another process computes for its store."""
    with PlanStore(chain, directory).lock() as mine:
        assert mine
        planner = Planner(chain, directory)
        assert planner._worker.wait(timeout=300) == 3
        yield planner


def test_the_first_query_does_not_wait_and_plans_arrive(chain, tmp_path, monkeypatch):
    monkeypatch.setattr("onoff.plans.planner.PAUSE", 0.1)
    with before_the_background(chain, tmp_path) as planner:
        first = planner.best(1)
        assert first.scheme == "race"
        assert 2 in first.draw(2, 0, 1)
    with planner:
        best = wait(planner, 4, timeout=300)
        assert best.scheme == "optimal"
        assert best.lag <= 4
        assert best.cost <= plan(chain, best.lag).cost * (1 + 2e-6)
        assert 2 in best.draw(2, 0, 1, lag=4)
        assert planner.best(1).lag == 1
    assert planner.best(1).scheme == "optimal"  # closed: what is on disk still serves
    planner.close()


def test_the_cheapest_plan_of_a_lag_that_is_not_larger_serves(chain, tmp_path):
    store = PlanStore(chain, tmp_path)
    for lag in (1, 2, 5):
        store.save(plan(chain, lag))
    with Planner(chain, tmp_path) as planner:
        assert [planner.best(lag).lag for lag in (1, 2, 3, 4, 5)] == [1, 2, 2, 2, 5]
        costs = [planner.best(lag).cost for lag in range(1, 8)]
        assert costs == sorted(costs, reverse=True)
        for wrong in (0, 1.5, True, "1"):
            with pytest.raises(PlanError):
                planner.best(wrong)


def test_a_lucky_estimate_of_the_race_does_not_displace_a_table(chain, tmp_path):
    table, dear = plan(chain, 1), plan(chain, 1, "everything")
    race = race_plan(chain, 1, draws=300, randbelow=random.Random(1).randrange)
    for cost in (1.0, table.cost * 0.7, race.cost):
        lucky = replace(race, cost=cost, interval=(cost, cost))
        assert cheapest([lucky, table]) is table
        assert cheapest([lucky, dear]) is lucky
    wide = replace(race, interval=(1.0, race.cost + 1.96 * (dear.cost - race.cost) / 3.9))
    assert wide.interval[1] < dear.cost
    assert cheapest([wide, dear]) is dear  # four standard errors, for an estimate from few draws
    PlanStore(chain, tmp_path).save(table)
    planner = Planner(chain, tmp_path)
    planner._first = replace(race, cost=1.0, interval=(1.0, 1.0))
    with planner:
        assert planner.best(1) == table


def test_no_process_is_started_where_every_plan_is_at_hand(chain, tmp_path, monkeypatch):
    def start(*_, **__):
        raise AssertionError("a process was started")

    store = PlanStore(chain, tmp_path)
    compute(store, 5)
    lags, reach = store.read_note()
    assert reach == 5
    monkeypatch.setattr("onoff.plans.planner.subprocess.Popen", start)
    with Planner(chain, tmp_path) as planner:
        for lag in range(1, 6):
            assert wait(planner, lag, timeout=300).lag == max(each for each in lags if each <= lag)
        with pytest.raises(AssertionError, match="was started"):
            planner.best(6)
    (store.directory / "grid.json").write_text('{"lags": [1, "2"], "reach": 9}')
    with pytest.raises(AssertionError, match="was started"):
        Planner(chain, tmp_path)
    store.note(lags, reach)
    store.path(2).write_text("damaged")
    with Planner(chain, tmp_path) as planner, pytest.raises(AssertionError, match="was started"):
        planner.best(5)


def test_planning_stops_where_the_cost_stops_falling(tmp_path):
    fast = Chain(0.2 * np.eye(4) + 0.8 * np.full((4, 4), 0.25))
    store = PlanStore(fast, tmp_path)
    compute(store, reach=1000)
    assert 2 < max(store.lags()) < 20
    assert store.read_note() == (sorted(store.lags()), MAX_LAG)
    frozen = PlanStore(Chain(np.eye(3)), tmp_path)
    compute(frozen, reach=1000)  # never mixes: every plan is everything, at once
    assert sorted(frozen.lags()) == [1]


@pytest.mark.parametrize("limit", [300, 5])
def test_a_background_without_time_keeps_the_race_not_everything(tmp_path, monkeypatch, limit):
    """Where the optimum is sought, and where only a comb is made."""
    for name in ("POLISH_SECONDS", "COMB_SECONDS"):
        monkeypatch.setattr(f"onoff.plans.planner.{name}", 1e-9)
    for module in ("planner", "plan"):
        monkeypatch.setattr(f"onoff.plans.{module}.OPTIMAL_LIMIT", limit)
    store = PlanStore(random_chain("dense", 20, 1), tmp_path)
    compute(store, reach=1)
    assert store.load(1).scheme == "race"
    assert store.load(1).at_most < 20


def test_lags_whose_walks_are_too_unlikely_are_left_to_the_plans_before_them(tmp_path):
    """The first source is left for good with probability 1/2: to stay there for 900 steps has probability 2^-900."""
    store = PlanStore(Chain([[0.5, 0.25, 0.25], [0, 0.2, 0.8], [0, 0.9, 0.1]]), tmp_path)
    compute(store, reach=5000)
    assert 1 in store.lags()
    assert max(store.lags()) < 900


def test_two_planners_share_a_directory_and_one_computes(chain, tmp_path):
    store = PlanStore(chain, tmp_path)
    command = [sys.executable, "-m", "onoff.plans.planner", str(store.directory), "3", "600"]
    workers = [subprocess.Popen(command) for _ in range(2)]
    assert sorted(worker.wait(timeout=300) for worker in workers) in ([0, 0], [0, 3])
    assert set(store.lags()) == {1, 2, 3}
    with store.lock() as mine, store.lock() as theirs:
        assert mine
        assert not theirs


def test_a_killed_background_is_started_again(chain, tmp_path, monkeypatch):
    monkeypatch.setattr("onoff.plans.planner.PAUSE", 0.1)
    with Planner(chain, tmp_path) as planner:
        planner._worker.kill()
        planner._worker.wait()
        assert wait(planner, 2, timeout=300).scheme == "optimal"


def test_modules_in_the_current_directory_are_not_run_by_the_background(chain, tmp_path, monkeypatch):
    (tmp_path / "numpy.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    with Planner(chain, "plans") as planner:
        monkeypatch.chdir("/")
        assert wait(planner, 1, timeout=300).scheme == "optimal"
    assert (tmp_path / "plans").is_dir()


def test_a_directory_that_cannot_be_used_makes_requests_expensive_not_impossible(chain, tmp_path):
    (tmp_path / "file").write_text("")
    with Planner(chain, tmp_path / "file" / "plans") as planner:
        assert "plans cannot be kept here" in planner.trouble
        assert wait(planner, 3, timeout=300).scheme == "race"
        assert not planner.is_working
    store = PlanStore(chain, tmp_path / "plans")
    store.save(plan(chain, 1))
    (store.directory / "log").mkdir()  # as on a read-only disk, but also for root: no process can be started
    (store.path(2)).mkdir()
    with Planner(chain, tmp_path / "plans") as planner:
        assert planner.best(2) == store.load(1)
        assert "plans cannot be computed here" in planner.trouble


def test_a_planner_without_background_starts_and_writes_nothing(chain, tmp_path):
    with Planner(chain, tmp_path / "plans", background=False) as planner:
        assert wait(planner, 2, timeout=300).scheme == "race"
        assert (planner.is_working, planner.trouble) == (False, None)
    assert not (tmp_path / "plans").exists()


def test_the_background_is_nice_and_ends_in_time(tmp_path):
    with Planner(random_chain("dense", 80, 1), tmp_path, limit=1.0) as planner:
        assert planner.is_working
        status = Path(f"/proc/{planner._worker.pid}/stat")
        nice = str(min(19, os.nice(0) + 10))
        within(60, lambda: status.read_text().rpartition(")")[2].split()[16] == nice)
        assert planner._worker.wait(timeout=300) == -signal.SIGALRM


def test_a_store_keeps_the_cheaper_plan_and_refuses_strangers(chain, tmp_path):
    store = PlanStore(chain, tmp_path)
    store.save(plan(chain, 1))
    store.save(plan(chain, 1, "everything"))
    assert store.load(1).scheme == "optimal"
    lucky = RacePlan(chain, 1, cost=1.0, interval=(1.0, 1.0), lower_bound=store.load(1).lower_bound)
    assert not store.save(lucky)
    store.path(1).unlink()
    assert store.save(lucky)
    assert store.save(plan(chain, 1))
    with pytest.raises(PlanError, match="another chain"):
        store.save(plan(Chain.symmetric(6, 0.5), 1))
    plan(Chain.symmetric(6, 0.5), 2).save(store.path(2))
    with pytest.raises(PlanError, match="another chain"):
        store.load(2)
    assert PlanStore.open(store.directory).chain == chain
    store.directory.rename(tmp_path / "elsewhere")
    with pytest.raises(PlanError, match="renamed"):
        PlanStore.open(tmp_path / "elsewhere")


CHAINS = {kind: random_chain(kind, 6, 3) for kind in ("dense", "sparse", "periodic")} | {
    "slow": Chain(0.97 * np.eye(6) + 0.03 * np.full((6, 6), 1 / 6)),
    "never": Chain(np.eye(3)),
}


@pytest.mark.parametrize("name", CHAINS)
def test_no_lag_between_two_of_the_grid_would_gain_one_per_cent(name):
    chain = CHAINS[name]
    bound = cache(lambda lag: outer_bound(Posterior(chain, lag)))
    lags = list(grid(bound))
    assert lags[0] == 1
    assert len(lags) <= 2 + math.log(chain.n) / math.log1p(EXCESS)
    for lag, after in itertools.pairwise(lags):  # bounds never rise: the last lag before the next plan is the worst
        assert bound(lag) <= bound(after - 1) * (1 + EXCESS)
        assert bound(after) <= bound(lag) / (1 + EXCESS) or after == lags[-1]
    assert bound(lags[-1]) <= bound(FAR) * (1 + WORTH)
    assert all(bound(lag + 1) <= bound(lag) * (1 + 1e-12) for lag in range(1, 60))


def test_only_usable_plans_are_given_out_unless_there_is_none(chain, tmp_path):
    PlanStore(chain, tmp_path).save(plan(chain, 1))
    with Planner(chain, tmp_path, background=False, usable=lambda made: made.kind == "race") as planner:
        assert planner.best(1).kind == "race"
    with Planner(chain, tmp_path, background=False, usable=lambda made: made.kind == "table") as planner:
        assert planner.best(1).kind == "table"
    with Planner(chain, tmp_path / "none", background=False, usable=lambda made: made.kind == "table") as planner:
        assert planner.best(1).kind == "race"
