"""The theorems of the promise `past`, for habits of every depth: enumerated in fractions, with mutants that leak.

Paths have states in the place of requests (`exactstreams.machine`): what is hidden are whole states.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product, takewhile

import pytest

from exactstreams import (
    Reference,
    by_quantiles,
    distance,
    exact_filter,
    largest_distance,
    largest_information,
    machine,
    query_laws,
    random_tree,
    stream_law,
    widest,
)

CASES = [  # sources, depth, seed, all states, sensitive sources, steps
    (2, 2, 1, True, (), 4), (2, 2, 2, False, (1,), 4), (2, 3, 3, False, (), 4), (2, 3, 1, False, (0,), 4),
    (3, 2, 1, False, (), 4), (3, 2, 4, True, (), 3), (3, 2, 2, False, (2,), 4), (3, 2, 5, True, (0, 1), 3),
    (3, 3, 1, False, (), 3), (2, 3, 1, True, (), 4), (4, 2, 1, False, (), 3), (4, 2, 2, False, (1, 3), 3),
    (2, 2, 3, True, (0, 1), 4), (4, 2, 3, True, (0,), 3), (4, 3, 1, False, (2,), 3),
    (2, 1, 1, True, (), 4), (2, 1, 2, True, (1,), 4), (3, 1, 1, True, (), 3), (3, 1, 3, True, (2,), 4),
    (3, 1, 4, True, (0, 1), 3), (4, 1, 1, True, (), 3), (4, 1, 2, True, (3,), 3), (4, 1, 5, True, (0, 1), 3),
]  # fmt: skip


class Habits:
    """A random tree as a chain of states, with the states that a sensitive request led to."""

    def __init__(self, n, depth, seed, full=False, sensitive=(), zeros=True):
        self.n, self.rows = n, random_tree(n, depth, seed, full, zeros)
        self.states = sorted(self.rows, key=lambda state: (len(state), state))
        self.moves, self.last, self.steps = machine(self.rows, n)
        self.hidden = frozenset(z for z, x in enumerate(self.last) if x in sensitive)

    def client(self, statuses, kind=Reference, encode=by_quantiles):
        return kind(self.moves, statuses, self.hidden, encode, last=self.last)


def streams(habits, steps, **client):
    """Every pattern of statuses: (statuses, the client, the law of its streams)."""
    for later in product((True, False), repeat=steps - 1):
        statuses = (True, *later)
        found = habits.client(statuses, **client)
        yield statuses, found, stream_law(habits.moves, statuses, found.draw)


# Theorems 1 and 2


@pytest.mark.parametrize(("n", "depth", "seed", "full", "sensitive", "steps"), CASES)
def test_no_query_tells_anything_about_hidden_states_and_rows_are_right(n, depth, seed, full, sensitive, steps):
    habits = Habits(n, depth, seed, full, sensitive)
    for statuses, client, joint in streams(habits, steps):
        assert sum(joint.values()) == 1
        assert all(habits.last[path[t]] in query for path, queries in joint for t, query in enumerate(queries))
        assert largest_distance(joint, statuses, habits.hidden) == 0
        assert largest_information(joint, statuses, habits.hidden) == 0.0
        for t in range(1, steps):
            for queries, rows in exact_filter(joint, statuses, habits.hidden, t).items():
                assert rows.items() <= client.rows(queries).items()
            for queries, rows in exact_filter(joint, statuses, habits.hidden, t, everything=True).items():
                for g, row in rows.items():
                    last = max(i for i, z in enumerate(g) if z is not None)
                    assert row == client.rows(queries)[g[last], last]


def after_few_sources(queries):
    """ON at first, and after a query of an even number of sources that is not the full set."""
    return not queries or (len(queries[-1]) % 2 == 0 and len(queries[-1]) < 4)


@pytest.mark.parametrize(("n", "depth", "seed", "full", "sensitive", "steps"), CASES)
def test_statuses_may_depend_on_queries(n, depth, seed, full, sensitive, steps):
    habits = Habits(n, depth, seed, full, sensitive)
    client = habits.client(after_few_sources)
    joint = stream_law(habits.moves, steps + 1, client.draw)
    assert largest_distance(joint, after_few_sources, habits.hidden) == 0


def another_law(habits, statuses):
    """Requests made ON that follow no chain: they depend on all states so far, and may be what habits call impossible.

    Which sensitive source is asked for, given that one is, follows another law, too.
    """

    def move(queries, path):
        t, z = len(queries), path[-1]
        row = [Fraction(0)] * len(habits.moves)
        if statuses[t]:
            weights = [1 + (sum(path) * (x + 2) + t) % 3 for x in range(habits.n)]
            weights[sum(path) % habits.n] = 0
            for x, weight in enumerate(weights):
                row[habits.steps[z][x]] += Fraction(weight, sum(weights))
            return row
        inside = [y for y, p in enumerate(habits.moves[z]) if p and y in habits.hidden]
        if not inside:
            return habits.moves[z]
        chosen = inside[sum(path) % len(inside)]
        total = sum(habits.moves[z][y] for y in inside)
        return [total if y == chosen else Fraction(0) if y in inside else p for y, p in enumerate(habits.moves[z])]

    return move


@pytest.mark.parametrize(("n", "depth", "seed", "full", "sensitive", "steps"), CASES)
def test_private_requests_may_follow_any_law(n, depth, seed, full, sensitive, steps):
    habits = Habits(n, depth, seed, full, sensitive)
    for later in product((True, False), repeat=steps - 1):
        statuses = (True, *later)
        client = habits.client(statuses)
        joint = stream_law(habits.moves, statuses, client.draw, move=another_law(habits, statuses))
        assert largest_distance(joint, statuses, habits.hidden) == 0


# Mutants: the referee must see them


class LastRequestAlone(Reference):
    """Planted: only the last hidden request counts, not the state that it led to."""

    def context(self, queries, path):
        z, t = super().context(queries, path)
        return self.last[z], t


class ForgetsItsState(LastRequestAlone):
    """Planted: the state is not kept across a restart before step 2, so that the last request stands for it."""

    def context(self, queries, path):
        return super().context(queries, path) if len(queries) >= 2 else Reference.context(self, queries, path)


class ShallowContext(Reference):
    """Planted: the context is the state of a tree that is one request less deep."""

    def context(self, queries, path):
        z, t = super().context(queries, path)
        return self.shorter[z], t


class FirstOrder(Reference):
    """Planted: beliefs move on by the first row of each request's states, as if the habits were a Markov chain."""

    def _follow(self, row):
        return super()._follow({self.last[z]: p for z, p in row.items()})


