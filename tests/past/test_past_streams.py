"""The promise `past`, enumerated: no query tells anything about what is hidden, and mistakes are seen."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from onoff import Chain
from onoff.past import PastState
from onoff.past import contexts as filters
from oracles import random_chain
from pastkit import World, checked, drawn, habits
from sampling import one_in

PATTERNS = [(True, *rest) for rest in product([True, False], repeat=4)]
ENDS = Chain([[0, 1, 0, 0], [0.5, 0, 0.25, 0.25], [0.2, 0.3, 0, 0.5], [0, 0, 0, 1]])  # with zeros and an absorbing end
INTO = Chain([[0, 1, 0], [0.5, 0, 0.5], [0.2, 0.3, 0.5]])  # after 0 only 1: without an open request if 1 is sensitive
WORLDS = {
    "two": (random_chain("dense", 2, 1), ()),
    "three": (random_chain("dense", 3, 1), ()),
    "three, one sensitive": (random_chain("dense", 3, 1), (1,)),
    "three, two sensitive": (random_chain("dense", 3, 2), (0, 2)),
    "three, all sensitive": (random_chain("dense", 3, 1), (0, 1, 2)),
    "zeros": (random_chain("sparse", 3, 1), ()),
    "a context drops out": (INTO, (1,)),
    "equal rows": (Chain([[0.3, 0.3, 0.4], [0.3, 0.3, 0.4], [0.1, 0.8, 0.1]]), ()),
    "four with an end": (ENDS, ()),
    "four with an end, one sensitive": (ENDS, (1,)),
    "four, one sensitive": (random_chain("dense", 4, 2), (1,)),
}
TREES = {
    "two deep": (habits(2, 2, 1, full=True), ()),
    "two deep, one sensitive": (habits(2, 2, 2), (1,)),
    "three deep": (habits(2, 3, 3, full=True), ()),
    "three deep, one sensitive": (habits(2, 3, 1), (0,)),
    "three sources": (habits(3, 2, 1), ()),
    "three sources, all states": (habits(3, 2, 4, full=True), ()),
    "three sources, one sensitive": (habits(3, 2, 2, full=True), (2,)),
    "three sources, two sensitive": (habits(3, 3, 5), (0, 1)),
    "four sources": (habits(4, 2, 1), ()),
    "four sources, one sensitive": (habits(4, 2, 2), (3,)),
    "three sources without zeros": (habits(3, 2, 6, full=True, zeros=False), ()),
    "two deep without zeros, one sensitive": (habits(2, 2, 7, full=True, zeros=False), (0,)),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if chain.n == 4 else ()) for name, (chain, _) in WORLDS.items()],
)
def test_no_query_tells_anything_and_the_stated_rounding_covers_what_is_measured(name):
    bits, excess = checked(World(*WORLDS[name]), PATTERNS)
    assert bits < 1e-15
    assert excess <= 1


@pytest.mark.parametrize("name", one_in(2, TREES))
def test_no_query_of_habits_with_memory_tells_anything_about_hidden_states(name):
    tree, sensitive = TREES[name]
    patterns = PATTERNS if tree.n == 2 else [statuses[:4] for statuses in PATTERNS[::2]]
    bits, excess = checked(World(tree, sensitive), [*patterns, (4, after_few_sources)])
    assert bits < 1e-15
    assert excess <= 1


def after_few_sources(past):
    """ON after a query of an even number of sources, unless it asked for everything."""
    return len(past[-1]) in (2, 4) and len(past) > 1


@pytest.mark.parametrize("name", one_in(2, [name for name in TREES if "zeros" not in name]))
def test_private_requests_may_follow_any_law_even_what_habits_call_impossible(name):
    tree, sensitive = TREES[name]
    other = [[1 + z * (x + 2) % 3 for x in range(tree.n)] for z in range(len(tree.P))]
    assert (tree.P == 0).any()
    bits, excess = checked(World(tree, sensitive, other), [statuses[:4] for statuses in PATTERNS[::2]])
    assert bits < 1e-15
    assert excess <= 1


@pytest.fixture
def coarse(monkeypatch):
    """Laws of 2^10 units instead of 2^52: roundings of a per cent, which a mistake in counting them exceeds."""
    for module in ("laws", "state"):
        monkeypatch.setattr(f"onoff.past.{module}.DENOMINATOR", 2**10)
    monkeypatch.setattr("onoff.past.state.TOO_MUCH", 1.0)


COARSE = ["three, one sensitive", "three", "a context drops out", "zeros", "four with an end"]


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("name", one_in(3, COARSE))
def test_the_stated_rounding_covers_what_coarse_units_do(name):
    assert checked(World(*WORLDS[name]), PATTERNS)[1] <= 1


@pytest.mark.usefixtures("coarse")
def test_a_filter_that_takes_the_integer_joint_is_seen(monkeypatch):
    monkeypatch.setattr(filters, "conditioned", lambda rows, units, totals: units / units.sum(axis=1, keepdims=True))
    assert checked(World(*WORLDS["zeros"]), PATTERNS)[1] > 2


NEAR = Chain([[0.5, 0.3, 0.2], [0.46, 0.3, 0.24], [0.1, 0.2, 0.7]])


def test_contexts_that_share_flows_generously_tell_nothing(monkeypatch):
    monkeypatch.setattr("onoff.past.state.PRICE", 0.2)
    assert PastState.start(NEAR).prepare().encoders.groups == 2
    bits, excess = checked(World(NEAR), PATTERNS[::2])
    assert bits < 1e-15
    assert excess <= 1


def test_help_for_the_contexts_of_a_group_only_is_seen(monkeypatch):
    """The units held out belong to every context: one that is alone in its group must not do without them."""
    monkeypatch.setattr("onoff.past.state.PRICE", 0.2)

    def alone(step, request, context):
        law = dict(drawn(step, request, context))
        group = list(step.encoders.group)
        smaller = min(law, key=len)
        if group.count(group[step.contexts.index(context)]) == 1 and smaller != step.sets[-1]:
            law[smaller] += law.pop(step.sets[-1], 0)
        return law

    assert sum(seen.bits for _, seen in World(NEAR).streams((True, False), draw=alone)) > 1e-4


def test_merging_unequal_rows_stays_within_what_is_stated_after_every_past_and_uncounted_it_is_seen(monkeypatch):
    monkeypatch.setattr(filters, "ALIKE", 0.5)
    world = habits(2, 2, 0, full=True), ()
    bits, excess = checked(World(*world), PATTERNS)
    assert bits > 1e-9  # it is not for nothing
    assert excess <= 1
    distances = filters.distances
    monkeypatch.setattr(filters, "distances", lambda *rows: np.where(distances(*rows) < 0.5, 0.0, np.inf))
    assert checked(World(*world), PATTERNS)[1] > 1000
