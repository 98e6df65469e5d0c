"""The past engine: states, steps and encoders keep what they state, for every chain."""

from __future__ import annotations

import json
import math
import random
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onoff.past.contexts import ALIKE, SPARE, error_of, merge_equal, raise_to_floor, share_flows

from exactstreams import chain_of
from onoff import Chain
from onoff.errors import ChainError, ContextError, PlanError
from onoff.model.bounds import outer_bound
from onoff.model.posterior import RowTable
from onoff.model.powers import counts, times
from onoff.past import PastState, laws
from onoff.past import contexts as filters
from onoff.schemes.encoder import LawEncoder
from onoff.schemes.law import everything
from onoff.schemes.peel import peel
from onoff.testing import chains, trees
from oracles import paper_program, random_chain, seeds
from sampling import examples


def walk(chain, sensitive, steps, seed):
    """A stream: (state, step, query, request, context) for each OFF step after an ON one, and its random numbers."""
    rng = random.Random(seed)
    state = PastState.start(chain, sensitive)
    reader = rng.choice([z for z, home in enumerate(state.joined) if home >= 0])
    context = state.context(reader, None, private=True)
    for _ in range(steps):
        request = rng.choices(range(chain.n), chain.P[reader])[0]
        step = state.prepare()
        query = step.draw(request, context, rng.randrange)
        yield state, step, query, request, context
        state, reader = state.advance(step, query), int(chain.step[reader, request])
        context = state.context(reader, context, private=False)


@st.composite
def streams(draw, max_sources=5):
    chain = draw(st.one_of(chains(max_sources=max_sources), trees(2, 3), trees(3, 2), trees(4, 2)))
    sensitive = draw(st.sets(st.integers(0, chain.n - 1), max_size=chain.n))
    return chain, tuple(sorted(sensitive)), draw(seeds)


@given(streams())
@settings(max_examples=examples(60))
def test_every_encoder_fills_every_set_exactly_and_serves_every_possible_request(stream):
    chain, sensitive, seed = stream
    for state, step, query, request, _ in walk(chain, sensitive, 4, seed):
        assert request in query
        assert set(sensitive) <= set(query)
        assert sum(step.masses) == step.denominator
        assert len(set(step.sets)) == len(step.sets)
        assert all(set(sensitive) <= set(each) and list(each) == sorted(set(each)) for each in step.sets)
        assert step.lower_bound <= step.cost * (1 + 1e-12)
        assert step.cost <= chain.n + 1e-9
        for number, context in enumerate(step.contexts):
            table = step.encoder(context).toarray()
            assert table.dtype == np.int64
            assert (table >= 0).all()
            assert tuple(table.sum(axis=0).tolist()) == step.masses
            for column, each in enumerate(step.sets):
                assert set(np.flatnonzero(table[:, column])) <= set(each) - set(sensitive)
            sums = table.sum(axis=1)
            assert ((sums > 0) == (state.requests[context] & state.open_sources)).all()
            row = state.open_rows[number]
            off = sum(abs(Fraction(int(units), step.denominator) - Fraction(float(p)))
                      for units, p in zip(sums[state.open_sources], row, strict=True)) / 2  # fmt: skip
            assert off <= Fraction(step.rounding)


