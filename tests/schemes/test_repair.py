"""Repair: any law becomes one that can be drawn from in every context."""

from __future__ import annotations

import gc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lawkit import random_law, realisable_by_hall, seeds
from onoff import bounds
from onoff.schemes.comb import comb_law
from onoff.schemes.law import DENOMINATOR, Law, quantised
from onoff.schemes.realisation.network import Network, supplies
from onoff.schemes.realisation.realise import hard_contexts, realised
from onoff.schemes.realisation.repair import Repair
from onoff.testing import chains
from oracles import random_chain


@given(st.integers(2, 6), seeds)
@settings(max_examples=60)
def test_repair_makes_any_law_realisable_at_no_more_than_the_shortfall(n, seed):
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(n, 0.5), 5)
    law = quantised(*random_law(n, 5, seed), DENOMINATOR)
    repair = Repair(law)
    total = sum(repair.shortfall(row) for row in rows)
    repair.fix_all([rows[:2], rows[2:]])
    assert repair.law.total == DENOMINATOR
    assert all(realisable_by_hall(repair.law, row) for row in rows)
    assert repair.law.cost() - law.cost() <= Fraction(total, DENOMINATOR)
    assert not any(repair.fix(row) for row in rows)


def test_many_flows_are_shared_out_to_processes(monkeypatch):
    rows = np.random.default_rng(3).dirichlet(np.ones(6), 40)
    blocks = [rows[:7], rows[7:7], rows[7:30], rows[30:]]
    repair = Repair(quantised(*random_law(6, 8, 1), DENOMINATOR))
    alone = repair._shortfalls(blocks, np.inf)
    monkeypatch.setattr("onoff.schemes.realisation.repair.PARALLEL", 1)
    assert repair._shortfalls(blocks, np.inf) == alone
    assert any(map(any, alone))


@given(chains(max_sources=5), st.integers(1, 2), seeds)
@settings(max_examples=40)
def test_a_realised_law_is_realisable_in_every_context(chain, lag, seed):
    posterior = chain.posterior(lag)
    law = realised(posterior, *random_law(chain.n, 4, seed))
    assert law.total == DENOMINATOR
    assert law.member[-1].all()
    assert law.mass[-1] >= chain.n
    flowing = Law(law.member, np.append(law.mass[:-1], law.mass[-1] - chain.n))
    for (last, following), row in zip(posterior.contexts.tolist(), posterior.rows, strict=True):
        assert law.member[:, posterior.possible(last, following)].any(axis=1).all()
        supply = supplies(row, flowing.total)
        assert Network(flowing.member, flowing.mass).ship(supply) >= int(supply.sum()) - chain.n


def test_hard_contexts_are_those_that_reach_the_peaks():
    posterior = random_chain("dense", 8, 1).posterior(1)
    top = posterior.peaks
    assert np.allclose(top, bounds(posterior).peaks, rtol=1e-12)
    for following, rows in hard_contexts(posterior, per_group=2).items():
        closeness = (posterior.group(following) ** 2 / top).sum(axis=1)
        assert (rows**2 / top).sum(axis=1)[0] == pytest.approx(closeness.max())


def test_a_mean_row_stands_for_a_block_only_if_all_rows_are_within_the_slack(monkeypatch):
    from onoff.schemes.realisation import realise

    chain = random_chain("dense", 6, 1)
    posterior = chain.posterior(1)
    far = posterior.group(0)
    law = comb_law(posterior)
    monkeypatch.setattr(
        realise.Screen, "passes", lambda self, rows, *a, **k: (np.zeros(len(rows), bool), np.zeros(rows.shape))
    )
    assert [len(rows) for rows in realise._uncertain(posterior, [0], law, 1e-3)] == [len(far)]
    spread = float((1 - far.min(axis=0) / far.mean(axis=0)).max())
    assert [len(rows) for rows in realise._uncertain(posterior, [0], law, spread / 0.71)] == [1]
    assert [len(rows) for rows in realise._uncertain(posterior, [0], law, spread / 0.80)] == [len(far)]


def test_time_that_runs_out_while_processes_compute_ends_without_a_warning(monkeypatch):
    """joblib warns of work that nobody takes; here a warning is an error."""
    monkeypatch.setattr("onoff.schemes.realisation.repair.PARALLEL", 0)
    posterior = random_chain("dense", 12, 1).posterior(1)
    blocks = [posterior.group(k) for k in range(12) for _ in range(8)]
    with pytest.raises(TimeoutError):
        Repair(comb_law(posterior)).fix_all(blocks, deadline=0.0)
    gc.collect()
