from __future__ import annotations

import tracemalloc
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onoff.audit.transcript import belief
from onoff.audit.transcript.belief import Asked, attack, unfold
from onoff.audit.transcript.verdict import judge

from onoff import Chain, plan
from onoff.audit.models import Decoys, Everything, Naive, Planned
from onoff.audit.setting import start_law
from onoff.errors import OnoffError
from onoff.testing import chains

CHAIN = Chain([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [0.2, 0.2, 0.6]])
BOTH = Chain([[0.7, 0.3], [0.2, 0.8]])


class Noise:
    """Any likelihood at all, of last, request and next; ON queries say something too."""

    name = "noise"

    def __init__(self, n, seed):
        self.n, self.seed = n, seed

    def likelihood(self, query, lag):
        rng = np.random.default_rng([self.seed, lag, *query])
        cube = rng.random((self.n,) * 3) ** 4
        return cube[:1] if lag == 0 else cube


def lags_of(statuses):
    lags = []
    for private in statuses:
        lags.append(0 if private else lags[-1] + 1)
    return lags


def by_enumeration(chain, asked, prior):
    """p(x_t | all queries) from all paths, each with its probability times the likelihoods along it."""
    paths = np.array(list(product(range(chain.n), repeat=len(asked) + 1)))
    weights = prior[paths[:, 0]]
    for t, step in enumerate(asked):
        weights = weights * chain.P[paths[:, t], paths[:, t + 1]]
        if step.query is not None:
            cube = np.broadcast_to(step.model.likelihood(step.query, step.lag), (chain.n,) * 3)
            weights = weights * cube[paths[:, t - step.lag], paths[:, t], paths[:, t + 1]]
    counted = [np.bincount(paths[:, t], weights, chain.n) for t in range(len(asked))]
    return np.array(counted) / weights.sum()


def drawn(statuses, models, path, rng):
    """What a client with these models sends: models[lag] draws the set, as its encoder says."""
    asked, last = [], 0
    for t, lag in enumerate(lags_of(statuses)):
        last = path[t] if lag == 0 else last
        encoder = models[lag].encoder(int(last), int(path[t + 1]), lag)
        weights = encoder.weights[path[t]] / encoder.weights[path[t]].sum()
        asked.append(Asked(lag, encoder.sets[rng.choice(len(weights), p=weights)], models[lag]))
    return asked


@pytest.mark.parametrize("block", [1, 2, belief.BLOCK])
@given(st.data())
def test_the_posterior_is_that_of_all_paths(block, data):
    chain = data.draw(st.sampled_from([CHAIN, BOTH]))
    steps = data.draw(st.integers(1, 6 if chain.n == 3 else 9))
    statuses = [True, *data.draw(st.lists(st.booleans(), min_size=steps - 1, max_size=steps - 1))]
    model, rng = Noise(chain.n, data.draw(st.integers(0, 1000))), np.random.default_rng(steps)
    queries = [(int(rng.integers(chain.n)),) if rng.random() < 0.9 else None for _ in range(steps)]
    asked = [Asked(lag, query, model) for lag, query in zip(lags_of(statuses), queries, strict=True)]
    prior = rng.dirichlet(np.ones(chain.n))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(belief, "BLOCK", block)
        found = attack(chain, asked, prior)
    np.testing.assert_allclose(found.posterior, by_enumeration(chain, asked, prior), rtol=1e-11)
    for t in range(steps):
        seen = asked[:t] + [Asked(step.lag, None, None) for step in asked[t:]]
        np.testing.assert_allclose(found.predicted[t], by_enumeration(chain, seen, prior)[t], rtol=1e-11)


def test_real_plans_and_leaky_clients_too_are_attacked_exactly():
    statuses, rng = (True, True, False, False, True, False), np.random.default_rng(3)
    path = CHAIN.simulate(7, rng)
    planned = Planned(plan(CHAIN, 1))
    for model in (planned, Naive(3), Decoys(3, 1), Everything(3)):
        asked = drawn(statuses, [model] * 3, path, rng)
        found = attack(CHAIN, asked)
        oracle = by_enumeration(CHAIN, asked, start_law(CHAIN))
        np.testing.assert_allclose(found.posterior, oracle, rtol=1e-11, atol=1e-15)
        np.testing.assert_allclose(found.prior, [CHAIN.stationary()] * 6, rtol=1e-12)
        private = np.flatnonzero(statuses)
        learned = np.abs(found.posterior - found.prior)[private].max()
        assert (learned < 1e-11) == (model in (planned, Everything(3)))


def test_the_belief_unfolds_as_if_the_log_ended_at_each_query():
    rng = np.random.default_rng(5)
    statuses = [True, False, True, False, False, True, False, True]
    asked = drawn(statuses, [Naive(3)] * 3, CHAIN.simulate(9, rng), rng)
    beliefs = attack(CHAIN, asked)
    unfolded = unfold(CHAIN, asked, beliefs, 2, 8)
    for t in range(2, 8):
        hidden = [Asked(step.lag, None, None) for step in asked[t + 1 :]]
        np.testing.assert_allclose(unfolded[t - 2], attack(CHAIN, asked[: t + 1] + hidden).posterior[2:], atol=1e-12)
    np.testing.assert_allclose(unfolded[-1], beliefs.posterior[2:], atol=1e-12)


def test_a_query_that_cannot_have_been_drawn_is_a_finding_and_left_out():
    asked = [Asked(0, (0, 1, 2), Naive(3)), Asked(1, (0, 1), Naive(3)), Asked(0, (1,), Naive(3))]
    found = attack(CHAIN, asked)
    assert found.impossible == (1, 2)
    np.testing.assert_allclose(found.posterior, found.prior, rtol=1e-12)


