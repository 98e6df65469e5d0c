"""The past engine: every step keeps what it states, for every chain; laws cost what they should."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onoff import Chain
from onoff.audit import rows as audited
from onoff.errors import ChainError, ContextError
from onoff.model.bounds import outer_bound
from onoff.model.posterior import RowTable
from onoff.past import Candidates, PastState, RaceStep, laws
from onoff.past.step import MANY, SEVERAL, is_race, prepare
from onoff.schemes.law import DENOMINATOR
from onoff.schemes.peel import peel
from onoff.testing import chains, trees
from oracles import paper_program, random_chain, seeds
from pastkit import exactly, table
from sampling import examples


@st.composite
def wild(draw):
    """Candidates of a chain of up to 40 sources, with zeros and requests of hardly any probability."""
    rng, n = np.random.default_rng(draw(seeds)), draw(st.integers(2, 40))
    P = rng.dirichlet(np.full(n, rng.choice([0.1, 1, 10])), n)
    P[rng.random((n, n)) < rng.choice([0, 0.1, 0.8])] = 0
    P[rng.random((n, n)) < 0.1] *= 10.0 ** -rng.integers(1, 290)
    P[np.arange(n), rng.permutation(n)] += 0.1
    chain = Chain(P / P.sum(axis=1, keepdims=True))
    hidden = np.flatnonzero(rng.random(n) < rng.choice([0, 0.2])).tolist()
    states = rng.choice(n, draw(st.integers(1, min(n, 8))), replace=False).tolist()
    return Candidates(chain, tuple(hidden), tuple(sorted(states)))


@st.composite
def small(draw):
    """Candidates of a small chain or tree, after some queries."""
    chain = draw(st.one_of(chains(max_sources=4), trees(2, 3), trees(3, 2)))
    sources = st.sets(st.integers(0, chain.n - 1), min_size=1)
    queries = tuple(tuple(sorted(draw(sources))) for _ in range(chain.depth))
    return PastState(chain, tuple(sorted(draw(sources) if draw(st.booleans()) else ())), queries)


@given(wild())
@settings(max_examples=examples(100))
def test_every_encoder_fills_every_set_exactly_and_its_rows_are_within_the_rounding(candidates):
    step, chain = prepare(candidates), candidates.chain
    assert sum(step.masses) == step.denominator == DENOMINATOR
    assert len(set(step.sets)) == len(step.sets)
    assert all({*candidates.hidden} <= {*query} and list(query) == sorted({*query}) for query in step.sets)
    assert step.lower_bound <= step.cost <= chain.n
    if len(candidates.live) < 3:
        assert step.cost <= step.lower_bound * (1 + 1e-12)
    for z in candidates.live:
        units = table(step, z)
        assert (units >= 0).all()
        assert tuple(units.sum(axis=0).tolist()) == step.masses
        assert not units[~step.law.member.T].any()
        opened = [float(p) * (x not in candidates.hidden) for x, p in enumerate(chain.P[z])]
        sums, row = units.sum(axis=1).tolist(), exactly(tuple(opened))
        assert [total > 0 for total in sums] == [p > 0 for p in row]
        off = sum(abs(Fraction(total, DENOMINATOR) - p) for total, p in zip(sums, row, strict=True)) / 2
        assert off <= Fraction(step.rounding)


@given(small())
@settings(max_examples=examples(60))
def test_candidates_are_the_states_after_all_requests_that_the_queries_allow(state):
    again = PastState.start(state.chain, state.sensitive)
    for query in state.queries:
        again = again.after(query)
    assert again == state
    histories = product(range(state.chain.n), *state.queries)  # whatever came before: `state_of` looks back no further
    assert set(state.candidates.states) == {state.chain.state_of(history) for history in histories}


@given(small())
@settings(max_examples=examples(30))
def test_few_sources_reach_the_optimum(state):
    step, live = prepare(state.candidates), state.candidates.live
    rows = state.candidates.rows(live)
    if live and ((rows == 0) | (rows > 1e-9)).all():
        least = len(state.sensitive) + paper_program(rows)
        assert step.lower_bound <= least + 1e-7
        assert step.cost <= least * (1 + 5e-3)


def test_a_probability_below_the_normal_floats_is_one_like_others():
    rows = [[1, 0, 0, 0], [0, 1 / 64, 0, 63 / 64], [1e-3, 1 - 1e-3, 1e-312, 0], [0, 0, 0, 1]]
    step = prepare(Candidates(Chain(rows), (0,), (1, 2, 3)))
    assert step.draw(2, 2) == (0, 1, 2, 3)


def test_the_kind_of_a_law_follows_from_the_numbers_of_sources_and_rows():
    kinds = {}
    for n, rows in product((MANY, MANY + 1), (2, SEVERAL + 1)):
        P = np.full((n, n), 1 / n)
        P[:, 0] += np.arange(n)
        step = prepare(Candidates(Chain(P / P.sum(axis=1, keepdims=True)), (), tuple(range(rows))))
        kinds[n - MANY, rows > 2] = type(step) is RaceStep, getattr(step, "owners", None) is None
    assert kinds == {
        (0, False): (False, False),
        (0, True): (False, True),
        (1, False): (False, False),
        (1, True): (True, True),
    }


def test_many_rows_of_very_many_sources_are_left_to_a_race_by_client_and_referee():
    """A draw from a table must take less than a delay: for 2,000 sources and 40 rows it took 60 ms."""
    most = {3: 3, MANY: MANY, MANY + 1: SEVERAL, 500: SEVERAL, 1000: 20, 2000: 10, 15_000: 2}
    for n, rows in product(most, (1, 2, 3, 10, 11, 20, 21, SEVERAL, SEVERAL + 1, MANY)):
        seen = SimpleNamespace(is_open=range(n), live=range(rows))
        assert is_race(n, rows) is audited.Candidates.is_race.fget(seen) is (rows > most[n] and n > MANY)


def test_names_or_indices_say_what_is_sensitive():
    chain = Chain(random_chain("dense", 3, 1).P, ["news", "health", "sports"])
    assert PastState.start(chain, ["health"]).sensitive == (1,)
    assert PastState.start(chain, (2, 0, 2)).sensitive == (0, 2)
    for wrong in (["wealth"], [3], [-1], [True], [1.0], "health"):
        with pytest.raises(ChainError):
            PastState.start(chain, wrong)


def test_impossible_requests_foreign_states_and_passed_deadlines_are_errors():
    state = PastState(Chain([[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]]), (), ((0, 1),))
    for request, reader in ((2, 0), (3, 0), (-1, 0), (None, 0), (0, 2), (0, 3), (0, -1), (0, None)):
        with pytest.raises(ContextError, match="impossible") as caught:
            state.prepare().draw(request, reader)
        assert caught.value.request == request
    with pytest.raises(TimeoutError):
        PastState.start(random_chain("dense", 14, 1)).prepare(-np.inf)


# Peeling


@given(st.integers(2, 6), st.integers(2, 6), seeds)
@settings(max_examples=examples(60))
def test_what_is_peeled_is_a_coupling_of_the_rows(n, m, seed):
    """Every set C is met as often as any row has mass on it: the law is realisable before any repair."""
    rows = np.random.default_rng(seed).dirichlet(np.full(n, 0.7), m)
    table = RowTable(rows, rows > 0)
    member, mass, _ = peel(table, 10**4)
    assert mass.sum() == pytest.approx(1)
    assert mass @ member.sum(axis=1) >= outer_bound(table) - 1e-9
    for bits in range(1, 2**n):
        cut = (bits >> np.arange(n)) & 1 > 0
        assert mass @ member[:, cut].any(axis=1) >= rows[:, cut].sum(axis=1).max() - 1e-6


@pytest.mark.parametrize("seed", [73, 2429, 17116, 1790])
def test_a_law_stays_near_its_bound_where_peeling_gets_stuck(seed):
    """Pieces of 1e-6 use up the budget. Half of the mass was left to the full set: 5 to 7 times the bound."""
    rng = np.random.default_rng(seed)
    n, contexts = int(rng.choice([13, 15, 17, 20, 25, 30])), int(rng.integers(2, 21))
    rng.integers(5)
    rows = rng.integers(0, 5, (contexts, n)).astype(float)
    rows[np.arange(contexts), rng.integers(0, n, contexts)] += 1
    rows /= rows.sum(axis=1, keepdims=True)
    table = RowTable(rows, rows > 0)
    extremes = laws._extremes(table)
    assert peel(extremes, 2 * n * extremes.groups)[2].sum(axis=1).max() > 0.3
    law, proof = laws.law_for(table)
    assert law.cost() <= 1.02 * proof.bound
