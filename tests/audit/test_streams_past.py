"""The promise `past` on whole streams: the engine tells nothing, engines with a planted mistake are found."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import reduce
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clientstreams import Forgetful, Made, Shallow, Wrong, audited_past, most_bits
from exactstreams import chain_of, conditional_information, distance, normalise, stream_law
from onoff import Chain, OnoffError
from onoff.audit.clients import Naive
from onoff.audit.streams import audit_streams, parse_statuses
from onoff.model.requests import start_law
from onoff.past import PastState
from onoff.past.step import prepare
from onoff.testing import chains, trees
from oracles import random_chain
from pastkit import habits
from sampling import examples

THREE = random_chain("dense", 3, 1)
FOUR = random_chain("dense", 4, 2)
ENDS = Chain([[0, 1, 0, 0], [0.5, 0, 0.25, 0.25], [0.2, 0.3, 0, 0.5], [0, 0, 0, 1]])
MEMORY = habits(3, 2, 7, full=True, zeros=False)
FIRST = Chain([np.mean([MEMORY.P[z] for z in np.flatnonzero(MEMORY.last == x)], axis=0) for x in range(3)])
WORLDS = [
    (THREE, ()),
    (THREE, (1,)),
    (THREE, (0, 1, 2)),
    (random_chain("sparse", 3, 1), (2,)),
    (ENDS, (1,)),
    (random_chain("periodic", 4, 1), (1,)),
    (MEMORY, ()),
    (habits(3, 2, 3), (0,)),
    (habits(2, 3, 2, full=True, zeros=False), ()),
    (habits(2, 3, 2, full=True), (1,)),
    (habits(3, 3, 4), ()),
    (Chain(np.full((14, 2), 0.5), states=[state for k in (1, 2, 3) for state in product(range(2), repeat=k)]), ()),
]


@pytest.mark.parametrize(("chain", "sensitive"), WORLDS)
def test_the_engine_tells_nothing_of_all_earlier_requests_whatever_the_statuses(chain, sensitive):
    """Theorem 1: given any past, also open requests, the law of a query is the stated one."""
    for rest in product("01", repeat=3):
        found = audited_past(chain, sensitive, "1" * chain.depth + "".join(rest))
        assert (found.method, found.holds, found.findings) == ("exact", True, ())
        assert most_bits(found) < 1e-18


@settings(max_examples=examples(30))
@given(st.one_of(chains(max_sources=3), trees(2, 2), trees(2, 3)), st.sampled_from([(), (0,)]), st.integers(0, 7))
def test_it_tells_nothing_whatever_the_chain(chain, sensitive, pattern):
    assert audited_past(chain, sensitive, "1" * chain.depth + f"{pattern:03b}").holds


def test_clients_that_remember_less_than_people_do_tell_within_the_bound_and_naive_ones_do():
    """Requests follow habits of the second order. The first-order client hides requests, the others whole states."""
    assert most_bits(audited_past(MEMORY, (), "110100")) < 1e-25
    found = audited_past(FIRST, (), "110100", true=MEMORY)
    assert found.holds
    assert 0.05 < most_bits(found) < 0.5
    assert all(step.bits <= most for step, most in zip(found.steps, found.misfit.bits, strict=True))
    naive = audit_streams(MEMORY, parse_statuses("110100"), Naive(3), "past")
    assert most_bits(naive) > 0.1
    with pytest.raises(OnoffError, match="its first 2 requests ON: statuses start with 11"):
        audited_past(MEMORY, (), "10")
    for options in ({}, {"true": MEMORY}):
        with pytest.raises(OnoffError, match="needs a Markov chain"):
            audit_streams(FIRST if options else MEMORY, parse_statuses("11"), Naive(3), **options)


def strong_laws(joint, private, sensitive, t):
    """{Q_0..Q_{t-1}: {(X_0..X_{t-1}, K_t): (mass, law of Q_t)}}."""
    found = {}
    for (path, queries), p in joint.items():
        known = path[:t], path[t] if private[t] or path[t] in sensitive else None
        law = found.setdefault(queries[:t], {}).setdefault(known, {})
        law[queries[t]] = law.get(queries[t], 0) + p
    return {past: {h: (sum(law.values()), normalise(law)) for h, law in laws.items()} for past, laws in found.items()}


def openly(queries, path, sensitive, private):
    full = private[len(queries)] or path[-1] in sensitive
    return {frozenset(range(3) if full else path[-1:]): 1}


@pytest.mark.parametrize(("text", "sensitive"), [("1010", ()), ("1001", (2,)), ("100", (0, 1))])
def test_what_is_found_agrees_with_a_referee_that_shares_no_code(text, sensitive):
    """Leaky clients in fractions: what a query tells of all requests before it, given the queries before it.

    An engine that uses one encoder in all states says what its law is: how far its queries are from that at most.
    """
    P = chain_of([[1, 3, 2], [2, 1, 5], [4, 1, 1]])
    chain = Chain([[float(p) for p in row] for row in P])
    private, exactly = parse_statuses(text), chain_of(chain.P.tolist())
    joint = stream_law(exactly, private, lambda *past: openly(*past, sensitive, private), start_of(chain))
    naive = audit_streams(chain, private, Naive(3, sensitive), "past", sensitive)
    assert naive.holds is None
    for t, step in enumerate(naive.steps):
        assert step.bits == pytest.approx(conditional_information(strong_laws(joint, private, sensitive, t)), abs=1e-12)
    start = Forgetful(PastState.start(chain, sensitive))

    def made(queries):
        return reduce(lambda state, query: state.after(tuple(sorted(query))), queries, start).prepare()

    def draw(queries, path):
        if private[len(queries)]:
            return {frozenset(range(3)): 1}
        ready = made(queries)
        units = dict(enumerate(ready.law.mass.tolist()))
        if path[-1] not in sensitive:
            requests, sets, units = next(iter(ready.as_dict()["encoders"].values()))
            units = {i: u for x, i, u in zip(requests, sets, units, strict=True) if x == path[-1]}
        return {frozenset(ready.law.sets[i]): Fraction(u, sum(units.values())) for i, u in units.items()}

    joint = stream_law(exactly, private, draw, start_of(chain))
    for t, step in enumerate(audited_past(chain, sensitive, text, start).steps):
        laws = strong_laws(joint, private, sensitive, t)
        assert step.bits == pytest.approx(conditional_information(laws), abs=1e-12)
        if not private[t]:
            assert step.distance == pytest.approx(float(largest_distance(laws, made)), rel=1e-12)


def start_of(chain):
    return [Fraction(p) / sum(map(Fraction, start_law(chain))) for p in start_law(chain)]


def largest_distance(laws, made):
    found = Fraction(0)
    for past, hidden in laws.items():
        law = made(past).law
        stated = {frozenset(q): Fraction(m, law.total) for q, m in zip(law.sets, law.mass.tolist(), strict=True)}
        found = max(found, *(distance(one, stated) for _, one in hidden.values()))
    return found


# Planted mistakes


class FailsOne(Wrong):
    """Makes its law for all candidates but the last: this one's encoder has too much of some requests."""

    def candidates_of_law(self):
        found = self.state.candidates
        return replace(found, states=found.states[:-1])

    def made(self):
        return prepare(self.candidates_of_law())

    def entries(self, step, z):
        return step.entries(z) if z in step.candidates.live else self.filled(step, step.candidates.rows((z,))[0])