@given(streams(max_sources=4), st.sampled_from([ALIKE, 0.5]))
@settings(max_examples=examples(60))
def test_beliefs_are_the_exact_ones_up_to_their_spread_whatever_was_merged(stream, alike):
    """Every hidden state is followed in fractions, with the encoders that its readers really draw from.

    What is believed is within the spread in Hilbert's distance, so within what is stated in total variation, after any
    past.
    """
    chain, sensitive, seed = stream
    assume(chain.P[chain.P > 0].min() > 1e-20)  # nothing is raised to the floor
    P = chain_of(chain.P.tolist())
    exact = previous = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filters, "ALIKE", alike)
        found = list(walk(chain, sensitive, 4, seed))
    for state, step, query, _, _ in found:
        if exact is None:
            exact = {(z, 0): (home, {z: Fraction(1)}) for z, home in enumerate(state.joined) if home >= 0}
        else:
            exact = moved(exact, *previous, state, P)
        for context, belief in exact.values():
            assert set(belief) == set(np.flatnonzero(state.possible[context]))
            spread, kept = float(state.spreads[context]), state.beliefs[context].tolist()
            ratios = [Fraction(kept[z]) / p for z, p in belief.items()]
            assert max(ratios) <= min(ratios) * Fraction(math.exp(spread) * (1 + 2.0**-50))
            row, rows = followed(belief, P), state.rows[context].tolist()
            assert set(row) == set(np.flatnonzero(state.requests[context]))
            distance = sum(abs(row.get(x, 0) - Fraction(q)) for x, q in enumerate(rows)) / 2
            assert distance <= Fraction(error_of(spread + filters.spread_of_a_row(len(belief)), chain.n))
        previous = step, query


def followed(belief, P):
    """The law of the next request, without zeros."""
    row = {}
    for z, p in belief.items():
        for x, q in enumerate(P[z]):
            if q:
                row[x] = row.get(x, 0) + p * q
    return row


def moved(exact, step, query, state, P):
    """The exact beliefs after the query: {hidden value: (context in the new state, {state: probability})}."""
    before, column, new = step.state, step.sets.index(query), {}
    after = before.chain.step.tolist()
    for hidden, (context, belief) in exact.items():
        if context not in step.contexts:
            continue
        table, weights = step.encoder(context).toarray().tolist(), {}
        for z, p in belief.items():
            for x, q in enumerate(P[z]):
                if q and before.open_sources[x] and table[x][column]:
                    share = p * q * Fraction(table[x][column], sum(table[x]))
                    weights[after[z][x]] = weights.get(after[z][x], 0) + share
        if weights:
            home = state.context(min(weights), context, private=False)
            new[hidden] = home, {z: p / sum(weights.values()) for z, p in weights.items()}
    can_come = {after[z][s] for _, belief in exact.values() for z in belief for s in before.sensitive if P[z][s]}
    joining = {(z, id(state)): (state.context(z, None, private=False), {z: Fraction(1)}) for z in can_come}
    return {**new, **joining}


@given(streams(max_sources=4))
@settings(max_examples=examples(25))
def test_the_lower_bound_is_one_and_few_sources_reach_the_optimum(stream):
    chain, sensitive, seed = stream
    for state, step, *_ in walk(chain, sensitive, 3, seed):
        if (
            step.contexts
            and (state.requests[:, state.open_sources] == (state.rows[:, state.open_sources] > 1e-9)).all()
        ):
            least = len(sensitive) + paper_program(state.open_rows)
            assert step.lower_bound <= least + 1e-7
            assert step.cost <= least * (1 + 5e-3)


@given(streams(), st.data())
@settings(max_examples=examples(30))
def test_what_is_prepared_is_the_same_to_the_bit_whatever_was_wanted_and_after_the_journal(stream, data):
    """Only the query counts: not the request, not the context, not the object that the state was read from."""
    chain, sensitive, seed = stream
    steps = data.draw(st.integers(1, 3))
    for state, step, query, _, _ in walk(chain, sensitive, steps, seed):
        read = PastState.from_dict(chain, json.loads(json.dumps(state.as_dict())))
        assert read.as_dict() == state.as_dict()
        assert (read.place, read.joined) == (state.place, state.joined)
        assert read.same(state)
        again = read.prepare()
        assert again.as_dict() == step.as_dict()
        assert read.advance(again, query).as_dict() == state.advance(step, query).as_dict()


