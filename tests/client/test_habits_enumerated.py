"""Streams of the client's own code with habits that change, or with a gap: no query tells of what is hidden.

Changes come after few transitions here, so short streams have the first use of a chain, new chains, and a blown fuse.
Requests follow the chain that the client uses, as the promise supposes.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from itertools import product
from unittest.mock import patch

import numpy as np
import pytest

from onoff.client.protocol import State, begin_past, finish
from onoff.model.chain import Chain
from onoff.past import Habits, PublicState
from onoff.past import habits as rules
from pastkit import World, habits

ON, OFF = True, False
SMALL = 1e-9


def learned(n, requests):
    """Public state and state after open requests, the last of which completes the first chain."""
    public = PublicState(Habits(Chain(np.full((n, n), 1 / n)), "learning"))
    state = State()
    for request in requests:
        begun = begin_past(state, public, request, OFF, None)
        public, state = begun.public, finish(begun.state)
    assert public.habits.stage == "complete"
    return public, state


def stated(chain, requests):
    """Public state and state of a reader with this chain after private requests, as many as the memory is deep."""
    public, state = PublicState(Habits(chain, "known")), State(unsettled=chain.depth - 1)
    for request in requests:
        begun = begin_past(state, public, request, ON, None)
        public, state = begun.public, finish(begun.state)
    assert public.rows is not None
    return public, state


def told(public, state, patterns):
    """The world of the streams that begin here, and the largest distance of a query from its stated law."""
    world = World(public.habits.chain)
    now = {(): (public, {((), state.reader, state): Decimal(1)})}
    found = [seen.distance for statuses in patterns for _, seen in world.streams(statuses, now)]
    return world, max(found, default=0)


def followed(n, requests, later, blown=1000.0):
    """A fuse that is `blown` early bets as if the chain were exact."""
    eps = rules.plausible_distance if blown > 2 else lambda *_: 0.0
    with patch.multiple(rules, FEW=1, BLOWN=blown, plausible_distance=eps):
        return told(*learned(n, requests), [(OFF, *rest) for rest in product((OFF, ON), repeat=later)])


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
    world, worst = followed(n, requests, later, blown)
    assert worst < SMALL
    assert {"complete", "known"} | ({"all"} if blown < 2 else set()) == {stage for stage, _ in world.stages}
    assert len({chain for _, chain in world.stages}) > 1 or n == 3


def test_a_private_request_before_the_first_use_of_a_chain_leaves_full_sets_alone():
    with patch.object(rules, "FEW", 1):
        world, worst = told(*learned(2, (0, 1, 0)), [(ON, *rest) for rest in product((OFF, ON), repeat=4)])
    assert {stage for stage, _ in world.stages} == {"complete", "all"}
    assert worst == 0


DEEP = np.array([[0.7, 0.3], [0.4, 0.6], [0.1, 0.9], [0.8, 0.2]])
TREES = {
    "two deep": Chain(DEEP, weight=[3, 4, 5, 6], states=[(0,), (1,), (0, 1), (1, 1)]),
    "three deep": Chain(DEEP[[0, 1, 2, 3, 0]], weight=[3] * 5, states=[(0,), (1,), (0, 0), (0, 0, 0), (1, 0)]),
}


@pytest.mark.parametrize("name", TREES)
def test_habits_with_memory_are_fitted_again_from_public_states_alone(name):
    tree = TREES[name]
    with patch.object(rules, "FEW", 0):  # wherever it may be
        world, worst = told(*stated(tree, [0] * tree.depth), [(OFF, *rest) for rest in product((OFF, ON), repeat=3)])
    assert worst < SMALL
    assert len({chain for _, chain in world.stages}) > 2


def counts_into_private(self, request, private, counts, honest=PublicState.after_everything):
    """Planted: counts the transition from a query of one source into a request that is made ON."""
    seen = self.habits
    if private and seen.stage == "known" and seen.run:
        seen = replace(seen.after_query((request,), private=False), run=())
    return honest(replace(self, habits=seen), request, private, counts)


def test_a_planted_mistake_is_seen():
    with (
        patch.object(PublicState, "after_everything", counts_into_private),
        pytest.raises(AssertionError, match="what is public tells of a request"),
    ):
        followed(2, (0, 1, 0), 4)


# A request that is missing, or made twice: what the client knows of the reader is wrong.


def missing(chain, readers, _):
    """A request without a query: only the reader moves."""
    moved = {}
    for (hidden, z, state), p in readers.items():
        for x, q in enumerate(chain.P[z].tolist()):
            came = int(chain.step[z, x])
            key = (*hidden, came), came, state
            moved[key] = moved.get(key, 0) + p * Decimal(q)
    return moved


def repeated(chain, readers, make):
    """The last request once more: only the client moves."""
    return {(hidden, z, make(state, int(chain.last[z]))): p for (hidden, z, state), p in readers.items()}


def told_after_a_gap(depth, event, before, later, forgets=True):
    """The largest distance of a query after the gap; a planted client makes one request ON, and forgets nothing."""
    chain = habits(2, depth, 1, full=True, zeros=False)
    world = World(chain)
    [*world.streams((ON, *before))]
    worst, start = 0, {}
    for past, (public, readers) in world.now.items():
        after = []

        def make(state, request, public=public, after=after):
            begun = begin_past(state, public, request, ON, None, anew=forgets)
            after.append(begun.public)
            return finish(begun.state)

        moved = event(chain, readers, make)
        start[(*past, *[tuple(range(chain.n))] * bool(after))] = (after or [public])[0], moved
    gap = len(next(iter(start)))
    if event is missing:  # the next request is asked ON
        later = (ON, *later)
        world.begin = lambda state, *drawn: begin_past(state, *drawn, anew=forgets and state.step == gap)
    for _, seen in world.streams((*[ON] * gap, *later), start):
        worst = max(worst, seen.distance)
    return worst


@pytest.mark.parametrize("event", [missing, repeated])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_after_a_gap_as_many_full_sets_as_the_habits_remember_hide_all_and_one_does_not(depth, event):
    patterns = [(before, later) for before in ((), (OFF,)) for later in product((OFF, ON), repeat=depth + 1)]
    assert max(told_after_a_gap(depth, event, *pattern) for pattern in patterns) < SMALL
    planted = max(told_after_a_gap(depth, event, *pattern, forgets=False) for pattern in patterns)
    assert planted < SMALL if depth == 1 else planted > Decimal("0.25")
