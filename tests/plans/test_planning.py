"""Plans: equal to the paper's own program, exact in every context, and honest about what they are."""

from __future__ import annotations

import random
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from onoff import Chain, bounds, plan
from onoff.errors import ContextError, PlanError
from onoff.plans.race import FIRST_DRAWS, RacePlan
from onoff.plans.table import TablePlan
from onoff.schemes.optimum import optimal_law
from onoff.schemes.race import Race
from onoff.testing import chains
from oracles import check_encoder, paper_program, random_chain, restricted
from sampling import examples, one_in

FALSE_ALARM = 1e-6
KINDS = ("dense", "sparse", "periodic", "symmetric")


# The optimum


LARGER = [pytest.param(*case, marks=pytest.mark.long) for case in product([6, 7], KINDS, [1, 2, 3, 4])]


@pytest.mark.parametrize(("n", "kind", "lag"), [*one_in(3, product([2, 3, 4, 5], KINDS, [1, 2, 3, 4])), *LARGER])
def test_the_optimum_is_that_of_the_papers_program(kind, n, lag):
    chain = random_chain(kind, n, seed=lag)
    found = plan(chain, lag, "optimal", gap=5e-8)
    value = paper_program(chain.posterior(lag).rows)
    assert abs(found.cost - value) < 1e-7 * max(1, value)
    assert found.lower_bound <= value + 1e-7
    assert found.gap <= 5e-8


@given(chains(max_sources=5), st.integers(1, 3))
@settings(max_examples=examples(40))
def test_the_optimum_on_chains_of_every_kind(chain, lag):
    assert plan(chain, lag, "optimal").cost == pytest.approx(paper_program(chain.posterior(lag).rows), abs=3e-6)


@pytest.mark.parametrize(("lag", "rate"), [(1, 0.6875), (2, 0.7916667), (3, 0.7978972)])
def test_the_known_optimum_of_figure_2(lag, rate):
    assert abs(1 / plan(Chain.symmetric(3, 0.25), lag, gap=1e-9).cost - rate) < 1e-7


@given(chains(min_sources=3, max_sources=5), st.integers(1, 3), st.data())
@settings(max_examples=examples(30))
def test_adding_a_context_never_lowers_the_optimum(chain, lag, data):
    possible = chain.posterior(lag).contexts.tolist()
    left_out = data.draw(st.sampled_from(possible))
    fewer = restricted(chain, lag, lambda i, k: [i, k] != left_out)
    if len(fewer.contexts):
        law, proof = optimal_law(fewer, 1e-7, np.inf)
        assert proof.bound <= plan(chain, lag, "optimal", gap=1e-7).cost
        assert float(law.cost()) <= proof.bound * (1 + 1e-6)


@given(chains(min_sources=2, max_sources=6), st.integers(1, 3))
@settings(max_examples=examples(25))
def test_bound_and_costs_are_ordered(chain, lag):
    best = plan(chain, lag, "optimal")
    for scheme in ("everything", "paper", "comb", "auto"):
        other = plan(chain, lag, scheme)
        assert best.lower_bound <= other.cost <= chain.n + 1e-9
        assert other.lower_bound <= best.cost
        assert other.gap == pytest.approx(other.cost / other.lower_bound - 1, abs=1e-12)
    assert bounds(chain.posterior(lag)).outer * (1 - 1e-12) <= best.cost


@given(chains(max_sources=5), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=examples(25))
def test_the_optimum_never_rises_with_the_lag(chain, lag, more):
    assert plan(chain, lag + more, "optimal").lower_bound <= plan(chain, lag, "optimal").cost


# Every context, exactly


@given(chains(max_sources=5), st.integers(1, 3), st.sampled_from(["everything", "paper", "comb", "optimal"]))
@settings(max_examples=examples(60))
def test_every_encoder_of_every_plan_keeps_its_promise(chain, lag, scheme):
    made = plan(chain, lag, scheme)
    for last, following in chain.posterior(lag).contexts.tolist():
        check_encoder(made, last, following)


@given(chains(max_sources=4), st.integers(1, 2), st.integers(1, 40), st.sampled_from(["comb", "optimal"]))
@settings(max_examples=examples(30))
def test_a_plan_serves_every_larger_lag(chain, lag, more, scheme):
    made = plan(chain, lag, scheme)
    for last, following in chain.posterior(lag + more).contexts.tolist():
        check_encoder(made, last, following, lag + more)


