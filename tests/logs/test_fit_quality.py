"""What a fit says about a chain, on chains of which the truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from onoff import Chain, fit, follows
from onoff.logs import quality
from onoff.logs.follow import read_log_requests
from onoff.model.bounds import outer_bound

BUCKETS = 51


def simulated(rows, users, steps, rng):
    """Pairs and starts by bucket: users walk for `steps`; the type of a user picks one of the matrices in `rows`."""
    n = rows.shape[-1]
    edges = rows.cumsum(axis=-1)
    kind, bucket, state = (rng.integers(most, size=users) for most in (len(rows), BUCKETS, n))
    pairs, starts = np.zeros((BUCKETS, n, n), np.int64), np.zeros((BUCKETS, n), np.int64)
    np.add.at(starts, (bucket, state), 1)
    for _ in range(steps):
        following = np.minimum((rng.random(users)[:, None] > edges[kind, state]).sum(axis=1), n - 1)
        np.add.at(pairs, (bucket, state, following), 1)
        state = following
    return pairs, starts


def second_order(rows, users, steps, rng):
    """Triples (buckets, flat indices, counts) of walks in which rows[i, j] follows i, j."""
    n = len(rows)
    edges = rows.cumsum(axis=-1)
    bucket, a, b = rng.integers(64, size=users), rng.integers(n, size=users), rng.integers(n, size=users)
    triples = np.zeros((64, n**3), np.int64)
    for _ in range(steps):
        c = np.minimum((rng.random(users)[:, None] > edges[a, b]).sum(axis=1), n - 1)
        np.add.at(triples, (bucket, (a * n + b) * n + c), 1)
        a, b = b, c
    where, flat = triples.nonzero()
    return np.array([where, flat, triples[where, flat]])


def test_a_first_order_chain_has_no_gain_although_training_counts_suggest_one():
    """The planted error, readers who are among the others as well while they are held out, makes it look better."""
    rng = np.random.default_rng(3)
    P = rng.dirichlet(np.full(10, 0.3), 10)
    triples = second_order(np.broadcast_to(P, (10, 10, 10)), 500, 6, rng)
    assert abs(quality.second_order_gain(10, triples)) < 0.002
    again = np.array([63 - triples[0], *triples[1:]])
    assert quality.second_order_gain(10, np.append(triples, again, axis=1)) > 0.02


def test_the_second_order_gain_is_as_by_loops():
    rng = np.random.default_rng(9)
    triples = np.array([(*index, rng.integers(1, 5)) for index in np.ndindex(64, 2, 2, 2) if rng.random() < 0.2])
    flat = triples[:, 1] * 4 + triples[:, 2] * 2 + triples[:, 3]

    def bits(row):
        """Lose the fold of each triple, and predict the triple with the rest."""
        total = 0.0
        for b, i, j, k, count in triples:
            rest = triples[triples[:, 0] // 8 != b // 8]
            total -= count * math.log2(row(rest, i, j, k))
        return total

    def share(rest, strength, towards, *context):
        same = rest[(rest[:, 3 - len(context) + 1 : 4] == context).all(axis=1), 4].sum()
        size = rest[(rest[:, 3 - len(context) + 1 : 3] == context[:-1]).all(axis=1), 4].sum()
        return (same + strength * towards) / (size + strength)

    first, s = min((bits(lambda rest, i, j, k, s=s: share(rest, s, 0.5, j, k)), s) for s in quality.STRENGTHS)
    second = min(
        bits(lambda rest, i, j, k, t=t: share(rest, t, share(rest, s, 0.5, j, k), i, j, k)) for t in quality.STRENGTHS
    )
    found = quality.second_order_gain(2, np.array([triples[:, 0], flat, triples[:, 4]]))
    assert found == pytest.approx((first - second) / triples[:, 4].sum())


def by_definition(pairs):
    """The smoothing under which each eighth of the buckets is likeliest given the others, by loops."""

    def likelihood(smoothing):
        total = 0.0
        for fold in np.array_split(range(len(pairs)), 8):
            rest = np.delete(pairs, fold, axis=0).sum(axis=0) + smoothing
            for b, i, j in np.argwhere(pairs[fold]):
                total += pairs[fold[b], i, j] * math.log(rest[i, j] / rest[i].sum())
        return total

    return max((2.0**k for k in range(-10, 7)), key=likelihood)


def test_the_smoothing_is_that_under_which_readers_who_are_held_out_are_likeliest():
    """The truth is Dirichlet(0.1) rows. The planted error, held-out readers who are also among the others, asks for
    next to none."""
    rng = np.random.default_rng(5)
    chain = Chain(rng.dirichlet(np.full(20, 0.1), 20))
    pairs, starts = simulated(chain.P[None], 2000, 5, rng)
    assert 0.04 < quality.choose_smoothing(pairs) == by_definition(pairs) < 0.25
    assert quality.choose_smoothing(np.concatenate([pairs, pairs])) < 0.04
    assert quality.choose_smoothing(0 * pairs) == 1.0
    truth, *costs = (
        outer_bound(made.posterior(1))
        for made in (
            chain,
            *(quality.estimate(pairs.sum(axis=0), starts.sum(axis=0), chain.names, s) for s in (1, 0.1)),
        )
    )
    assert costs[0] < costs[1] < truth  # smoothing 1 makes the rows too much alike


def test_readers_who_repeat_themselves_do_not_talk_the_fit_out_of_smoothing(tmp_path):
    """Sixty readers of 6 sources go round in two or three of their own. The planted error: each transition is to be
    likely given all others, those of the same reader too. It asks for next to no smoothing, and readers who are held
    out then lose a quarter of a bit a request."""
    rng = np.random.default_rng(0)
    own = [rng.permutation(6)[: rng.integers(2, 4)] for _ in range(60)]
    (tmp_path / "log.txt").write_text("".join(" ".join(map(str, np.resize(some, 33))) + "\n" for some in own))
    report = fit(tmp_path / "log.txt").report
    assert report.bits < fit(tmp_path / "log.txt", smoothing=1.6e-7).report.bits - 0.25
    assert not any("smoothing" in note for note in report.notes)


def test_check_accepts_the_chain_on_its_own_log(tmp_path):
    """And it predicts readers who are held out at least as well as a chain with next to no smoothing. The planted
    error, too much of it, is refuted."""
    rng = np.random.default_rng(2)
    for n, scale in ((5, 0.1), (17, 0.05), (17, 0.3), (12, 3.0)):
        path = Chain(rng.dirichlet(np.full(n, scale), n)).simulate(1962, rng)
        (tmp_path / "log.txt").write_text("".join(f"{x}\n" for x in path))
        found, bare, much = (fit(tmp_path / "log.txt", smoothing=added) for added in (None, 1.6e-7, 64))
        requests = read_log_requests(tmp_path / "log.txt", found.chain).indices
        assert len(requests) == 1962
        assert not follows(found.chain, requests).refuted
        assert follows(much.chain, requests).refuted
        assert found.report.bits < bare.report.bits + 1e-4


def test_held_out_bits_by_hand():
    """Two readers, each predicted by the other: with counts [[3, 1], [2, 0]] and [[2, 1], [0, 1]], and 1 added."""
    pairs = np.zeros((64, 2, 2), np.int64)
    pairs[7], pairs[8] = [[3, 1], [2, 0]], [[2, 1], [0, 1]]
    one = 3 * math.log2(3 / 5) + math.log2(2 / 5) + 2 * math.log2(1 / 3)
    other = 2 * math.log2(4 / 6) + math.log2(2 / 6) + math.log2(1 / 4)
    assert quality.held_out_bits(pairs, np.array([1.0, 0.0])) == pytest.approx([-(one + other) / 10, math.inf])
    alone = 5 * math.log2(3 / 6) + math.log2(3 / 6) + 2 * math.log2(6 / 8) + 2 * math.log2(2 / 8)
    assert quality.marginal_bits(pairs) == pytest.approx(-alone / 10)
