"""Rows at larger lags, walked one at a time: those of the posterior, within its proved error, and always the same."""

from __future__ import annotations

import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onoff import Chain, plan
from onoff.model import posterior as module
from onoff.model.posterior import WalkedPosterior, Walks
from onoff.testing import chains
from oracles import ExactPosterior, random_chain
from sampling import examples


@settings(max_examples=examples(60))
@given(chains(max_sources=5), st.integers(1, 12))
def test_a_walked_row_is_that_of_the_fraction_oracle_within_the_stated_error(chain, lag):
    exact, found = ExactPosterior(chain, lag), WalkedPosterior(chain, lag, Walks(chain))
    for last, following in exact.contexts.tolist():
        row, true = found.row(last, following), exact.row(last, following)
        for p, q in zip(row.tolist(), true.tolist(), strict=True):
            assert abs(Fraction(p) - q) <= Fraction(found.relative_error) * q + Fraction(2) ** -1000


def test_a_row_is_the_same_to_the_bit_whatever_was_asked_for_before(monkeypatch):
    monkeypatch.setattr(module, "KEPT", 2)
    chain = random_chain("dense", 40, 3)
    fresh = {(last, k): Walks(chain).row(last, k) for last in range(4) for k in (1, 2, 7, 30)}
    used = Walks(chain)
    rng = np.random.default_rng(1)
    for _ in range(200):
        last, k = int(rng.integers(4)), int(rng.choice([1, 2, 7, 30]))
        assert (used.row(last, k) == fresh[last, k]).all()
    assert np.allclose(fresh[3, 30], chain.power(30)[3], rtol=1e-13)


@pytest.mark.parametrize("scheme", ["comb", "race"])
def test_a_plan_draws_at_a_larger_lag_without_the_power_of_the_matrix(scheme, monkeypatch):
    """It would take n^3 products after every step; and a query may not wait that long for its draw."""
    made = plan(random_chain("dense", 20, 3), 1, scheme)
    made = pickle.loads(pickle.dumps(made))
    made.draw(1, 2, 3)
    monkeypatch.setattr(Chain, "power", lambda *_: pytest.fail("the whole power was computed"))
    for lag in range(2, 9):
        assert 1 in made.draw(1, 2, 3, lag)