def test_a_law_that_does_not_fit_its_chain_is_refused_when_it_is_used():
    made = plan(random_chain("dense", 5, 1), 1)
    other = replace(made, chain=random_chain("dense", 5, 9))
    with pytest.raises(PlanError, match="not realisable"):
        _ = [other.encoder(last, following) for last, following in other.chain.posterior(1).contexts.tolist()]


def test_a_plan_can_be_used_from_many_threads():
    chain = random_chain("dense", 12, 2)
    made = plan(chain, 1)
    contexts = chain.posterior(1).contexts.tolist()
    alone = [made.encoder(last, following).toarray() for last, following in contexts]
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(lambda context: made.encoder(*context).toarray(), contexts * 4))
    finally:
        sys.setswitchinterval(old)
    assert all((table == alone[i % len(contexts)]).all() for i, table in enumerate(together))


@pytest.mark.parametrize("lag", [1, 4])
def test_an_encoder_refuses_what_its_rounding_does_not_cover(monkeypatch, lag):
    made = plan(random_chain("dense", 5, 1), 1)
    assert made.rounding >= 4 * 5 / made.denominator + made.posterior.relative_error
    assert made.rounding < 2**-45
    mixing = 0.0 if lag == 1 else made.posterior.relative_error + made.chain.posterior(lag).relative_error
    most = (4 * 5 + 1) / made.denominator + mixing  # a unit more than is stated: `off_by` rounds up by one
    monkeypatch.setattr("onoff.schemes.encoder.Encoder.off_by", lambda *_: most)
    made.encoder(1, 2, lag)
    monkeypatch.setattr("onoff.schemes.encoder.Encoder.off_by", lambda *_: most * (1 + 1e-9))
    made.encoder(1, 2, lag)  # the newest encoder is remembered, and was checked
    with pytest.raises(PlanError, match=f"not realisable at lag {lag}"):
        made.encoder(2, 2, lag)


@pytest.mark.parametrize(("kind", "lag"), [("dense", 2), pytest.param("sparse", 3, marks=pytest.mark.long)])
def test_chains_above_fifty_sources_are_exact_in_every_context(kind, lag):
    """They take the way with slack and screening; fractions are out of reach, so the float row stands in."""
    made = plan(random_chain(kind, 55, 1), lag, "comb")
    posterior = made.chain.posterior(lag)
    for last, following in posterior.contexts[::97].tolist():
        table = made.encoder(last, following)
        assert tuple(np.asarray(table.sum(axis=0)).tolist()) == made.masses
        sums = np.asarray(table.sum(axis=1)) / made.denominator
        row = posterior.row(last, following)
        assert abs(sums - row).sum() / 2 <= 2 * made.rounding
        assert ((sums > 0) == posterior.possible(last, following)).all()


# The sampler


@pytest.mark.parametrize(("draws", "shift"), [(7_500, 0.04), pytest.param(30_000, 0.02, marks=pytest.mark.long)])
def test_draws_follow_the_encoder_and_the_test_rejects_a_perturbed_one(draws, shift):
    chain = random_chain("dense", 4, 5)
    made = plan(chain, 1)
    randbelow = random.Random(3).randrange
    table = made.encoder(1, 2).toarray().astype(float)
    request = int(table.sum(axis=1).argmax())
    options = np.flatnonzero(table[request])
    assert len(options) > 2
    drawn = Counter(made.draw(request, 1, 2, randbelow=randbelow) for _ in range(draws))
    counts = np.array([drawn[made.sets[i]] for i in options])
    assert counts.sum() == draws
    weights = table[request, options] / table[request].sum()
    assert chisquare(counts, weights * draws).pvalue > FALSE_ALARM
    bent = weights.copy()
    bent[np.argsort(weights)[-2:]] += (shift, -shift)  # two sets that differ by so many of the draws
    assert chisquare(counts, bent * draws).pvalue < FALSE_ALARM


def test_draws_use_the_operating_systems_randomness_unless_told_otherwise():
    import secrets

    assert TablePlan.draw.__defaults__ == (None, secrets.randbelow)
    assert RacePlan.draw.__defaults__ == (None, secrets.randbelow)


# What is refused


def test_bad_questions_get_clear_errors():
    chain = Chain([[0, 1, 0], [0, 0, 1], [0.5, 0.5, 0]], ["a", "b", "c"])
    for arguments, words in (
        ({"scheme": "best"}, "no scheme 'best'"),
        ({"gap": -1}, "the gap is -1"),
        ({"time_limit": 0}, "time limit is 0"),
        ({"gap": "a"}, "the gap is 'a'"),
        ({"lag": 10**18}, "the lag is 1"),
    ):
        with pytest.raises(PlanError, match=words):
            plan(chain, **{"lag": 1, **arguments})
    made = plan(chain, 2)
    with pytest.raises(PlanError, match="not private at the smaller lag 1"):
        made.encoder(0, 0, lag=1)
    with pytest.raises(ContextError, match=r"last='a', next='c'"):
        made.draw(0, 0, 2)
    with pytest.raises(ContextError, match="the request 'a' is impossible"):
        made.draw(0, 0, 0)


