"""What the theory, the page on the paper and the page on fitting state of costs and of privacy, in fractions."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import pairwise, permutations, product

import numpy as np
import pytest

from exactstreams import (
    announced_law,
    by_quantiles,
    chain_of,
    dependence,
    fresh,
    hidden_and_seen,
    minimum,
    posterior,
    sets,
    stream_program,
)
from onoff import Chain, plan
from onoff.schemes.optimum import symmetric_law
from oracles import paper_program

TWO = chain_of([[7, 3], [2, 8]])
THREE = chain_of([[1, 3, 2], [2, 1, 5], [4, 1, 1]])
ZEROS = chain_of([[0, 1, 0], [2, 0, 1], [1, 1, 3]])  # impossible requests and contexts
PERIODIC = chain_of([[0, 0, 1, 2], [0, 0, 3, 1], [1, 1, 0, 0], [2, 1, 0, 0]])


def cost_at(P, lag):
    return least_cost(posterior(P, lag).values())


def least_cost(rows):
    return paper_program([list(row.values()) for row in rows])


def same(cost):
    return pytest.approx(cost, abs=1e-8)


# Whole streams: Lemma 3


def steps_of(statuses):
    """(lag, time of the last ON step) at every step."""
    last = 0
    found = []
    for t, private in enumerate(statuses):
        last = t if private else last
        found.append((t - last, last))
    return found


def stream_law(P, statuses, orders, combine):
    """Pr[path, queries] of a client that draws from quantile schemes, and the law of each query as it should be."""
    n, steps = len(P), steps_of(statuses)
    schemes = {lag: by_quantiles(posterior(P, lag), orders[lag % len(orders)]) for lag, _ in steps if lag}
    full = frozenset(range(n))

    def law_of(path, t):
        lag, last = steps[t]
        return schemes[lag][1][path[last], path[t + 1]][path[t]] if lag else {full: Fraction(1)}

    joint = announced_law(P, len(statuses), law_of, combine)
    return joint, [schemes[lag][0] if lag else {full: Fraction(1)} for lag, _ in steps]


def one_key(choices):
    """Every query is the quantile of one and the same uniform number."""
    ordered = [sorted(choice.items(), key=lambda item: sorted(item[0])) for choice in choices]
    cuts = {Fraction(0), *(sum(w for _, w in choice[: k + 1]) for choice in ordered for k in range(len(choice)))}
    streams = {}
    for low, high in pairwise(sorted(cuts)):
        queries = tuple(
            next(q for k, (q, _) in enumerate(choice) if low < sum(w for _, w in choice[: k + 1])) for choice in ordered
        )
        streams[queries] = streams.get(queries, Fraction(0)) + high - low
    return streams


@pytest.mark.parametrize(
    ("P", "statuses"),
    [(TWO, "100"), (TWO, "10010"), (TWO, "1000"), (THREE, "100"), (THREE, "1010"), (ZEROS, "1001"), (PERIODIC, "100")],
)
def test_whole_streams_of_fresh_draws_are_independent_of_all_that_is_hidden(P, statuses):
    statuses = [mark == "1" for mark in statuses]
    orders = list(permutations(range(len(P))))
    joint, laws = stream_law(P, statuses, orders, fresh)
    assert sum(joint.values()) == 1
    for t in range(len(statuses)):
        assert dependence(hidden_and_seen(joint, statuses, t)) == 0
    seen = {}
    for (_, queries), p in joint.items():
        seen[queries] = seen.get(queries, Fraction(0)) + p
    for queries, p in seen.items():  # the queries are independent of each other, too
        assert p == math.prod(law[q] for law, q in zip(laws, queries, strict=True))


def test_one_key_for_all_steps_leaks_although_each_query_alone_is_independent():
    P, statuses = chain_of([[4, 6], [6, 4]]), [True, False, False]
    joint, _ = stream_law(P, statuses, [(0, 1)], one_key)
    for t in (1, 2):
        alone = {}
        for (path, queries), p in joint.items():
            key = (path[0], path[t + 1]), queries[t]
            alone[key] = alone.get(key, Fraction(0)) + p
        assert dependence(alone) == 0
    assert dependence(hidden_and_seen(joint, statuses, 1)) == 0
    leak = dependence(hidden_and_seen(joint, statuses, 2))
    assert leak == Fraction(6849, 43750)
    assert round(float(leak), 3) == 0.157


# What least means


def all_answers(values):
    """Every function of a message table, up to renaming its values: a partition of the tables as labels."""
    labels = [[]]
    for _ in range(values):
        labels = [[*label, new] for label in labels for new in range(max(label, default=-1) + 2)]
    return labels


@pytest.mark.parametrize("n", [2, 3])
def test_an_answer_is_at_least_as_long_as_the_messages_that_it_determines(n):
    tables = list(product((0, 1), repeat=n))  # messages of one bit
    sizes = set()
    for labels in all_answers(len(tables)):
        determined = [
            i for i in range(n)
            if len({(label, table[i]) for label, table in zip(labels, tables, strict=True)}) == len(set(labels))
        ]  # fmt: skip
        assert len(set(labels)) >= 2 ** len(determined)
        sizes.add(len(determined))
    assert sizes == set(range(n + 1))


@pytest.mark.parametrize(
    ("P", "window"),
    [*product([TWO, chain_of([[1, 9], [6, 4]]), chain_of([[1, 0], [1, 2]])], [1, 2]), (THREE, 1), (ZEROS, 1)],
)
def test_no_client_with_a_memory_and_any_window_is_cheaper_than_the_steps_one_by_one(P, window):
    assert minimum(*stream_program(P, 2, window)) == same(cost_at(P, 1) + cost_at(P, 2))


def test_each_assumption_of_what_is_least_is_needed():
    least = cost_at(THREE, 1)
    # Statuses known ahead: if privacy is never ON again, the future need not be hidden.
    assert minimum(*stream_program(THREE, 1, 1, hidden=lambda t: (0,))) < least - 0.01
    # A source that cannot have been the last private one.
    rows = posterior(THREE, 1)
    assert least_cost(row for (last, _), row in rows.items() if last != 2) < least - 0.01
    # Old messages: a client that secretly holds either of two needs one message, their sum, while ON.
    assert cost_at(TWO, 0) == same(2)
    for held in (0, 1):
        knows = {((a + b) % 2, (a, b)[held]) for a, b in product((0, 1), repeat=2)}
        assert len(knows) == 4


@pytest.mark.parametrize("P", [TWO, THREE, ZEROS])
def test_without_the_next_request_an_invertible_chain_forces_the_full_set(P):
    assert round(np.linalg.det(np.array(P, dtype=float)), 9) != 0
    n = len(P)
    assert minimum(*stream_program(P, 1, 0)) == same(n)
    assert cost_at(P, 1) < n - 0.01


def test_without_the_next_request_a_singular_chain_may_need_less_but_need_not():
    assert minimum(*stream_program(chain_of([[1, 2, 1]] * 3), 1, 0)) == same(1)
    some = chain_of([[1, 1, 2], [1, 1, 2], [1, 1, 1]])  # the first two lead on alike, and are reached alike
    assert minimum(*stream_program(some, 1, 0)) == same(2)
    none = chain_of([[1, 0, 1], [1, 0, 1], [0, 1, 1]])
    assert abs(np.linalg.det(np.array(none, dtype=float))) < 1e-12
    assert minimum(*stream_program(none, 1, 0)) == same(3)


# Statements on numbers


@pytest.mark.parametrize(("n", "lag"), [(5, 2), (7, 2), (10, 1)])
def test_where_no_few_orbits_realise_a_symmetric_law_the_general_search_does(n, lag):
    chain = Chain.symmetric(n, 0.0)
    assert symmetric_law(chain.posterior(lag), 1e-6) is None
    found = plan(chain, lag)
    assert found.cost == pytest.approx(3 if lag == 1 else 2, abs=1e-5)
    assert found.gap <= 1e-5


# The slips of the paper


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_papers_program_has_n_cubed_times_two_to_the_n_minus_1_decodability_constraints(n):
    everything = [frozenset(), *sets(n)]
    constraints = sum(x not in q for x in range(n) for _ in product(range(n), repeat=2) for q in everything)
    assert constraints == n**3 * 2 ** (n - 1)


def pieces(rows):
    """Step 3 of the paper: cut rows of equal length at every boundary of any of them."""
    ends = set()
    for row in rows:
        end = Fraction(0)
        for block in row:
            end += block
            ends.add(end)
    return len(ends)


def test_step_3_yields_fewer_tuples_than_equation_43_says_from_the_third_level_on():
    rng = random.Random(5)
    for level in range(2, 7):
        counts = [rng.randint(1, 6) for _ in range(level - 1)]
        rows = [[Fraction(rng.randint(1, 10**9)) for _ in range(count)] for count in counts]
        rows = [[block / sum(row) for block in row] for row in rows]
        assert pieces(rows) == sum(counts) - (level - 2)
    assert pieces([[Fraction(1, 2), Fraction(1, 2)], [Fraction(1, 3), Fraction(2, 3)]]) == 3
