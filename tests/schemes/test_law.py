"""Laws: sets with integer masses, and set and matrix as each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onoff.schemes.law import DENOMINATOR, Law, as_matrix, as_sets, merge_sets, quantise
from oracles import random_law, seeds


@given(st.integers(2, 8), st.integers(1, 12), seeds)
def test_integer_masses_sum_to_their_total_and_sets_are_distinct(n, sets, seed):
    member, mass = random_law(n, sets, seed)
    law = quantise(np.concatenate([member, member]), np.concatenate([mass, mass]), DENOMINATOR)
    assert law.total == DENOMINATOR
    assert len({row.tobytes() for row in law.member}) == len(law.member)
    assert (law.mass > 0).all()
    expected = sum(float(m) * row.sum() for row, m in zip(member, mass, strict=True))
    assert float(law.cost()) == pytest.approx(expected, abs=1e-12)


def test_masses_of_nothing_are_the_full_set():
    law = quantise(np.eye(3, dtype=bool), np.zeros(3), DENOMINATOR)
    assert (law.sets, law.masses) == (((0, 1, 2),), (DENOMINATOR,))


def test_merging_adds_up_and_drops_what_is_empty():
    member = np.array([[1, 0], [1, 0], [0, 1]], dtype=bool)
    sets, mass = merge_sets(member, np.array([1, 2, 0]))
    assert sets.tolist() == [[True, False]]
    assert mass.tolist() == [3]


@given(st.integers(1, 7), st.integers(1, 9), seeds)
def test_sets_and_matrices_are_each_other(n, sets, seed):
    member, _ = random_law(n, sets, seed)
    found = as_sets(member)
    assert all(list(query) == sorted(set(query)) and all(type(x) is int for x in query) for query in found)
    assert (as_matrix(found, n) == member).all()
    law = Law.of_sets(found, [3] * sets, n)
    assert law.sets == found
    assert (law.total, law.mass.dtype) == (3 * sets, np.int64)
    assert as_matrix([], n).shape == (0, n)
