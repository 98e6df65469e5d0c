"""The measures of leakage: closed forms, inequalities, and accuracy far below the rounding of floats."""

from __future__ import annotations

from fractions import Fraction
from math import log, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy

from onoff.model.measures import divergence, information, total_variation
from oracles import from_fractions


@st.composite
def joints(draw, least=0):
    """Joint laws as integer weights: views x secrets, with zeros."""
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    cells = st.lists(st.integers(least, 9), min_size=rows * columns, max_size=rows * columns)
    weights = draw(cells.filter(any))
    return np.array(weights, dtype=object).reshape(rows, columns)


@given(joints())
def test_information_is_that_of_the_entropies(joint):
    p = joint.astype(float) / float(joint.sum())
    expected = entropy(p.sum(axis=0), base=2) + entropy(p.sum(axis=1), base=2) - entropy(p.ravel(), base=2)
    assert information(joint) == pytest.approx(expected, abs=1e-12)
    assert 0 <= information(joint) <= log2(joint.shape[1]) + 1e-12


@given(joints())
def test_total_variation_is_that_of_its_definition(joint):
    p = joint.astype(float) / float(joint.sum())
    product = np.outer(p.sum(axis=1), p.sum(axis=0))
    assert float(total_variation(joint)) == pytest.approx(np.abs(p - product).sum() / 2, abs=1e-12)


@given(joints(), st.data())
def test_merging_views_tells_no_more(joint, data):
    labels = data.draw(st.lists(st.integers(0, 2), min_size=len(joint), max_size=len(joint)))
    merged = np.array([joint[[label == i for label in labels]].sum(axis=0) for i in set(labels)], dtype=object)
    assert information(merged) <= information(joint) + 1e-12
    assert total_variation(merged) <= total_variation(joint)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.lists(st.integers(1, 9), min_size=2, max_size=4))
def test_both_are_zero_for_independent_views_and_only_for_those(views, secrets):
    joint = np.outer(np.array(views, dtype=object), np.array(secrets, dtype=object))
    assert (information(joint), total_variation(joint)) == (0, 0)
    joint[0, 0] += 1  # planted; a single view is then still independent
    assert (information(joint) > 0) == (total_variation(joint) > 0) == (len(views) > 1)


def test_the_smallest_dependence_is_seen_to_all_digits():
    tiny = Fraction(1, 10**30)
    quarter = Fraction(1, 4)
    joint = from_fractions([[quarter + tiny, quarter - tiny], [quarter - tiny, quarter + tiny]])
    assert information(joint) == pytest.approx(8e-60 / log(2), rel=1e-9, abs=0)  # (4 tiny)^2 / 2
    assert total_variation(joint) == 2 * tiny


def test_a_divergence_far_below_the_rounding_of_floats_is_accurate():
    a = np.array([0.5, 0.25, 0.25])
    for shift in (1e-3, 1e-9, 1e-12):
        expected = (shift**2 / 0.5 + shift**2 / 0.25) / 2 / np.log(2)
        assert divergence(a + shift * np.array([1, -1, 0]), a) == pytest.approx(
            expected, rel=2e-2 * (shift / 1e-3) + 1e-3
        )
