"""Streams of the client's own code after the learning: neither a query nor anything public tells of what is hidden.

Changes come after few transitions here, so short streams have the first use of a chain, new chains, and a blown fuse.
Requests follow the chain that the client uses, as the promise supposes.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from unittest.mock import patch

import numpy as np
import pytest

from onoff.client.protocol import State, begin_past, finish
from onoff.model.chain import Chain
from onoff.past import Habits, PublicState
from onoff.past import habits as rules
from pastkit import OFF, ON, World


def started(chain, stage, requests, private):
    """Public state, state and requests after full sets; while learning, the last completes the first chain."""
    public, state = PublicState(Habits(chain, stage)), State(owed=chain.depth)
    for request in requests:
        begun = begin_past(state, public, request, private, None)
        public, state = begun.public, finish(begun.state)
    assert public.habits.stage == ("complete" if stage == "learning" else stage)
    return {(): (public, {requests: state})}


def learned(n, requests):
    return started(Chain(np.full((n, n), 1 / n)), "learning", requests, OFF)


def told(now, patterns):
    """The world of the streams that begin here. No query is off by more than is stated, given any past."""
    [(public, _)] = now.values()
    world = World(public.habits.chain)
    for seen in (seen for statuses in patterns for seen in world.streams(statuses, now)):
        assert seen.off <= Fraction(seen.step.rounding)
    return world


def followed(n, requests, later, blown=1000.0):
    """A fuse that is `blown` early bets as if the chain were exact."""
    eps = rules.plausible_distance if blown > 2 else lambda *_: 0.0
    with patch.multiple(rules, FEW=1, BLOWN=blown, plausible_distance=eps):
        return told(learned(n, requests), [(OFF, *rest) for rest in product((OFF, ON), repeat=later)])


@pytest.mark.parametrize(
    ("n", "requests", "later", "blown"),
    [
        pytest.param(2, (0, 1, 0), 5, 1000.0, marks=pytest.mark.long),
        (2, (0, 1, 0), 4, 1000.0),
        (2, (0, 1, 0), 4, 1.2),
        (2, (0, 0, 0), 4, 1000.0),
        (3, (0, 1, 2, 0), 3, 1.2),
    ],
)
def test_no_query_and_nothing_public_tells_of_what_is_hidden(n, requests, later, blown):
    world = followed(n, requests, later, blown)
    assert {"complete", "known"} | ({"all"} if blown < 2 else set()) == {stage for stage, _ in world.stages}
    assert len({chain for _, chain in world.stages}) > 1 or n == 3


def test_a_private_request_before_the_first_use_of_a_chain_leaves_full_sets_alone():
    with patch.object(rules, "FEW", 1):
        world = told(learned(2, (0, 1, 0)), [(ON, *rest) for rest in product((OFF, ON), repeat=4)])
    assert {stage for stage, _ in world.stages} == {"complete", "all"}


DEEP = np.array([[0.7, 0.3], [0.4, 0.6], [0.1, 0.9], [0.8, 0.2]])
TREES = {
    "two deep": Chain(DEEP, weight=[3, 4, 5, 6], states=[(0,), (1,), (0, 1), (1, 1)]),
    "three deep": Chain(DEEP[[0, 1, 2, 3, 0]], weight=[3] * 5, states=[(0,), (1,), (0, 0), (0, 0, 0), (1, 0)]),
}


@pytest.mark.parametrize("name", TREES)
def test_habits_with_memory_are_fitted_again_from_public_states_alone(name):
    tree = TREES[name]
    with patch.object(rules, "FEW", 0):  # wherever it may be
        now = started(tree, "known", (0,) * tree.depth, ON)
        world = told(now, [(OFF, *rest) for rest in product((OFF, ON), repeat=3)])
    assert len({chain for _, chain in world.stages}) > 2


def counts_into_private(self, reader, request, private, honest=PublicState.after_everything):
    """Planted: counts the transition from a query of one source into a request that is made ON."""
    found = honest(self, reader, request, private)
    if private and self.habits.stage == "known" and len(self.queries[-1]) == 1:
        return replace(found, habits=self.habits.after_query(reader, (request,)))
    return found


def test_a_planted_mistake_is_seen():
    with (
        patch.object(PublicState, "after_everything", counts_into_private),
        pytest.raises(AssertionError, match="public things tell"),
    ):
        followed(2, (0, 1, 0), 4)
