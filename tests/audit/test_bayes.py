"""Clients as the server knows them, and its beliefs: those of all paths, whatever the client and the promise."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from clientstreams import bits, random_habits, statuses, stream
from onoff import Chain, OnoffError, plan
from onoff.audit import bayes
from onoff.audit.bayes import NOTHING, View, infer
from onoff.audit.clients import Announced, Decoys, Everything, Naive, Past, TooLarge, serving_plan
from onoff.past import PastState
from onoff.testing import chains, trees
from oracles import random_chain
from pastkit import table
from sampling import examples

CHAIN = Chain([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [0.2, 0.2, 0.6]])
ENDS = Chain([[0, 1, 0], [0.5, 0, 0.5], [0, 0, 1]])  # zeros and an absorbing end
RUNS = [(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 1, 0)]
ZEROS = Chain([[0.5, 0.5], [0.5, 0.5], [0.25, 0.75], [1, 0], [0.75, 0.25], [0, 1]], states=RUNS)
CASES = [
    (random_habits(3, np.random.default_rng(1)), (), "110010"),
    (random_habits(2, np.random.default_rng(2), 3), (1,), "1110010"),
    (random_habits(2, np.random.default_rng(3), 2), (0,), "11000100"),
    (ZEROS, (1,), "11101000"),
    (random_chain("dense", 3, 1), (), "10010"),
    (random_chain("dense", 3, 1), (1,), "100010"),
    (random_chain("dense", 3, 2), (0, 1, 2), "1010"),
    (random_chain("sparse", 3, 1), (2,), "100100"),
    (ENDS, (1,), "10000"),
    (random_chain("periodic", 4, 1), (1,), "1000"),
]


def uniform(n):
    return np.full(n, 1 / n)


def seen(steps, queries):
    return [step.view(query) for step, query in zip(steps, queries, strict=True)]


def all_paths(habits, start, views, client=None):
    """Pr[X_0..X_T, what the views say] of every path, one request longer than the views; contexts follow each path."""
    n, found = habits.n, {}
    for path in product(range(n), repeat=len(views) + 1):
        p, context = start[path[0]], 0
        for t, view in enumerate(views):
            came = () if view.comes is None else view.comes[:, (client or habits).state_of(path[:t])]
            context = int(came[min(context, len(came) - 1)]) if len(came) else 0
            chances = np.broadcast_to(view.chances, (view.contexts, n, n))
            p *= habits.P[habits.state_of(path[: t + 1]), path[t + 1]] * chances[context, path[t], path[t + 1]]
        found[path] = p
    return found


def law_at(found, t, n):
    law = np.bincount([path[t] for path in found], list(found.values()), n)
    return law / law.sum()


class Noise:
    """Views of any likelihoods at all, in contexts that move at random with the client's state."""

    def __init__(self, client, seed):
        self.client, self.rng, self.contexts = client, np.random.default_rng(seed), 1

    def view(self, private):
        n, before, self.contexts = self.client.n, self.contexts, 1 if private else int(self.rng.integers(1, 4))
        before = before if self.rng.random() < 0.5 else 1  # contexts need not depend on those before
        comes = None if private else self.rng.integers(0, self.contexts, (before, len(self.client.states)))
        shape = self.contexts, n, n if self.rng.random() < 0.5 else 1
        return View(self.rng.random(shape) ** 4, self.contexts, comes)


