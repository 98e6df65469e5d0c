"""Habits that keep themselves: what may be counted, when a chain may change, the fuse; with planted mistakes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest

from exactstreams import Reference, by_quantiles, chain_of, largest_distance, normalise, stream_law, widest
from onoff import fit
from onoff.model.chain import Chain
from onoff.past.habits import Habits, clip_factors, plausible_distance, requests_needed

THREE = chain_of([[1, 3, 2], [2, 1, 5], [4, 1, 1]])
ORDERS = {"A": [0, 1, 2], "B": [2, 0, 1]}


# What a chain may be made of. The client below chooses between two encoders instead of chains. Both keep the promise,
# so what queries tell is exactly what the choice tells.


class Marked(Reference):
    """From step `since` on the encoder of this mark, which the server is told."""

    def __init__(self, P, statuses, since, mark):
        super().__init__(P, statuses, frozenset(), by_quantiles)
        self.since, self.mark = since, mark

    def step(self, queries):
        if len(queries) < self.since:
            return super().step(queries)
        law, encoders = by_quantiles(self.open_rows(queries), ORDERS[self.mark])
        marked = {
            c: {x: {R | {self.mark}: p for R, p in sets.items()} for x, sets in rows.items()}
            for c, rows in encoders.items()
        }
        return {R | {self.mark}: p for R, p in law.items()}, marked


def leak_of_a_choice(statuses, since, choose):
    """The largest distance for a client that chooses at step `since` by the queries and requests before it."""
    clients = {mark: Marked(THREE, statuses, since, mark) for mark in ORDERS}

    def draw(queries, path):
        mark = "B" if len(queries) >= since and choose(queries[:since], path[:since]) else "A"
        return clients[mark].draw(queries, path)

    return largest_distance(stream_law(THREE, statuses, draw), statuses, frozenset())


def between_singles(_):
    """The rule: the transition 1 -> 2 was seen between two OFF queries of one source."""
    return lambda queries, path: (frozenset({1}), frozenset({2})) in pairwise(queries)


def from_a_set(statuses):
    """Planted: counted from the request behind a larger set."""
    return lambda queries, path: any(
        pair == (1, 2) and queries[t + 1] == {2} and not statuses[t] for t, pair in enumerate(pairwise(path))
    )


def into_a_private_request(statuses):
    """Planted: counted from a query of one source into a request made ON."""
    return lambda queries, path: any(
        pair == (1, 2) and queries[t] == {1} and statuses[t + 1] for t, pair in enumerate(pairwise(path))
    )


def between_open_requests(statuses):
    """Planted: counted whatever the queries were."""
    return lambda queries, path: any(
        pair == (1, 2) and not statuses[t] and not statuses[t + 1] for t, pair in enumerate(pairwise(path))
    )


def worst_leak(rule):
    streams = [(True, *later) for later in product((True, False), repeat=4)]
    return max(leak_of_a_choice(statuses, 4, rule(statuses)) for statuses in streams)


def test_transitions_between_queries_of_one_source_tell_nothing():
    assert worst_leak(between_singles) == 0


@pytest.mark.parametrize("rule", [from_a_set, into_a_private_request, between_open_requests])
def test_other_transitions_tell_of_what_is_hidden(rule):
    assert worst_leak(rule) > 0.05


# The first chain: it is used before anything private is asked.


def test_a_chain_of_open_requests_tells_nothing_if_it_is_used_before_the_first_private_request():
    """Open requests 0 and 1 are asked for with everything, request 2 is the first that the chain is used for."""
    for later in product((True, False), repeat=2):
        statuses = (True, True, False, *later)
        assert leak_while_learning(statuses, 2) == 0
    assert leak_while_learning((True, True, True, False), 3) > 0.05  # planted: first used after request 2


def leak_while_learning(statuses, since):
    """The first two requests are open, though everything is asked for: the chain is made of the transition 1 -> 2."""
    clients = {mark: Marked(THREE, statuses, since, mark) for mark in ORDERS}

    def draw(queries, path):
        return clients["B" if path[:2] == (1, 2) else "A"].draw(queries, path)

    joint = stream_law(THREE, statuses, draw)
    worst = Fraction(0)
    for t in range(2, len(statuses)):
        hidden = {}
        for (path, queries), p in joint.items():
            secret = tuple(x if statuses[i] else None for i, x in enumerate(path[: t + 1]) if i > 1)
            law = hidden.setdefault(queries[:t], {}).setdefault(secret, {})
            law[queries[t]] = law.get(queries[t], Fraction(0)) + p
        worst = max(worst, *(widest(map(normalise, laws.values())) for laws in hidden.values()))
    return worst


# The fuse


def test_a_bet_never_gains_on_average_whatever_the_law_within_eps():
    """The largest mean over the ball is that of mu, and eps of its mass moved from the least factor to the largest."""
    rng, gained = np.random.default_rng(1), 0
    for _ in range(500):
        n = rng.integers(2, 12)
        mu, nu = rng.dirichlet(np.full(n, rng.choice([0.2, 1, 5])), 2) * (1 - 1e-9) + 1e-9 / n
        eps = rng.choice([0.0, 0.01, 0.1, 0.4])
        factors = clip_factors(mu, nu, eps)
        assert mu @ factors + eps * (factors.max() - factors.min()) <= 1 + 1e-9
        gained += nu @ np.log(factors) > 0.01
        if np.abs(mu - nu).sum() / 2 <= eps:
            assert (factors == 1).all()
    assert gained > 200
    mu, nu = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.1, 0.8])
    planted = np.clip(nu / mu, 0.5, 4.0)  # not clipped enough
    assert mu @ planted + 0.1 * (planted.max() - planted.min()) > 1.1


def test_eps_is_the_distance_of_nearly_all_rows_that_the_counts_leave_plausible():
    rng, mu = np.random.default_rng(2), np.array([0.6, 0.2, 0.1, 0.1])
    for weight in (5.0, 50.0, 500.0):
        eps = plausible_distance(mu.tobytes(), weight)
        apart = np.abs(rng.dirichlet(weight * mu, 20_000) - mu).sum(axis=1) / 2
        assert 0.97 < (apart <= eps).mean() < 0.999


def test_a_bet_against_a_fitted_row_gains_nothing_from_any_row_that_its_counts_leave_plausible():
    mu, weight = np.array([0.6, 0.2, 0.1, 0.1]), 50.0
    counts = np.zeros((4, 4), np.int64)
    counts[0] = (0, 5, 30, 5)
    means = {}
    for given in (None, np.full(4, weight)):
        factors = Habits(Chain(np.tile(mu, (4, 1)), weight=given), "known", counts).factors(0)
        means[given is None] = factors @ mu + plausible_distance(mu.tobytes(), weight) * np.ptp(factors, axis=1)
    assert (means[False] <= 1 + 1e-9).all()
    assert (means[True] > 1.2).all()  # a chain that is stated as exact allows for nothing


def learned(P, rng):
    """The habits that a reader of the chain P is given, and the last request."""
    n, x = len(P), 0
    habits = Habits(Chain(np.full((n, n), 1 / n)), "learning")
    while habits.stage == "learning":
        habits = habits.after_learning(x, private=False)
        x = int(rng.choice(n, p=P[x]))
    assert habits.stage == "complete"
    return replace(habits, stage="known")


def blows_at(habits, P, requests, rng):
    x = 0
    for number in range(1, requests + 1):
        before, habits = habits, habits.after_query((x,), private=False)
        if habits.stage == "all" or (before.chain.weight is None and habits.chain.weight is not None):
            return number  # or the stated chain gives way to one of the counts
        x = int(rng.choice(len(P), p=P[x]))
    return None


def test_the_fuse_blows_within_three_reloads_in_fixed_order_and_not_for_honest_readers():
    rng, n = np.random.default_rng(3), 10
    for _ in range(5):
        P = rng.dirichlet(np.ones(n), n)
        assert blows_at(learned(P, rng), P, 300, rng) is None  # at most 1 of 1,000 streams, however long
        assert blows_at(Habits(Chain(P), "known"), P, 300, rng) is None
        assert blows_at(learned(P, rng), np.roll(np.eye(n), 1, axis=1), 30, rng) is not None
        order = rng.permutation(n)
        fixed = np.zeros((n, n))
        fixed[order, np.roll(order, -1)] = 1
        assert blows_at(learned(P, rng), fixed, 40, rng) is not None


@pytest.mark.parametrize("kind", ["exact", "learned"])
def test_the_fuse_is_as_sharp_after_a_thousand_honest_requests(kind):
    """Their bets have lost all capital that was staked at first."""
    rng, n = np.random.default_rng(4), 10
    P = rng.dirichlet(np.ones(n), n)
    habits = Habits(Chain(P), "known") if kind == "exact" else learned(P, rng)
    for x in Chain(P).simulate(1000, rng).tolist():
        habits = habits.after_query((x,), private=False)
    assert habits.bits < 0.01
    assert blows_at(habits, np.roll(np.eye(n), 1, axis=1), 30, rng) is not None


def test_a_stated_chain_is_left_for_the_counts_only_if_they_are_enough():
    for first, stage in ((1, "all"), (requests_needed(4), "known")):
        habits = Habits(Chain(np.full((4, 4), 0.25)), "known")
        for x in np.random.default_rng(1).integers(4, size=first).tolist():
            habits = habits.after_query((x,), private=False)
        while habits.chain.weight is None and habits.stage == "known":
            before, habits = habits, habits.after_query(((habits.run[-1] + 1) % 4,), private=False)
        assert habits.stage == stage
        assert before.bits > 0.1


def test_a_row_that_rests_on_next_to_nothing_may_be_anything():
    assert plausible_distance(np.full(10, 0.1).tobytes(), 1e-4) == 1.0


def test_honest_readers_of_a_fitted_chain_do_not_blow(tmp_path):
    """20 streams of 1,000 requests. The fuse blows in few of 1,000; of a chain that is taken as exact, in most.

    Of a journal all rows have the same weight.
    """
    blown = {"rows": 0, "even": 0, "exact": 0}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        truth = Chain(rng.dirichlet(np.ones(8), 8), tuple("abcdefgh"))
        (tmp_path / "log.txt").write_text(" ".join(truth.names[x] for x in truth.simulate(100, rng)) + "\n")
        found = fit(tmp_path / "log.txt")
        weight, at = found.chain.weight, [truth.index(name) for name in found.chain.names]
        assert weight.sum() == pytest.approx(99 + found.report.smoothing * 64)
        for kind, given in (("rows", weight), ("even", np.full(8, weight.mean())), ("exact", None)):
            habits = Habits(Chain(found.chain.P, found.chain.names, given), "known")
            blown[kind] += blows_at(habits, truth.P[np.ix_(at, at)], 1000, np.random.default_rng(seed)) is not None
    assert (blown["rows"], blown["even"]) == (0, 0)
    assert blown["exact"] > 10, blown


# Stages


def test_learning_ends_with_a_chain_or_with_a_private_request():
    habits = Habits(Chain(np.full((4, 4), 0.25)), "learning")
    assert habits.after_learning(0, private=True).stage == "all"
    for number in range(requests_needed(4) + 1):
        assert habits.stage == "learning", number
        habits = habits.after_learning(number % 4, private=False)
    assert habits.stage == "complete"
    assert habits.chain.P[0, 1] > 0.9  # ten times 0 -> 1, and half a transition that knows nothing
    assert habits.chain.P.min() > 0
    assert habits.chain.weight.tolist() == [10.5, 10.5, 10.5, 10.5]


def test_rows_that_are_alike_are_pulled_together_and_rows_that_are_not_are_left_apart():
    even, apart = np.full((4, 4), 5), 20 * np.eye(4, dtype=np.int64)
    for counts, pull in ((even, 20.0), (apart, 0.5)):
        assert (Habits(Chain(np.full((4, 4), 0.25)), "learning", counts).fit().chain.weight == 20 + pull).all()


def test_the_chain_is_fitted_again_after_enough_transitions_between_single_queries():
    rng, P = np.random.default_rng(5), np.array([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.7, 0.2, 0.1]])
    first = habits = learned(P, rng)
    x, changes = 0, []
    for step in range(400):
        habits = habits.after_query((x,), private=False)
        if habits.chain != first.chain:
            changes.append(step)
            first = habits
        x = int(rng.choice(3, p=P[x]))
    assert changes[0] == requests_needed(3)
    assert len(changes) == 399 // requests_needed(3)
    assert np.abs(habits.chain.P - P).max() < 0.12
    assert habits.chain.weight.sum() > 380


def test_bets_are_counted_across_a_new_chain_as_their_capital_is():
    rng = np.random.default_rng(8)
    habits = learned(np.full((3, 3), 1 / 3), rng)
    for step in range(100):
        habits = habits.after_query((int(rng.integers(3)),), private=False)
        assert habits.bets == step
    assert habits.transitions.sum() < 99


def test_nothing_is_counted_from_sets_or_into_private_requests():
    habits = learned(np.full((4, 4), 0.25), np.random.default_rng(6))
    for query, private in [((0,), False), ((1, 2), False), ((3,), False), ((0, 1, 2, 3), True), ((2,), False)]:
        habits = habits.after_query(query, private)
    assert habits.transitions.sum() == 0
    assert habits.after_query((1,), False).transitions[2, 1] == 1


def test_with_memory_transitions_are_counted_by_state_and_only_where_singles_tell_it():
    states = [(0,), (1,), (0, 1), (1, 0)]
    tree = Chain(np.full((4, 2), 0.5), weight=[9] * 4, states=states)
    habits, counted = Habits(tree, "known"), []
    for query in [(0,), (1,), (1,), (0, 1), (1,), (1,), (0,), (0,)]:
        habits = habits.after_query(query, private=len(query) > 1)
        counted = [(states[z], x) for z, x in np.argwhere(habits.transitions)]
    # 0 and 1 alone may come after anything; 0, 1 may not: that is its own state.
    assert sorted(counted) == [((0, 1), 1), ((1,), 0), ((1, 0), 0)]
    assert habits.bets == 3
    assert habits.run == (0, 0)
