"""The race: the clocks have their law, the winners are exact, and the law of the query is the same in every context."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare, kstest

from onoff import Chain
from onoff.errors import ContextError, PlanError
from onoff.plans.race import RacePlan, race_plan
from onoff.schemes import clocks
from onoff.schemes.race import SLACK, Race
from onoff.testing import chains
from oracles import ExactPosterior
from sampling import examples, one_in

FALSE_ALARM = 1e-6  # of each statistical test below; seeds are fixed, so a run either always alarms or never


def dirichlet(n, concentration, seed):
    return Chain(np.random.default_rng(seed).dirichlet(np.full(n, concentration), n))


def plan_without_cost(chain, lag):
    return RacePlan(chain, lag, cost=1.0, interval=(1.0, 1.0), lower_bound=1.0)


# Clocks


def test_digits_of_a_clock_are_those_of_an_exponential():
    # Pr[digit of 2^k is 1] = sum over odd j of exp(-j 2^k) - exp(-(j+1) 2^k) = 1 / (1 + exp(2^k)).
    for place, threshold in zip(range(clocks.WHOLE - 1, -clocks.BIASED - 1, -1), clocks.THRESHOLDS, strict=True):
        assert abs(int(threshold) / 2**64 - 1 / (1 + np.exp(2.0**place))) < 1e-15
    assert len(clocks.THRESHOLDS) == clocks.WORDS - 1 == 64


def test_clocks_are_exponential():
    values = np.array(clocks._exponentials(20_000, random.Random(5).randrange), dtype=float) / 2.0**clocks.FINE
    assert kstest(values, "expon").pvalue > FALSE_ALARM
    assert kstest(values * 1.05, "expon").pvalue < FALSE_ALARM  # and the test rejects a planted error of 5 %
    # The eight digits from 1 to 1/128: their joint law.
    digits = np.floor(values * 128).astype(int) % 256
    edges = np.arange(256)[None, :] / 128 + 2 * np.arange(40)[:, None]
    expected = (np.exp(-edges) - np.exp(-edges - 1 / 128)).sum(axis=0)
    counts = np.bincount(digits, minlength=256)
    assert chisquare(counts, expected / expected.sum() * len(digits)).pvalue > FALSE_ALARM


# Winners


def everywhere(race, times):
    """The winners by comparing every source in every context."""
    keep = race._start.dtype.type(1 - SLACK)
    speed = (times.min() / times).astype(race._start.dtype)
    scores = (race._left * speed[:, None])[:, :, None] * race._right[:, None, :]
    best = np.maximum(race._start, scores.max(axis=0))
    return [y for y in range(race.n) if (scores[y] >= best * keep).any()]


@pytest.mark.parametrize(("n", "concentration", "lag"), [(40, 1.0, 1), (40, 0.1, 1), (60, 5.0, 2), (30, 0.3, 5)])
def test_pruning_changes_nothing(n, concentration, lag):
    chain = dirichlet(n, concentration, 7)
    race = Race(chain.P, chain.power(lag))
    randbelow = random.Random(11).randrange
    sizes = set()
    for _ in range(25):
        times = clocks.fresh_clocks(n, randbelow)
        winners = race.winners(times)
        assert winners == everywhere(race, times)
        sizes.add(len(winners))
    assert len(sizes) > 1


@given(chains(max_sources=5), st.integers(1, 3), st.integers(0, 2**32))
@settings(max_examples=examples(60))
def test_every_true_winner_is_found(chain, lag, seed):
    exact = ExactPosterior(chain, lag)
    race = Race(chain.P, chain.power(lag))
    times = clocks.fresh_clocks(chain.n, random.Random(seed).randrange)
    found = race.winners(times)
    for row in exact.rows:
        if max(row) > 0 and race.faint == 0:
            scores = [p / Fraction(t) for p, t in zip(row, times.tolist(), strict=True)]
            assert scores.index(max(scores)) in found


def test_when_the_budget_is_spent_the_undecided_are_included(monkeypatch):
    chain = dirichlet(50, 0.2, 3)
    race = Race(chain.P, chain.power(1))
    times = clocks.fresh_clocks(50, random.Random(2).randrange)
    exact = race.winners(times)
    monkeypatch.setattr("onoff.schemes.race.BUDGET", -1)
    assert set(exact) < set(race.winners(times))


# The law


def laws_by_context(plan, lag, per_context, seed, draw):
    """A table of counts: one line for each context (and one for the unconditional race), a column for each set."""
    rng, randbelow = np.random.default_rng(seed), random.Random(seed).randrange
    posterior = plan.chain.posterior(lag)
    lines = []
    for (last, following), row in zip(posterior.contexts.tolist(), posterior.rows, strict=True):
        requests = rng.choice(plan.n, size=per_context, p=row)
        lines.append(Counter(draw(int(x), last, following, randbelow) for x in requests))
    free = Counter(tuple(plan._race.winners(clocks.fresh_clocks(plan.n, randbelow))) for _ in range(4 * per_context))
    lines.append(free)
    total = sum(lines, Counter())
    common = [query for query, count in total.items() if count >= 5 * len(lines)]
    table = [[line[q] for q in common] + [sum(line.values()) - sum(line[q] for q in common)] for line in lines]
    return np.array(table)[:, np.array(table).sum(axis=0) > 0]


@pytest.mark.parametrize("chain", [dirichlet(4, 1.0, 5), Chain(0.85 * np.roll(np.eye(4), 1, axis=1) + 0.15 / 4)])
@pytest.mark.parametrize(("lag", "served"), one_in(2, [(1, 1), (2, 2), (1, 2), (1, 3)]))
def test_the_law_is_the_same_in_every_context(chain, lag, served):
    """On a strongly correlated chain, too."""
    plan = plan_without_cost(chain, lag)
    table = laws_by_context(plan, served, 300, 9, lambda x, i, k, r: plan.draw(x, i, k, served, r))
    assert chi2_contingency(table).pvalue > FALSE_ALARM


def test_the_test_of_equal_laws_rejects_a_clock_that_forgets_the_others():
    # The planted error: only the clock of the request depends on the request.
    plan = plan_without_cost(dirichlet(4, 1.0, 5), 1)
    posterior = plan.chain.posterior(1)

    def draw(request, last, following, randbelow):
        fine = clocks._exponentials(4, randbelow)
        fine[request] = int(fine[request] * posterior.row(last, following)[request])
        return tuple(sorted({request, *plan._race.winners(clocks._on_grid(fine))}))

    assert chi2_contingency(laws_by_context(plan, 1, 300, 9, draw)).pvalue < FALSE_ALARM


def test_the_test_of_equal_laws_rejects_the_true_past_at_a_larger_lag():
    # Serving a larger lag with the true earlier request instead of a fresh draw of it: here, always the same one.
    plan = plan_without_cost(dirichlet(4, 1.0, 5), 1)
    draw = lambda x, i, k, r: plan.draw(x, i, k, 1, r)  # noqa: E731
    assert chi2_contingency(laws_by_context(plan, 3, 300, 9, draw)).pvalue < FALSE_ALARM


@given(chains(max_sources=6), st.integers(1, 3), st.integers(0, 2), st.integers(0, 2**32))
@settings(max_examples=examples(60))
def test_every_possible_request_is_served_however_unlikely(chain, lag, more, seed):
    plan = plan_without_cost(chain, lag)
    posterior = chain.posterior(lag + more)
    randbelow = random.Random(seed).randrange
    for last, following in posterior.contexts.tolist()[:6]:
        for request in np.flatnonzero(posterior.possible(last, following)):
            query = plan.draw(int(request), last, following, lag + more, randbelow)
            assert request in query
            assert list(query) == sorted(set(query))
    assert plan.rounding_at(lag + more) >= plan.rounding > 0


def ladder(n, climb):
    """One step up with a small probability, else down to the bottom: high sources are hardly ever reached."""
    P = np.zeros((n, n))
    P[:, 0] = 1 - climb
    P[np.arange(n), np.minimum(np.arange(n) + 1, n - 1)] += climb
    return Chain(P)


RARE = Chain([[0.5, 0.5, 1e-130, 0], [0.5, 0.5, 1e-130, 0], [0, 0, 0, 1], [0.5, 0.5, 0, 0]])


@pytest.mark.parametrize(("chain", "lag"), [(RARE, 1), (ladder(100, 1e-3), 80), (ladder(60, 0.01), 150)])
def test_a_source_that_is_hardly_ever_reached_does_not_push_the_others_out(chain, lag):
    plan = race_plan(chain, lag, draws=20, randbelow=random.Random(1).randrange)
    assert plan.rounding < 2**-40
    times = clocks.fresh_clocks(chain.n, random.Random(2).randrange)
    assert plan._race.winners(times) == everywhere(plan._race, times)
    assert plan._race.winners(times)
    row = chain.posterior(lag).row(0, 0)
    assert int(np.argmax(row / times)) in plan._race.winners(times)


@given(chains(max_sources=6), st.integers(1, 6))
def test_the_rounding_is_small_for_every_kind_of_chain(chain, lag):
    assert plan_without_cost(chain, lag).rounding < 2**-45


def test_the_request_is_in_the_query_even_if_it_is_not_among_the_winners(monkeypatch):
    plan = plan_without_cost(dirichlet(5, 1.0, 1), 1)
    monkeypatch.setattr(Race, "winners", lambda self, times: [])
    assert plan.draw(3, 1, 2) == (3,)


def test_the_slack_takes_in_what_rounding_could_exclude():
    chain = dirichlet(20, 1.0, 4)
    race = Race(chain.P, chain.power(1))
    times = clocks.fresh_clocks(20, random.Random(8).randrange)
    winners = set(race.winners(times))
    for y in range(20):
        for factor in (1 - 2.0**-21, 1 + 2.0**-21):  # more than any rounding of a score
            moved = times.copy()
            moved[y] *= factor
            exact = {int(np.argmax(row / moved)) for row in chain.posterior(1).rows}
            assert exact <= winners | set(race.winners(moved))
            assert exact <= winners


# The plan


def test_impossible_requests_and_smaller_lags_are_errors():
    plan = plan_without_cost(Chain([[0, 1, 0], [0, 0, 1], [0.5, 0.5, 0]]), 2)
    with pytest.raises(ContextError, match="the request '0' is impossible"):
        plan.draw(0, 0, 1)
    with pytest.raises(PlanError, match="smaller lag 1"):
        plan.draw(2, 0, 0, lag=1)
    with pytest.raises(PlanError, match="at least 1"):
        plan_without_cost(Chain.symmetric(3, 0.5), 0)
    for lag in (0, 2.5):
        with pytest.raises(PlanError):
            plan.rounding_at(lag)