def test_lag_zero_is_everything():
    made = plan(Chain.symmetric(4, 0.3), 0)
    assert made.scheme == "everything"
    assert made.cost == 4
    assert made.draw(2, 2, 1) == (0, 1, 2, 3)


def test_a_time_limit_leaves_an_honest_gap(monkeypatch):
    chain = random_chain("dense", 20, 4)
    seen = []

    def tell(cost, bound):
        seen.append((cost, bound))
        monkeypatch.setattr("onoff.schemes.optimum.time", SimpleNamespace(monotonic=lambda: np.inf))

    made = plan(chain, 1, "optimal", gap=0, time_limit=600, progress=tell)  # time is up as soon as the comb is made
    assert made.scheme == "comb"
    assert made.gap > 0
    assert made.cost == pytest.approx(float(made.law.cost()))
    assert made.lower_bound == pytest.approx(bounds(chain.posterior(1)).outer)
    assert seen[-1] == (made.cost, made.lower_bound)


@pytest.mark.parametrize("scheme", ["auto", "comb", "optimal"])
def test_a_plan_without_time_is_the_race_not_everything_and_its_cost_takes_few_draws(scheme, monkeypatch):
    chain, draws, winners = random_chain("dense", 40, 4), [], Race.winners
    monkeypatch.setattr(Race, "winners", lambda race, clocks: draws.append(1) or winners(race, clocks))
    made = plan(chain, 3, scheme, time_limit=1e-9)
    assert made.scheme == "race"
    assert len(draws) == FIRST_DRAWS
    assert made.at_most < chain.n
    assert made.lower_bound == pytest.approx(bounds(chain.posterior(3)).outer)


def test_auto_takes_the_race_where_the_comb_is_too_large(monkeypatch):
    monkeypatch.setattr("onoff.plans.plan.COMB_LIMIT", 5)
    assert isinstance(plan(Chain.symmetric(6, 0.5), 1), RacePlan)
    assert isinstance(plan(Chain.symmetric(6, 0.5), 0), TablePlan)
    monkeypatch.setattr("onoff.schemes.paper.LIMIT", 5)
    with pytest.raises(PlanError, match="up to 5 are supported"):
        plan(Chain.symmetric(6, 0.5), 1, "paper")


# Symmetric chains


@pytest.mark.parametrize("lag", [1, 2, 3])
@pytest.mark.parametrize(("n", "share"), [(5, 0.5), (8, 0.9), (12, 0.1), (9, 0.02)])
def test_symmetric_chains_and_their_relabellings(n, share, lag):
    chain = Chain.symmetric(n, share / n)
    moved = Chain(chain.P[np.random.default_rng(1).permutation(n)])
    one, other = plan(chain, lag), plan(moved, lag)
    assert max(one.gap, other.gap) <= 1e-6
    assert one.cost == pytest.approx(other.cost, rel=3e-6)
    nearly = chain.P.copy()
    nearly[0, 0] += 1e-7
    nearly[0, 1] -= 1e-7
    general = plan(Chain(nearly), lag)
    assert general.cost == pytest.approx(one.cost, rel=1e-4)


def test_the_closed_form_on_singletons_and_pairs():
    # With s = max_c n (n-1) (pi(c) - c/n) / (c (n-c)) at most 1 the optimum is 1 + s.
    n, lag = 10, 1
    chain = Chain.symmetric(n, 0.5 / n)
    rows = np.sort(chain.posterior(lag).rows, axis=1)[:, ::-1].cumsum(axis=1).max(axis=0)
    c = np.arange(1, n)
    s = (n * (n - 1) * (rows[:-1] - c / n) / (c * (n - c))).max()
    assert s <= 1
    assert plan(chain, lag).cost == pytest.approx(1 + s, rel=1e-6)


def test_the_name_of_a_plan_tells_tables_apart():
    chain = random_chain("dense", 4, 1)
    first, second = plan(chain, 2), plan(chain, 2, gap=0.5)
    assert first.name.startswith("optimal, lag 2, ")
    assert first.name == plan(chain, 2).name
    assert first.masses != second.masses
    assert first.name != second.name
    assert plan(chain, 2, "race").name == "race, lag 2"
