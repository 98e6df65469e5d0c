"""Weights of sources: lengths, and the chance that a source has changed since it was last asked for."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onoff import Chain
from onoff.audit.everyday.weights import Weights
from onoff.errors import PlanError
from onoff.everyday import Everyday
from onoff.plans.lengths import LEAST, Weighing, weighing_of

NAMES = ("a", "b", "c", "d")


def habits(n, seed):
    rng = np.random.default_rng(seed)
    return Chain(rng.dirichlet(np.full(n, 0.3), n) * 0.98 + 0.02 / n), tuple(map(float, 10.0 ** rng.uniform(-2, 2, n)))


@given(st.floats(0, 1), st.integers(1, 50) | st.integers(1, 10**6), st.floats(1e-3, 1e9))
def test_a_source_weighs_its_length_times_the_chance_that_it_has_changed(chance, gap, length):
    """And the audit, which shares no code with the client, has the same weight to the bit."""
    [weight] = Weighing((length,), (chance,)).after([gap])
    if gap <= 50:
        exact = 1 - (1 - Fraction(chance)) ** gap
        assert weight == pytest.approx(length * max(LEAST, float(exact)), rel=1e-9)
    assert Weights((length,), (chance,)).at([gap]) == (weight,)


def test_without_chances_lengths_count_whole_and_plans_take_fixed_weights():
    assert Weighing((3.0, 5.0)).after([1, 9]) == (3.0, 5.0)
    assert Weighing((8.0, 8.0), (1.0, 0.25)).fixed == (8.0, 2.0)
    assert Weighing((8.0, 8.0), (1.0, 0.25)).after([1, 2]) == (8.0, 3.5)
    assert Weighing((100.0,), (0.0,)).after([5]) == (1.0,)  # what is unchanged costs something, too


def test_a_measured_file_counts_one_change_more_than_was_seen():
    found = {"length": 10, "visits": 5, "changes": 1, "digest": "0" * 64}
    data = {"format": "onoff-measured", "version": 1, "sources": dict.fromkeys(NAMES, found)}
    assert weighing_of(data, NAMES) == Weighing((10.0,) * 4, (0.4,) * 4)
    data["sources"] = {name: {**found, "visits": 1, "changes": 0} for name in NAMES}
    assert weighing_of(data, NAMES).chances == (1.0,) * 4
    for wrong in ({"visits": 0}, {"changes": 5}, {"changes": -1}, {"visits": True}, {"length": "x"}, {"length": 0}):
        data["sources"] = {name: {**found, **wrong} for name in NAMES}
        with pytest.raises(PlanError):
            weighing_of(data, NAMES)


@pytest.mark.parametrize(("n", "seed"), [(4, 3), (5, 3), (6, 1), (7, 7)])
def test_a_law_for_weights_is_cheaper_in_them_than_one_for_messages(n, seed):
    """Where combs do not reach the outer bound. Both bounds hold for both laws."""
    chain, weights = habits(n, seed)
    state = Everyday.start(chain)
    messages, weighed = state.prepare(), state.prepare(weights)
    assert weighed.cost < messages.cost_in(weights)
    assert weighed.lower_bound <= weighed.cost <= weighed.lower_bound * 1.003
    assert messages.lower_bound <= weighed.cost_in(None)
    assert messages.cost == messages.cost_in(None)
    assert weighed.weights == weights


def test_the_same_weight_for_all_sources_gives_the_law_for_messages():
    for n, seed in ((4, 3), (8, 2)):
        chain, _ = habits(n, seed)
        one, other = Everyday.start(chain).prepare(), Everyday.start(chain).prepare((4.0,) * n)
        assert (one.sets, one.masses) == (other.sets, other.masses)
        assert other.cost == 4 * one.cost
        assert other.lower_bound == pytest.approx(4 * one.lower_bound)


def test_sensitive_sources_are_in_the_cost_with_their_weights():
    chain, weights = habits(5, 3)
    step = Everyday.start(chain, (0, 3)).prepare(weights)
    held = sum(
        Fraction(mass, step.denominator) * sum(Fraction(weights[x]) for x in query)
        for query, mass in zip(step.sets, step.masses, strict=True)
    )
    assert step.cost == pytest.approx(float(held), rel=1e-12)
    assert weights[0] + weights[3] < step.lower_bound <= step.cost


@pytest.mark.parametrize("weights", [(1.0,) * 4, (1.0,) * 4 + (0.0,), (1.0,) * 4 + (float("nan"),)])
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(PlanError, match="weights are needed for 5 sources"):
        Everyday.start(habits(5, 1)[0]).prepare(weights)