def test_a_lag_that_does_not_fit_the_statuses_is_an_error():
    full = Asked(0, (0, 1, 2), Everything(3))
    with pytest.raises(OnoffError, match="lag 1, but privacy was never ON"):
        attack(CHAIN, [Asked(1, (0,), Noise(3, 1))])
    with pytest.raises(OnoffError, match="lag 2, but privacy was last ON 1 steps"):
        attack(CHAIN, [full, Asked(2, (0, 1, 2), Planned(plan(CHAIN, 1)))])


@given(chains(max_sources=5), st.integers(0, 99))
def test_long_streams_of_any_chain_end_in_probabilities(chain, seed):
    rng = np.random.default_rng(seed)
    path = chain.simulate(151, rng, start=0)
    statuses = [True, *(rng.random(149) < 0.1)]
    asked = drawn(statuses, [Naive(chain.n)] * 151, path, rng)
    calls = []
    found = attack(chain, asked, advance=lambda: calls.append(1))
    assert len(calls) == 300
    np.testing.assert_allclose(found.posterior.sum(axis=1), 1)
    if not found.impossible:
        assert all(found.posterior[t, path[t]] == pytest.approx(1) for t in range(150) if not statuses[t])


def test_the_memory_does_not_grow_with_the_matrices_of_a_long_off_period():
    chain, steps = Chain.symmetric(30, 0.5), 1000
    asked = [Asked(t, (t % 30,) if t else tuple(range(30)), Naive(30)) for t in range(steps)]
    tracemalloc.start()
    attack(chain, asked, np.full(30, 1 / 30))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * steps * 30**2 / 3  # bytes; one matrix for each step would be three times as many


def verdict_of(chain, model, seed, steps=200, **options):
    rng = np.random.default_rng(seed)
    path = chain.simulate(steps + 1, rng)
    statuses = [True, *(bool(s) for s in np.cumsum(rng.random(steps - 1) < 0.3) % 2 == 0)]
    asked = drawn(statuses, [model] * (steps + 1), path, rng)
    return judge(chain, asked, attack(chain, asked), path[:steps], rng=rng, **options)


def test_naive_clients_are_caught_and_ours_is_not():
    ours = verdict_of(CHAIN, Planned(plan(CHAIN, 1)), 1, rounding=200 * 2.0**-40)
    assert not verdict_of(CHAIN, Everything(3), 1).succeeded  # though floats move beliefs, and no rounding is stated
    naive, decoys = verdict_of(CHAIN, Naive(3), 1), verdict_of(CHAIN, Decoys(3, 1), 1)
    assert not ours.succeeded
    assert ours.p_value == 1
    assert ours.private.mean_bits < 1e-12
    assert ours.private.guessed == ours.private.guessed_before
    assert naive.succeeded
    assert 1 / 1000 <= naive.p_value <= 0.005  # the first of 1000 at best
    assert naive.private.mean_bits > 0.05
    assert naive.open.guessed == 1
    assert naive.open.score == pytest.approx(naive.open.mean_bits)  # the server is certain, and right
    assert decoys.succeeded
    assert decoys.private.guessed > decoys.private.guessed_before


def test_strangers_raise_an_alarm_no_more_often_than_stated():
    """Logs of naive clients, judged with the requests of somebody else: independent, though beliefs move a lot.

    400 logs at a rate of 10 %: more than 62 alarms (p <= 0.1) have a probability below 1e-3, and are far from the 100
    which a test with twice or more its rate would give.
    """
    chain, rng, alarms, right = Chain.symmetric(2, 0.9), np.random.default_rng(8), 0, 0
    for _ in range(400):
        path, other = chain.simulate(25, rng), chain.simulate(24, rng)
        statuses = [True, *(rng.random(23) < 0.5)]
        asked = drawn(statuses, [Naive(2)] * 25, path, rng)
        beliefs = attack(chain, asked)
        # A stranger's OFF requests contradict the log; only private ones are judged.
        alarms += judge(chain, asked, beliefs, other, strangers=99, rng=rng).p_value <= 0.1
        right += judge(chain, asked, beliefs, path[:-1], strangers=99, rng=rng).p_value <= 0.1
    assert alarms <= 62
    assert right > 200  # even in 24 steps


def test_a_leak_as_small_as_rounding_is_allowed_and_a_larger_one_is_not():
    beliefs = attack(CHAIN, [Asked(0, None, None)] * 4)
    for shift, expected in ((1e-10, False), (1e-6, True)):
        moved = beliefs.posterior + shift * np.array([1, -1, 0])
        changed = belief.Beliefs(beliefs.prior, beliefs.predicted, moved, ())
        assert judge(CHAIN, [Asked(0, (0, 1, 2), None)] * 4, changed, rounding=1e-11).succeeded == expected


def test_a_truth_that_does_not_fit_is_an_error():
    asked = [Asked(0, None, None)] * 2
    with pytest.raises(OnoffError, match="the truth has 1 requests, the stream 2"):
        judge(CHAIN, asked, attack(CHAIN, asked), (0,))
    absorbing = Chain([[1.0, 0.0], [1.0, 0.0]])
    with pytest.raises(OnoffError, match="impossible that '1' was asked for at step 1"):
        judge(absorbing, asked, attack(absorbing, asked), (0, 1))
    # A stream may begin where it never comes back to.
    assert not judge(absorbing, asked, attack(absorbing, asked), (1, 0)).succeeded
