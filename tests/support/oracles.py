"""What is tested against: random chains and laws, posteriors in fractions, the paper's program and closed forms."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from itertools import combinations
from math import lcm

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import coo_array

import exactstreams
from exactstreams import announced_law, chain_of, hidden_and_seen
from onoff import Chain
from onoff.model.posterior import Posterior, Support
from onoff.model.powers import whole_times
from onoff.schemes.flow import Network, Repair, supplies
from onoff.schemes.law import DENOMINATOR, Law, quantised


class ExactPosterior(Support):
    """`Posterior` in fractions: slow and exact, for small n. The same names, arrays of dtype object.

    The matrix is taken as the floats say, digit for digit, and every row is divided by its exact sum.
    """

    def __init__(self, chain, lag):
        super().__init__(chain, lag)
        self._P = np.array([[Fraction(float(p)) for p in row] for row in chain.P], dtype=object)
        self._power = np.array([[Fraction(int(i == j)) for j in range(self.n)] for i in range(self.n)], dtype=object)
        for _ in range(self.lag):
            self._power = whole_times(self._power, self._P)

    def row(self, last, next):
        """p(. | last, next); an error if the context is impossible."""
        self.possible(last, next)
        weights = self._power[last] * self._P[:, next]
        return weights / weights.sum()

    def blocks(self):
        """For each `last`: its possible contexts and their rows."""
        for last in range(self.n):
            block = self.contexts[self.contexts[:, 0] == last]
            yield block, np.array([self.row(last, int(k)) for k in block[:, 1]], dtype=object)

    @cached_property
    def rows(self):
        """All rows, in the order of `contexts`."""
        return np.concatenate([rows for _, rows in self.blocks()])


def all_sets(n):
    return [q for size in range(1, n + 1) for q in combinations(range(n), size)]


def paper_program(rows):
    """min E|Q| over p(q) and p(q, x | u), x in q: sum_x p(q, x | u) = p(q) and sum_q p(q, x | u) = p(x | u)."""
    rows = np.unique(np.asarray(rows, dtype=float), axis=0)
    m, n = rows.shape
    sets = all_sets(n)
    cost = [len(q) for q in sets]
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
    exact = ExactPosterior(plan.chain, lag)
    sums = [int(units) for units in table.sum(axis=1)]
    assert [units > 0 for units in sums] == exact.possible(last, following).tolist()
    truth = exact.row(last, following)
    distance = sum(abs(Fraction(units, plan.denominator) - p) for units, p in zip(sums, truth, strict=True)) / 2
    assert distance <= Fraction(plan.rounding_at(lag))
    return distance


def joint_law(chain, statuses, plans, rules):
    """Pr[requests X_0..X_T, queries Q_0..Q_{T-1}] of the session, in fractions; X_T is the known next request."""

    def law_of(path, t):
        lag, last = 0, path[0]
        for s in range(t + 1):
            lag, last = (0, path[s]) if statuses[s] else rules(lag, last, path, s)
        if lag == 0:
            return {tuple(range(chain.n)): Fraction(1)}
        row = plans[lag].encoder(last, path[t + 1], lag).toarray()[path[t]].tolist()
        return {query: Fraction(units, sum(row)) for query, units in zip(plans[lag].sets, row, strict=True) if units}

    return announced_law(chain_of(chain.P.tolist()), len(statuses), law_of)


def dependence(law, statuses):
    """Total variation between the joint law of (hidden requests, queries) and the product of its marginals."""
    return exactstreams.dependence(hidden_and_seen(law, statuses, len(statuses) - 1))


def from_fractions(joint):
    """A joint law in fractions as integer weights, as `onoff.audit.enumeration` takes them."""
    unit = lcm(*(p.denominator for row in joint for p in row))
    return np.array([[int(p * unit) for p in row] for row in joint], dtype=object)


seeds = st.integers(0, 2**32)


def random_law(n, sets, seed):
    rng = np.random.default_rng(seed)
    member = rng.random((sets, n)) < 0.4
    member[np.arange(sets), rng.integers(0, n, sets)] = True
    return member, rng.dirichlet(np.ones(sets))


def realisable_by_hall(law, row):
    """Pr[Q meets C] >= p(C | u) for every C, in integers: what a flow of the floored supplies decides."""
    supply = supplies(row, law.total)
    n = len(row)
    for size in range(1, n + 1):
        for cut in combinations(range(n), size):
            met = int(law.mass[law.member[:, list(cut)].any(axis=1)].sum())
            if met < int(supply[list(cut)].sum()):
                return False
    return True


def sigma(which, n, alpha, lag):
    """The paper's sigma_1..sigma_5 (Appendix B): p(j | i, k) by which of i, j, k are equal.

    1: i = j = k.  2: i = j != k.  3: i != j = k.  4: i = k != j.  5: all different. With r = (n alpha - 1) / (n - 1),
    P^k has (1 + (n-1) r^k) / n on its diagonal and (1 - r^k) / n elsewhere. A `Fraction` alpha is answered in kind.
    """
    r = (n * alpha - 1) / (n - 1)
    stay, leave = 1 + (n - 1) * r**lag, 1 - r**lag
    back, away = 1 + (n - 1) * r ** (lag + 1), 1 - r ** (lag + 1)
    return {
        1: lambda: alpha * stay / back,
        2: lambda: (1 - alpha) * stay / ((n - 1) * away),
        3: lambda: alpha * leave / away,
        4: lambda: (1 - alpha) * leave / ((n - 1) * back),
        5: lambda: (1 - alpha) * leave / ((n - 1) * away),
    }[which]()


def symmetric_outer(n, alpha, lag):
    """1/R^O = n max sigma: sigma_1 for alpha >= 1/n, else sigma_2 (even lag) or sigma_5 (odd lag).

    With two sources i, j, k cannot all differ; sigma_4 then takes the place of sigma_5.
    """
    if n * alpha >= 1:
        return n * sigma(1, n, alpha, lag)
    if lag % 2 == 0:
        return n * sigma(2, n, alpha, lag)
    return n * sigma(5 if n > 2 else 4, n, alpha, lag)


def symmetric_inner(n, alpha, lag):
    """1/R^I: n - n (n-1) sigma_4 for alpha >= 1/n, else with sigma_3 (even lag) or sigma_1 and sigma_3 (odd).

    With two sources the bound is always reached (Corollary 1), even if alpha = 0 leaves some sigma undefined.
    """
    if n == 2:
        return symmetric_outer(n, alpha, lag)
    if n * alpha >= 1:
        return n * sigma(4, n, alpha, lag) * (1 - n) + n
    if lag % 2 == 0:
        return n * sigma(3, n, alpha, lag) * (1 - n) + n
    return sigma(3, n, alpha, lag) * (2 * n - n * n) - n * sigma(1, n, alpha, lag) + n


def check_law(law, rows, possible):
    """What an encoder needs: units of the full set held out, a realisable rest, no set outside of a support."""
    n = law.member.shape[1]
    assert law.total == DENOMINATOR
    assert law.member[-1].all()
    assert law.mass[-1] >= n
    flowing = Network(Law(law.member, np.append(law.mass[:-1], law.mass[-1] - n)))
    for row, some in zip(rows, possible, strict=True):
        assert law.member[:, some].any(axis=1).all()
        supply = supplies(row, law.total - n)
        assert flowing.ship(supply) >= int(supply.sum()) - n


def shortfall(rows, member, mass):
    """The mass that the law cannot take, over all rows."""
    repair = Repair(quantised(member, mass, DENOMINATOR))
    return sum(repair.shortfall(row) for row in rows) / DENOMINATOR