class OnlyDrawn(FailsOne):
    """Forgets that the last request may have been sensitive."""

    def candidates_of_law(self):
        found = self.state.candidates
        drawn = tuple(z for z in found.states if self.chain.last[z] not in self.state.sensitive)
        return replace(found, states=drawn)


class Neglectful(FailsOne):
    """Forgets a candidate, and uses the encoder of another one in its place."""

    def entries(self, step, z):
        return step.entries(z if z in step.candidates.live else step.candidates.live[0])


class SetBeforeLast(FailsOne):
    """Takes the candidates of the query before the last one."""

    def __init__(self, state, before=None):
        super().__init__(state)
        self.before = before or state

    @property
    def queries(self):
        return self.before.queries, self.state.queries

    def after(self, query):
        return type(self)(self.state.after(query), self.state)

    def candidates_of_law(self):
        return self.before.candidates


class Filter(Wrong):
    """Encodes the mean of all candidates' rows: what the queries tell of the request, in place of the reader's row."""

    def entries(self, step, z):  # noqa: ARG002
        return self.filled(step, step.candidates.rows(step.candidates.live).mean(axis=0))


class ByRequest(Wrong):
    """Asks for everything if the first source is wanted, and draws from the law otherwise."""

    wanting = (0,)

    def entries(self, step, z):
        requests, sets, units = step.entries(z)
        sets = np.where(np.isin(requests, self.wanting), step.law.sets.index(tuple(range(self.chain.n))), sets)
        return requests, sets, units


class Lavish(ByRequest):
    """States a law, and asks for everything."""

    wanting = (0, 1, 2, 3)


class Boastful(Wrong):
    """States no rounding."""

    def prepare(self):
        return Made(**{**vars(super().prepare()), "rounding": 1e-18})


MISTAKES = {
    "the encoder of the last request only": (MEMORY, (), "1100", Shallow),
    "one encoder for all states": (THREE, (), "10", Forgetful),
    "a law that fails a candidate": (FOUR, (), "10", FailsOne),
    "a candidate forgotten": (FOUR, (1,), "10", Neglectful),
    "only what was drawn as next candidates": (FOUR, (1,), "100", OnlyDrawn),
    "the set before the last": (FOUR, (), "1000", SetBeforeLast),
    "the set before the last, with memory": (MEMORY, (), "110000", SetBeforeLast),
    "the filter's row": (FOUR, (), "10", Filter),
    "the filter's row, with memory": (MEMORY, (0,), "110", Filter),
    "a law by request": (FOUR, (), "10", ByRequest),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_an_engine_with_a_planted_mistake_is_found(name):
    chain, sensitive, text, wrong = MISTAKES[name]
    found = audited_past(chain, sensitive, text, wrong(PastState.start(chain, sensitive)))
    assert not found.holds
    assert most_bits(found) > 1e-5
    assert max(step.distance or 0.0 for step in found.steps) > 1e-3
    assert audited_past(chain, sensitive, text, Wrong(PastState.start(chain, sensitive))).holds


def test_a_law_by_request_is_a_finding_and_so_is_a_rounding_that_is_stated_too_small():
    by_request = audited_past(FOUR, (), "10", ByRequest(PastState.start(FOUR)))
    assert {finding.rule for finding in by_request.findings} == {"columns"}
    lavish = audited_past(FOUR, (), "10", Lavish(PastState.start(FOUR)))
    law = PastState.start(FOUR).prepare().law
    assert lavish.steps[1].distance == pytest.approx(1 - law.mass[law.sets.index((0, 1, 2, 3))] / law.total)
    boastful = audited_past(FOUR, (), "10", Boastful(PastState.start(FOUR)))
    assert (boastful.holds, boastful.findings) == (False, ())
    assert boastful.steps[1].distance > boastful.steps[1].stated
