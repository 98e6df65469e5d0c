"""A flow decides whether a law can be drawn from in a context."""

from __future__ import annotations

from fractions import Fraction
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lawkit import random_law, realisable_by_hall, seeds
from onoff.schemes.flow import Network, supplies
from onoff.schemes.law import DENOMINATOR, quantised


@given(st.integers(2, 6), seeds)
def test_a_flow_decides_halls_condition_and_its_cuts_are_violated(n, seed):
    law = quantised(*random_law(n, 6, seed), DENOMINATOR)
    row = np.random.default_rng(seed + 1).dirichlet(np.full(n, 0.5))
    network = Network(law)
    supply = supplies(row, law.total)
    short = int(supply.sum()) - network.ship(supply)
    assert (short == 0) == realisable_by_hall(law, row)
    assert (network.edges() >= 0).all()
    assert network.shipped().sum() == network.filled().sum() == supply.sum() - short
    if short:
        for cut in (network.cut(), network.largest_cut()):
            met = int(law.mass[law.member[:, cut].any(axis=1)].sum())
            assert int(supply[cut].sum()) - met == short


@given(st.integers(2, 30), seeds)
def test_supplies_never_exceed_their_row_or_their_total(n, seed):
    row = np.random.default_rng(seed).dirichlet(np.full(n, 0.3))
    row /= row.sum()
    units = supplies(row, DENOMINATOR)
    assert int(units.sum()) <= DENOMINATOR
    assert all(int(u) <= Fraction(p) * DENOMINATOR for u, p in zip(units, row.tolist(), strict=True))
    assert DENOMINATOR - int(units.sum()) <= n + 2


@given(st.integers(17, 40), seeds)
def test_a_supply_of_few_sources_ships_in_its_part_of_the_network_what_it_ships_in_the_whole(n, seed):
    rng = np.random.default_rng(seed)
    law = quantised(*random_law(n, 12, seed), DENOMINATOR)
    row = np.zeros(n)
    row[rng.choice(n, 2, replace=False)] = rng.dirichlet(np.ones(2))
    supply = supplies(row, law.total)
    part, whole = Network(law), Network(law)
    arrived = part.ship(supply)
    with patch("onoff.schemes.flow.FEW", n):
        assert whole.ship(supply) == arrived
    assert len(part.edges()) < len(whole.edges())
    assert set(part.source_of.tolist()) <= set(np.flatnonzero(supply).tolist())
    assert law.member[part.set_of, part.source_of].all()
    for network in (part, whole):
        sent = np.zeros(n, dtype=np.int64)
        np.add.at(sent, network.source_of, network.edges())
        assert (sent == network.shipped()).all()
        assert sent.sum() == network.filled().sum() == arrived
        assert (sent <= supply).all()
    if arrived < supply.sum():
        assert (part.cut() == whole.cut()).all()
        assert (part.largest_cut() == whole.largest_cut()).all()