@pytest.mark.parametrize("block", [1, 2, bayes.BLOCK])
@settings(max_examples=examples(30))
@given(trees(3, 3), trees(3, 3), st.integers(0, 10_000), st.integers(1, 5))
def test_beliefs_are_those_of_all_paths_whatever_server_and_client_remember(block, habits, client, seed, steps):
    rng, n = np.random.default_rng(seed), 3
    start = rng.dirichlet(np.ones(n))
    private, noise = [True, *(rng.random(steps - 1) < 0.4)], Noise(client, seed)
    views = [noise.view(on) for on in private]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bayes, "BLOCK", block)
        found = infer(habits, len(views), views.__getitem__, (1,), client=client, start=start)
    assume(not found.silent)  # the habits allow a path

    def paths(views):
        return all_paths(habits, start, views, client)

    whole = paths(views)
    for t in range(steps):
        before, at = paths(views[:t]), paths(views[: t + 1])
        np.testing.assert_allclose(found.after[t], law_at(whole, t, n), rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(found.before[t], law_at(before, t, n), rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(found.at[t], law_at(at, t, n), rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(found.prior[t], law_at(paths([NOTHING] * t), t, n), rtol=1e-9, atol=1e-15)
        for some, weights in ((found.some_before, before), (found.some_at, at)):
            never = sum(p for path, p in weights.items() if 1 not in path[: t + 1]) / sum(weights.values())
            assert some[t] == pytest.approx(1 - never, abs=1e-12)


def engine_paths(chain, sensitive, private, queries):
    """Pr[path, queries] in fractions, by the engine itself: its encoders in the reader's state, its draws' weights."""
    P = [[Fraction(p) / sum(map(Fraction, row)) for p in row] for row in chain.P.tolist()]
    steps, state, found = [], PastState.start(chain, sensitive), {}
    for on, query in zip(private, queries, strict=True):
        steps.append(None if on else state.prepare())
        state = state.after(query)
    for path in product(range(chain.n), repeat=len(private)):
        p, now = Fraction(1, chain.n), None
        for t, step in enumerate(steps):
            p *= P[now][path[t]] if t else 1
            if p and step:
                units = step.masses if path[t] in sensitive else table(step, now)[path[t]].tolist()
                p *= Fraction(int(units[step.sets.index(queries[t])]), int(sum(units)))
            if not p:
                break
            now = chain.step[now, path[t]] if t else path[t]
        found[path] = float(p)
    return found


@pytest.mark.parametrize(("chain", "sensitive", "text"), CASES)
def test_beliefs_about_an_engine_are_those_of_its_own_paths_and_freeze_at_each_request(chain, sensitive, text):
    for seed in range(3):
        client, private = Past(PastState.start(chain, sensitive), chain.n, sensitive), statuses(text)
        start = uniform(chain.n)
        _, steps, queries = stream(client, chain, private, np.random.default_rng(seed), start)
        found = infer(chain, len(private), seen(steps, queries).__getitem__, sensitive, start=start)
        paths = engine_paths(chain, sensitive, private, queries)
        assert (client.findings, found.silent) == ([], ())
        for t in range(len(private)):
            assert found.after[t] == pytest.approx(law_at(paths, t, chain.n), abs=1e-12)
            assert max(bits(found, t, private[t])[1:]) < 1e-25
        assert np.abs(found.some_at - found.some_before).max() < 1e-14
        assert np.abs(found.at - found.after).max() < 1e-14  # of all requests, also open ones


def test_a_query_that_cannot_have_been_drawn_silences_the_stream_until_privacy_is_on():
    chain = random_chain("dense", 4, 2)
    client, private = Past(PastState.start(chain, (1,)), 4, (1,)), statuses("1000010")
    _, steps, queries = stream(client, chain, private, np.random.default_rng(5))
    views = seen(steps, queries)
    views[2] = steps[2].view((1, 9))
    found = infer(chain, len(private), views.__getitem__, (1,))
    assert found.silent == (2, 3, 4)
    views[2:5] = [NOTHING] * 3
    np.testing.assert_allclose(found.after, infer(chain, len(private), views.__getitem__).after)


@settings(max_examples=examples(25))
@given(chains(max_sources=5), st.integers(0, 99))
def test_long_streams_of_any_chain_end_in_probabilities(chain, seed):
    rng = np.random.default_rng(seed)
    private = [True, *(rng.random(149) < 0.1)]
    path, steps, queries = stream(Naive(chain.n), chain, private, rng)
    calls = []
    found = infer(chain, len(private), seen(steps, queries).__getitem__, advance=lambda: calls.append(1))
    assert len(calls) == 300
    np.testing.assert_allclose(found.after.sum(axis=1), 1)
    if not found.silent:
        assert all(found.after[t, path[t]] == pytest.approx(1) for t in range(150) if not private[t])


# Clients


def views_agree(step, n):
    """The view of a query is its encoder, normalised, for every non-empty set; impossible contexts aside."""
    for query in (q for size in range(1, n + 1) for q in combinations(range(n), size)):
        cube = np.broadcast_to(step.view(query).chances, (step.contexts, n, n))
        for context, following in product(range(step.contexts), range(n)):
            units = step.encoder(context, following)
            index = step.sets.index(query) if query in step.sets else None
            if units is None or index is None:
                assert not cube[context, :, following].any()
                continue
            expected = units[:, index] / np.maximum(units.sum(axis=1), 1)
            assert cube[context, :, following] == pytest.approx(expected, abs=1e-15)


@settings(max_examples=examples(25))
@given(chains(min_sources=2, max_sources=3), st.integers(1, 3), st.integers(0, 2))
def test_what_a_query_says_is_what_the_encoders_say(chain, lag, more):
    made = plan(chain, lag)
    client = Announced(chain.n, [made])
    views_agree(client.step(lag + more, made), chain.n)
    for other in (Everything(4), Naive(4), Naive(4, (1, 2)), *(Decoys(4, k) for k in (1, 2, 3))):
        views_agree(other.on(), 4)
        views_agree(other.off(other.on(), ()), 4)


def test_the_cheapest_plan_that_fits_serves_a_lag_and_a_race_says_nothing():
    cheap, dear = plan(CHAIN, 1), plan(CHAIN, 2, "everything")
    assert Announced(3, [cheap, dear]).step(3, serving_plan([cheap, dear], 3)).sets == cheap.sets != dear.sets
    race = plan(CHAIN, 1, "race")
    step = Announced(3, [race]).off(Everything(3).on(), ())
    assert (step.silent, step.contexts, step.view((0, 1)).chances.tolist()) == (True, 3, [[[1.0]]])
    many = Past(PastState.start(Chain(np.full((101, 101), 1 / 101))), 101)
    with pytest.raises(TooLarge, match="a race has no table to look at"):
        many.off(many.on(), tuple(range(101)))
    with pytest.raises(OnoffError, match="no plan for lag 1 or less"):
        serving_plan([dear], 1)
