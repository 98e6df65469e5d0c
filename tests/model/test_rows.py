"""Laws, repair, bounds and certificates take rows, wherever these come from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onoff.model.bounds import outer_bound
from onoff.model.posterior import RowTable
from onoff.schemes.comb import comb_law
from onoff.schemes.optimum import optimal_law
from onoff.testing import chains
from oracles import check_law, paper_program
from sampling import examples


@st.composite
def tables(draw):
    """A few rows over a few sources, some of their entries impossible, one of them possible but underflowed."""
    n, contexts = draw(st.integers(2, 6)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    possible = rng.random((contexts, n)) < draw(st.sampled_from([0.4, 0.8, 1.0]))
    possible[np.arange(contexts), rng.integers(0, n, contexts)] = True
    rows = rng.dirichlet(np.full(n, 0.7), contexts) * possible + 1e-9 * possible
    rows /= rows.sum(axis=1, keepdims=True)
    least = np.where(possible, rows, 2).argmin(axis=1)
    if possible.sum(axis=1).min() > 1:
        rows[np.arange(contexts), least] = 0.0
    return RowTable(rows / rows.sum(axis=1, keepdims=True), possible)


def table_of(posterior):
    contexts = posterior.contexts.tolist()
    possible = np.array([posterior.possible(*context) for context in contexts])
    return RowTable(posterior.rows, possible, posterior.relative_error)


@given(tables())
@settings(max_examples=examples(60))
def test_a_comb_of_any_rows_is_realisable_and_not_below_the_bound(table):
    law = comb_law(table)
    check_law(law, table.rows, table.possible)
    assert float(law.cost()) >= outer_bound(table)


@given(tables())
@settings(max_examples=examples(40))
def test_the_optimum_of_any_rows_is_that_of_the_program(table):
    law, proof = optimal_law(table, 1e-7, np.inf)
    check_law(law, table.rows, table.possible)
    assert float(law.cost()) <= proof.bound * (1 + 1e-7)
    assert proof.bound <= paper_program(table.rows) + 1e-7 or not (table.possible == (table.rows > 0)).all()


@given(chains(max_sources=5), st.integers(0, 3))
def test_a_table_of_the_rows_of_a_posterior_is_worth_the_posterior(chain, lag):
    posterior = chain.posterior(lag)
    table = table_of(posterior)
    assert np.allclose(table.peaks, posterior.peaks, rtol=1e-12, atol=0)
    assert outer_bound(table) == pytest.approx(outer_bound(posterior), rel=1e-12)
    both = (np.unique(np.concatenate(list(rows.supports())), axis=0).tolist() for rows in (table, posterior))
    assert next(both) == next(both)
    groups = np.concatenate([posterior.group(k) for k in range(posterior.groups)])
    assert sorted(map(tuple, groups)) == sorted(map(tuple, posterior.rows))
