"""Flows decide whether a law can be drawn from in a context, and repair makes any law one that can be."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onoff.schemes import realise as module
from onoff.schemes.comb import comb_law
from onoff.schemes.flow import FEW, Network, Repair, supplies
from onoff.schemes.law import DENOMINATOR, quantise
from onoff.schemes.realise import Survey, block_of, realise, short_rows
from onoff.testing import chains
from oracles import check_law, random_chain, random_law, realisable_by_hall, seeds
from sampling import examples

NO_HELP = Survey(np.zeros((0, 1)), 0.0, 0.0)


@given(st.integers(2, 6), seeds)
def test_a_flow_decides_halls_condition_and_its_cuts_are_violated(n, seed):
    law = quantise(*random_law(n, 6, seed), DENOMINATOR)
    row = np.random.default_rng(seed + 1).dirichlet(np.full(n, 0.5))
    network = Network(law)
    supply = supplies(row, law.total)
    short = int(supply.sum()) - network.ship(supply)
    assert (short == 0) == realisable_by_hall(law, row)
    assert (network.edges() >= 0).all()
    assert network.units_sent().sum() == network.units_received().sum() == supply.sum() - short
    if short:
        for cut in (network.cut(), network.largest_cut()):
            met = int(law.mass[law.member[:, cut].any(axis=1)].sum())
            assert int(supply[cut].sum()) - met == short


@given(st.integers(9, 24), seeds)
def test_sets_of_one_source_are_filled_first_and_no_flow_is_lost(n, seed):
    """Rows over a common ground have networks of a few sources; what they find is what the whole network finds."""
    rng = np.random.default_rng(seed)
    member, mass = random_law(n, 6, seed)
    ground, few = rng.dirichlet(np.ones(n)), rng.permutation(n)[: (n - 1) // FEW]
    alone = rng.random(n) < 0.8
    sets, masses = np.concatenate([member, np.eye(n, dtype=bool)[alone]]), np.append(0.6 * mass, 0.4 * ground[alone])
    law = quantise(sets, masses, DENOMINATOR)
    supply = supplies(0.3 * ground * alone, law.total)
    supply[few] += supplies(0.7 * rng.dirichlet(np.ones(len(few))), law.total)
    network, whole = Network(law), Network(law)
    whole._supply = supply
    assert network.ship(supply) == whole._ship_all()
    assert (network.cut() == whole.cut()).all()
    assert (network.largest_cut() == whole.largest_cut()).all()
    network.ship(supply)
    assert len(network._part.sources) <= len(few)
    units, sets, sources = network.edges(), network.set_of, network.source_of
    assert law.member[sets, sources].all()
    assert (units > 0).sum() == len({*zip(sets[units > 0].tolist(), sources[units > 0].tolist(), strict=True)})
    for ends, found, most in ((sets, network.units_received(), law.mass), (sources, network.units_sent(), supply)):
        assert (np.bincount(ends, units, len(most)) == found).all()
        assert (found <= most).all()


@given(st.integers(2, 30), seeds)
def test_supplies_never_exceed_their_row_or_their_total(n, seed):
    row = np.random.default_rng(seed).dirichlet(np.full(n, 0.3))
    row /= row.sum()
    units = supplies(row, DENOMINATOR)
    assert int(units.sum()) <= DENOMINATOR
    assert all(int(u) <= Fraction(p) * DENOMINATOR for u, p in zip(units, row.tolist(), strict=True))
    assert DENOMINATOR - int(units.sum()) <= n + 2


@given(st.integers(2, 6), seeds)
@settings(max_examples=examples(60))
def test_repair_makes_any_law_realisable_at_no_more_than_the_shortfall(n, seed):
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(n, 0.5), 5)
    law = quantise(*random_law(n, 5, seed), DENOMINATOR)
    repair = Repair(law)
    total = sum(repair.shortfall(row) for row in rows)
    repair.fix_all(rows)
    assert repair.law.total == DENOMINATOR
    assert all(realisable_by_hall(repair.law, row) for row in rows)
    assert repair.law.cost() - law.cost() <= Fraction(total, DENOMINATOR)
    assert not any(repair.fix(row) for row in rows)


@given(chains(max_sources=5), st.integers(1, 2), seeds)
@settings(max_examples=examples(40))
def test_a_realised_law_is_realisable_in_every_context(chain, lag, seed):
    posterior = chain.posterior(lag)
    possible = [posterior.possible(*context) for context in posterior.contexts.tolist()]
    check_law(realise(posterior, *random_law(chain.n, 4, seed)), posterior.rows, possible)


def test_many_flows_are_shared_out_to_processes(monkeypatch):
    posterior = random_chain("dense", 12, 3).posterior(1)
    law = quantise(*random_law(12, 8, 1), DENOMINATOR)
    alone = short_rows(posterior, law, NO_HELP, np.inf)
    monkeypatch.setattr(module, "PARALLEL", 0)
    assert short_rows(posterior, law, NO_HELP, np.inf) == alone
    assert alone


def test_every_context_that_a_flow_finds_short_is_found_once_the_worst_first():
    posterior = random_chain("dense", 40, 3).posterior(1)
    law = quantise(*random_law(40, 30, 1), DENOMINATOR)
    found = short_rows(posterior, law, NO_HELP, np.inf)
    assert found == sorted(found, reverse=True)
    repair = Repair(law)
    short = [(repair.shortfall(row), k, i) for k in range(40) for i, row in enumerate(posterior.group(k))]
    assert sorted(found) == sorted(each for each in short if each[0])


@given(seeds, st.floats(1e-6, 0.5))
def test_one_row_stands_for_a_group_only_if_all_are_mixtures_of_it_and_a_share_of_the_cover(seed, cover):
    rng = np.random.default_rng(seed)
    centre = rng.dirichlet(np.ones(5))
    group = np.array([0.9 * centre + 0.1 * rng.dirichlet(np.ones(5)) for _ in range(4)])
    apart = 1 - group.min(axis=0).sum()
    block = block_of(group, cover)
    if apart > cover:
        assert block is group
    else:
        assert len(block) == 1
        assert (group - (1 - apart) * block[0] >= -1e-15).all()


def test_time_that_runs_out_while_processes_compute_ends_without_a_warning(monkeypatch):
    """joblib warns of work that nobody takes; here a warning is an error."""
    posterior = random_chain("dense", 12, 1).posterior(1)
    law = comb_law(posterior)
    monkeypatch.setattr(module, "PARALLEL", 0)
    with pytest.raises(TimeoutError):
        short_rows(posterior, law, NO_HELP, 0.0)
