"""`onoff rates --promise past`: simulated costs are those of the engine, with an honest interval."""

from __future__ import annotations

import json

import numpy as np
import pytest

from clikit import call
from onoff import Chain, OnoffError, plan
from onoff.apps import everydayrates
from onoff.apps.everydayrates import LONG, SETTLED, everyday_rates
from onoff.apps.terminal import progress
from onoff.errors import ChainError
from onoff.everyday import Everyday
from oracles import random_chain

BAR = progress("simulating")


def exactly(chain, sensitive, steps):
    """The mean cost of each step over all queries, starting from the stationary law: by the engine's stated laws."""
    now, means = [(1.0, Everyday.start(chain, sensitive))], []
    for _ in range(steps):
        ready = [(p, state, state.prepare()) for p, state in now]
        means.append(sum(p * step.cost for p, _, step in ready))
        now = [
            (p * mass / step.denominator, state.advance(step, query))
            for p, state, step in ready
            for query, mass in zip(step.sets, step.masses, strict=True)
        ]
    return means


@pytest.mark.parametrize("sensitive", [(), (1,)])
def test_simulated_costs_agree_with_those_of_all_queries(sensitive, monkeypatch):
    """4.5 standard errors at three steps: fails once in 40,000 runs of other seeds. 20 % more would be seen."""
    monkeypatch.setattr(everydayrates, "LONG", 3)
    monkeypatch.setattr(everydayrates, "SETTLED", 2)
    chain = random_chain("dense", 3, 1)
    found = everyday_rates(chain, [1, 2, 3], sensitive, streams=150, announced=False, bar=BAR)
    for row, expected in zip(found.rows, exactly(chain, sensitive, 3), strict=True):
        error = 4.5 / 1.96 * row.margin + 1e-9
        assert row.past == pytest.approx(expected, abs=error)
        assert row.past * 1.2 > expected + error
        assert 1 <= row.bound <= row.past * (1 + 1e-9)
    assert (found.long_run is None) == (not sensitive)


def test_the_announced_mode_asking_openly_and_everything_stand_beside():
    chain = random_chain("dense", 4, 1)
    found = everyday_rates(chain, [1, 3], streams=2, bar=BAR)
    assert [row.announced for row in found.rows] == [plan(chain, 1).cost, plan(chain, 3).cost]
    assert {(row.openly, row.everything) for row in found.rows} == {(1, 4)}


@pytest.mark.long
def test_the_long_run_is_the_mean_of_the_late_steps_and_its_margin_is_that_of_whole_streams():
    chain = random_chain("dense", 3, 1)
    every = everyday_rates(chain, range(1, LONG + 1), (1,), streams=5, announced=False, bar=BAR)
    late = [row.past for row in every.rows[SETTLED - 1 :]]
    mean, margin = every.long_run
    assert mean == pytest.approx(np.mean(late))
    assert 0 < margin < max(row.margin for row in every.rows)
    assert every.sensitive == (chain.names[1],)
    again = everyday_rates(chain, range(1, LONG + 1), (1,), streams=5, announced=False, bar=BAR)
    assert again == every
    assert everyday_rates(chain, [2], (1,), streams=5, seed=2, announced=False, bar=BAR).long_run != every.long_run


def test_all_sources_sensitive_cost_everything():
    chain = random_chain("dense", 3, 1)
    found = everyday_rates(chain, [1], (0, 1, 2), streams=2, announced=False, bar=BAR)
    assert (found.rows[0].past, found.long_run) == (3.0, (3.0, 0.0))


def test_what_cannot_be_simulated_is_an_error():
    chain = random_chain("dense", 3, 1)
    with pytest.raises(OnoffError, match="steps from 1 on"):
        everyday_rates(chain, [0, 1], bar=BAR)
    with pytest.raises(OnoffError, match="at least 2"):
        everyday_rates(chain, [1], streams=1, bar=BAR)
    with pytest.raises(ChainError, match="nobody"):
        everyday_rates(chain, [1], ["nobody"], bar=BAR)


@pytest.fixture
def chain_file(tmp_path):
    file = tmp_path / "chain.json"
    Chain([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2], [0.1, 0.1, 0.8]], ["news", "sports", "health"]).save(file)
    return file


def test_the_command_prints_and_draws(chain_file, tmp_path):
    words = "rates", chain_file, "--promise", "past", "--lags", "1-2", "--streams", "3"
    done = call(*words, "--sensitive", "health", "--plot", tmp_path / "costs.svg")
    assert done.returncode == 0
    printed = " ".join(done.stdout.split())
    assert "asking openly" in printed
    assert "with health always hidden" in printed
    assert (tmp_path / "costs.svg").read_bytes().startswith(b"<?xml")
    data = json.loads(call(*words, "--json", check=True).stdout)
    found = everyday_rates(Chain.load(chain_file), [1, 2], streams=3, bar=BAR)
    assert [row["past"] for row in data["rows"]] == [row.past for row in found.rows]
    assert data["long_run"] is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--promise", "future"), "both or past"),
        (("--sensitive", "health"), "--promise past"),
        (("--promise", "past", "--sensitive", "nobody"), "nobody"),
        (("--promise", "past", "--lags", "0-2"), "steps from 1 on"),
    ],
)
def test_options_that_do_not_fit_are_errors(chain_file, options, says):
    done = call("rates", chain_file, *options)
    assert done.returncode != 0
    assert says in done.stderr