@pytest.mark.parametrize("sensitive", [(), (1, 4)])
def test_draws_follow_the_encoder(sensitive):
    """The one random number is below the units of the request, and picks the set that holds it, from end to end."""
    chain = random_chain("dense", 6, 3)
    state = PastState.start(chain, sensitive)
    step = state.prepare()
    for context in step.contexts:
        for request in range(chain.n):
            units = step.masses if request in sensitive else step.encoder(context).toarray()[request].tolist()
            ends = np.cumsum(units).tolist()
            for low, high, query in zip([0, *ends[:-1]], ends, step.sets, strict=True):
                for at in {low, high - 1} if low < high else ():
                    assert step.draw(request, context, {ends[-1]: at}.__getitem__) == query


def test_names_or_indices_say_what_is_sensitive():
    chain = Chain(random_chain("dense", 3, 1).P, ["news", "health", "sports"])
    assert PastState.start(chain, ["health"]).sensitive == (1,)
    assert PastState.start(chain, (2, 0, 2)).sensitive == (0, 2)
    for wrong in (["wealth"], [3], [-1], [True], [1.0], "health"):
        with pytest.raises(ChainError):
            PastState.start(chain, wrong)


def test_impossible_requests_foreign_steps_and_unknown_queries_are_errors():
    chain = Chain([[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]])
    state = PastState.start(chain)
    step = state.prepare()
    for request in (2, 3, -1, None):
        with pytest.raises(ContextError, match="impossible") as caught:
            step.draw(request, 0)
        assert (caught.value.last, caught.value.next, caught.value.request) == (None, None, request)  # sources, or None
    for context in (3, -1, None):
        with pytest.raises(PlanError, match="no context"):
            step.draw(0, context)
    with pytest.raises(PlanError, match="not a query of this step"):
        state.advance(step, (9,))
    after = state.advance(step, step.sets[0])
    with pytest.raises(PlanError, match="another state"):
        after.advance(step, step.sets[0])
    with pytest.raises(PlanError, match=r"take PastState\.after_full_set"):
        after.context(0, None, private=True)
    with pytest.raises(PlanError, match="the states are"):
        state.context(5, None, private=True)


def test_a_state_of_another_chain_or_with_damaged_parts_is_refused():
    chain, other = random_chain("dense", 3, 1), random_chain("dense", 3, 2)
    data = PastState.start(chain, [1]).as_dict()
    with pytest.raises(PlanError, match="another chain"):
        PastState.from_dict(other, data)
    for key, value in (
        ("beliefs", "AAAA"),
        ("spreads", ""),
        ("joined", [0, 1]),
        ("place", [9]),
        ("sensitive", [7]),
    ):
        with pytest.raises((PlanError, ChainError)):
            PastState.from_dict(chain, {**data, key: value})
    with pytest.raises(PlanError, match="damaged"):
        PastState.from_dict(chain, {key: value for key, value in data.items() if key != "beliefs"})


# Long streams


@pytest.mark.parametrize("sensitive", [(), (0, 5)])
def test_a_long_stream_keeps_few_contexts_and_a_small_rounding(sensitive):
    chain = random_chain("dense", 8, 4)
    found = list(walk(chain, sensitive, 150, 1))
    assert max(len(state.beliefs) for state, *_ in found) <= chain.n + SPARE
    assert max(step.rounding for _, step, *_ in found) < 1e-11
    assert len(json.dumps(found[-1][0].as_dict())) < 20_000
    assert sum(step.cost for _, step, *_ in found) <= 1.02 * sum(step.lower_bound for _, step, *_ in found)


# Merging, sharing, floors


@given(st.integers(2, 6), st.integers(2, 8), seeds)
def test_a_merge_adds_the_distance_of_the_rows_to_the_spread(n, m, seed):
    rng = np.random.default_rng(seed)
    base = rng.dirichlet(np.ones(n), m)
    rows = np.concatenate([base, base[:1], base * (1 + ALIKE / 2 * rng.random((m, n)))])
    spreads = rng.random(len(rows)) * ALIKE
    found = merge_equal(rows, rows > 0, spreads)
    assert len(found.beliefs) == m
    assert_spreads_cover(found, rows, spreads)


