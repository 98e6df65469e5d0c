"""If the true chain is not the one used: what a stream tells is within the bound, and a bound that is none is seen."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy

from clientstreams import Forgetful, audited_past, most_bits, towards
from exactstreams import chain_of, distance, normalise, posterior, power
from onoff import Chain, OnoffError, plan
from onoff.audit import enumeration, streams
from onoff.audit.clients import Announced
from onoff.audit.streams import audit_streams, parse_statuses
from onoff.model import misfit as module
from onoff.model.misfit import (
    align,
    check,
    information_bound,
    misfit,
    refine,
    requests_until_refit,
    row_misfit,
    stream_misfit,
)
from onoff.model.requests import lags_of
from onoff.past import PastState
from onoff.testing import dense, trees
from pastkit import table
from sampling import examples

pairs = st.integers(2, 3).flatmap(lambda n: st.tuples(dense(n), dense(n), st.sampled_from([0.0, 0.02, 0.3, 1.0])))


def by_fractions(true, used, lag):
    """D(i) from its definition: TV of the two posteriors in every context, weighed by how often it happens."""
    P, U = (chain_of(chain.P.tolist()) for chain in (true, used))
    weights, here, there = power(P, lag + 1), posterior(P, lag), posterior(U, lag)
    return [
        sum(weights[i][k] * distance(here[i, k], there[i, k]) for k in range(true.n) if weights[i][k])
        for i in range(true.n)
    ]


def audited(true, used, statuses, scheme="optimal"):
    parsed = parse_statuses(statuses)
    plans = [plan(used, lag, scheme) for lag in sorted(set(lags_of(parsed)) - {0})]
    return audit_streams(used, parsed, Announced(used.n, plans, scheme), true=true)


@settings(max_examples=examples(40), deadline=None)
@given(pairs, st.integers(1, 4))
def test_the_misfit_of_a_step_is_that_of_its_definition_rounded_up(pair, lag):
    used, other, share = pair
    true = towards(used, other, share)
    found, expected = misfit(true, used, lag), by_fractions(true, used, lag)
    for one, exact in zip(found, expected, strict=True):
        assert min(exact, 1) <= Fraction(float(one)) <= exact + Fraction(1, 10**12)
    assert not misfit(true, used, 0).any()


@settings(max_examples=examples(40), deadline=None)
@given(pairs, st.sampled_from(["10", "101", "100", "1001", "1011"]), st.sampled_from(["optimal", "paper", "comb"]))
def test_what_a_stream_tells_under_the_true_chain_is_within_the_bound(pair, statuses, scheme):
    used, other, share = pair
    found = audited(towards(used, other, share), used, statuses, scheme)
    assert (found.method, found.holds) == ("exact", True)
    assert found.steps[-1].bits <= found.misfit.bits[-1] + 1e-80
    assert found.misfit.distances[-1] <= found.misfit.anywhere[-1] * (1 + 1e-9)
    if share == 0:
        assert found.misfit.anywhere[-1] < 1e-11
        assert found.steps[-1].bits < 1e-20


@pytest.mark.parametrize("seed", range(3))
def test_a_guess_is_right_more_often_by_the_distance_at_most(seed, monkeypatch):
    rng, joints = np.random.default_rng(seed), []
    used, other = (Chain(rng.dirichlet(np.ones(3), 3)) for _ in range(2))
    monkeypatch.setattr(streams, "total_variation", lambda joint: joints.append(joint) or 0)
    found = audited(towards(used, other, 0.3), used, "1001")
    total = joints[-1].sum()  # a row for each stream of queries, a column for all that is hidden
    without, guess = joints[-1].sum(axis=0).max() / total, joints[-1].max(axis=1).sum() / total
    assert without <= guess <= without + found.misfit.distances[-1]


def test_a_bound_that_is_none_is_seen(monkeypatch):
    """Planted: a misfit forgotten. Its values are those of fractions (above)."""
    assert audited(FAR, USED, "101").holds
    monkeypatch.setattr(module, "misfit", lambda true, used, lag: np.zeros(3))
    assert not audited(FAR, USED, "101").holds


def test_above_what_is_enumerated_the_encoders_themselves_are_bounded(monkeypatch):
    monkeypatch.setattr(enumeration, "STATES", 0)
    found = audited(towards(USED, FAR, 0.1), USED, "1000100")
    assert (found.method, found.holds) == ("bound", True)
    assert 0 < found.steps[-1].distance < found.misfit.anywhere[-1]


def test_chains_that_cannot_be_compared_are_errors():
    used = Chain([[0.5, 0.5], [1, 0]], ("a", "b"))
    with pytest.raises(OnoffError, match="impossible that 'b' follows 'b', but it happens"):
        check(Chain([[0.5, 0.5], [0.9, 0.1]], ("a", "b")), used)
    with pytest.raises(OnoffError, match="has other sources"):
        align(Chain(used.P, ("a", "c")), used)
    with pytest.raises(OnoffError, match="another order"):
        misfit(Chain(used.P, ("b", "a")), used, 1)
    turned = align(Chain([[0.1, 0.9], [0.3, 0.7]], ("b", "a")), used)
    assert turned == Chain([[0.7, 0.3], [0.9, 0.1]], ("a", "b"))


def test_a_context_that_the_used_chain_can_hardly_reach_counts_in_full():
    used = Chain([[1 - 1e-290, 1e-290], [0.5, 0.5]])
    true = Chain([[0.5, 0.5], [0.5, 0.5]])
    assert misfit(true, used, 1)[0] >= 0.5


def test_the_law_of_the_last_private_request_is_that_of_its_step():
    """Nobody comes back to the first source: streams start anywhere, and the law moves on until privacy was last ON."""
    used = Chain([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.2, 0.2, 0.6]])
    true = Chain([[0, 0.8, 0.2], [0, 0.2, 0.8], [0, 0.7, 0.3]])
    client, uniform = Announced(3, [plan(used, 1)]), np.full(3, 1 / 3)
    found = audit_streams(used, parse_statuses("1101"), client, true=true)
    expected = float(uniform @ true.P @ misfit(true, used, 1))
    assert found.holds
    assert found.misfit.distances[-1] == pytest.approx(expected, rel=1e-9)
    assert abs(float(uniform @ misfit(true, used, 1)) - expected) > 0.001


# Habits with memory

TREES = st.one_of(trees(2, 2), trees(2, 3), dense(2))


def smooth(chain):
    return Chain(0.9 * chain.P + 0.1 / chain.n, chain.names, None, chain.states)


def means_by_histories(true, used, statuses, start):
    """d_t: E TV of the rows given all requests before, of every OFF step."""
    law, means = {(x,): p for x, p in enumerate(start)}, [0.0]
    for private in statuses[1:]:
        rows = [(chance, true.P[true.state_of(h)], used.P[used.state_of(h)]) for h, chance in law.items()]
        means.append(0.0 if private else sum(chance * np.abs(p - q).sum() / 2 for chance, p, q in rows))
        law = {(*h, x): c * p for h, c in law.items() for x, p in enumerate(true.P[true.state_of(h)])}
    return means


@settings(max_examples=examples(40), deadline=None)
@given(TREES, TREES, st.sampled_from(["1000", "10100"]))
def test_with_memory_the_bound_is_the_distance_of_rows_given_all_requests_before(true, used, text):
    """Also where the true habits have other states than the client's: a deeper server's chain, for example."""
    used, statuses, start = smooth(used), parse_statuses(text), np.array([0.3, 0.7])
    zeros = [0.0] * len(statuses)
    found = stream_misfit(true, used, False, (), statuses, start, zeros, [1.0] * len(statuses))
    assert found.distances == pytest.approx(means_by_histories(true, used, statuses, start), abs=1e-9)
    assert all(d <= a * (1 + 1e-9) for d, a in zip(found.distances, found.anywhere, strict=True))
    assert found.allowed == found.anywhere


@given(TREES, TREES)
def test_habits_with_the_states_of_both_are_the_same_habits(one, other):
    for chain, split in zip((one, other), refine(one, other), strict=True):
        assert set(split.states) == {*one.states, *other.states}
        for path in product(range(2), repeat=5):
            assert (split.P[split.state_of(path)] == chain.P[chain.state_of(path)]).all()


def test_with_more_states_a_chain_of_as_many_requests_lasts_for_fewer():
    assert [requests_until_refit(1000, 10, states) for states in (0, 10, 40)] == [400, 400, 200]


def test_what_memory_makes_impossible_is_named_and_names_in_another_order_are_turned():
    used = Chain([[0.5, 0.5], [0.5, 0.5], [1, 0]], ("a", "b"), states=[(0,), (1,), (0, 1)])
    with pytest.raises(OnoffError, match="impossible that 'b' follows 'a' -> 'b', but it happens"):
        check(Chain([[0.5, 0.5], [0.9, 0.1]], ("a", "b")), used)
    turned = Chain([[0.5, 0.5], [0.5, 0.5], [0, 1]], ("b", "a"), states=[(0,), (1,), (1, 0)])
    assert align(turned, used) == used


# The promise `past`

USED = Chain([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2], [0.1, 0.1, 0.8]])
FAR = Chain([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7], [0.4, 0.5, 0.1]])


def past_under(used, true, text, sensitive=(), engine=None):
    return audited_past(used, sensitive, text, engine, true=true)


@settings(max_examples=examples(40), deadline=None)
@given(pairs, st.sampled_from([(), (1,), (0, 1)]))
def test_the_misfit_of_an_open_request_is_that_of_its_rows_on_what_is_not_sensitive(pair, sensitive):
    used, other, share = pair
    sensitive = tuple(x for x in sensitive if x < used.n - 1)
    true = towards(used, other, share)
    for eps, one, two in zip(
        row_misfit(true, used, sensitive), *(chain_of(c.P.tolist()) for c in (true, used)), strict=True
    ):
        rows = [normalise({x: p for x, p in enumerate(row) if x not in sensitive}) for row in (one, two)]
        assert 0 <= Fraction(float(eps)) - distance(*rows) < Fraction(1, 10**13)


def test_where_no_open_request_is_possible_nothing_is_told():
    used, true = Chain([[0.5, 0.5], [1, 0]]), Chain([[0.4, 0.6], [1, 0]])
    assert row_misfit(true, used, (0,))[1] == 0
    assert past_under(used, true, "100", (0,)).holds


@settings(max_examples=examples(40), deadline=None)
@given(pairs, st.sampled_from(["10", "100", "1001", "1010"]), st.sampled_from([(), (1,)]))
def test_what_past_queries_tell_under_the_true_chain_is_within_the_bound(pair, text, sensitive):
    used, other, share = pair
    found = past_under(used, towards(used, other, share), text, sensitive)
    assert (found.method, found.findings, found.holds) == ("exact", (), True)
    for here, anywhere in zip(found.misfit.distances, found.misfit.anywhere, strict=True):
        assert here <= anywhere * (1 + 1e-9)
    if share == 0:
        assert max(found.misfit.allowed) < 1e-12
        assert most_bits(found) < 1e-24


def test_the_past_bound_is_that_of_its_definition_and_does_not_grow_with_the_steps_since_on():
    eps = np.abs(USED.P - FAR.P).sum(axis=1) / 2
    found = past_under(USED, FAR, "10010").misfit
    mean = FAR.stationary() @ eps
    assert found.distances == pytest.approx((0, mean, mean, 0, mean), abs=1e-11)
    assert found.allowed == found.anywhere == pytest.approx((0, eps.max(), eps.max(), 0, eps.max()), abs=1e-11)
    assert found.guess == 1.0
    near = past_under(USED, towards(USED, FAR, 0.01), "1001").misfit
    d = near.distances[2]
    assert near.bits[2] == pytest.approx(-d * log2(d) - (1 - d) * log2(1 - d) + d * log2(3))
    assert near.guess == pytest.approx(sum(near.anywhere))


def test_the_error_of_a_step_is_reached():
    """Rows with disjoint queries: then every unit of the misfit of a row is one of the query's law."""
    used = Chain([[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5]])
    true = Chain([[0.7, 0.3, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5]])
    found = past_under(used, true, "100")
    assert found.steps[2].distance == pytest.approx(found.misfit.allowed[2], abs=1e-12)
    assert found.steps[2].distance == pytest.approx(0.2)


