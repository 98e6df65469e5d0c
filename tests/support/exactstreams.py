"""Whole streams in fractions, for both promises, and the least cost of any scheme. Nothing here uses the package.

Sources are numbers from 0, a query is a frozenset of them, a chain is a list of rows of fractions, statuses are True
where privacy is ON (always at step 0), and `sensitive` is a frozenset of sources. Statuses may also be a function of
the queries so far.

Habits with memory are a chain of their states, with the moves between these: `machine` makes it. Then paths have states
in the place of requests, and so have `sensitive` and what is hidden: all of it is about whole states.

A *client* of the promise `past` is a function `draw(queries, path) -> {query: probability}`: the law of the query at
step t = len(queries), given the queries before it and the requests X_0..X_t = path. `stream_law` gives the law of
everything, and other functions read from it

- `exact_filter`: the row of every context after every past, by conditioning and nothing else;
- `largest_distance`: 0 exactly if the promise holds, else by how much two private pasts differ in total variation;
- `largest_information`: the same in bits, I(G_t; Q_t | Q_0..Q_{t-1}), the largest over t;
- `told_before`: the bits that queries before a private request tell about it, which nobody promises to be 0.

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


def machine(rows, n):
    """The moves of a tree {state: weights of the next request}, the request that led to each state, and the steps."""
    states = sorted(rows, key=lambda state: (len(state), state))

    def after(state, x):
        history = (*state, x)
        return next(states.index(history[i:]) for i in range(len(history)) if history[i:] in rows)

    step = [[after(state, x) for x in range(n)] for state in states]
    moves = [[Fraction(0)] * len(states) for _ in states]
    for z, row in enumerate(chain_of(rows[state] for state in states)):
        for x, p in enumerate(row):
            moves[z][step[z][x]] += p
    return moves, [state[-1] for state in states], step


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


def is_on(statuses, queries):
    """Whether the step after these queries is ON."""
    return statuses(queries) if callable(statuses) else statuses[len(queries)]


def resolved(statuses, queries):
    """The statuses of these steps and the next one."""
    return tuple(is_on(statuses, queries[:t]) for t in range(len(queries) + 1)) if callable(statuses) else statuses


def hidden(path, statuses, sensitive, t):
    """G_t: the requests up to t that were made ON or are sensitive, and None for the others."""
    return tuple(x if statuses[i] or x in sensitive else None for i, x in enumerate(path[: t + 1]))


def context(path, statuses, sensitive, t):
    """The last thing hidden before step t: (source, step)."""
    return max((i, x) for i, x in enumerate(path[:t]) if statuses[i] or x in sensitive)[::-1]


def exact_filter(joint, statuses, sensitive, t, everything=False):
    """{Q_0..Q_{t-1}: {context: row}} with the row P(X_t = x | context, queries), a dictionary without zeros.

    With `everything` the context is the whole of G_{t-1}: by the Markov property its row is that of the last of it.
    """
    found = {}
    for (path, queries), p in joint.items():
        seen = resolved(statuses, queries[: t - 1])
        known = hidden(path, seen, sensitive, t - 1) if everything else context(path, seen, sensitive, t)
        row = found.setdefault(queries[:t], {}).setdefault(known, {})
        row[path[t]] = row.get(path[t], Fraction(0)) + p
    return {past: {c: normalise(row) for c, row in rows.items()} for past, rows in found.items()}


def query_laws(joint, statuses, sensitive, t):
    """{Q_0..Q_{t-1}: {G_t: (mass, law of Q_t)}}."""
    found = {}
    for (path, queries), p in joint.items():
        seen = resolved(statuses, queries[:t])
        law = found.setdefault(queries[:t], {}).setdefault(hidden(path, seen, sensitive, t), {})
        law[queries[t]] = law.get(queries[t], Fraction(0)) + p
    return {past: {g: (sum(law.values()), normalise(law)) for g, law in laws.items()} for past, laws in found.items()}


def largest_distance(joint, statuses, sensitive):
    """The largest total variation between the laws of a query given the same past and two values of what is hidden."""
    steps = (query_laws(joint, statuses, sensitive, t) for t in range(length(joint)))
    return max(widest(law for _, law in laws.values()) for pasts in steps for laws in pasts.values())


def length(joint):
    """The number of steps."""
    return len(next(iter(joint))[0])


def widest(laws):
    """The largest total variation between two of the laws."""
    different = {frozenset(law.items()): law for law in laws}.values()
    return max(distance(one, other) for one in different for other in different)


def largest_information(joint, statuses, sensitive):
    """max_t I(G_t; Q_t | Q_0..Q_{t-1}) in bits: exactly 0.0 if every logarithm is of 1."""
    return max(conditional_information(query_laws(joint, statuses, sensitive, t)) for t in range(length(joint)))


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


def told_before(joint, t):
    """I(X_t; Q_0..Q_{t-1}) in bits."""
    laws = {}
    for (path, queries), p in joint.items():
        law = laws.setdefault(path[t], {})
        law[queries[:t]] = law.get(queries[:t], Fraction(0)) + p
    return conditional_information({(): {x: (sum(law.values()), normalise(law)) for x, law in laws.items()}})


def distance(one, other):
    """Total variation of two laws."""
    return sum(abs(one.get(key, Fraction(0)) - other.get(key, Fraction(0))) for key in {**one, **other}) / 2


def normalise(law):
    total = sum(law.values())
    return {key: p / total for key, p in law.items()}


class Reference:
    """The scheme of docs/explanation/theory.md in fractions.

    `encode(rows)` chooses law and encoders of an OFF step. It takes {context: {source: probability}}
    over the sources that are not sensitive, and returns the public law {R: mass} and the encoders
    {context: {source: {R: probability}}}. `merge(t, rows)` may replace rows before step t. If P is about states, `last`
    has the request that led to each, and `sensitive` those that a sensitive request led to.
    """

    def __init__(self, P, statuses, sensitive, encode, merge=None, last=None):
        self.P, self.statuses, self.sensitive = P, statuses, sensitive
        self.encode, self.merge = encode, merge or (lambda t, rows: rows)
        self.last = last or range(len(P))
        self.always = frozenset(self.last[s] for s in sensitive)
        self._rows, self._steps = {}, {}

    def draw(self, queries, path):
        if is_on(self.statuses, queries):
            return {frozenset(self.last): Fraction(1)}
        law, encoders = self.step(queries)
        chosen = law if path[-1] in self.sensitive else encoders[self.context(queries, path)][self.last[path[-1]]]
        return {R | self.always: p for R, p in chosen.items()}

    def context(self, queries, path):
        """The last thing that is hidden before the step after these queries."""
        t = len(queries)
        return context(path, resolved(self.statuses, queries[: t - 1]), self.sensitive, t)

    def rows(self, queries):
        """{context: {state: probability}}: what public things tell about the request of step len(queries) > 0."""
        if queries not in self._rows:
            self._rows[queries] = self.merge(len(queries), self.filtered(queries))
        return self._rows[queries]

    def filtered(self, queries):
        """The rows before any merge at this step."""
        t = len(queries) - 1
        if is_on(self.statuses, queries[:t]):
            return {(i, t): self._follow({i: Fraction(1)}) for i in range(len(self.P))}
        rows, (_, encoders) = self.rows(queries[:t]), self.step(queries[:t])
        R = queries[t] - self.always
        moved = {}
        for c, row in rows.items():
            joint = {
                y: p * encoders[c][self.last[y]].get(R, Fraction(0))
                for y, p in row.items() if y not in self.sensitive
            }  # fmt: skip
            joint = {y: p for y, p in joint.items() if p}
            if joint:
                moved[c] = self._follow(normalise(joint))
        joining = {s for row in rows.values() for s in row if s in self.sensitive}
        return {**moved, **{(s, t): self._follow({s: Fraction(1)}) for s in joining}}

    def open_rows(self, queries):
        """The rows of sources, given that the request is not sensitive, where that can be."""
        found = {}
        for c, row in self.rows(queries).items():
            for y, p in row.items():
                if y not in self.sensitive:
                    sources = found.setdefault(c, {})
                    sources[self.last[y]] = sources.get(self.last[y], Fraction(0)) + p
        return {c: normalise(row) for c, row in found.items()}

    def step(self, queries):
        """The public law and the encoders of the step after these queries."""
        if queries not in self._steps:
            rows = self.open_rows(queries)
            self._steps[queries] = self.encode(rows) if rows else ({frozenset(): Fraction(1)}, {})
        return self._steps[queries]

    def _follow(self, row):
        after = {}
        for x, p in row.items():
            for y, q in enumerate(self.P[x]):
                if q:
                    after[y] = after.get(y, Fraction(0)) + p * q
        return after


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
