"""Screening: contexts that need no flow."""

from __future__ import annotations

import numpy as np
import pytest

from onoff import Chain
from onoff.schemes.comb import comb, comb_law
from onoff.schemes.flow import Network, Repair, supplies
from onoff.schemes.law import DENOMINATOR, Law, quantise
from onoff.schemes.sinkhorn import COMPILED_FROM, NumpyScreen, screen_of, unsure
from oracles import random_chain


@pytest.fixture(params=["numpy", "compiled"])
def screen(request):
    """How screens are made: in NumPy, and by the compiled code of the extra `fast`."""
    if request.param == "numpy":
        return NumpyScreen
    pytest.importorskip("numba", reason="the extra `fast` is not installed")
    from onoff.schemes.sinkhorn_compiled import CompiledScreen

    return CompiledScreen


@pytest.mark.parametrize("slack", [1e-2, 1e-4])
def test_what_the_screen_certifies_a_flow_confirms(slack, screen):
    posterior = Chain(np.random.default_rng(4).dirichlet(np.full(20, 5.0), 20)).posterior(2)
    law = comb_law(posterior)
    passed = screen(law, slack).passes(posterior.rows, rounds=200)
    assert passed.any()
    units = int(slack * law.total)
    helped = Network(Law(np.concatenate([law.member, np.ones((1, 20), dtype=bool)]), np.append(law.mass, units)))
    total = law.total + units
    for row in posterior.rows[passed]:
        supply = supplies(row, total)
        assert helped.ship(supply) == supply.sum()


def test_a_compiled_screen_says_of_a_row_the_same_alone_and_after_rows_that_fail():
    pytest.importorskip("numba", reason="the extra `fast` is not installed")
    from onoff.schemes.sinkhorn_compiled import CompiledScreen

    posterior = Chain(np.random.default_rng(2).dirichlet(np.ones(60), 60)).posterior(1)
    member, mass = comb(posterior.peaks, np.arange(60))
    made = CompiledScreen(quantise(member, mass, DENOMINATOR), 1e-2)
    rows = np.concatenate([posterior.group(0), posterior.group(1)])
    alone = [bool(made.passes(row[None])[0]) for row in rows]
    assert any(alone)
    assert not all(alone)
    assert made.passes(rows).tolist() == alone


def test_the_screen_certifies_nearly_all_contexts_of_a_dense_chain_cold_and_from_a_near_row(screen):
    posterior = Chain(np.random.default_rng(77).dirichlet(np.full(60, 5.0), 60)).posterior(1)
    law = comb_law(posterior)
    made = screen(law, 1e-4)
    rows = posterior.group(7)
    near = np.ones(len(rows), dtype=bool)
    near[unsure(made, rows)] = False
    assert min(made.passes(rows).mean(), near.mean()) > 0.9


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_with_zeros_and_sets_that_miss_them_are_certified_only_if_a_flow_agrees(sparse, screen):
    posterior = random_chain("sparse" if sparse else "dense", 12, 5).posterior(1)
    member, mass = comb(np.minimum(posterior.peaks * 1.3, 1.0), np.arange(12))
    law = quantise(member, mass, DENOMINATOR)
    repair, slack = Repair(law), 1e-3
    passed = screen(law, slack).passes(posterior.rows, rounds=100)
    for row in posterior.rows[passed]:
        assert repair.shortfall(row) / law.total <= slack


def test_numbers_that_are_none_certify_nothing(screen):
    """Rows of zeros, infinities and NaN, and starts that are no numbers."""
    posterior = random_chain("dense", 9, 3).posterior(1)
    law = comb_law(posterior)
    made = screen(law, 1e-2)
    good = posterior.rows[:1]
    assert made.passes(good).all()
    for bad in (np.zeros(9), np.full(9, np.nan), np.full(9, np.inf), np.where(np.arange(9) == 4, np.nan, good[0])):
        assert made.start(bad) is None
        assert made.passes(np.stack([bad, good[0], bad])).tolist() == [False, True, False]
        assert not made.passes(np.stack([bad]), np.full(9, np.nan)).any()


def test_both_screens_leave_the_same_plan(monkeypatch):
    pytest.importorskip("numba", reason="the extra `fast` is not installed")
    rows = Chain(np.random.default_rng(77).dirichlet(np.full(60, 1.0), 60)).posterior(1)
    plain = comb_law(rows)
    assert COMPILED_FROM > 60
    monkeypatch.setattr("onoff.schemes.sinkhorn.COMPILED_FROM", 60)
    compiled = comb_law(rows)
    assert type(screen_of(compiled, 1e-4)).__module__.endswith("sinkhorn_compiled")
    np.testing.assert_array_equal(compiled.member, plain.member)
    np.testing.assert_array_equal(compiled.mass, plain.mass)


def test_a_sum_that_lost_its_digits_certifies_nothing(screen):
    """Sets {0, 1, 2, 3} and {1, 2, 3}, where 1 to 3 are so rare that the second sum is rounding, if it is a difference.

    The second set has 1 % more mass than its sources, ten times the slack: no flow fills it.
    """
    rng = np.random.default_rng(5)
    member = np.array([[True, True, True, True], [False, True, True, True]])
    for _ in range(100):
        rare = rng.uniform(0.5e-14, 1.5e-14, 3)
        units = round(1.01 * rare.sum() * DENOMINATOR)
        law = Law(member, np.array([DENOMINATOR - units, units]))
        row = np.array([1 - rare.sum(), *rare])
        assert not screen(law, 1e-3).passes(row[None]).any()
