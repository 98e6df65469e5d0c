"""The strong promise of `past`, enumerated through the client's own machine; and mistakes, which are seen."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from unittest.mock import patch

import numpy as np
import pytest

from exactstreams import distance
from onoff import Chain
from onoff.client.protocol import State
from onoff.past import Candidates, PastState, StepLaw
from oracles import random_chain
from pastkit import LOST, OFF, ON, Planted, World, drawn, exactly, habits, mixture, prepared
from sampling import one_in

ENDS = Chain([[0, 1, 0, 0], [0.5, 0, 0.25, 0.25], [0.2, 0.3, 0, 0.5], [0, 0, 0, 1]])  # with zeros and an absorbing end
INTO = Chain([[0, 1, 0], [0.5, 0, 0.5], [0.2, 0.3, 0.5]])  # after 0 only 1: without an open request if 1 is sensitive
QUARTERS = np.array([[1, 2, 0, 1], [0, 2, 1, 1], [1, 1, 1, 1], [0, 0, 4, 0], [3, 0, 0, 1], [2, 0, 2, 0]]) / 4
EXACT = {  # the units of every request are its probability exactly
    "four": World(Chain(QUARTERS[:4])),
    "five, one sensitive": World(Chain(np.hstack([QUARTERS / 2, np.full((6, 1), 0.5)])[[0, 1, 2, 4, 5]]), (4,)),
    "four, two deep": World(Chain(QUARTERS, states=[(0,), (1,), (2,), (3,), (0, 1), (2, 2)])),
    "two deep, one sensitive": World(
        Chain(np.hstack([QUARTERS / 2, np.full((6, 1), 0.5)]), states=[*((x,) for x in range(5)), (4, 0)]), (4,)
    ),
    "two": World(Chain([[0.5, 0.5], [0.125, 0.875]])),
}


def after_few(past):
    """ON after a query of an even number of sources, unless it asked for everything."""
    return len(past[-1]) in (2, 4) and len(past) > 2


WORLDS = {
    "two": World(random_chain("dense", 2, 1)),
    "three": World(random_chain("dense", 3, 1)),
    "three, one sensitive": World(random_chain("dense", 3, 1), (1,)),
    "three, all sensitive": World(random_chain("dense", 3, 1), (0, 1, 2)),
    "zeros": World(random_chain("sparse", 3, 1)),
    "nothing open after 0": World(INTO, (1,)),
    "equal rows": World(Chain([[0.3, 0.3, 0.4], [0.3, 0.3, 0.4], [0.1, 0.8, 0.1]])),
    "an end, one sensitive": World(ENDS, (1,)),
    "unlikely": World(Chain([[1, 1e-300, 0], [0, 1e-12, 1], [0.5, 1e-200, 0.5]])),
    "the chain changes": World(random_chain("dense", 3, 1), (), INTO, random_chain("sparse", 3, 2)),
    "four": World(random_chain("dense", 4, 2)),
    "four, two sensitive": World(random_chain("dense", 4, 2), (1, 3)),
    "two, two deep": World(habits(2, 2, 1, full=True)),
    "an end": World(ENDS),
    "two, three deep": World(habits(2, 3, 3, full=True)),
    "two, three deep here and there": World(habits(2, 3, 5, zeros=False)),
    "three, two deep, one sensitive": World(habits(3, 2, 4, full=True), (2,)),
    "three, two deep": World(habits(3, 2, 1)),
    "two chains, two deep": World(habits(3, 2, 4, full=True), (1,), habits(3, 2, 6, full=True)),
    "four, two deep": World(habits(4, 2, 1)),
    "four, two deep, one sensitive": World(habits(4, 2, 2), (3,)),
    "three, three deep, two sensitive": World(habits(3, 3, 5), (0, 1)),
}


def patterns(world, more):
    """Statuses after as many full sets as are owed; the fewer sources, the longer."""
    new = [OFF] * world.state.owed
    for later in ([OFF] * 5, [OFF, ON, OFF, OFF, ON, OFF], [OFF, LOST, *new[1:], OFF, OFF], [OFF, *[after_few] * 4]):
        length = 6 + more - world.public.habits.chain.n + (len(new) == 1)
        yield [*new, *later[: length + later.count(LOST) * len(new)]]


def streams(world, more=0):
    return (seen for statuses in patterns(world, more) for seen in world.streams(statuses))


@pytest.mark.parametrize("name", one_in(3, WORLDS))
def test_the_law_of_a_query_given_all_before_it_is_the_stated_one_up_to_its_rounding(name):
    for seen in streams(WORLDS[name]):
        assert seen.off <= Fraction(seen.step.rounding)


@pytest.mark.parametrize("name", one_in(3, EXACT))
def test_without_rounding_it_is_the_stated_one_exactly(name):
    assert {seen.off for seen in streams(EXACT[name])} == {0}


@pytest.mark.long
def test_these_are_many_laws():
    laws = 0
    for seen in (seen for name in ("four, two deep", "two deep, one sensitive") for seen in streams(EXACT[name], 1)):
        assert seen.off == 0
        laws += len(seen.laws)
    assert laws > 20_000


# Mistakes: the largest distance between the laws of a query, given the same past and different histories


def leak(world, statuses):
    return max(seen.apart for seen in world.streams(statuses))


def forgotten(self):
    """Planted: a state is forgotten."""
    found = HONEST(self)
    return replace(found, states=found.states[1:] or found.states)


def before_the_last(self):
    """Planted: candidates of the set before the last."""
    return HONEST(replace(self, queries=(*self.queries[:-2], *self.queries[-2:-1] * 2)))


def only_drawn(self):
    """Planted: what was drawn without the sensitive sources."""
    return HONEST(replace(self, queries=tuple(tuple({*q} - {*self.sensitive}) or q for q in self.queries)))


HONEST = PastState.candidates.func
DENSE, DEEP = random_chain("dense", 3, 1), habits(3, 2, 4, full=True, zeros=False)
HERE_AND_THERE = habits(3, 2, 1, zeros=False)


@pytest.mark.parametrize(
    ("mistake", "chain", "sensitive"),
    [(forgotten, DENSE, ()), (forgotten, DEEP, (1,)), (before_the_last, DEEP, ()), (only_drawn, DENSE, (1,)),
     (only_drawn, DEEP, (1,))],
)  # fmt: skip
def test_wrong_candidates_are_seen(mistake, chain, sensitive):
    statuses = [ON] * chain.depth + [OFF] * 3
    assert leak(World(chain, sensitive), statuses) < 1e-12
    with patch.object(PastState, "candidates", property(mistake)):
        assert leak(World(chain, sensitive), statuses) > 0.01


class Narrowed(Planted):
    """Candidates are the states that the encoders of the last steps lead to with what was asked.

    A sensitive request has no units in an encoder. To keep it is right, to forget it is the mistake.
    """

    keeps = False

    def step(self, past, public):
        chain, step = public.habits.chain, prepared(PastState.start(public.habits.chain, public.sensitive).candidates)
        for query in past[chain.depth :]:
            kept = set(product(step.candidates.states, public.sensitive if self.keeps else ()))
            opened = product(step.candidates.live, np.flatnonzero(step.candidates.open_sources).tolist())
            shown = {(z, x) for z, x in opened if chain.P[z, x] and query in drawn(step, x, z)}
            states = sorted({int(chain.step[move]) for move in shown | kept})
            step = prepared(replace(step.candidates, states=tuple(states)))
        return step


def test_candidates_that_the_values_of_a_coupling_narrow_are_seen():
    assert leak(Narrowed(DEEP, (1,)), [ON, ON, OFF, OFF, OFF]) > 0.01
    right = Narrowed(DEEP, (1,))
    right.keeps = True
    assert leak(right, [ON, ON, OFF, OFF, OFF]) < 1e-12


class Filter(Planted):
    """The row of a reader is that of the request made ON and the query after it, not of the last request."""

    def step(self, past, public):
        first = prepared(PastState.start(public.habits.chain).candidates)
        if len(past) == 1:
            return first
        P = public.habits.chain.P
        belief = np.array([[P[z, x] * drawn(first, x, z).get(past[1], [0])[0] for x in range(3)] for z in range(3)])
        rows = np.where(belief.any(axis=1, keepdims=True), belief @ P, P).astype(float)
        met = tuple(np.flatnonzero(belief.any(axis=1)).tolist())
        return prepared(Candidates(Chain(rows / rows.sum(axis=1, keepdims=True)), (), met))

    def drawn(self, past, history, step, request, reader):  # noqa: ARG002
        return drawn(step, request, history[0])


def test_the_row_of_a_filter_is_seen():
    assert leak(Filter(DENSE), [ON, OFF]) < 1e-12
    assert leak(Filter(DENSE), [ON, OFF, OFF]) > 0.01


class Fails(Planted):
    """A law that serves all candidates but the last."""

    def step(self, past, public):  # noqa: ARG002
        right = public.state.candidates
        fewer = prepared(replace(right, states=right.states[:-1]))
        return StepLaw(right, fewer.inner, fewer.certificate)


def test_a_law_that_does_not_serve_all_candidates_is_seen():
    chain = random_chain("dense", 4, 2)
    assert leak(Fails(chain), [ON, OFF]) > 0.01
    honest = prepared(PastState.start(chain).candidates)
    honest.prove()
    wrong = Fails(chain)
    with pytest.raises(ArithmeticError, match="does not serve all states"):
        wrong.step((), replace(wrong.public, queries=((0, 1, 2, 3),))).prove()


class AsItLikes(Planted):
    """The law is the full set for one request, where its candidates come for the first time, or else where again."""

    again = False

    def drawn(self, past, history, step, request, reader):  # noqa: ARG002
        everything = tuple(range(len(step.candidates.open_sources)))
        known = self.again == (past[-1] in past[:-1])
        return {everything: (Fraction(1), None)} if known and request == 1 else drawn(step, request, reader)


@pytest.mark.parametrize("again", [False, True])
def test_a_law_that_follows_the_request_is_seen(again):
    world = AsItLikes(DENSE)
    world.again = again
    assert (leak(world, [ON, OFF]) > 0.01) is not again
    assert leak(world, [ON, OFF, OFF]) > 0.01


def test_one_full_set_for_two_requests_is_seen():
    world = World(HERE_AND_THERE)
    assert leak(world, [ON, ON, OFF, LOST, OFF, OFF]) < 1e-12
    world.state = State(owed=1)
    assert leak(world, [ON, ON, OFF, LOST, OFF]) > 0.01


class Restarted(World):
    """A client that knows its last request alone after it was started again."""

    def begin(self, state, public, request, private, step, number, query):
        if state.reader is not None:
            state = replace(state, reader=int(public.habits.chain.last[state.reader]))
        return super().begin(state, public, request, private, step, number, query)

    def drawn(self, past, history, step, request, reader):
        return super().drawn(past, history, step, request, int(self.public.habits.chain.last[reader]))


def test_a_state_that_is_lost_at_a_restart_is_seen():
    assert leak(Restarted(HERE_AND_THERE), [ON, ON, OFF, OFF]) > 0.01


# Wrong habits (theorem 2)


@pytest.mark.parametrize("depth", [1, 2])
def test_where_habits_are_wrong_one_step_has_one_error(depth):
    """However far the rows of earlier steps were off: a query is off by the distance of its own row at most."""
    used, truth = habits(3, depth, 1, full=True, zeros=False), habits(3, 3, 2, full=True, zeros=False)
    shares = []
    for seen in World(used).streams([ON, ON, ON, OFF, OFF]):
        for history in {history for history, _ in seen.laws}:
            z, real = used.state_of(history), exactly(tuple(truth.P[truth.state_of(history)].tolist()))
            law = mixture((p, drawn(seen.step, x, z)) for x, p in enumerate(real))
            eps = distance(dict(enumerate(real)), dict(enumerate(exactly(tuple(used.P[z].tolist())))))
            shares.append(distance(law, seen.laws[history, None]) / eps)
    assert 0.1 < max(shares) <= 1
