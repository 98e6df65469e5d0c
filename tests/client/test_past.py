"""The rules of the promise `past` in the client's pure state machine. Its streams are in test_past_streams.py."""

from __future__ import annotations

import pytest

from onoff import Chain
from onoff.client.protocol import State, begin_past, finish
from onoff.errors import ContextError, PendingRequest, PlanError
from onoff.past import Habits, PastState, PublicState
from pastkit import OFF, ON, habits


def made(chain, items, sensitive=()):
    """The steps of a new journal with chance draws."""
    state, public = State(owed=chain.depth), PublicState(Habits(chain, "known"), sensitive)
    for request, private in items:
        step = None if state.owed or private else public.state.prepare()
        begun = begin_past(state, public, request, private, step)
        yield begun
        state, public = finish(begun.state), begun.public


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_new_journal_asks_for_everything_as_often_as_the_memory_is_deep(depth):
    chain = habits(3, depth, 5, full=True, zeros=False)
    *owed, first, second, private, third = made(chain, [(0, OFF)] * depth + [(1, OFF), (2, OFF), (0, ON), (1, OFF)])
    assert [(step.pending.lag, len(step.pending.query)) for step in (*owed, private)] == [(0, 3)] * (depth + 1)
    assert [step.pending.lag for step in (first, second, third)] == [1, 2, 1]
    assert owed[-1].public.state == PastState.start(chain)
    assert owed[-1].state.reader == chain.state_of([0] * depth)
    stated = [step.pending.rounding for step in (*owed, first, second, private, third)]
    assert stated[:depth] == [0] * depth
    assert third.state.rounding == finish(second.state).rounding
    assert finish(third.state).rounding >= sum(stated) > 0


def test_what_the_rules_forbid_is_an_error_before_anything_is_drawn():
    chain = Chain([[0, 1, 0], [0.5, 0, 0.5], [0.2, 0.3, 0.5]], ["a", "b", "island"])
    [first] = made(chain, [(0, ON)])
    with pytest.raises(PendingRequest, match="still pending"):
        begin_past(first.state, first.public, 1, ON, None)
    state, step = finish(first.state), first.public.state.prepare()
    for request, prepared, error, words in (
        (2, step, ContextError, "impossible to ask for 'island' right after 'a'"),
        (9, step, ContextError, "there is no source 9"),
        (1, None, PlanError, "prepared for the last queries"),
        (1, PastState(chain, (), ((0, 1),)).prepare(), PlanError, "prepared for the last queries"),
    ):
        with pytest.raises(error, match=words):
            begin_past(state, first.public, request, OFF, prepared, randbelow=None)
    landed = begin_past(state, first.public, 2, ON, None)  # any request will do
    assert (landed.pending.query, landed.public.state) == ((0, 1, 2), PastState.start(chain))
    left = begin_past(finish(landed.state), landed.public, 1, OFF, landed.public.state.prepare())
    assert 1 in left.pending.query


def test_an_impossible_request_is_refused_with_the_state_named_unless_it_is_sensitive():
    chain = Chain([[0.5, 0.5], [0.5, 0.5], [1, 0]], ["a", "b"], states=[(0,), (1,), (0, 1)])
    *_, last = made(chain, [(0, ON), (1, ON)])
    state, step = finish(last.state), last.public.state.prepare()
    with pytest.raises(ContextError, match="impossible to ask for 'b' right after 'a' -> 'b'") as caught:
        begin_past(state, last.public, 1, OFF, step, randbelow=None)
    assert (caught.value.last, caught.value.next) == (1, 1)
    assert begin_past(state, last.public, 1, ON, None).state.reader == 1
    *_, hidden = made(chain, [(0, ON), (1, ON), (1, OFF)], (1,))
    assert (hidden.state.reader, hidden.pending.query) == (1, (0, 1))