def test_what_is_found_is_what_all_paths_of_the_true_chain_tell():
    """Bits about a private request from the next query: by brute force over pairs of requests."""
    step = PastState.start(USED).prepare()
    start, laws = FAR.stationary(), []
    for i in range(3):
        units = table(step, i)
        laws.append(FAR.P[i] @ (units / units.sum(axis=1, keepdims=True)))
    mean = start @ np.array(laws)
    expected = sum(start[i] * law @ np.log2(law / mean) for i, law in enumerate(laws))
    assert most_bits(past_under(USED, FAR, "10")) == pytest.approx(expected, rel=1e-9)
    assert expected > 1e-3


def test_a_past_bound_that_is_none_is_seen_and_so_is_an_engine_that_leaks(monkeypatch):
    """Planted: a misfit forgotten, halved, or of other rows; a mistake under a chain that is nearly right."""
    assert past_under(USED, FAR, "100").holds
    near = past_under(USED, towards(USED, FAR, 1e-6), "10", engine=Forgetful(PastState.start(USED)))
    assert not near.holds
    assert near.steps[1].bits > near.misfit.bits[1]
    exact = module.row_misfit
    for wrong in (
        lambda true, used, sensitive: np.zeros(3),
        lambda true, used, sensitive: exact(true, used) / 2,
        lambda true, used, sensitive: np.abs(true.P.T - used.P.T).max(axis=1) / 4,
    ):
        monkeypatch.setattr(module, "row_misfit", wrong)
        assert not past_under(USED, FAR, "10").holds


def test_the_bound_on_information_is_capped_and_grows_with_the_secret():
    assert information_bound(Fraction(0), 8.0) == 0
    assert information_bound(Fraction(3, 4), 8.0) == 8.0
    assert information_bound(Fraction(1, 2), 1.0) == 1
    # With probability d the view names the secret, else it says nothing: d log2 |X_B| bits, at a distance below d.
    for d, hidden in product((Fraction(1, 2), Fraction(1, 4), Fraction(1, 1000)), (1, 20)):
        unsure = entropy([float(d), 1 - float(d)], base=2)
        assert float(d) * hidden <= information_bound(d, hidden) <= unsure + float(d) * hidden + 1e-12
