"""Streams of the client's own code after the learning: neither a query nor anything public tells of what is hidden.

Changes come after few transitions here, so short streams have the first use of a chain, new chains, and a blown fuse.
Requests follow the chain that the client uses, as the promise supposes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from unittest.mock import patch

import numpy as np
import pytest

from onoff.client.protocol import State, begin_past, finish
from onoff.model.chain import Chain
from onoff.past import Habits, PublicState
from onoff.past import habits as rules

ON, OFF = True, False
SMALL = 1e-9


def learned(n, requests):
    """Public state and state after open requests, the last of which completes the first chain."""
    public = PublicState(Habits(Chain(np.full((n, n), 1 / n)), "learn"))
    state = State()
    for request in requests:
        begun = begin_past(state, public, request, OFF, None)
        public, state = begun.public, finish(begun.state)
    assert public.habits.stage == "fixed"
    return public, state


def stated(chain, requests):
    """Public state and state of a reader with this chain after private requests, as many as the memory is deep."""
    public, state = PublicState(Habits(chain, "known")), State(unsettled=chain.depth - 1)
    for request in requests:
        begun = begin_past(state, public, request, ON, None)
        public, state = begun.public, finish(begun.state)
    assert public.rows is not None
    return public, state


class Streams:
    """All queries of a client with the given statuses, and how likely each is with everything that is hidden."""

    def __init__(self):
        self.steps, self.stages, self.chains, self.worst = {}, set(), set(), 0.0

    def prepared(self, rows):
        key = str(rows.as_dict())
        if key not in self.steps:
            self.steps[key] = rows.prepare()
        return self.steps[key]

    def follow(self, public, state, statuses):
        """`readers` has what is hidden and the client's state, with the chance of them. What is hidden are states."""
        self._follow(public, {((), state): 1.0}, statuses)

    def _follow(self, public, readers, statuses):
        self.stages.add(public.habits.stage)
        self.chains.add(public.habits.chain.fingerprint)
        if not statuses:
            return
        everything = public.asks_for_all(statuses[0])
        step = None if everything else self.prepared(public.rows)
        after, laws = {}, {}
        chain = public.habits.chain
        for (secret, state), chance in readers.items():
            for request, p in enumerate(chain.P[state.reader]):
                hidden = (*secret, chain.step[state.reader, request] if statuses[0] else None)
                for query, share, begun in draws(public, state, request, statuses[0], step) if p else ():
                    known, found = after.setdefault(query, (begun.public, {}))
                    assert begun.public.as_dict() == known.as_dict(), "what is public tells of a request"
                    key = hidden, finish(begun.state)
                    found[key] = found.get(key, 0.0) + chance * p * share
                    law = laws.setdefault(hidden, {})
                    law[query] = law.get(query, 0.0) + chance * p * share
        stated = dict(zip(step.sets, np.array(step.masses) / step.denominator, strict=True)) if step else {}
        for law in laws.values():
            total = sum(law.values())
            for query in law.keys() | stated.keys():
                due = stated.get(query, float(step is None))
                self.worst = max(self.worst, abs(law.get(query, 0.0) / total - due))
        for known, found in after.values():
            total = sum(found.values())
            self._follow(known, {key: chance / total for key, chance in found.items()}, statuses[1:])


def draws(public, state, request, private, step):
    """Every query of a request, with its chance: the client draws it from each part of the range of numbers."""
    if step is None:
        begun = begin_past(state, public, request, private, None)
        return [(begun.pending.query, 1.0, begun)]
    requests, _, units = step.entries(state.context)
    units = units[requests == request]
    starts, found = np.cumsum(units) - units, []
    for start, unit in zip(starts, units, strict=True):
        begun = begin_past(state, public, request, private, step, lambda _, start=start: int(start))
        found.append((begun.pending.query, unit / units.sum(), begun))
    return found


def followed(n, requests, later, blown=1000.0):
    """A fuse that is `blown` early bets as if the chain were exact."""
    streams, eps = Streams(), rules.plausible_distance if blown > 2 else lambda *_: 0.0
    with patch.multiple(rules, FEW=1, BLOWN=blown, plausible_distance=eps):
        for statuses in product((OFF, ON), repeat=later):
            streams.follow(*learned(n, requests), (OFF, *statuses))
    return streams


@pytest.mark.parametrize(
    ("n", "requests", "later", "blown"),
    [(2, (0, 1, 0), 5, 1000.0), (2, (0, 1, 0), 5, 1.2), (2, (0, 0, 0), 4, 1000.0), (3, (0, 1, 2, 0), 3, 1.2)],
)
def test_no_query_and_nothing_public_tells_of_what_is_hidden(n, requests, later, blown):
    streams = followed(n, requests, later, blown)
    assert streams.worst < SMALL
    assert {"fixed", "known"} | ({"all"} if blown < 2 else set()) == streams.stages
    assert len(streams.chains) > 1 or n == 3


def test_a_private_request_before_the_first_use_of_a_chain_leaves_full_sets_alone():
    streams = Streams()
    with patch.object(rules, "FEW", 1):
        for statuses in product((OFF, ON), repeat=4):
            streams.follow(*learned(2, (0, 1, 0)), (ON, *statuses))
    assert streams.stages == {"fixed", "all"}
    assert streams.worst == 0


DEEP = np.array([[0.7, 0.3], [0.4, 0.6], [0.1, 0.9], [0.8, 0.2]])
TREES = {
    "two deep": Chain(DEEP, weight=[3, 4, 5, 6], states=[(0,), (1,), (0, 1), (1, 1)]),
    "three deep": Chain(DEEP[[0, 1, 2, 3, 0]], weight=[3] * 5, states=[(0,), (1,), (0, 0), (0, 0, 0), (1, 0)]),
}


@pytest.mark.parametrize("name", TREES)
def test_habits_with_memory_are_fitted_again_from_public_states_alone(name):
    tree, streams = TREES[name], Streams()
    with patch.object(rules, "FEW", 0):  # wherever it may be
        for statuses in product((OFF, ON), repeat=3):
            streams.follow(*stated(tree, [0] * tree.depth), (OFF, *statuses))
    assert streams.worst < SMALL
    assert len(streams.chains) > 2


def counts_into_private(self, request, private, counts, honest=PublicState.after_everything):
    """Planted: counts the transition from a query of one source into a request that is made ON."""
    seen = self.habits
    if private and seen.stage == "known" and seen.run:
        seen = replace(seen.asked((request,), private=False), run=())
    return honest(replace(self, habits=seen), request, private, counts)


def test_a_planted_mistake_is_seen():
    with (
        patch.object(PublicState, "after_everything", counts_into_private),
        pytest.raises(AssertionError, match="what is public tells of a request"),
    ):
        followed(2, (0, 1, 0), 4)
