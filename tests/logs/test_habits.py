"""Habits of the second order, fitted to half of the people of a log."""

from __future__ import annotations

import numpy as np
import pytest

from clientstreams import random_habits, simulate
from onoff import Chain
from onoff.logs.habits import fit_habits, split_people


def test_a_fit_finds_the_model_and_gives_impossible_steps_no_probability():
    rng = np.random.default_rng(6)
    habits = random_habits(3, rng)
    fit = fit_habits([simulate(habits, 40, rng) for _ in range(500)], np.ones((3, 3), dtype=bool))
    assert np.abs(fit.second - habits.second).max() < 0.08  # a row of 600 counts is off by 0.02 (one sigma) or less
    possible = ~np.eye(3, dtype=bool)
    barred = fit_habits([np.array([0, 1, 2, 0, 1])] * 10, possible)
    assert (barred.second[:, ~possible] == 0).all()
    assert barred.second.sum(axis=2) == pytest.approx(1)


def test_sequences_end_before_what_the_chain_does_not_have_and_the_halves_share_nobody():
    lines = ["a b c a x b", "a a b", *["b c b b c"] * 3, "a b c x a b", "a x b c a b"]
    chain = Chain([[0.0, 1.0, 0.0], [0.2, 0.0, 0.8], [0.5, 0.5, 0.0]], ["a", "b", "c"])
    found = split_people(map(str.split, lines), chain, min_length=3, max_length=6)
    assert (found.cut, found.training, len(found.attacked)) == (7, 2, 3)
    assert {tuple(path.tolist()) for path in found.attacked} <= {(0, 1, 2, 0), (1, 2, 1), (0, 1, 2)}
    free = split_people(map(str.split, lines), min_length=3, max_length=6)
    assert (free.chain.n, free.training, len(free.attacked)) == (4, 3, 4)