def assert_spreads_cover(found, rows, spreads):
    """Hilbert's distance of every row from the one that it took, in fractions, is within the growth of its spread."""
    for c, home in enumerate(found.place):
        pairs = zip(found.beliefs[home].tolist(), rows[c].tolist(), strict=True)
        ratios = [Fraction(p) / Fraction(q) for p, q in pairs if q]
        grown = Fraction(float(found.spreads[home])) - Fraction(float(spreads[c]))
        assert max(ratios) / min(ratios) <= 1 + grown + grown**2
        assert (found.possible[home] == (rows[c] > 0)).all()


def test_too_many_contexts_are_merged_where_they_are_nearest_but_never_with_another_support():
    rng = np.random.default_rng(1)
    rows = rng.dirichlet(np.ones(3), 3 + SPARE + 4)
    rows[1] = [0.5, 0.5, 0]
    found = merge_equal(rows, rows > 0, np.zeros(len(rows)))
    assert len(found.beliefs) == 3 + SPARE
    assert found.spreads.max() > 1e-6
    assert_spreads_cover(found, rows, np.zeros(len(rows)))


@given(st.integers(1, 6), st.integers(1, 8), st.floats(0, 0.5), seeds)
def test_every_context_dominates_the_row_of_its_group(n, m, allowed, seed):
    rows = np.random.default_rng(seed).dirichlet(np.ones(n), m)
    found = share_flows(rows, allowed)
    assert found.e <= allowed + 1e-12
    assert (rows >= (1 - found.e) * found.rows[found.group] - 1e-15).all()
    assert np.allclose(found.rows.sum(axis=1), 1)


def test_what_is_possible_never_underflows():
    rows = raise_to_floor(np.array([[1.0, 0.0, 0.0]]), np.array([[True, True, False]]))
    assert 0 < rows[0, 1] < 1e-200
    assert rows[0, 2] == 0


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
    law, bound = laws.law_for(table, 0)
    assert law.cost() <= 1.02 * bound


def test_a_deadline_changes_no_law_and_a_step_without_encoders_leads_nowhere():
    state = PastState.start(random_chain("dense", 14, 1))
    step, bare = state.prepare(), state.prepare(time.monotonic() + 1e6, drawn=False)
    assert (bare.law, bare.lower_bound) == (step.law, step.lower_bound)
    with pytest.raises(PlanError, match="without encoders"):
        state.advance(bare, bare.sets[0])
    for drawn in (True, False):
        with pytest.raises(TimeoutError):
            state.prepare(-np.inf, drawn)
    with pytest.raises(TimeoutError):
        LawEncoder(everything(14), 0, -np.inf).encode(state.rows, state.requests)


# Errors of rows


@given(streams(), st.integers(1, 6), seeds)
def test_the_spread_of_a_belief_grows_by_no_more_than_is_counted_for_a_move(stream, moves, seed):
    """In single precision errors are 2^29 times as large; exact beliefs beside them show how large they are."""
    chain, rng = stream[0], np.random.default_rng(seed)
    P = rng.dirichlet(np.ones(chain.n), len(chain.P)).astype(np.float32)
    matrix = np.zeros((len(P), len(P)), dtype=np.float32)
    np.put_along_axis(matrix, chain.step, P, axis=1)
    whole = np.vectorize(Fraction, otypes=[object])
    belief, exact, spread = np.eye(len(P), dtype=np.float32)[:1], whole(np.eye(len(P), dtype=int)[:1]), 0.0
    for _ in range(moves):
        terms = int(counts(belief > 0, matrix > 0).max())
        spread += filters.spread_of_a_move(terms) * 2**29
        units, totals = (
            part[:, chain.last] for part in (rng.integers(1, 50, (1, chain.n)), rng.integers(50, 99, (1, chain.n)))
        )
        single = [part.astype(np.float32) for part in (units, totals)]
        belief = filters.condition(times(belief, matrix), *single)
        exact = filters.condition(times(exact, whole(matrix.astype(float))), whole(units), whole(totals))
        ratios = [float(Fraction(float(p)) / q) for p, q in zip(belief[0], exact[0], strict=True) if q]
        assert belief.dtype == np.float32
        assert np.log(max(ratios) / min(ratios)) <= spread
        row, exact_row = (
            filters.restrict(times(belief, P), np.ones(chain.n, bool)),
            times(exact, whole(P.astype(float))),
        )
        ratios = [float(Fraction(float(p)) / q) for p, q in zip(row[0], exact_row[0], strict=True)]
        more = filters.spread_of_a_row(np.count_nonzero(belief)) * 2**29
        assert np.log(max(ratios) / min(ratios)) <= spread + more


