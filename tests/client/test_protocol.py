"""The rules of the client as a pure state machine; and the whole stream's privacy, by enumeration, in fractions."""

from __future__ import annotations

import random
from fractions import Fraction
from functools import cache, partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onoff import Chain, plan
from onoff.client.protocol import State, begin_both, begin_past, finish, next_lag
from onoff.errors import Announced, ContextError, NothingPending, PendingRequest, PlanError
from onoff.past import Habits, PastState, PublicState
from onoff.testing import chains
from oracles import dependence, joint_law, random_chain
from sampling import examples

FIRST = State()


@pytest.fixture(scope="module")
def chain():
    return random_chain("dense", 4, 1)


@pytest.fixture(scope="module")
def plans(chain):
    return {lag: plan(chain, lag) for lag in (1, 2, 3, 4)}


def step(state, chain, request, following, private, plans=None):
    lag = next_lag(state, following, private)
    begun = begin_both(state, chain, request, following, private, plans[lag] if lag else None)
    state, pending = begun.state, begun.pending
    return finish(state), pending


def test_after_lost_state_only_the_second_full_set_counts_as_on(chain, plans):
    state, first = step(State(owed=2), chain, 2, 1, False)
    assert first.query == (0, 1, 2, 3)
    assert (state.last, state.owed) == (None, 1)
    state, second = step(state, chain, 1, 3, False)
    assert second.query == (0, 1, 2, 3)
    assert state.last == 1
    state, third = step(state, chain, 3, 0, False, plans)
    assert third.lag == 1
    assert not third.private


def test_off_steps_count_the_lag_and_keep_the_last_private_request(chain, plans):
    state, _ = step(FIRST, chain, 2, None, True)
    for lag, (request, following) in enumerate([(1, 3), (3, 0), (0, 0)], 1):
        state, pending = step(state, chain, request, following, False, plans)
        assert (pending.lag, state.lag, state.last, state.announced) == (lag, lag, 2, following)
        assert request in pending.query
    assert state.rounding >= sum(plans[lag].rounding_at(lag) for lag in (1, 2, 3))
    state, pending = step(state, chain, 0, 1, True)
    assert (state.lag, state.last, state.announced) == (0, 0, None)
    assert pending.query == (0, 1, 2, 3)


def test_without_a_next_request_everything_is_asked_for_and_it_counts_as_on(chain, plans):
    state, _ = step(FIRST, chain, 2, None, True)
    state, pending = step(state, chain, 1, None, False, plans)
    assert pending.private
    assert (state.last, state.lag) == (1, 0)


def test_an_announced_request_binds_after_an_off_query_only(chain, plans):
    state, _ = step(FIRST, chain, 2, 3, True)
    state, _ = step(state, chain, 0, 1, False, plans)  # announced 3 while ON: not binding
    with pytest.raises(Announced, match="'1' was announced") as caught:
        begin_both(state, chain, 2, 0, True, None)
    assert caught.value.announced == 1
    state, _ = step(state, chain, 1, 2, True)
    step(state, chain, 3, 2, True)


def test_while_a_request_is_pending_another_is_an_error(chain):
    state = begin_both(FIRST, chain, 2, 1, True, None).state
    with pytest.raises(PendingRequest, match="step 0, for '2', is still pending"):
        begin_both(state, chain, 1, 1, True, None)
    with pytest.raises(NothingPending, match="nothing is pending"):
        finish(FIRST)


def test_impossible_requests_and_missing_plans_are_errors():
    ring = Chain([[0, 1, 0], [0, 0, 1], [1, 0, 0]], ["a", "b", "c"])
    state, _ = step(FIRST, ring, 0, 1, True)
    with pytest.raises(ContextError, match="'c' right after 'a'"):
        begin_both(state, ring, 2, 0, True, None)
    with pytest.raises(ContextError, match="'b' right after 'b'"):
        begin_both(state, ring, 1, 1, False, plan(ring, 1))
    for private in (True, False):  # what is said of the next request is checked while ON, too
        with pytest.raises(ContextError, match="'a' right after 'b'"):
            begin_both(state, ring, 1, 0, private, plan(ring, 1))
        with pytest.raises(ContextError, match="'b' right after 'c'"):
            begin_both(FIRST, ring, 2, 1, private, None)
    with pytest.raises(ContextError, match="no source 7"):
        begin_both(state, ring, 7, 1, True, None)
    with pytest.raises(PlanError, match="lag 1 or less"):
        begin_both(state, ring, 1, 2, False, None)
    with pytest.raises(PlanError, match="lag 1 or less"):
        begin_both(state, ring, 1, 2, False, plan(Chain.symmetric(3, 0.5), 1))
    with pytest.raises(PlanError, match="smaller lag"):
        begin_both(state, ring, 1, 2, False, plan(ring, 2))


def test_a_step_of_past_is_drawn_from_a_law_of_the_last_queries_alone(chain):
    state, public = State(reader=0, owed=0), PublicState(Habits(chain, "known"), queries=((0, 1, 2, 3),))
    for prepared in (None, PastState(chain, (), ((0, 1),)).prepare()):
        with pytest.raises(PlanError, match="prepared for the last queries"):
            begin_past(state, public, 1, False, prepared)


@settings(max_examples=examples(40))
@given(chains(min_sources=3, max_sources=3), st.lists(st.booleans(), min_size=1, max_size=8), st.integers(0, 2**32))
def test_the_state_survives_its_dictionary_and_every_query_holds_its_request(chain, statuses, seed):
    made = cache(partial(plan, chain))
    requests = chain.simulate(len(statuses) + 1, np.random.default_rng(seed), start=0).tolist()
    state = FIRST
    for t, private in enumerate(statuses):
        lag = next_lag(state, requests[t + 1], private)
        randbelow = random.Random(seed + t).randrange
        chosen = made(lag) if lag else None
        begun = begin_both(state, chain, requests[t], requests[t + 1], private, chosen, randbelow)
        state, pending = begun.state, begun.pending
        assert State.from_dict(state.as_dict()) == state
        assert requests[t] in pending.query
        state = finish(state)
        assert State.from_dict(state.as_dict()) == state


# The promise itself: everything sent is independent of what was asked while ON and of all future requests.


@pytest.mark.parametrize(
    "statuses", [(True, False), (True, False, False), (True, True, False), (True, False, True, False)]
)
def test_the_whole_stream_is_independent_of_private_and_future_requests(statuses):
    chain = random_chain("dense", 2 if len(statuses) > 3 else 3, 3)
    plans = {lag: plan(chain, lag) for lag in (1, 2, 3)}
    law = joint_law(chain, statuses, plans, lambda lag, last, path, t: (lag + 1, last))
    bound = sum(plans[lag].rounding_at(lag) for lag in (1, 2, 3)) * 2
    assert sum(law.values()) == 1
    assert dependence(law, statuses) <= Fraction(bound)


def test_the_same_computation_catches_a_client_that_forgets_the_private_request():
    # Planted: while OFF, the request before takes the place of the last private one.
    chain = random_chain("dense", 3, 3)
    plans = {lag: plan(chain, lag) for lag in (1, 2)}
    law = joint_law(chain, (True, False, False), plans, lambda lag, last, path, t: (1, path[t - 1]))
    assert dependence(law, (True, False, False)) > Fraction(1, 1000)
