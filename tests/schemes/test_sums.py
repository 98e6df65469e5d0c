"""Running sums: the members of sets and the sets of members, however large the sets are."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lawkit import seeds
from onoff.schemes.comb import comb
from onoff.schemes.realisation.sums import Sums
from sampling import examples


def comb_of(n: int, length: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return comb(length * rng.uniform(0.5, 1.5, n), rng.permutation(n))[0]


@given(st.integers(1, 40), st.integers(1, 30), seeds)
def test_sums_are_those_of_the_matrix_whatever_the_sets_are(sets, n, seed):
    rng = np.random.default_rng(seed)
    member = rng.random((sets, n)) < rng.random()
    sums = Sums(member, np.float64)
    a, b = rng.random((n, 3)), np.zeros((sums.rows, 3))
    b[:sets] = rng.random((sets, 3))
    assert np.allclose(sums.of_members(a)[:sets], member @ a, rtol=0, atol=1e-12)
    assert np.allclose(sums.of_sets(b.copy()), member.T @ b[:sets], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("length", "running"), [(0.4, True), (0.02, False)])
def test_sums_run_along_a_comb_only_where_that_is_less_work(length, running):
    assert (Sums(comb_of(100, length, 1), np.float64)._running is np.True_) == running


@given(seeds, st.integers(0, 12))
@settings(max_examples=examples(20))
def test_the_stated_errors_of_sums_cover_the_true_ones_in_fractions(seed, magnitude):
    rng = np.random.default_rng(seed)
    member = comb_of(30, 0.5, seed)
    sums = Sums(member, np.float64)
    assert sums._running
    a = rng.random((30, 1)) * 10.0 ** rng.integers(-magnitude, 1, (30, 1))
    b = np.zeros((sums.rows, 1))
    b[: len(member)] = rng.random((len(member), 1)) * 10.0 ** rng.integers(-magnitude, 1, (len(member), 1))
    exact = [sum(Fraction(float(a[x, 0])) for x in np.flatnonzero(row)) for row in member]
    found = sums.of_members(a)[: len(member), 0]
    bound = Fraction(float(sums.error_of_members(a)[0]))
    errors = [abs(Fraction(float(value)) - true) for value, true in zip(found, exact, strict=True)]
    assert max(errors) <= bound
    assert bound < Fraction(float(a.sum())) / 10**11
    exact = [sum(Fraction(float(b[q, 0])) for q in np.flatnonzero(column)) for column in member.T]
    bounds = sums.error_of_sets(b.sum(axis=0))[:, 0]
    found = sums.of_sets(b.copy())[:, 0]
    for value, true, allowed in zip(found, exact, bounds, strict=True):
        assert abs(Fraction(float(value)) - true) <= Fraction(float(allowed))
