"""Combs: near the outer bound at once. Sources that a context needs apart do not meet."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onoff import Chain
from onoff.model.bounds import outer_bound
from onoff.schemes.comb import comb, comb_law, mix_combs
from onoff.schemes.realise import survey
from oracles import seeds, shortfall


def test_orders_that_keep_rivals_apart_fall_far_less_short_than_random_ones():
    """Rows that are nearly alike for each `next`, as at larger lags: there peaks of several sources meet."""
    posterior = Chain(np.random.default_rng(77).dirichlet(np.full(40, 1.0), 40)).posterior(4)
    rng = np.random.default_rng(0)
    combs = [comb(posterior.peaks, rng.permutation(40)) for _ in range(8)]
    member = np.concatenate([sets for sets, _ in combs])
    at_random = shortfall(posterior.rows, member, np.concatenate([mass for _, mass in combs]) / 8)
    guided = shortfall(posterior.rows, *mix_combs(posterior, survey(posterior).hard, 8, 16))
    assert guided < at_random / 5


@given(st.integers(2, 12), seeds)
def test_a_comb_hits_each_source_with_its_length(n, seed):
    rng = np.random.default_rng(seed)
    lengths = rng.random(n)
    lengths = np.minimum(lengths * max(1.0, 1.2 / lengths.sum()), 1.0)
    if lengths.sum() >= 1:
        member, mass = comb(lengths, rng.permutation(n))
        assert len(mass) <= n + 2
        assert mass.sum() == pytest.approx(1)
        assert np.allclose(mass @ member, lengths, atol=1e-12)
        assert member.any(axis=1).all()


@pytest.mark.parametrize(("concentration", "lag"), [(5.0, 1), (1.0, 1), (5.0, 5), (1.0, 3)])
def test_the_comb_is_within_two_thousandths_of_the_outer_bound_on_dense_chains(concentration, lag):
    posterior = Chain(np.random.default_rng(77).dirichlet(np.full(30, concentration), 30)).posterior(lag)
    assert 1 - 1e-12 <= float(comb_law(posterior).cost()) / outer_bound(posterior) < 1.002
