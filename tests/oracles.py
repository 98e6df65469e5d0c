"""What the planner is tested against: the paper's own linear program (24), and laws checked in fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from onoff import Chain
from onoff.posterior import Posterior


def all_sets(n):
    return [q for size in range(1, n + 1) for q in combinations(range(n), size)]


def paper_program(rows, lengths=None):
    """min E|Q| over p(q) and p(q, x | u), x in q: sum_x p(q, x | u) = p(q) and sum_q p(q, x | u) = p(x | u)."""
    rows = np.unique(np.asarray(rows, dtype=float), axis=0)
    m, n = rows.shape
    sets = all_sets(n)
    lengths = np.ones(n) if lengths is None else np.asarray(lengths, dtype=float)
    cost = [lengths[list(q)].sum() for q in sets]
    i, j, values, b = [], [], [], []
    column = len(sets)
    for u in range(m):
        first = len(b)
        for number, q in enumerate(sets):
            i.append(first + number)
            j.append(number)
            values.append(-1.0)
            for x in q:
                i += [first + number, first + len(sets) + x]
                j += [column, column]
                values += [1.0, 1.0]
                column += 1
        b += [0.0] * len(sets) + list(rows[u])
    A = coo_array((values, (i, j)), shape=(len(b), column)).tocsr()
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    solved = linprog(cost + [0.0] * (column - len(sets)), A_eq=A, b_eq=b, method="highs", options=tight)
    assert solved.status == 0, solved.message
    return solved.fun


def random_chain(kind, n, seed):
    """One chain of a kind: the four families that the planner is compared on."""
    rng = np.random.default_rng([seed, n])
    if kind == "dense":
        return Chain(rng.dirichlet(np.ones(n), n))
    if kind == "sparse":
        weights = rng.random((n, n)) * (rng.random((n, n)) < 0.4)
        weights[np.arange(n), rng.permutation(n)] += 0.3
    elif kind == "periodic":
        part = np.arange(n) % 2
        weights = (rng.random((n, n)) + 0.05) * (part[:, None] != part)
    else:
        return Chain.symmetric(n, float(rng.choice([0.0, 0.4 / n, 0.9 / n, 0.5])))
    return Chain(weights / weights.sum(axis=1, keepdims=True))


def restricted(chain, lag, keep):
    """The posterior with only the contexts for which keep(last, next) holds."""
    posterior = Posterior(chain, lag)
    mask = np.array([[keep(i, k) for k in range(chain.n)] for i in range(chain.n)])
    posterior.__dict__["joined"] = posterior.joined & mask
    return posterior


def check_encoder(plan, last, following, lag=None):
    """The promises of `TablePlan.encoder` against the posterior in fractions."""
    lag = plan.lag if lag is None else lag
    table = plan.encoder(last, following, lag).toarray()
    assert table.dtype == np.int64
    assert (table >= 0).all()
    assert tuple(table.sum(axis=0).tolist()) == plan.masses
    for column, query in enumerate(plan.sets):
        assert set(np.flatnonzero(table[:, column])) <= set(query)
    exact = plan.chain.exact_posterior(lag)
    sums = [int(units) for units in table.sum(axis=1)]
    assert [units > 0 for units in sums] == exact.possible(last, following).tolist()
    truth = exact.row(last, following)
    distance = sum(abs(Fraction(units, plan.denominator) - p) for units, p in zip(sums, truth, strict=True)) / 2
    assert distance <= Fraction(plan.rounding_at(lag))
    return distance
