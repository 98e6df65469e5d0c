"""Whole streams in fractions, and the least cost of any scheme. Nothing here uses the package.

Sources are numbers from 0, a query is a frozenset of them, a chain is a list of rows of fractions, statuses are True
where privacy is ON (always at step 0). A client is a function `draw(queries, path) -> {query: probability}`: the law of
the query at step t = len(queries), given the queries before it and the requests X_0..X_t = path. `stream_law` gives the
law of everything.

A scheme of the promise `both` is a law and encoders for the rows of `posterior`; `stream_program` is the linear program
over all schemes.
"""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import combinations, pairwise, product

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array


def sets(n):
    """All non-empty sets of n sources."""
    return [frozenset(q) for size in range(1, n + 1) for q in combinations(range(n), size)]


def chain_of(weights):
    """The chain with rows proportional to these numbers; floats are taken digit for digit."""
    return [[Fraction(w) / sum(map(Fraction, row)) for w in row] for row in weights]


def random_tree(n, depth, seed, full=False, zeros=True):
    """A tree {state: weights}, closed under dropping an end of a state. It has all states if it is `full`."""
    rng = random.Random(f"{n} {depth} {seed}")
    states = {run for size in range(1, depth + 1) for run in product(range(n), repeat=size) if full or size == 1}
    for _ in range(2):
        run = tuple(rng.randrange(n) for _ in range(depth))
        states |= {run[i:j] for i in range(depth) for j in range(i + 1, depth + 1)}
    rows = {}
    for state in sorted(states):
        rows[state] = [rng.choice([0, 0, 1, 2, 5] if zeros else [1, 2, 5, 9]) for _ in range(n)]
        rows[state][rng.randrange(n)] += 1
    return rows


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
        (i, k): {x: walk[i][x] * P[x][k] / beyond[i][k] for x in everyone}
        for i in everyone for k in everyone if beyond[i][k]
    }  # fmt: skip


def path_law(P, steps):
    """Pr[X_0..X_steps] of every possible path, from a uniform start."""
    n = len(P)
    law = {(x,): Fraction(1, n) for x in range(n)}
    for _ in range(steps):
        law = {(*path, x): p * P[path[-1]][x] for path, p in law.items() for x in range(n) if P[path[-1]][x]}
    return law


def announced_law(P, steps, law_of, combine=None):
    """Pr[X_0..X_T, Q_0..Q_{T-1}] of a client that knows the next request: `law_of(path, t)` is the law of Q_t.

    `combine` turns the laws of the queries of one path into a law of streams, by default that of independent draws.
    """
    joint = {}
    for path, p in path_law(P, steps).items():
        choices = [law_of(path, t) for t in range(steps)]
        for queries, share in (combine or fresh)(choices).items():
            joint[path, queries] = joint.get((path, queries), Fraction(0)) + p * share
    return joint


def fresh(choices):
    streams = {(): Fraction(1)}
    for choice in choices:
        streams = {(*seen, q): p * w for seen, p in streams.items() for q, w in choice.items() if w}
    return streams


def hidden_and_seen(joint, statuses, upto):
    """The joint law of X_{B_t} and Q_0..Q_t for t = `upto`."""
    hidden = [t for t in range(upto + 1) if statuses[t]] + list(range(upto + 1, len(statuses) + 1))
    law = {}
    for (path, queries), p in joint.items():
        key = tuple(path[t] for t in hidden), queries[: upto + 1]
        law[key] = law.get(key, Fraction(0)) + p
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
    """The least value of a linear program with variables >= 0, by HiGHS, to 1e-10."""
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


def stream_law(P, steps, draw, start=None, move=None):
    """Pr[X_0..X_T, Q_0..Q_T] as {(path, queries): mass}; `move(queries, path)` may replace the row of the chain."""
    n, steps = len(P), steps if isinstance(steps, int) else len(steps)
    start = start or [Fraction(1, n)] * n
    law = {((x,), ()): p for x, p in enumerate(start) if p}
    for t in range(steps):
        asked = {}
        for (path, queries), p in law.items():
            for query, share in draw(queries, path).items():
                if share:
                    key = path, (*queries, query)
                    asked[key] = asked.get(key, Fraction(0)) + p * share
        if t == steps - 1:
            return asked
        law = {}
        for (path, queries), p in asked.items():
            row = (move and move(queries, path)) or P[path[-1]]
            for x, share in enumerate(row):
                if share:
                    law[(*path, x), queries] = p * share
    raise AssertionError("a stream has at least one step")


def hidden(path, statuses, sensitive, t):
    """G_t: the requests up to t that were made ON or are sensitive, and None for the others."""
    return tuple(x if statuses[i] or x in sensitive else None for i, x in enumerate(path[: t + 1]))


def widest(laws):
    """The largest total variation between two of the laws."""
    different = {frozenset(law.items()): law for law in laws}.values()
    return max(distance(one, other) for one in different for other in different)


def conditional_information(pasts):
    bits = 0.0
    for laws in pasts.values():
        total = sum(mass for mass, _ in laws.values())
        mean = {}
        for mass, law in laws.values():
            for query, p in law.items():
                mean[query] = mean.get(query, Fraction(0)) + mass * p / total
        bits += sum(
            float(mass * p) * math.log2(p / mean[query]) for mass, law in laws.values() for query, p in law.items()
        )
    return bits


def distance(one, other):
    """Total variation of two laws."""
    return sum(abs(one.get(key, Fraction(0)) - other.get(key, Fraction(0))) for key in {**one, **other}) / 2


def normalise(law):
    total = sum(law.values())
    return {key: p / total for key, p in law.items()}


def by_quantiles(rows, order=None):
    """Law and encoders of the coupling in which each context takes its own quantile of one uniform number."""
    order = order or sorted({x for row in rows.values() for x in row})
    cuts = {Fraction(0)}
    for row in rows.values():
        reached = Fraction(0)
        for x in order:
            reached += row.get(x, Fraction(0))
            cuts.add(reached)
    law, encoders = {}, {c: {x: {} for x in row} for c, row in rows.items()}
    for low, high in pairwise(sorted(cuts)):
        image = {c: _quantile(row, order, low) for c, row in rows.items()}
        R = frozenset(image.values())
        law[R] = law.get(R, Fraction(0)) + high - low
        for c, x in image.items():
            encoders[c][x][R] = encoders[c][x].get(R, Fraction(0)) + (high - low) / rows[c][x]
    return law, encoders


def _quantile(row, order, point):
    for x in order:
        if point < row.get(x, Fraction(0)):
            return x
        point -= row.get(x, Fraction(0))
    raise AssertionError("the row sums to less than 1")
