"""The promise `past` where requests follow another chain: what is told is within the bound, and that is no larger."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onoff import Chain, OnoffError
from onoff.audit import enumeration
from onoff.audit.clients import Past
from onoff.audit.streams import audit_streams, parse_statuses
from onoff.model import misfit as model
from onoff.model.misfit import information_bound
from onoff.past import PastState
from onoff.testing import dense
from sampling import examples

USED = Chain([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2], [0.1, 0.1, 0.8]])
FAR = Chain([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7], [0.4, 0.5, 0.1]])
pairs = st.integers(2, 3).flatmap(lambda n: st.tuples(dense(n), dense(n), st.sampled_from([0.0, 0.02, 0.3, 1.0])))


def audited(chain, sensitive, text, engine=None, **options):
    client = Past(engine or PastState.start(chain, sensitive), chain.n, sensitive)
    return audit_streams(chain, parse_statuses(text), client, "past", sensitive, **{"uniform": True, **options})


def most_bits(found):
    return max(step.bits for step in found.steps)


class Forgetful:
    """An engine that goes on from the first context whatever was asked ON."""

    def __init__(self, state):
        self.state = state

    def __getattr__(self, name):
        return getattr(self.state, name)

    def advance(self, step, query):
        return type(self)(self.state.advance(step, query))

    def context(self, request, context, private):
        return self.state.context(0 if private else request, context, private)


def towards(used, other, share):
    return Chain((1 - share) * used.P + share * other.P)


def misfit(used, true, text, sensitive=(), engine=None):
    return audited(used, sensitive, text, engine, true=true, uniform=False)


@settings(max_examples=examples(40), deadline=None)
@given(pairs, st.sampled_from(["10", "100", "1001", "1010"]), st.sampled_from([(), (1,)]))
def test_what_is_told_under_the_true_chain_is_within_the_bound(pair, text, sensitive):
    used, other, share = pair
    found = misfit(used, towards(used, other, share), text, sensitive)
    assert (found.method, found.findings, found.holds) == ("exact", (), True)
    for here, anywhere in zip(found.misfit.distances, found.misfit.anywhere, strict=True):
        assert here <= anywhere * (1 + 1e-9)
    if share == 0:
        assert max(found.misfit.allowed) < 1e-12
        assert most_bits(found) < 1e-24


def test_the_bound_is_that_of_its_definition():
    """Steps 2 and 3 are OFF: d is eps under the start law, then also under the law one step on; ON starts anew."""
    eps = np.abs(USED.P - FAR.P).sum(axis=1) / 2
    found = misfit(USED, FAR, "10010").misfit
    first = FAR.stationary() @ eps
    assert found.distances == pytest.approx((0, first, 2 * first, 0, first), abs=1e-11)
    assert found.allowed == pytest.approx((0, first, 3 * first, 0, first), abs=1e-11)
    assert found.anywhere == pytest.approx((0, eps.max(), 2 * eps.max(), 0, eps.max()), abs=1e-11)
    assert found.guess == 1.0
    near = misfit(USED, towards(USED, FAR, 0.01), "1001").misfit
    d = near.distances[1]
    assert near.bits[1] == pytest.approx(-d * log2(d) - (1 - d) * log2(1 - d) + d * log2(3))
    assert near.guess == pytest.approx(2 * near.anywhere[2])
    assert misfit(USED, FAR, "10", (1,)).misfit.allowed[1] == pytest.approx(2 * first)


def test_what_is_found_is_what_all_paths_of_the_true_chain_tell():
    """Bits about a private request from the next query: by brute force over pairs of requests."""
    state = PastState.start(USED)
    step = state.prepare()
    start, laws = FAR.stationary(), []
    for i in range(3):
        table = step.encoder(state.context(i, None, True)).toarray()
        laws.append(FAR.P[i] @ (table / table.sum(axis=1, keepdims=True)))
    mean = start @ np.array(laws)
    expected = sum(start[i] * law @ np.log2(law / mean) for i, law in enumerate(laws))
    assert most_bits(misfit(USED, FAR, "10")) == pytest.approx(expected, rel=1e-9)
    assert expected > 1e-3


def test_a_bound_that_is_none_is_seen_and_so_is_an_engine_that_leaks(monkeypatch):
    """Planted: a misfit forgotten, halved, or of other rows; a mistake under a chain that is nearly right."""
    assert misfit(USED, FAR, "100").holds
    near = misfit(USED, towards(USED, FAR, 1e-6), "10", engine=Forgetful(PastState.start(USED)))
    assert not near.holds
    assert near.steps[1].bits > near.misfit.bits[1]
    exact = model.row_misfit
    for wrong in (
        lambda true, used: np.zeros(3),
        lambda true, used: exact(true, used) / 2,
        lambda true, used: np.abs(true.P.T - used.P.T).max(axis=1) / 4,
    ):
        monkeypatch.setattr(model, "row_misfit", wrong)
        assert not misfit(USED, FAR, "10").holds


def test_streams_of_another_chain_that_are_too_many_are_an_error(monkeypatch):
    monkeypatch.setattr(enumeration, "STATES", 0)
    with pytest.raises(OnoffError, match="fewer steps"):
        misfit(USED, towards(USED, FAR, 0.1), "1000")


def test_a_true_chain_with_other_sources_or_steps_is_refused():
    with pytest.raises(OnoffError):
        misfit(USED, Chain(FAR.P, ["a", "b", "c"]), "10")
    with pytest.raises(OnoffError):
        misfit(Chain([[0, 1, 0], [0.5, 0, 0.5], [0.2, 0.3, 0.5]]), FAR, "10")


def h(p):
    return 0.0 if p in (0, 1) else -p * log2(p) - (1 - p) * log2(1 - p)


def test_the_bound_on_information_is_capped_and_grows_with_the_secret():
    assert information_bound(Fraction(0), 8.0) == 0
    assert information_bound(Fraction(3, 4), 8.0) == 8.0
    assert information_bound(Fraction(1, 2), 1.0) == 1
    # With probability d the view names the secret, else it says nothing: d log2 |X_B| bits, at a distance below d.
    for d, hidden in product((Fraction(1, 2), Fraction(1, 4), Fraction(1, 1000)), (1, 20)):
        assert float(d) * hidden <= information_bound(d, hidden) <= h(float(d)) + float(d) * hidden + 1e-12