@pytest.mark.parametrize("mutant", [LastRequestAlone, ForgetsItsState, ShallowContext, FirstOrder])
def test_the_referee_sees_mutants(mutant):
    habits = Habits(2, 3 if mutant is ShallowContext else 2, 1, True, zeros=False)
    ShallowContext.shorter = [habits.states.index(state[1:] if len(state) == 3 else state) for state in habits.states]
    leaks = []
    for later in product((True, False), repeat=3):
        statuses = (True, *later)
        client = habits.client(statuses, mutant)
        leaks.append(largest_distance(stream_law(habits.moves, statuses, client.draw), statuses, frozenset()))
    assert max(leaks) > Fraction(1, 20)


# A request that is missing, or made twice


class AfterGap(Reference):
    """At the step `gap` a request has no query (`missing`), or is the last one again: the reader is where they were.

    The client goes on from the state before the gap, or has forgotten it: then any will do.
    """

    def draw(self, queries, path):
        lost = self.missing and len(queries) == self.gap
        return {frozenset(): Fraction(1)} if lost else super().draw(queries, path)

    def context(self, queries, path):
        z, t = super().context(queries, path)
        if t < self.gap:
            return z, t
        state = path[self.gap - 1] if self.remembers else 0
        for later in path[self.gap + self.missing : t + 1]:
            state = self.steps[state][self.last[later]]
        return state, t

    def move(self, queries, path):
        again = not self.missing and len(queries) == self.gap
        return [Fraction(z == path[-1]) for z in range(len(self.P))] if again else None


def leak_after_a_gap(depth, before, missing, full_sets, later, remembers=False):
    """The largest distance after a gap that so many full sets follow; a repetition is one of them."""
    habits = Habits(2, depth, 1, True, zeros=False)
    statuses = (True, *before, *[True] * (full_sets + missing), *later)
    client = habits.client(statuses, AfterGap)
    client.gap, client.missing, client.steps, client.remembers = len(before) + 1, missing, habits.steps, remembers
    return largest_distance(stream_law(habits.moves, statuses, client.draw, move=client.move), statuses, frozenset())


@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_after_a_gap_the_state_is_forgotten_and_as_many_full_sets_as_the_memory_is_deep_show_it(depth, missing):
    patterns = [(before, later) for before in ((), (False,)) for later in product((True, False), repeat=2)]
    assert all(leak_after_a_gap(depth, before, missing, depth, later) == 0 for before, later in patterns)
    one = max(leak_after_a_gap(depth, before, missing, 1, later, remembers=True) for before, later in patterns)
    assert one == 0 if depth == 1 else one > Fraction(1, 4)


