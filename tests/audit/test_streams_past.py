"""The promise `past` on whole streams: the engine tells nothing, engines with a planted mistake are found."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from clientstreams import Forgetful, Wrong, audited_past, most_bits
from exactstreams import chain_of, largest_information, stream_law
from onoff import Chain, OnoffError
from onoff.audit.clients import Naive
from onoff.audit.streams import audit_streams, parse_statuses
from onoff.model.requests import start_law
from onoff.past import PastState, contexts
from oracles import random_chain
from pastkit import habits

THREE = random_chain("dense", 3, 1)
FOUR = random_chain("dense", 4, 2)
ENDS = Chain([[0, 1, 0, 0], [0.5, 0, 0.25, 0.25], [0.2, 0.3, 0, 0.5], [0, 0, 0, 1]])
NEAR = Chain([[0.4, 0.3, 0.2, 0.1], [0.36, 0.3, 0.24, 0.1], [0.38, 0.28, 0.22, 0.12], [0.1, 0.2, 0.3, 0.4]])
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
]


@pytest.mark.parametrize(("chain", "sensitive"), WORLDS)
def test_the_engine_tells_nothing_whatever_the_statuses(chain, sensitive):
    """Of habits with memory hidden are whole states: open requests within memory of a private one, too."""
    for rest in product("01", repeat=3):
        found = audited_past(chain, sensitive, "1" * chain.depth + "".join(rest))
        assert (found.method, found.holds, found.findings) == ("exact", True, ())
        assert most_bits(found) < 1e-18


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


def test_what_is_found_agrees_with_a_referee_that_shares_no_code():
    """Leaky clients in fractions: what a query tells given those before."""
    P = chain_of([[1, 3, 2], [2, 1, 5], [4, 1, 1]])
    chain = Chain([[float(p) for p in row] for row in P])
    for text, sensitive in (("1010", ()), ("1001", (2,)), ("100", (0, 1))):
        private = parse_statuses(text)

        def draw(queries, path, sensitive=sensitive, private=private):
            full = private[len(queries)] or path[-1] in sensitive
            return {frozenset(range(3) if full else path[-1:]): 1}

        joint = stream_law(P, private, draw, [Fraction(p) for p in start_law(chain)])
        found = audit_streams(chain, private, Naive(3, sensitive), "past", sensitive)
        assert found.holds is None
        assert most_bits(found) == pytest.approx(largest_information(joint, private, frozenset(sensitive)), abs=1e-12)


# Planted mistakes


class OfAnother(Wrong):
    """Takes the row of another context, and records it like that."""

    @property
    def joined(self):
        return (*self.state.joined[1:], self.state.joined[0])

    def context(self, request, context, private):
        return self.joined[request] if private else self.state.context(request, context, private)


class NotJoined(Wrong):
    """Stays in its context after a sensitive request."""

    def context(self, request, context, private):
        if not private and request in self.state.sensitive and self.state.place[context] >= 0:
            return self.state.place[context]
        return self.state.context(request, context, private)


class ByLastRequest(Wrong):
    """Takes the context of some state with the same last request: the filter of a client of the first order."""

    def context(self, state, context, private):
        last = self.state.chain.last
        alike = [z for z, place in enumerate(self.state.joined) if last[z] == last[state] and place >= 0]
        return self.state.context(alike[0] if alike else state, context, private)


MISTAKES = {
    "the context of the last request only": (MEMORY, (), "1100", ByLastRequest, "context"),
    "a private request forgotten": (THREE, (), "100", Forgetful, "context"),
    "the row of another context": (THREE, (), "10", OfAnother, None),
    "contexts not joined after an OFF step": (FOUR, (1,), "100", NotJoined, "context"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_an_engine_with_a_planted_mistake_is_found(name):
    chain, sensitive, text, wrong, rule = MISTAKES[name]
    found = audited_past(chain, sensitive, text, wrong(PastState.start(chain, sensitive)))
    assert not found.holds
    assert rule is None or rule in {finding.rule for finding in found.findings}
    assert most_bits(found) > 1e-4
    assert max(step.distance or 0.0 for step in found.steps) > 1e-3


def test_merging_unequal_beliefs_is_within_what_is_stated_and_uncounted_it_is_found(monkeypatch):
    monkeypatch.setattr("onoff.past.contexts.ALIKE", 3.0)
    stated = audited_past(NEAR, (), "1000")
    assert most_bits(stated) > 1e-9
    assert {finding.rule for finding in stated.findings} == {"coarse"}  # stated, and too much to be certified
    assert all(step.distance <= step.stated for step in stated.steps if step.distance is not None)
    true = contexts.distances
    for counted in (0.0, 1e-15):

        def understated_distances(rows, row, counted=counted):
            return np.where(true(rows, row) < 3.0, counted, np.inf)

        monkeypatch.setattr(contexts, "distances", understated_distances)
        understated = audited_past(NEAR, (), "1000")
        assert (understated.holds, understated.findings) == (False, ())
        assert any(step.distance > 1000 * step.stated for step in understated.steps if step.distance is not None)
