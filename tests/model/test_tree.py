"""Habits with memory: states, steps, files, and what is refused."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onoff import Chain
from onoff.errors import ChainError
from onoff.testing import chains, trees

STATES = [(0,), (1,), (0, 1)]
ROWS = [[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]]
HABITS = st.one_of(trees(2, 3), trees(3, 2), chains(max_sources=3))


@given(HABITS, st.lists(st.integers(0, 1), min_size=1, max_size=9))
def test_step_by_step_the_state_is_the_longest_suffix_of_all_requests_that_is_a_state(chain, requests):
    state = requests[0]
    for t, x in enumerate(requests[1:], start=1):
        state = chain.step[state, x]
        known = [suffix for start in range(t + 1) if (suffix := tuple(requests[start : t + 1])) in chain.states]
        assert chain.states[state] == known[0] == chain.states[chain.state_of(requests[: t + 1])]


@given(HABITS)
def test_moves_are_those_of_requests_and_the_stationary_law_stays(chain):
    for z in range(len(chain.states)):
        for x in range(chain.n):
            assert chain.moves[z, chain.step[z, x]] == chain.P[z, x]
            assert chain.last[chain.step[z, x]] == x
    assert np.isclose(chain.moves.sum(axis=1), 1).all()
    with_start = chain.stationary() if _has_one_class(chain) else None
    if with_start is not None:
        assert np.allclose(with_start @ chain.moves, with_start, atol=1e-12)


def _has_one_class(chain):
    try:
        chain.stationary()
    except ChainError:
        return False
    return True


@given(HABITS)
def test_habits_come_back_from_their_file_and_from_a_process_bit_for_bit(tmp_path_factory, chain):
    file = tmp_path_factory.mktemp("habits") / "habits.json"
    chain.save(file)
    for found in (Chain.load(file), pickle.loads(pickle.dumps(chain))):
        assert found == chain
        assert found.states == chain.states
        assert found.P.tobytes() == chain.P.tobytes()


def test_the_fingerprint_is_of_names_states_and_rows_and_not_of_their_order():
    tree, again = Chain(ROWS, states=STATES), Chain(ROWS[::-1], states=STATES[::-1])
    others = Chain(ROWS, states=[(0,), (1,), (1, 1)]), Chain(ROWS[:2]), Chain(ROWS, ["a", "b"], states=STATES)
    assert tree == again
    assert len({each.fingerprint for each in (tree, *others)}) == 4
    assert Chain(ROWS[:2], states=STATES[:2]) == Chain(ROWS[:2])


@pytest.mark.parametrize(
    ("states", "rows", "words"),
    [
        ([(0,), (1,), (0, 0, 1)], ROWS, "a row after '0' -> '0' -> '1', but none after '0' -> '1'"),
        ([(0,), (1,), (0, 1), (0, 1, 1)], [*ROWS, [1, 0]], "'0' -> '1' -> '1', but none after '1' -> '1'"),
        ([(0,), (0, 0)], ROWS[:2], "there is no row after '1'"),
        ([(0,), (1,), (0, 2)], ROWS, "context 2 is (0, 2): at least one source is needed, from 0 to 1"),
        ([(0,), (1,), ()], ROWS, "context 2 is ()"),
        ([(0,), (1,), (1,)], ROWS, "there are two rows after '1'"),
        (STATES[:2], ROWS, "3 rows for 2 contexts"),
        (STATES, [*ROWS[:2], [0.5, 0.4]], "row 2 ('0' -> '1') sums to 0.9"),
        ([(x % 2,) * x for x in range(1, 2100)], [[1, 0]] * 2099, "2099 contexts: at most 2000"),
    ],
)
def test_a_tree_that_is_none_is_refused_with_the_context_named(states, rows, words):
    with pytest.raises(ChainError) as caught:
        Chain(rows, states=states)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("contexts", "words"),
    [
        (5, '"contexts" must be a list'),
        ([5], 'context 0 needs "after"'),
        ([{"after": ["a"], "row": [1, 0]}, {"after": ["c"], "row": [1, 0]}], "context 1 comes after 'c'"),
        ([{"after": ["a"], "row": [1]}], "the row after 'a' has 1 numbers for 2 sources"),
        ([{"after": ["a"], "row": [1, "x"]}, {"after": ["b"], "row": [1, 0]}], "not a rectangle of numbers"),
    ],
)
def test_a_file_of_contexts_that_is_none_is_refused_with_the_context_named(tmp_path, contexts, words):
    file = tmp_path / "habits.json"
    file.write_text(json.dumps({"format": "onoff-chain", "version": 1, "names": ["a", "b"], "contexts": contexts}))
    with pytest.raises(ChainError) as caught:
        Chain.load(file)
    assert words in str(caught.value)


def test_what_needs_a_markov_chain_says_so():
    tree = Chain(ROWS, states=STATES)
    for use in (lambda: tree.power(2), lambda: tree.posterior(1), lambda: tree.save("habits.csv")):
        with pytest.raises(ChainError, match=r"remember 2 requests, .* `onoff fit --memory 1`"):
            use()


def test_a_walk_follows_the_rows_of_its_states():
    path = Chain([[0.5, 0.5], [0.5, 0.5], [1, 0]], states=STATES).simulate(2000, np.random.default_rng(1))
    after = [int(c) for a, b, c in zip(path, path[1:], path[2:], strict=False) if (a, b) == (0, 1)]
    assert len(after) > 300
    assert not any(after)
    assert 0.4 < np.mean(path[1:][path[:-1] == 0]) < 0.6
