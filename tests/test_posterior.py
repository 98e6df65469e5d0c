from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onoff import Chain, ContextError
from onoff.testing import chains, tiny_entries

lags = st.integers(0, 4)


@given(chains(max_sources=5), lags)
def test_the_float_posterior_is_within_its_stated_error_of_the_exact_one(chain, lag):
    posterior, exact = chain.posterior(lag), chain.exact_posterior(lag)
    assert (posterior.contexts == exact.contexts).all()
    bound = Fraction(posterior.relative_error)
    for computed, true in zip(posterior.rows.ravel(), exact.rows.ravel(), strict=True):
        if true == 0 or true > Fraction(1, 2**1000):
            assert abs(Fraction(float(computed)) - true) <= bound * true


@given(tiny_entries(4), st.integers(1, 12))
def test_rows_stay_right_where_products_underflow(chain, lag):
    posterior, exact = chain.posterior(lag), chain.exact_posterior(lag)
    assert np.isfinite(posterior.rows).all()
    assert abs(posterior.rows - exact.rows.astype(float)).max() < 1e-13


def test_a_context_reached_only_through_underflow_keeps_its_row():
    # From 0 to 3 in three steps of 1e-200 each: the probability, 1e-600, is no float. Its posterior is.
    step = np.array([[1, 1e-200, 0, 0], [0, 1, 1e-200, 0], [0, 0, 1, 1e-200], [0, 0, 0, 1]])
    chain = Chain(step)
    posterior = chain.posterior(2)
    assert chain.power(3)[0, 3] == 0
    assert [0, 3] in posterior.contexts.tolist()
    assert posterior.row(0, 3).tolist() == [0, 0, 1, 0]


@given(chains(max_sources=6), lags)
def test_rows_are_distributions_on_the_possible_requests(chain, lag):
    posterior = chain.posterior(lag)
    for (last, following), row in zip(posterior.contexts.tolist(), posterior.rows, strict=True):
        possible = posterior.possible(last, following)
        assert possible.any()
        assert (row[~possible] == 0).all()
        assert abs(row.sum() - 1) < 1e-12
        assert (posterior.row(last, following) == row).all()


@given(chains(max_sources=6), lags)
def test_contexts_are_those_that_simulation_could_meet(chain, lag):
    exact = chain.exact_posterior(lag)
    power = exact._power @ exact._P
    assert exact.contexts.tolist() == [[i, k] for i in range(chain.n) for k in range(chain.n) if power[i, k] > 0]


@given(chains(max_sources=6))
def test_lag_zero_is_the_on_case(chain):
    posterior = chain.posterior(0)
    assert (posterior.rows == np.eye(chain.n)[posterior.contexts[:, 0]]).all()
    assert (posterior.contexts == np.argwhere(chain.P > 0)).all()


@given(chains(max_sources=5), st.integers(1, 3), st.integers(0, 3))
def test_rows_of_a_larger_lag_are_mixtures_of_rows_with_the_same_next(chain, lag, more):
    # p_{L+d}(. | i, k) = sum_j P^d_ij P^{L+1}_jk / P^{L+d+1}_ik  p_L(. | j, k), in fractions.
    small, large = chain.exact_posterior(lag), chain.exact_posterior(lag + more)
    walk = chain.exact_posterior(more)._power
    ahead = small._power @ small._P
    for i, k in large.contexts.tolist():
        weights = walk[i] * ahead[:, k]
        mixture = sum(w * small.row(j, k) for j, w in enumerate(weights) if w > 0) / weights.sum()
        assert (mixture == large.row(i, k)).all()


def test_impossible_contexts_are_errors_that_name_the_sources():
    chain = Chain([[0, 1], [1, 0]], ["left", "right"])
    posterior = chain.posterior(1)
    assert posterior.contexts.tolist() == [[0, 0], [1, 1]]
    with pytest.raises(ContextError, match=r"last='left', next='right'.*lag 1") as caught:
        posterior.row(0, 1)
    assert (caught.value.last, caught.value.next) == (0, 1)
    with pytest.raises(ContextError, match="next is 2"):
        posterior.row(0, 2)
    with pytest.raises(ContextError, match="impossible"):
        chain.exact_posterior(1).row(0, 1)


@pytest.mark.parametrize("lag", [-1, 1.5, True, "1"])
def test_a_lag_is_a_whole_number(lag):
    with pytest.raises(ValueError, match="the lag is"):
        Chain.symmetric(3, 0.5).posterior(lag)


def test_rows_are_built_only_when_asked_for():
    posterior = Chain.symmetric(6, 0.5).posterior(2)
    posterior.row(0, 1)
    list(posterior.blocks())
    assert "rows" not in posterior.__dict__
    assert posterior.rows is posterior.rows
