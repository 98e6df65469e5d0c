"""The promise `past` as the client's own pure state machine: its rules, and whole streams as they are run."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from onoff import Chain
from onoff.client.protocol import State, begin_past, finish
from onoff.errors import ContextError, PendingRequest, PlanError
from onoff.past import Habits, PastState, PublicState
from oracles import random_chain
from pastkit import World, checked, habits
from sampling import one_in

ON, OFF = True, False
SETTLED = State(unsettled=0)
ENDS = Chain([[0, 1, 0, 0], [0.5, 0, 0.25, 0.25], [0.2, 0.3, 0, 0.5], [0, 0, 0, 1]])
WORLDS = {
    "two, one sensitive": (random_chain("dense", 2, 1), (0,), 5),
    "two deep, one sensitive": (habits(2, 2, 4, full=True, zeros=False), (1,), 5),
    "three deep": (habits(2, 3, 2, full=True), (), 6),
    "three sources, two deep, one sensitive": (habits(3, 2, 3), (2,), 4),
    "three deep here and there": (habits(2, 3, 5, zeros=False), (0,), 6),
    "three sources, two deep": (habits(3, 2, 1, full=True), (), 5),
}


@pytest.mark.parametrize("name", one_in(2, WORLDS))
def test_no_query_of_a_new_journal_tells_anything_about_what_is_hidden(name):
    chain, sensitive, length = WORLDS[name]
    patterns = [(ON, *rest) for rest in product([ON, OFF], repeat=length - 1)]
    bits, excess = checked(World(chain, sensitive), patterns, World.new)
    assert bits < 1e-12
    assert excess <= 1


def forgets_to_move(state, public, request, private, step, randbelow):
    """A client that stays in its context after an OFF step."""
    made = begin_past(state, public, request, private, step, randbelow)
    if made.pending.private:
        return made
    stays = state.context if state.context in made.public.rows.contexts else made.state.context
    return replace(made, state=replace(made.state, context=stays))


def forgets_sensitive(state, public, request, private, step, randbelow):
    """A client that does not join the context of a sensitive request."""
    made = begin_past(state, public, request, private, step, randbelow)
    if made.pending.private or request not in public.sensitive:
        return made
    to = made.public.rows.place[state.context]
    return replace(made, state=replace(made.state, context=to if to >= 0 else made.state.context))


def restores_rows(state, public, request, private, step, randbelow):
    """A client whose rows after an OFF step are again those after the ON step, and its context, too."""
    made = begin_past(state, public, request, private, step, randbelow)
    if made.pending.private:
        return made
    start = replace(public, rows=PastState.start(public.habits.chain, public.sensitive))
    return replace(made, state=replace(made.state, context=state.context), public=start)


def forgets_its_state(state, public, request, private, step, randbelow):
    """A client that is started again before every step and knows its last request alone."""
    if state.reader is not None:
        state = replace(state, reader=int(public.habits.chain.last[state.reader]))
    return begin_past(state, public, request, private, step, randbelow)


def starts_too_early(state, public, request, private, step, randbelow):
    """A client for which one request made ON is enough, however deep the memory is."""
    return begin_past(replace(state, unsettled=0), public, request, private, step, randbelow)


DENSE, DEEP = random_chain("dense", 3, 1), habits(2, 3, 0, zeros=False)
MISTAKES = [
    (forgets_to_move, DENSE, (1,)), (forgets_sensitive, DENSE, (1,)), (restores_rows, DENSE, (1,)),
    (forgets_its_state, DEEP, ()), (starts_too_early, DEEP, ()),
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "chain", "sensitive"), MISTAKES)
def test_the_enumeration_sees_a_machine_that_makes_a_mistake(mistake, chain, sensitive):
    told = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PastState, "same", lambda *_: True)
        for begin in (begin_past, mistake):
            try:
                told.append(checked(World(chain, sensitive, begin=begin), [(ON, OFF, OFF, OFF)], World.new)[0])
            except ContextError:  # (in a context that is not its own a request may be impossible: seen, too)
                told.append(1.0)
    assert told[0] < 1e-12
    assert told[1] > 1e-6


def made(chain, items, sensitive=(), state=SETTLED):
    """The steps of a stream with chance draws."""
    public = PublicState(Habits(chain, "known"), tuple(sensitive))
    for request, private in items:
        step = None if public.asks_for_all(private) else public.rows.prepare()
        begun = begin_past(state, public, request, private, step)
        yield begun
        state, public = finish(begun.state), begun.public


def test_until_a_request_has_counted_as_on_everything_is_asked_for():
    chain = random_chain("dense", 4, 1)
    found = list(made(chain, [(0, OFF), (1, OFF), (2, OFF), (3, OFF), (0, ON), (1, OFF)], state=State()))
    assert [step.pending.private for step in found] == [ON, ON, OFF, OFF, ON, OFF]
    assert [step.pending.lag for step in found] == [0, 0, 1, 2, 0, 1]
    assert [step.public.rows is None for step in found] == [True, False, False, False, False, False]
    assert found[0].state.context is None
    assert all(len(step.pending.query) == 4 for step in found if step.pending.private)
    assert all(step.pending.request in step.pending.query for step in found)


def test_the_journal_sums_up_every_stated_rounding():
    chain = random_chain("dense", 4, 3)
    found = list(made(chain, [(0, ON), (1, OFF), (2, OFF), (3, OFF)], sensitive=(3,)))
    stated = [step.pending.rounding for step in found]
    assert stated[0] == 0
    assert min(stated[1:]) > 0
    assert finish(found[-1].state).rounding >= sum(stated)


def test_what_the_rules_forbid_is_an_error_before_anything_is_drawn():
    start = PublicState(Habits(ENDS, "known"))
    first = begin_past(SETTLED, start, 1, ON, None)
    with pytest.raises(PendingRequest, match="still pending"):
        begin_past(first.state, first.public, 1, ON, None)
    state, step = finish(first.state), first.public.rows.prepare()
    with pytest.raises(ContextError, match="impossible"):
        begin_past(state, first.public, 1, OFF, step, randbelow=None)
    with pytest.raises(ContextError, match="there is no source 9"):
        begin_past(state, first.public, 9, OFF, step, randbelow=None)
    with pytest.raises(PlanError, match="prepared for the present rows"):
        begin_past(state, first.public, 0, OFF, None, randbelow=None)
    second = begin_past(state, first.public, 2, OFF, step)
    with pytest.raises(PlanError, match="prepared for the present rows"):  # a step of rows that have moved on
        begin_past(finish(second.state), second.public, 0, OFF, step, randbelow=None)


def test_a_source_that_no_other_leads_to_is_refused_while_off_and_accepted_while_on():
    """What is asked for ON may follow any law: the rows after it are those of an ON step, whatever led to it."""
    chain = Chain([[0.5, 0.5, 0], [0.5, 0.5, 0], [0.5, 0.5, 0]], ["a", "b", "island"])
    start = PublicState(Habits(chain, "known"))
    first = begin_past(SETTLED, start, 0, ON, None)
    after, prepared = finish(first.state), first.public.rows.prepare()
    with pytest.raises(ContextError, match="impossible to ask for 'island'"):
        begin_past(after, first.public, 2, OFF, prepared, randbelow=None)
    landed = begin_past(after, first.public, 2, ON, None)
    assert landed.public.rows.same(PastState.start(chain))
    assert landed.pending.query == (0, 1, 2)
    left = begin_past(finish(landed.state), landed.public, 1, OFF, landed.public.rows.prepare())
    assert 1 in left.pending.query


def test_a_request_that_the_chain_calls_impossible_is_refused_though_its_context_allows_it():
    """Contexts know less than the reader: from what was asked last, the chain may not get there."""
    chain = Chain([[0.1, 0.8, 0.1], [0.0, 0.1, 0.9], [0.9, 0.1, 0.0]])
    for _ in range(500):
        *_, last = made(chain, [(0, ON), (1, OFF)])
        state = finish(last.state)
        if last.public.rows.requests[state.context, 0]:
            break
    else:
        pytest.fail("no query after which the context allows 0")
    with pytest.raises(ContextError, match="impossible to ask for '0' right after '1'"):
        begin_past(state, last.public, 0, OFF, last.public.rows.prepare(), randbelow=None)


def test_an_impossible_request_is_refused_with_the_state_named():
    chain = Chain([[0.5, 0.5], [0.5, 0.5], [1, 0]], ["a", "b"], states=[(0,), (1,), (0, 1)])
    *_, last = made(chain, [(0, ON), (1, ON)], state=State(unsettled=1))
    state = finish(last.state)
    with pytest.raises(ContextError, match="impossible to ask for 'b' right after 'a' -> 'b'") as caught:
        begin_past(state, last.public, 1, OFF, last.public.rows.prepare(), randbelow=None)
    assert (caught.value.last, caught.value.next) == (1, 1)
    assert begin_past(state, last.public, 1, ON, None).state.reader == 1


def test_a_new_journal_asks_for_everything_as_often_as_the_memory_is_deep():
    deep = habits(2, 3, 5)
    for unsettled in (deep.depth - 1, deep.depth):  # a lost one: the first request may repeat one that went out
        found = list(made(deep, [(0, ON)] * (unsettled + 1), state=State(unsettled=unsettled)))
        assert [step.public.rows is None for step in found] == [True] * unsettled + [False]
        assert found[-1].state.reader == deep.state_of((0, 0, 0))
        assert found[-1].public.rows.same(PastState.start(deep))
