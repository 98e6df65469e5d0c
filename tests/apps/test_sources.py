"""A chain for another list of sources: what it knows of the sources that stay is what it knew."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onoff import Chain
from onoff.apps.setup import SEEN, UNKNOWN, with_sources

NAMES = tuple("abcde")
TREE = [(0,), (1,), (2,), (3,), (4,), (0, 1), (1, 1), (2, 1), (1, 2), (0, 1, 2)]


@st.composite
def chains(draw):
    """A chain of two to five sources with zeros and weights, or with memory."""
    n = draw(st.integers(2, 5))
    states = [state for state in TREE if max(state) < n] if draw(st.booleans()) else [(x,) for x in range(n)]
    whole = st.lists(st.integers(0, 9), min_size=n, max_size=n).filter(any)
    rows = [draw(whole) for _ in states]
    weight = draw(st.none() | st.lists(st.floats(1, 100), min_size=len(rows), max_size=len(rows)))
    return Chain([np.array(row) / sum(row) for row in rows], NAMES[:n], weight, states)


lists = st.lists(st.sampled_from("abcdefgh"), min_size=2, max_size=6, unique=True)


def row_after(chain, *names):
    """The row after these requests as {name: probability}, and its weight."""
    z = chain.states.index(tuple(map(chain.index, names)))
    return dict(zip(chain.names, chain.P[z], strict=True)), None if chain.weight is None else chain.weight[z]


@given(chains(), lists)
def test_sources_that_stay_keep_their_ratios_after_each_state_that_stays(chain, names):
    found = with_sources(chain, names)
    assert found.names == tuple(names)
    assert np.abs(found.P.sum(axis=1) - 1).max() < 1e-12
    stay = [name for name in chain.names if name in names]
    for state in chain.states:
        after = [chain.names[x] for x in state]
        if not set(after) <= set(stay):
            assert not set(after) <= set(names)
            continue
        (old, _), (new, _) = row_after(chain, *after), row_after(found, *after)
        if any(old[name] for name in stay) or set(names) - set(stay):
            for x in stay:
                for y in stay:
                    assert old[x] * new[y] == pytest.approx(old[y] * new[x], abs=1e-12)


@given(chains(), lists)
def test_the_states_are_the_old_ones_without_those_that_are_gone_and_the_new_sources(chain, names):
    found = with_sources(chain, names)
    kept = {tuple(chain.names[x] for x in state) for state in chain.states}
    kept = {state for state in kept if set(state) <= set(names)} | {(name,) for name in names}
    assert {tuple(found.names[x] for x in state) for state in found.states} == kept


def test_a_new_source_counts_as_seen_once_after_each_state_and_its_row_is_the_shares_of_all_requests():
    chain = Chain([[0.75, 0.25], [0.5, 0.5]], NAMES[:2], weight=[20, 10])
    found = with_sources(chain, ("b", "new", "a"))
    a, b, new = (row_after(found, name) for name in ("a", "b", "new"))
    assert a == ({"b": pytest.approx(5 / 21), "new": pytest.approx(SEEN / 21), "a": pytest.approx(15 / 21)}, 21)
    assert b == ({"b": pytest.approx(5 / 11), "new": pytest.approx(SEEN / 11), "a": pytest.approx(5 / 11)}, 11)
    shares = {"b": Fraction(21, 67), "new": Fraction(5, 67), "a": Fraction(41, 67)}  # 10, 2 and 20 of 32, half added
    assert new == ({name: pytest.approx(float(share)) for name, share in shares.items()}, UNKNOWN)


def test_a_stated_chain_that_loses_a_source_is_still_stated_and_one_that_gains_one_is_an_estimate():
    chain = Chain([[0.5, 0.25, 0.25], [0, 0, 1], [0.2, 0.4, 0.4]], NAMES[:3])
    assert with_sources(chain, chain.names) is chain
    assert with_sources(chain, ("a", "c")).weight is None
    assert with_sources(chain, ("a", "c")).P.tolist() == [pytest.approx([2 / 3, 1 / 3]), pytest.approx([1 / 3, 2 / 3])]
    more = with_sources(chain, ("a", "b", "c", "d"))
    assert more.weight[:3].tolist() == [31, 31, 31]
    assert row_after(more, "b")[0] == {"a": 0, "b": 0, "c": pytest.approx(30 / 31), "d": pytest.approx(1 / 31)}


def test_a_row_of_which_nothing_stays_is_the_shares_of_what_does():
    chain = Chain([[0, 0, 1], [0.5, 0.5, 0], [0, 1, 0]], NAMES[:3], weight=[8, 8, 8])
    found = with_sources(chain, ("a", "b"))
    assert row_after(found, "a") == ({"a": pytest.approx(0.5), "b": pytest.approx(0.5)}, UNKNOWN)
    assert row_after(found, "b") == ({"a": 0.5, "b": 0.5}, 8)
