"""The measures of leakage: closed forms, inequalities, and accuracy far below the rounding of floats."""

from __future__ import annotations

from fractions import Fraction
from math import log, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy

from onoff.audit.measures import information, measures, total_variation
from oracles import from_fractions


@st.composite
def joints(draw, least=0):
    """Joint laws as integer weights: views x secrets, with zeros."""
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    cells = st.lists(st.integers(least, 9), min_size=rows * columns, max_size=rows * columns)
    weights = draw(cells.filter(any))
    return np.array(weights, dtype=object).reshape(rows, columns)


@given(joints())
def test_information_is_that_of_the_entropies_in_integers_and_in_floats(joint):
    p = joint.astype(float) / float(joint.sum())
    expected = entropy(p.sum(axis=0), base=2) + entropy(p.sum(axis=1), base=2) - entropy(p.ravel(), base=2)
    assert information(joint) == pytest.approx(expected, abs=1e-12)
    assert information(p) == pytest.approx(expected, abs=1e-12)
    exact, floats = measures(joint), measures(p)
    for name in vars(exact):
        assert getattr(exact, name) == pytest.approx(getattr(floats, name), abs=1e-12)


@given(joints())
def test_the_order_of_the_measures(joint):
    found = measures(joint)
    assert found.information >= 0
    assert found.information <= log2(joint.shape[1]) + 1e-12
    assert found.prior_guess <= found.guess <= 1
    assert found.guess <= found.prior_guess + found.total_variation + 1e-12


@given(joints(), st.data())
def test_merging_views_tells_no_more(joint, data):
    labels = data.draw(st.lists(st.integers(0, 2), min_size=len(joint), max_size=len(joint)))
    merged = np.array([joint[[label == i for label in labels]].sum(axis=0) for i in set(labels)], dtype=object)
    fine, coarse = measures(joint), measures(merged)
    for name in ("information", "total_variation", "guess"):
        assert getattr(coarse, name) <= getattr(fine, name) + 1e-12


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.lists(st.integers(1, 9), min_size=2, max_size=4))
def test_all_are_zero_for_independent_views_and_only_for_those(views, secrets):
    joint = np.outer(np.array(views, dtype=object), np.array(secrets, dtype=object))
    found = measures(joint)
    assert (found.information, found.total_variation) == (0, 0)
    assert found.guess == found.prior_guess
    joint[0, 0] += 1  # planted; a single view is then still independent
    changed = measures(joint)
    assert (changed.information > 0) == (changed.total_variation > 0)
    assert (changed.information > 0) == (len(views) > 1)


@pytest.mark.parametrize("error", [Fraction(1, 4), Fraction(1, 100), Fraction(0)])
def test_a_binary_channel_has_its_closed_forms(error):
    joint = from_fractions([[(1 - error) / 2, error / 2], [error / 2, (1 - error) / 2]])
    found, e = measures(joint), float(error)
    h = -e * log2(e) - (1 - e) * log2(1 - e) if e else 0.0
    assert found.information == pytest.approx(1 - h)
    assert (found.prior_guess, found.guess) == (0.5, pytest.approx(1 - e))
    assert found.total_variation == pytest.approx(0.5 - e)


def test_the_smallest_dependence_is_seen_to_all_digits():
    tiny = Fraction(1, 10**30)
    quarter = Fraction(1, 4)
    joint = from_fractions([[quarter + tiny, quarter - tiny], [quarter - tiny, quarter + tiny]])
    assert information(joint) == pytest.approx(8e-60 / log(2), rel=1e-9, abs=0)  # (4 tiny)^2 / 2
    assert total_variation(joint) == 2 * tiny


def test_a_secret_that_never_happens_tells_nothing():
    with_it = np.array([[3, 0, 1], [1, 0, 3]], dtype=object)
    assert measures(with_it) == measures(with_it[:, [0, 2]])
