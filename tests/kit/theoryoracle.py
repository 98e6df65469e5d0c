"""The theory in fractions: posteriors, the least cost of one step and of whole streams, and plain private schemes.

Nothing here uses the package. A chain is a list of rows of fractions.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, pairwise, product

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array


def sets(n):
    """All non-empty sets of n sources."""
    return [frozenset(q) for size in range(1, n + 1) for q in combinations(range(n), size)]


def chain_of(weights):
    """The chain with rows proportional to whole numbers."""
    return [[Fraction(w, sum(row)) for w in row] for row in weights]


def times(A, B):
    return [[sum(a * b for a, b in zip(row, column, strict=True)) for column in zip(*B, strict=True)] for row in A]


def power(P, exponent):
    result = [[Fraction(i == j) for j in range(len(P))] for i in range(len(P))]
    for _ in range(exponent):
        result = times(result, P)
    return result


def posterior(P, lag):
    """p(x | last, next) of every possible context."""
    walk, beyond = power(P, lag), power(P, lag + 1)
    everyone = range(len(P))
    return {
        (i, k): [walk[i][x] * P[x][k] / beyond[i][k] for x in everyone]
        for i in everyone for k in everyone if beyond[i][k]
    }  # fmt: skip


def least_cost(rows):
    """The least mean size of a law p(q) with Pr[Q meets C] >= max_u p(C | u) for every set C."""
    rows = list(rows)
    n = len(rows[0])
    equations = [({q: Fraction(1) for q in sets(n)}, Fraction(1))]
    for cut in sets(n):
        meets = {q: Fraction(1) for q in sets(n) if q & cut}
        equations.append(({**meets, ("slack", cut): Fraction(-1)}, max(sum(row[x] for x in cut) for row in rows)))
    return minimum({q: Fraction(len(q)) for q in sets(n)}, equations)


def quantile_scheme(rows, order):
    """An exactly private scheme: each context takes its own quantile of one uniform number; the query is the image.

    Returns the law {q: mass} and the encoders {context: {x: {q: probability}}}.
    """
    cuts = {Fraction(0)}
    for row in rows.values():
        reached = Fraction(0)
        for x in order:
            reached += row[x]
            cuts.add(reached)
    law, joint = {}, {u: {} for u in rows}
    for low, high in pairwise(sorted(cuts)):
        image = {u: _quantile(row, order, low) for u, row in rows.items()}
        q = frozenset(image.values())
        law[q] = law.get(q, Fraction(0)) + high - low
        for u, x in image.items():
            share = joint[u].setdefault(x, {})
            share[q] = share.get(q, Fraction(0)) + (high - low) / rows[u][x]
    return law, joint


def _quantile(row, order, point):
    for x in order:
        if point < row[x]:
            return x
        point -= row[x]
    raise AssertionError("the row sums to less than 1")


def path_law(P, steps):
    """Pr[X_0..X_steps] of every possible path, from a uniform start."""
    n = len(P)
    law = {(x,): Fraction(1, n) for x in range(n)}
    for _ in range(steps):
        law = {(*path, x): p * P[path[-1]][x] for path, p in law.items() for x in range(n) if P[path[-1]][x]}
    return law


def dependence(joint):
    """Total variation between a joint law {(a, b): mass} and the product of its marginals."""
    left, right = {}, {}
    for (a, b), p in joint.items():
        left[a] = left.get(a, Fraction(0)) + p
        right[b] = right.get(b, Fraction(0)) + p
    return sum(abs(joint.get((a, b), Fraction(0)) - p * q) for a, p in left.items() for b, q in right.items()) / 2


def stream_program(P, steps, window, hidden=None):
    """All schemes that ask for sets at steps 1..`steps`, OFF after an ON step 0, as a linear program (cost, equations).

    A variable is Pr[Y_1 = y_1, .., Y_m = y_m | path], with x_t in y_t: whatever a client with a memory and any key may
    do. Y_1..Y_t depend on X_0..X_{t + window} only, and are independent of the `hidden` requests at t: by default X_0
    and all requests after t. The objective is the sum of the mean sizes.
    """
    n, end = len(P), steps + max(window, 1)
    hidden = hidden or (lambda t: (0, *range(t + 1, end + 1)))
    paths = path_law(P, end)
    streams = {
        path: list(product(*([q for q in sets(n) if path[t] in q] for t in range(1, steps + 1)))) for path in paths
    }
    cost = {(path, ys): p * sum(map(len, ys)) for path, p in paths.items() for ys in streams[path]}
    equations = [({(path, ys): Fraction(1) for ys in streams[path]}, Fraction(1)) for path in paths]
    for t in range(1, steps + 1):
        views = list(product(sets(n), repeat=t))
        equations += _equal(paths, streams, views, t, lambda path, t=t: tuple(path[i] for i in hidden(t)))
        known = t + window + 1
        if known <= end:
            for prefix in {path[:known] for path in paths}:
                agreeing = {path: p for path, p in paths.items() if path[:known] == prefix}
                equations += _equal(agreeing, streams, views, t, lambda path, known=known: path[known:])
    return cost, equations


def _equal(paths, streams, views, t, secret):
    """The law of Y_1..Y_t is the same given every value of the secret."""
    groups = {}
    for path, p in paths.items():
        groups.setdefault(secret(path), {})[path] = p
    laws = []
    for members in groups.values():
        total = sum(members.values())
        law = {view: {} for view in views}
        for path, p in members.items():
            for ys in streams[path]:
                law[ys[:t]][path, ys] = p / total
        laws.append(law)
    return [
        ({**first, **{key: -share for key, share in other.items()}}, Fraction(0))
        for law in laws[1:]
        for view in views
        if (first := laws[0][view]) or law[view]
        for other in [law[view]]
    ]


def minimum(cost, equations):
    """The least value of a linear program with variables >= 0, in fractions: two phases of the simplex method."""
    return _Simplex(equations).minimum(cost)


def minimum_in_floats(cost, equations):
    """The same value by HiGHS, for programs that are too large for fractions."""
    column = {key: number for number, key in enumerate(cost)}
    entries = [
        (row, column[key], float(term)) for row, (terms, _) in enumerate(equations) for key, term in terms.items()
    ]
    i, j, values = zip(*entries, strict=True)
    A = coo_array((values, (i, j)), shape=(len(equations), len(column))).tocsr()
    b = np.array([float(value) for _, value in equations])
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    solved = linprog([float(c) for c in cost.values()], A_eq=A, b_eq=b, method="highs", options=tight)
    assert solved.status == 0, solved.message
    return solved.fun


class _Simplex:
    """Rows are dictionaries; `None` stands for the right side, ("artificial", row) for the first basis."""

    def __init__(self, equations):
        self.rows, self.basis = [], []
        for number, (terms, value) in enumerate(equations):
            sign = -1 if value < 0 else 1
            row = {key: sign * term for key, term in terms.items() if term}
            row[None], row["artificial", number] = sign * value, Fraction(1)
            self.rows.append(row)
            self.basis.append(("artificial", number))

    def minimum(self, cost):
        feasible = self._reduced({key: Fraction(1) for key in self.basis})
        self._descend(feasible)
        assert feasible.get(None, 0) == 0, "no solution"
        for number in reversed(range(len(self.rows))):
            if _is_artificial(self.basis[number]):
                entering = next((key for key in self.rows[number] if key is not None and not _is_artificial(key)), None)
                if entering is None:  # the equation follows from the others
                    del self.rows[number], self.basis[number]
                else:
                    self._pivot(number, entering, {})
        objective = self._reduced(cost)
        self._descend(objective)
        return -objective.get(None, Fraction(0))

    def _reduced(self, cost):
        objective = dict(cost)
        for row, key in zip(self.rows, self.basis, strict=True):
            _subtract(objective, row, objective.get(key, Fraction(0)))
        return objective

    def _descend(self, objective):
        """Bland's rule, which never cycles: of all choices always the first."""
        order = {}
        for row in self.rows:
            for key in row:
                order.setdefault(key, len(order))
        while True:
            falling = [k for k, value in objective.items() if k is not None and value < 0 and not _is_artificial(k)]
            if not falling:
                return
            entering = min(falling, key=order.__getitem__)
            ratios = [
                (row.get(None, Fraction(0)) / row[entering], order[self.basis[number]], number)
                for number, row in enumerate(self.rows)
                if row.get(entering, 0) > 0
            ]
            assert ratios, "unbounded"
            self._pivot(min(ratios)[2], entering, objective)

    def _pivot(self, number, entering, objective):
        scale = self.rows[number][entering]
        pivot = {key: value / scale for key, value in self.rows[number].items()}
        self.rows[number], self.basis[number] = pivot, entering
        for other, row in enumerate(self.rows):
            if other != number and entering in row:
                _subtract(row, pivot, row[entering])
        _subtract(objective, pivot, objective.get(entering, Fraction(0)))


def _is_artificial(key):
    return isinstance(key, tuple) and len(key) == 2 and key[0] == "artificial"


def _subtract(row, other, factor):
    """row - factor * other, in place, without zeros."""
    if not factor:
        return
    for key, value in other.items():
        left = row.get(key, Fraction(0)) - factor * value
        if left:
            row[key] = left
        else:
            row.pop(key, None)
