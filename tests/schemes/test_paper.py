"""Every claim of the paper's Section VI: equality in fractions on n <= 4, tolerances in floats up to n = 12."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from onoff import Chain, bounds
from onoff.schemes.paper import _thresholds, paper
from onoff.testing import chains
from oracles import ExactPosterior, symmetric_outer
from sampling import examples

lags = st.integers(1, 3)
small = chains(max_sources=4)


def joint(scheme, context):
    """p(z, x | u) of the atoms, and of the full set (Step 5)."""
    total = Counter()
    for atom in scheme.atoms:
        yields = dict(zip(atom.excepted.tolist(), atom.others.tolist(), strict=True))
        total[atom.multiset, yields.get(context, atom.owner)] += atom.mass
    for x, mass in enumerate(scheme.remainder[context]):
        total[tuple(range(scheme.posterior.n)), x] += mass
    return total


def sizes(scheme):
    """P(|Z| = l) for l = 1..n. An atom holds at most n - 1 sources."""
    masses = [scheme.full_mass * 0] * (scheme.posterior.n - 1) + [scheme.full_mass]
    for atom in scheme.atoms:
        masses[len(atom.others)] += atom.mass
    return masses


def law(scheme, context):
    """p(z | u)."""
    total = Counter()
    for (z, _), mass in joint(scheme, context).items():
        total[z] += mass
    return total


@given(small, lags)
def test_every_query_holds_the_request_the_law_is_the_same_in_every_context_and_marginals_are_the_posterior(chain, lag):
    scheme = paper(ExactPosterior(chain, lag))
    first = law(scheme, 0)
    assert sum(first.values()) == 1
    for context, row in enumerate(scheme.posterior.rows):
        marginal = Counter()
        for (z, x), mass in joint(scheme, context).items():
            assert x in z
            assert mass >= 0
            marginal[x] += mass
        assert [marginal[x] for x in range(chain.n)] == row.tolist()
        assert law(scheme, context) == first


@given(small, lags)
def test_sizes_are_theta_and_the_cost_is_at_most_inner(chain, lag):
    scheme = paper(ExactPosterior(chain, lag))
    found = bounds(scheme.posterior)
    assert sizes(scheme) == found.theta.tolist()
    assert all(sum(row) == scheme.full_mass for row in scheme.remainder)
    assert found.outer <= scheme.cost <= found.inner
    sets = scheme.law()
    assert sum(sets.values()) == 1
    assert sum(len(q) * mass for q, mass in sets.items()) == scheme.cost
    assert all(list(q) == sorted(set(q)) for q in sets)


@given(small, lags)
def test_proposition_2_the_budget_of_every_row_suffices(chain, lag):
    rows = ExactPosterior(chain, lag).rows
    order, thresholds = _thresholds(rows)
    spent = [Fraction(0)] * len(rows)
    for level in range(1, len(thresholds)):
        for x in range(chain.n):
            for u in order[: level - 1, x]:
                spent[u] += thresholds[level, x] - thresholds[level - 1, x]
    for u, row in enumerate(rows):
        budget = sum(max(p - t, Fraction(0)) for p, t in zip(row, thresholds[-1], strict=True))
        assert budget - spent[u] == 1 - sum(thresholds[-1])
        assert budget >= spent[u]


@given(chains(), lags)
@settings(max_examples=examples(60))
def test_all_claims_in_floats_up_to_twelve_sources(chain, lag):
    posterior = chain.posterior(lag)
    scheme, found = paper(posterior), bounds(posterior)
    n, m = chain.n, len(posterior.contexts)
    # Atoms are the same in every context, so equal laws hold by construction; what remains is what they yield.
    marginals = scheme.remainder.copy()
    for atom in scheme.atoms:
        assert atom.mass > 0
        yields = np.full(m, atom.owner)
        yields[atom.excepted] = atom.others
        assert len(set(atom.excepted.tolist())) == len(atom.others) < n - 1
        assert Counter(atom.multiset) == Counter([atom.owner, *atom.others.tolist()])
        marginals[np.arange(m), yields] += atom.mass
    assert abs(marginals - posterior.rows).max() < 1e-12
    assert abs(scheme.remainder.sum(axis=1) - scheme.full_mass).max() < 1e-12
    assert abs(np.array(sizes(scheme)) - found.theta).max() < 1e-12
    assert found.outer - 1e-12 <= scheme.cost <= found.inner + 1e-12
    assert abs(sum(scheme.law().values()) - 1) < 1e-12
    assert len(scheme.atoms) <= n * (n - 1) + m * n


@given(chains(max_sources=2), lags)
def test_two_sources_reach_the_outer_bound(chain, lag):
    posterior = ExactPosterior(chain, lag)
    assert paper(posterior).cost == bounds(posterior).outer


@given(st.sampled_from([2, 3, 5]), st.integers(0, 16), lags)
def test_symmetric_chains_that_stay_reach_the_outer_bound_exactly(n, k, lag):
    # With these n a dyadic alpha makes (1 - alpha) / (n - 1) dyadic too: the floats of the chain are exact.
    alpha = Fraction(k, 16)
    if n * alpha >= 1:
        posterior = ExactPosterior(Chain.symmetric(n, float(alpha)), lag)
        assert paper(posterior).cost == bounds(posterior).outer == symmetric_outer(n, alpha, lag)


def test_few_contexts_get_a_partial_level():
    # Four contexts of sixteen: lambda is 1/3, 2/3, 4/3, ..., and the text's algorithm breaks on lambda_3 > 1.
    chain = Chain.from_counts([[0, 2, 0, 1], [0, 0, 0, 1], [0, 1, 0, 2], [0, 0, 0, 1]], smoothing=0)
    posterior = ExactPosterior(chain, 1)
    assert len(posterior.contexts) == 4
    assert 1 < bounds(posterior).lam[2] < 1.34
    _, thresholds = _thresholds(posterior.rows)
    assert sum(thresholds[-1]) == 1
    scheme = paper(posterior)
    assert scheme.full_mass == 0
    assert sizes(scheme) == bounds(posterior).theta.tolist()
    assert sizes(scheme)[2] > 0.3
