"""Every claim of the paper's Section VI: equality in fractions on n <= 4, tolerances in floats up to n = 12."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onoff import Chain, bounds
from onoff.schemes.paper import _thresholds, paper
from onoff.testing import chains
from oracles import ExactPosterior, random_chain, symmetric_outer
from sampling import examples

lags = st.integers(1, 3)
small = chains(max_sources=4)


def remainders(scheme):
    """What the atoms leave of every row of the posterior, by request: the full set's part (equation 49)."""
    left = scheme.posterior.rows.copy()
    for atom in scheme.atoms:
        yields = np.full(len(left), atom.owner)
        yields[atom.excepted] = atom.others
        left[np.arange(len(left)), yields] -= atom.mass
    return left


def sizes(scheme):
    """P(|Z| = l) for l = 1..n. An atom holds at most n - 1 sources."""
    masses = [scheme.full_mass * 0] * (scheme.posterior.n - 1) + [scheme.full_mass]
    for atom in scheme.atoms:
        masses[len(atom.others)] += atom.mass
    return masses


@example(random_chain("dense", 4, 7), 1)  # where an atom that takes what another took shows
@given(small, lags)
def test_in_every_context_the_atoms_take_no_more_than_the_posterior_and_leave_the_mass_of_the_full_set(chain, lag):
    """Atoms hold the request and are the same in every context: so is the law, and its marginals are the posterior."""
    scheme = paper(ExactPosterior(chain, lag))
    left = remainders(scheme)
    assert (left >= 0).all()
    assert all(sum(row) == scheme.full_mass for row in left)
    assert sum(atom.mass for atom in scheme.atoms) + scheme.full_mass == 1
    assert all(atom.mass > 0 for atom in scheme.atoms)


@given(small, lags)
def test_sizes_are_theta_and_the_cost_is_at_most_inner(chain, lag):
    scheme = paper(ExactPosterior(chain, lag))
    found = bounds(scheme.posterior)
    assert sizes(scheme) == found.theta.tolist()
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
    n, m, left = chain.n, len(posterior.contexts), remainders(scheme)
    for atom in scheme.atoms:
        assert atom.mass > 0
        assert len(set(atom.excepted.tolist())) == len(atom.others) < n - 1
        assert Counter(atom.multiset) == Counter([atom.owner, *atom.others.tolist()])
    assert left.min() > -1e-12
    assert abs(left.sum(axis=1) - scheme.full_mass).max() < 1e-12
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
