from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactstreams import posterior as exact_posterior
from onoff import Chain, bounds
from onoff.model.bounds import is_symmetric
from onoff.testing import chains
from oracles import ExactPosterior, random_chain, symmetric_inner, symmetric_outer

lags = st.integers(1, 4)


def by_definition(rows):
    """Equations 8 to 11 in the plainest words, for object arrays of fractions."""
    m, n = rows.shape
    columns = [sorted(rows[:, x]) for x in range(n)]
    lam = [sum(column[i] for column in columns) for i in range(m)]
    capped = [Fraction(0)] + [min(lam[i], Fraction(1)) for i in range(n - 1)] + [Fraction(1)]
    theta = [b - a for a, b in pairwise(capped)]
    return lam, theta, sum((i + 1) * t for i, t in enumerate(theta)), lam[-1]


@given(chains(max_sources=4), lags)
def test_bounds_are_the_definition_exactly(chain, lag):
    posterior = ExactPosterior(chain, lag)
    lam, theta, inner, outer = by_definition(posterior.rows)
    found = bounds(posterior)
    assert found.lam.tolist() == lam[: chain.n]
    assert found.theta.tolist() == theta
    assert (found.inner, found.outer) == (inner, outer)
    assert found.peaks.tolist() == [max(posterior.rows[:, x]) for x in range(chain.n)]


@given(chains(max_sources=6), lags)
def test_float_bounds_agree_with_fractions(chain, lag):
    floats, exact = bounds(chain.posterior(lag)), bounds(ExactPosterior(chain, lag))
    assert abs(floats.inner - exact.inner) < 1e-11
    assert abs(floats.outer - exact.outer) < 1e-11
    assert floats.inner_rate == 1 / floats.inner
    assert floats.outer_rate == 1 / floats.outer


# The symmetric chain: closed forms, both regimes, even and odd lag. Fractions throughout.

alphas = st.integers(0, 24).map(lambda k: Fraction(k, 24))


@given(st.integers(2, 5), alphas, st.integers(1, 5))
def test_symmetric_closed_forms_are_exact(n, alpha, lag):
    P = [[alpha if i == j else (1 - alpha) / (n - 1) for j in range(n)] for i in range(n)]
    rows = np.array([list(row.values()) for row in exact_posterior(P, lag).values()], dtype=object)
    _, _, inner, outer = by_definition(rows)
    assert symmetric_outer(n, alpha, lag) == outer
    assert symmetric_inner(n, alpha, lag) == inner


@given(st.integers(2, 20), st.floats(1e-20, 1 - 1e-12), st.integers(1, 8))
def test_symmetric_closed_forms_agree_with_the_float_bounds(n, alpha, lag):
    found = bounds(Chain.symmetric(n, alpha).posterior(lag))
    assert symmetric_outer(n, alpha, lag) == pytest.approx(found.outer, rel=1e-7)
    assert symmetric_inner(n, alpha, lag) == pytest.approx(found.inner, rel=1e-7)


def test_symmetric_chains_are_recognised_up_to_relabelling():
    chain = Chain.symmetric(5, 0.1)
    assert is_symmetric(chain)
    assert is_symmetric(Chain(chain.P[[2, 0, 1, 4, 3]]))
    assert is_symmetric(Chain.symmetric(4, 0.25))
    assert not is_symmetric(Chain.symmetric(5, 1.0))
    assert not is_symmetric(random_chain("dense", 5, 1))
    swapped = chain.P.copy()
    swapped[0, [0, 1]] = swapped[0, [1, 0]]
    assert not is_symmetric(Chain(swapped))
