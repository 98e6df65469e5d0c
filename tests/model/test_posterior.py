from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onoff import Chain, bounds
from onoff.errors import ChainError, ContextError
from onoff.model.bounds import outer_bound
from onoff.testing import chains, tiny_entries
from oracles import ExactPosterior

lags = st.integers(0, 4)


@given(chains(max_sources=5), lags)
def test_the_float_posterior_is_within_its_stated_error_of_the_exact_one(chain, lag):
    posterior, exact = chain.posterior(lag), ExactPosterior(chain, lag)
    assert (posterior.contexts == exact.contexts).all()
    bound = Fraction(posterior.relative_error)
    for computed, true in zip(posterior.rows.ravel(), exact.rows.ravel(), strict=True):
        if true == 0 or true > Fraction(1, 2**1000):
            assert abs(Fraction(float(computed)) - true) <= bound * true


@pytest.mark.long
@given(tiny_entries(4), st.integers(1, 13))
def test_rows_stay_right_where_products_are_tiny(chain, lag):
    posterior, exact = chain.posterior(lag), ExactPosterior(chain, lag)
    assert np.isfinite(posterior.rows).all()
    assert abs(posterior.rows - exact.rows.astype(float)).max() < 1e-13


def test_a_chain_whose_walks_underflow_is_refused_with_the_names_of_the_entry():
    P = np.diag(np.full(3, 1.0))
    P[0, 1] = 1e-140
    chain = Chain(P, ["a", "b", "c"])
    with pytest.raises(
        ChainError, match=r"leads from 'a' to 'b' in 1 steps with probability 1e-140, too little"
    ) as caught:
        chain.posterior(1).row(0, 0)
    assert (caught.value.row, caught.value.value) == (0, 1e-140)
    for ask in (lambda p: p.peaks, lambda p: p.rows, bounds, outer_bound):
        with pytest.raises(ChainError, match="too little to compute with"):
            ask(chain.posterior(1))
    slow = Chain([[0.5, 0.5], [0, 1.0]])
    assert slow.posterior(890).row(0, 0).tolist() == [1, 0]
    with pytest.raises(ChainError, match="from '0' to '0' in 900 steps"):
        slow.posterior(900).row(0, 0)
    assert chain.posterior(0).row(0, 0).tolist() == [1, 0, 0]


@pytest.mark.parametrize("n", [3, 7])
def test_supports_of_a_large_lag_are_those_of_walks(n):
    # A clock of n - 1 and n steps joined in 0: for a lag of 300 there are more walks than a float32 can count.
    P = np.zeros((n, n))
    P[np.arange(n), (np.arange(n) + 1) % n] = 1
    P[n - 2, 0] += 1
    chain = Chain.from_counts(P, smoothing=0)
    for lag in (300, 301, 1000):
        reached = np.eye(n, dtype=bool)
        for _ in range(lag):
            reached = (reached.astype(int) @ (P > 0).astype(int)) > 0
        posterior = chain.posterior(lag)
        assert (posterior.reached == reached).all()
        assert np.isfinite(posterior.rows).all()


@given(chains(max_sources=6), lags)
def test_contexts_are_those_that_simulation_could_meet(chain, lag):
    exact = ExactPosterior(chain, lag)
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
    small, large = ExactPosterior(chain, lag), ExactPosterior(chain, lag + more)
    walk = ExactPosterior(chain, more)._power
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
    for context in ((0, 2), (-1, 0), ("0", 1), (0.0, 1), (0, None)):
        with pytest.raises(ContextError, match=r"(last|next) is"):
            posterior.row(*context)
    with pytest.raises(ContextError, match=r"the request 1\.0 is impossible"):
        posterior.check(1.0, 0, 0)
    with pytest.raises(ContextError, match="impossible"):
        ExactPosterior(chain, 1).row(0, 1)
