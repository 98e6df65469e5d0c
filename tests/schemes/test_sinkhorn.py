"""Screening: contexts that need no flow."""

from __future__ import annotations

import numpy as np
import pytest

from onoff import Chain
from onoff.schemes.comb import comb, comb_law
from onoff.schemes.law import DENOMINATOR, quantised
from onoff.schemes.realisation.network import Network, supplies
from onoff.schemes.realisation.repair import Repair
from onoff.schemes.realisation.sinkhorn import Screen
from oracles import random_chain


@pytest.mark.parametrize("slack", [1e-2, 1e-4])
def test_what_the_screen_certifies_a_flow_confirms(slack):
    posterior = Chain(np.random.default_rng(4).dirichlet(np.full(20, 5.0), 20)).posterior(2)
    law = comb_law(posterior)
    passed, _ = Screen(law, slack).passes(posterior.rows, rounds=200)
    assert passed.any()
    units = int(slack * law.total)
    helped = Network(np.concatenate([law.member, np.ones((1, 20), dtype=bool)]), np.append(law.mass, units))
    total = law.total + units
    for row in posterior.rows[passed]:
        supply = supplies(row, total)
        assert helped.ship(supply) == supply.sum()


def test_the_screen_does_not_certify_a_law_that_falls_short():
    posterior = random_chain("dense", 10, 4).posterior(1)
    member, mass = comb(posterior.peaks, np.arange(10))
    law = quantised(member, mass, DENOMINATOR)
    repair = Repair(law)
    slack = 1e-3
    short = np.array([repair.shortfall(row) / law.total > slack for row in posterior.rows])
    assert short.any()
    passed, _ = Screen(law, slack).passes(posterior.rows, rounds=200)
    assert not (passed & short).any()


def test_the_screen_certifies_nearly_all_contexts_of_a_dense_chain_cold_and_from_a_near_row():
    posterior = Chain(np.random.default_rng(77).dirichlet(np.full(60, 5.0), 60)).posterior(1)
    law = comb_law(posterior)
    screen = Screen(law, 1e-4)
    rows = posterior.group(7)
    cold, _ = screen.passes(rows)
    _, start = screen.passes(rows.mean(axis=0, keepdims=True))
    near, _ = screen.passes(rows, start[0])
    assert min(cold.mean(), near.mean()) > 0.9


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_with_zeros_and_sets_that_miss_them_are_certified_only_if_a_flow_agrees(sparse):
    posterior = random_chain("sparse" if sparse else "dense", 12, 5).posterior(1)
    member, mass = comb(np.minimum(posterior.peaks * 1.3, 1.0), np.arange(12))
    law = quantised(member, mass, DENOMINATOR)
    repair, slack = Repair(law), 1e-3
    passed, _ = Screen(law, slack).passes(posterior.rows, rounds=100)
    for row in posterior.rows[passed]:
        assert repair.shortfall(row) / law.total <= slack