# Habits with memory


UNLIKELY = Chain([[1, 1e-200, 0, 0], [1, 0, 1e-200, 0], [0, 0, 0, 1], [1, 0, 0, 0]])


def after_an_unlikely_path():
    """Somebody asked for 1 after 0 and for 2 after 1, with everything: that is less likely than any float."""
    state = PastState.start(UNLIKELY)
    context = state.context(0, None, private=True)
    for request in (1, 2):
        step = state.prepare()
        query = step.draw(request, context, lambda bound: bound - 1)
        assert query == (0, 1, 2, 3)
        state = state.advance(step, query)
        context = state.context(request, context, private=False)
    return state, context


def test_what_is_possible_is_decided_by_the_graph_however_unlikely_it_is():
    state, context = after_an_unlikely_path()
    assert state.possible[context, 2]
    assert 3 in state.prepare().draw(3, context)


def test_supports_from_floats_are_seen(monkeypatch):
    """Planted: a state that underflows counts as impossible. Then there is no encoder for those who came to it."""
    honest = PastState._move

    def moved(self, step, index):
        found = honest(self, step, index)
        return replace(found, possible=found.beliefs > 0)

    monkeypatch.setattr(PastState, "_move", moved)
    monkeypatch.setattr(filters, "raise_to_floor", lambda laws, possible: laws)
    state, context = after_an_unlikely_path()
    with pytest.raises(ContextError):
        state.prepare().draw(3, context)


@given(streams())
def test_after_a_run_of_private_requests_the_state_is_the_first_one_again(stream):
    chain, sensitive, seed = stream
    for state, step, query, *_ in walk(chain, sensitive, 2, seed):
        after = state.advance(step, query)
        for _ in range(chain.depth):
            after = after.after_full_set()
            assert after.possible.sum(axis=1).max() == 1
        assert after.same(PastState.start(chain, sensitive))


@given(streams(), st.data())
def test_after_a_private_request_there_is_a_context_for_each_state_that_any_request_leads_to(stream, data):
    chain, sensitive, seed = stream
    *_, (state, *_) = walk(chain, sensitive, data.draw(st.integers(1, 4)), seed)
    could = {int(chain.step[z, x]) for z in np.flatnonzero(state.possible.any(axis=0)) for x in range(chain.n)}
    after = state.after_full_set()
    assert {z for z, home in enumerate(after.joined) if home >= 0} == could
    assert len(after.contexts) == len(could)
    assert all(after.beliefs[after.joined[z], z] == 1 for z in could)


@given(streams())
def test_contexts_coincide_once_queries_of_one_source_decide_the_state(stream):
    """Theorem 2 (ii): without sensitive sources there are no more contexts than before, and at last only one."""
    chain, _, seed = stream
    run = ()
    for state, step, query, *_ in walk(chain, (), 6, seed):
        after = state.advance(step, query)
        assert len(after.contexts) <= len(state.contexts)
        run = (*run, *query) if len(query) == 1 else ()
        known = chain.known_state(run)
        if known is not None:
            assert after.possible.tolist() == [[z == known for z in range(len(chain.P))]]
            assert after.spreads.tolist() == [0.0]
        assert known is not None or len(run) < chain.depth
