"""What a fit says about a chain, on chains of which the truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from onoff import Chain, fit, follows
from onoff.logs import memory
from onoff.logs.count import FOLDS, Level
from onoff.logs.fit import estimate
from onoff.logs.follow import read_log_requests
from onoff.model.bounds import outer_bound


def simulated(rows, users, steps, rng):
    """Pairs by fold, and starts: users walk for `steps`; the type of a user picks one of the matrices in `rows`."""
    n = rows.shape[-1]
    edges = rows.cumsum(axis=-1)
    kind, fold, state = (rng.integers(most, size=users) for most in (len(rows), FOLDS, n))
    pairs, starts = np.zeros((FOLDS, n, n), np.int64), np.bincount(state, minlength=n)
    for _ in range(steps):
        following = np.minimum((rng.random(users)[:, None] > edges[kind, state]).sum(axis=1), n - 1)
        np.add.at(pairs, (fold, state, following), 1)
        state = following
    return pairs, starts


def by_definition(pairs):
    """The smoothing under which each fold is likeliest given the others, by loops."""

    def likelihood(smoothing):
        total = 0.0
        for fold in range(len(pairs)):
            rest = np.delete(pairs, fold, axis=0).sum(axis=0) + smoothing
            for i, j in np.argwhere(pairs[fold]):
                total += pairs[fold, i, j] * math.log(rest[i, j] / rest[i].sum())
        return total

    return max((2.0**k for k in range(-10, 7)), key=likelihood)


def test_the_smoothing_is_that_under_which_readers_who_are_held_out_are_likeliest():
    """The truth is Dirichlet(0.1) rows. The planted error, held-out readers who are also among the others, asks for
    next to none."""
    rng = np.random.default_rng(5)
    chain = Chain(rng.dirichlet(np.full(20, 0.1), 20))
    pairs, starts = simulated(chain.P[None], 2000, 5, rng)
    assert 0.04 < memory.choose_smoothing(pairs) == by_definition(pairs) < 0.25
    assert memory.choose_smoothing(pairs + np.roll(pairs, 1, axis=0)) < 0.04
    assert memory.choose_smoothing(0 * pairs) == 1.0
    truth, *costs = (
        outer_bound(made.posterior(1))
        for made in (
            chain,
            *(estimate(pairs.sum(axis=0), starts, chain.names, s) for s in (1, 0.1)),
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
    pairs = np.zeros((FOLDS, 2, 2), np.int64)
    pairs[2], pairs[7] = [[3, 1], [2, 0]], [[2, 1], [0, 1]]
    one = 3 * math.log2(3 / 5) + math.log2(2 / 5) + 2 * math.log2(1 / 3)
    other = 2 * math.log2(4 / 6) + math.log2(2 / 6) + math.log2(1 / 4)
    found = [memory.fit_contexts([Level(np.array([[0], [1]]), pairs)], np.eye(2), s) for s in (1.0, 0.0)]
    assert found[0].bits(np.full(2, True)) == pytest.approx(-(one + other) / 10)
    assert found[1].bits(np.full(2, True)) is None
    alone = 5 * math.log2(3 / 6) + math.log2(3 / 6) + 2 * math.log2(6 / 8) + 2 * math.log2(2 / 8)
    assert memory.marginal_bits(pairs) == pytest.approx(-alone / 10)