# When habits may change


class Swapping(Reference):
    """Uses wrong rows until the right ones take their place: right after the first step that `may` see."""

    def since(self, queries):
        """The step whose rows are the first right ones; None before the change."""
        ends = range(2, len(queries) + 1)
        return next((end for end in ends if self.may(self.statuses[:end], queries[:end])), None)

    def filtered(self, queries):
        right, self.P = self.P, self.P if self.since(queries) is not None else self.wrong
        try:
            return super().filtered(queries)
        finally:
            self.P = right


def leak_after_the_change(n, depth, may):
    habits, wrong = (Habits(n, depth, seed, True, zeros=False) for seed in (1, 2))
    worst, changes = Fraction(0), 0
    for later in product((True, False), repeat=6 - n):
        statuses = (True, False, *later)
        client = habits.client(statuses, Swapping)
        client.wrong, client.may = wrong.moves, may
        joint = stream_law(habits.moves, statuses, client.draw)
        for t in range(2, len(statuses)):
            for queries, laws in query_laws(joint, statuses, frozenset(), t).items():
                if client.since(queries) is not None:
                    changes += 1
                    worst = max(worst, widest(law for _, law in laws.values()))
    assert changes > 20
    return worst


def singles(statuses, queries):
    """How many of the last queries had one source, each made OFF."""
    run = takewhile(lambda step: not step[0] and len(step[1]) == 1, zip(statuses[::-1], queries[::-1], strict=True))
    return len(list(run))


@pytest.mark.parametrize(("n", "depth"), [(3, 1), (2, 2)])
def test_after_a_change_nothing_is_left_of_wrong_rows_if_the_state_was_public_and_else_it_is(n, depth):
    def decided(statuses, queries):
        return statuses[-1] or singles(statuses, queries) >= depth

    def too_early(statuses, queries):
        return not statuses[-1] and singles(statuses, queries) == depth - 1

    assert leak_after_the_change(n, depth, decided) == 0
    assert leak_after_the_change(n, depth, too_early) > 0.01


# Theorem 3


def gap(truth, used, of):
    """For every state of the truth, the distance and the divergence in bits of its row from that of the habits used."""
    found = []
    for z, row in enumerate(truth.moves):
        theirs, ours = dict.fromkeys(range(truth.n), Fraction(0)), dict.fromkeys(range(truth.n), Fraction(0))
        for y, p in enumerate(row):
            theirs[truth.last[y]] += p
        for y, p in enumerate(used.moves[of[z]]):
            ours[used.last[y]] += p
        bits = sum(float(p) * math.log2(p / ours[x]) for x, p in theirs.items() if p)
        found.append((distance(theirs, ours), bits))
    return found


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("n", "depth", "sensitive"), [(2, 1, ()), (2, 2, ()), (3, 1, ()), (3, 2, (1,)), (3, 2, ())])
def test_a_deeper_truth_is_seen_no_more_than_theorem_3_says(n, depth, sensitive, seed):
    """Requests really depend on three before; the client uses habits that are less deep."""
    truth, used = Habits(n, 3, seed, True), Habits(n, depth, seed, depth > 1, sensitive, zeros=False)
    steps = 6 - n
    of = [used.states.index(next(s[i:] for i in range(3) if s[i:] in used.rows)) for s in truth.states]
    apart, told = gap(truth, used, of), 0
    for later in product((True, False), repeat=steps - 1):
        statuses = (True, *later)
        client = used.client(statuses)
        real = stream_law(truth.moves, statuses, lambda queries, path, c=client: c.draw(queries, [of[z] for z in path]))
        joint, eps, bits = {}, [Fraction(0)] * steps, [0.0] * steps
        for (path, queries), p in real.items():
            seen = tuple(of[z] for z in path), queries
            joint[seen] = joint.get(seen, Fraction(0)) + p
            for t in range(1, steps):
                eps[t] += p * apart[path[t - 1]][0]
                bits[t] += float(p) * apart[path[t - 1]][1]
        d = Fraction(0)
        for t in range(1, steps):
            before, d = d, Fraction(0) if statuses[t] else d + eps[t]
            assert float(eps[t]) <= math.sqrt(math.log(2) / 2 * bits[t]) + 1e-12
            if statuses[t]:
                continue
            off = Fraction(0)
            for queries, laws in query_laws(joint, statuses, used.hidden, t).items():
                stated = {R | client.always: p for R, p in client.step(queries)[0].items()}
                off += sum(mass * distance(law, stated) for mass, law in laws.values())
            assert off <= (2 * d if sensitive else d + before)
            told += off > Fraction(1, 100)
    assert told
