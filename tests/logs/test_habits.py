"""People are divided, and clients and servers learn from different ones."""

from __future__ import annotations

import numpy as np

from clientstreams import random_habits
from onoff import Chain
from onoff.logs.habits import count_level, fit_people, most_frequent, split_people


def test_a_fit_finds_the_model_to_its_depth_and_servers_keep_the_contexts_that_came_most_often(monkeypatch):
    rng = np.random.default_rng(6)
    habits = random_habits(3, rng, 3)
    contexts = fit_people([habits.simulate(40, rng, 0) for _ in range(800)], ("a", "b", "c"), 3)
    for depth in (1, 2, 3):
        states = most_frequent(contexts, depth)
        assert [run for run, kept in zip(contexts.runs, states, strict=True) if kept] == list(
            random_habits(3, rng, depth).states
        )
    assert np.abs(contexts.rows[states][12:] - habits.P[12:]).max() < 0.08  # of 100 counts or more: three sigma
    came = contexts.counts.sum(axis=1)[3:]
    for most in range(1, 36):
        monkeypatch.setattr("onoff.logs.habits.MOST_STATES", most)
        kept = most_frequent(contexts, 3)[3:]
        assert kept.sum() <= most
        assert came[kept].min(initial=10**9) > came[~kept].max()


def test_the_counts_of_contexts_are_those_of_a_loop(monkeypatch):
    monkeypatch.setattr("onoff.logs.habits.FEWEST", 3)
    rng = np.random.default_rng(7)
    paths = [rng.integers(3, size=size) for size in rng.integers(1, 9, 20)]
    for length in (1, 2, 3):
        found, due = count_level(paths, 3, length), {}
        for fold, path in enumerate(paths):
            for t in range(length, len(path)):
                table = due.setdefault(tuple(path[t - length : t].tolist()), np.zeros((8, 3), int))
                table[fold % 8, path[t]] += 1
        due = {context: table for context, table in due.items() if length == 1 or table.sum() >= 3}
        assert list(map(tuple, found.contexts.tolist())) == sorted(due)
        for place, context in enumerate(sorted(due)):
            np.testing.assert_array_equal(found.counts[:, place], due[context])


def test_sequences_end_before_what_the_chain_does_not_have_and_the_halves_share_nobody():
    lines = ["a b c a x b", "a a b", *["b c b b c"] * 3, "a b c x a b", "a x b c a b"]
    chain = Chain([[0.0, 1.0, 0.0], [0.2, 0.0, 0.8], [0.5, 0.5, 0.0]], ["a", "b", "c"])
    found = split_people(map(str.split, lines), chain, min_length=3, max_length=6)
    assert (found.cut, found.training, len(found.attacked)) == (7, 2, 1)
    assert {tuple(path.tolist()) for path in found.attacked} <= {(0, 1, 2, 0), (1, 2, 1), (0, 1, 2)}
    free = split_people(map(str.split, lines), min_length=3, max_length=6)
    assert (free.clients[1].n, free.training, len(free.attacked)) == (4, 3, 2)


def test_a_sequence_ends_where_habits_with_memory_call_it_impossible():
    P = [[0.5, 0.5], [0.5, 0.5], [0.0, 1.0]]
    chain = Chain(P, ["a", "b"], states=[(0,), (1,), (1, 0)])  # a, after b, is not followed by a
    found = split_people([list("abaab")] * 4, chain, min_length=3)
    assert [path.tolist() for path in found.attacked] == [[0, 1, 0]]
