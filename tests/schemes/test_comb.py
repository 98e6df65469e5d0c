"""Combs: near the outer bound at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lawkit import seeds
from onoff import Chain
from onoff.model.bounds import outer_bound
from onoff.schemes.comb import comb, comb_law


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


@pytest.mark.parametrize("lag", [1, 2])
def test_the_comb_is_near_the_outer_bound_on_dense_chains(lag):
    posterior = Chain(np.random.default_rng(2).dirichlet(np.full(30, 5.0), 30)).posterior(lag)
    assert 1 <= float(comb_law(posterior).cost()) / outer_bound(posterior) < 1.03
