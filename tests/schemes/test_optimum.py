"""The optimum: proofs that no scheme costs less, and parts of the search."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onoff import Chain, bounds
from onoff.schemes.certificate import cut_certificate, outer_certificate, size_certificate
from onoff.schemes.interior_point import central_point
from onoff.testing import chains
from oracles import ExactPosterior, all_sets, paper_program, random_chain, seeds
from sampling import examples


@given(chains(max_sources=4), st.integers(1, 2), seeds)
@settings(max_examples=examples(60))
def test_any_multipliers_give_a_valid_bound(chain, lag, seed):
    posterior = chain.posterior(lag)
    rng = np.random.default_rng(seed)
    cuts = np.array([[x in q for x in range(chain.n)] for q in all_sets(chain.n)])
    multipliers = rng.random(len(cuts)) * (rng.random(len(cuts)) < 0.5)
    reached = (posterior.rows @ cuts.T).max(axis=0)
    proof, limiting = cut_certificate(cuts, multipliers, reached, posterior.relative_error, cuts[:0], time_limit=10)
    assert proof.bound <= paper_program(posterior.rows) + 1e-9
    assert limiting.any()


def test_table_and_solver_find_the_same_minimum(monkeypatch):
    rng = np.random.default_rng(5)
    cuts = rng.random((40, 9)) < 0.4
    cuts[:, 0] |= ~cuts.any(axis=1)
    arguments = cuts, rng.random(40), rng.random(40), 1e-12, rng.random((3, 9)) < 0.5, 30.0
    by_table, _ = cut_certificate(*arguments)
    monkeypatch.setattr("onoff.schemes.certificate.TABLE_LIMIT", 3)
    by_solver, _ = cut_certificate(*arguments)
    assert by_solver.weights == by_table.weights
    assert by_table.bound - 1e-9 < by_solver.bound <= by_table.bound
    hurried, _ = cut_certificate(*arguments[:-1], 1e-6)  # a solver without time: the bound holds still
    assert hurried.bound <= by_table.bound


def test_certificates_refuse_to_overflow():
    with pytest.raises(OverflowError):
        cut_certificate(np.eye(3, dtype=bool), np.full(3, 2e6), np.ones(3), 0.0, np.eye(3, dtype=bool)[:0], 1.0)


def test_the_outer_bound_is_below_its_exact_value():
    for seed in range(5):
        chain = random_chain("dense", 4, seed)
        exact = bounds(ExactPosterior(chain, 2)).outer
        proof = outer_certificate(chain.posterior(2))
        assert exact * (1 - Fraction(1, 10**13)) < Fraction(proof.bound) <= exact


def test_the_bound_by_sizes_equals_the_bound_by_cuts_on_a_symmetric_chain():
    posterior = Chain.symmetric(5, 0.1).posterior(1)
    sizes = np.array([0.7, 0.1, 0.0, 0.4, 0.2])
    reached = np.sort(posterior.rows, axis=1)[:, ::-1].cumsum(axis=1).max(axis=0)
    cuts = np.array([[x in q for x in range(5)] for q in all_sets(5)])
    counts = np.bincount(cuts.sum(axis=1))[1:]
    spread = (sizes / counts)[cuts.sum(axis=1) - 1]
    by_cuts, _ = cut_certificate(cuts, spread, reached[cuts.sum(axis=1) - 1], 0.0, cuts[:0], 1.0)
    assert size_certificate(sizes, reached, 0.0).bound == pytest.approx(by_cuts.bound, abs=1e-9)


def test_the_central_point_solves_a_covering_program():
    cost, hits, need = np.array([1.0, 1.0, 1.5]), np.array([[1.0, 0, 1], [0, 1, 1]]), np.array([0.8, 0.6])
    centre = central_point(cost, hits, need, 1e-9)
    # Masses a, b, c of {1}, {2}, {1, 2}: c = 0.4 is forced by 0.8 + 0.6 - 1.
    assert np.allclose(centre.masses, [0.4, 0.2, 0.4], atol=1e-6)
    assert need @ centre.multipliers + centre.total_multiplier == pytest.approx(cost @ centre.masses, abs=1e-6)
