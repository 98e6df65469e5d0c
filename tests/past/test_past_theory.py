"""What the theory of the promise `past` says of Markov chains: costs, mutants, merging, rounding, in fractions.

The theorems themselves are in test_memory_theory.py, for habits of every depth.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import pytest

from exactstreams import (
    Reference,
    by_quantiles,
    chain_of,
    distance,
    largest_distance,
    largest_information,
    query_laws,
    stream_law,
    told_before,
    widest,
)

TWO = chain_of([[7, 3], [2, 8]])
THREE = chain_of([[1, 3, 2], [2, 1, 5], [4, 1, 1]])
ZEROS = chain_of([[0, 1, 0], [2, 0, 1], [1, 1, 3]])
ABSORBING = chain_of([[1, 1, 1], [0, 3, 1], [0, 0, 1]])
NEAR = chain_of([[30, 10, 12], [29, 11, 12], [31, 9, 12]])
PERIODIC = chain_of([[0, 0, 1, 2], [0, 0, 3, 1], [1, 1, 0, 0], [2, 1, 0, 0]])
CASES = [
    (TWO, {}, 4), (TWO, {1}, 4), (THREE, {}, 3), (THREE, {2}, 4), (THREE, {0, 1}, 3), (ZEROS, {}, 3), (ZEROS, {1}, 4),
    (ABSORBING, {}, 3), (ABSORBING, {2}, 3), (PERIODIC, {3}, 3), (PERIODIC, {0, 1}, 3), (TWO, {0, 1}, 3),
]  # fmt: skip


def streams(P, sensitive, steps, encode=by_quantiles, client=Reference):
    """Every pattern of statuses: (statuses, sensitive, the reference, the law of its streams)."""
    for later in product((True, False), repeat=steps - 1):
        statuses = (True, *later)
        reference = client(P, statuses, frozenset(sensitive), encode)
        yield statuses, frozenset(sensitive), reference, stream_law(P, statuses, reference.draw)


# The promise


def test_queries_before_a_private_request_may_predict_it():
    statuses = (True, False, True)
    reference = Reference(THREE, statuses, frozenset(), by_quantiles)
    joint = stream_law(THREE, statuses, reference.draw)
    assert largest_distance(joint, statuses, frozenset()) == 0
    assert told_before(joint, 2) > 0.05


def test_a_step_costs_at_least_the_peaks_of_the_rows():
    tight = 0
    for P, sensitive, steps in CASES:
        for statuses, secret, reference, joint in streams(P, sensitive, steps):
            for t in range(1, steps):
                if statuses[t]:
                    continue
                for queries, laws in query_laws(joint, statuses, secret, t).items():
                    _, law = next(iter(laws.values()))
                    rows = reference.open_rows(queries).values()
                    needed = {s for row in reference.rows(queries).values() for s in row if s in secret}
                    outside = {x for row in rows for x in row}
                    bound = len(needed) + sum(max(row.get(x, Fraction(0)) for row in rows) for x in outside)
                    cost = sum(len(query) * p for query, p in law.items())
                    assert cost >= bound
                    tight += cost == bound and len(outside) > 1
    assert tight > 10


# Mutants: the referee must see them


class Forgets(Reference):
    """Rows of the chain alone: what the queries told about the open requests is left out."""

    def filtered(self, queries):
        t = len(queries) - 1
        if self.statuses[t]:
            return super().filtered(queries)
        moved = {c: self._follow(row) for c, row in self.open_rows(queries[:t]).items()}
        return {**moved, **{(s, t): self._follow({s: Fraction(1)}) for s in self.sensitive}}


class StaysInItsContext(Reference):
    """A sensitive request does not become the context."""

    def draw(self, queries, path):
        seen = tuple(
            x if self.statuses[i] or x not in self.sensitive else next(y for y in range(9) if y not in self.sensitive)
            for i, x in enumerate(path[:-1])
        )
        return super().draw(queries, (*seen, path[-1]))


class TellsSensitiveOnes(Reference):
    """A sensitive request is asked for with the most likely set only."""

    def draw(self, queries, path):
        law = super().draw(queries, path)
        if path[-1] in self.sensitive and not self.statuses[len(queries)]:
            return {max(law, key=lambda query: (law[query], sorted(query))): Fraction(1)}
        return law


class LeavesSensitiveOnesOut(Reference):
    """Sensitive sources are in a query only if one is wanted."""

    def draw(self, queries, path):
        law = super().draw(queries, path)
        if path[-1] in self.sensitive or self.statuses[len(queries)]:
            return law
        return {query - self.sensitive: p for query, p in law.items()}


def of_a_neighbour(rows):
    """The encoder of another context, where it can serve."""
    law, encoders = by_quantiles(rows)
    names = sorted(rows)
    swapped = {
        c: {x: encoders[other].get(x) or encoders[c][x] for x in rows[c]}
        for c, other in zip(names, names[1:] + names[:1], strict=True)
    }
    return law, swapped


@pytest.mark.parametrize(
    ("client", "encode", "sensitive"),
    [
        (Forgets, by_quantiles, {}), (Forgets, by_quantiles, {2}), (StaysInItsContext, by_quantiles, {2}),
        (TellsSensitiveOnes, by_quantiles, {2}), (LeavesSensitiveOnesOut, by_quantiles, {2}),
        (Reference, of_a_neighbour, {}),
    ],
)  # fmt: skip
def test_the_referee_sees_mutants(client, encode, sensitive):
    found = [
        (largest_distance(joint, statuses, secret), largest_information(joint, statuses, secret))
        for statuses, secret, _, joint in streams(THREE, sensitive, 4, encode, client)
        if statuses[1:] == (False, False, False)
    ]
    [(leak, bits)] = found
    assert leak > Fraction(1, 50)
    assert bits > 1e-4


# Merging unequal contexts: Hilbert's distance, not total variation


def merging_at(steps, pair):
    """Give two contexts the row of the first of them before each of these steps."""

    def merge(t, rows):
        if t in steps and all(c in rows for c in pair):
            return {**rows, pair[1]: rows[pair[0]]}
        return rows

    return merge


@pytest.mark.parametrize("P", [THREE, NEAR])
@pytest.mark.parametrize("merged", [(1,), (2,), (1, 3), (2, 3)])
@pytest.mark.parametrize("sensitive", [frozenset(), frozenset({2})])
def test_a_query_after_any_past_is_within_hilberts_distance_of_what_was_merged(P, merged, sensitive):
    """A row times factors from a to b: whatever is seen later, factors stay there. So e^d - 1 bounds every query."""
    statuses, pair = (True, False, False, False), ((0, 0), (1, 0))
    reference = Reference(P, statuses, sensitive, by_quantiles, merging_at(merged, pair))
    joint = stream_law(P, statuses, reference.draw)
    seen = Fraction(0)
    for t in range(1, len(statuses)):
        for queries, laws in query_laws(joint, statuses, sensitive, t).items():
            factor = Fraction(1)  # e^d
            for at in (at for at in merged if at <= t and pair[1] in reference.rows(queries[:at])):
                row, taken = reference.filtered(queries[:at])[pair[1]], reference.rows(queries[:at])[pair[1]]
                ratios = [taken[x] / p for x, p in row.items() if p]
                factor *= max(ratios) / min(ratios)
            apart = widest(law for _, law in laws.values())
            assert apart <= factor - 1
            seen = max(seen, apart)
    assert seen > 0


MOST, EVERYTHING, RARE = frozenset({0, 1, 2}), frozenset({0, 1, 2, 3}), Fraction(2, 1000)


def rarely_everything(rows, then=by_quantiles):
    """While source 3 may follow 0: the full set with probability 1/500, always for 3. After that `then`."""
    if 3 not in rows[0, 0]:
        return then(rows)
    encoders = {}
    for c, row in rows.items():
        left = (RARE - row.get(3, 0)) / (1 - row.get(3, 0))
        encoders[c] = {x: {EVERYTHING: Fraction(1)} if x == 3 else {MOST: 1 - left, EVERYTHING: left} for x in row}
    return {MOST: 1 - RARE, EVERYTHING: RARE}, encoders


def test_total_variation_of_merged_rows_bounds_nothing_after_a_rare_past():
    # The rows of 0 and 1 are near, but after the rare full set they lead to different ends.
    P = chain_of([[0, 0, 999, 1], [0, 0, 990, 10], [1, 0, 0, 0], [0, 1, 0, 0]])
    statuses, pair = (True, False, False), ((0, 0), (1, 0))
    reference = Reference(P, statuses, frozenset(), rarely_everything, merging_at((1,), pair))
    joint = stream_law(P, statuses, reference.draw)
    moved = distance(dict(enumerate(P[0])), dict(enumerate(P[1])))
    assert moved == Fraction(9, 1000)
    assert largest_distance(joint, statuses, frozenset()) > 20 * moved


# Rounding


def in_units(denominator):
    """Quantiles of rows whose distribution functions are rounded to whole units: all column sums are equal."""

    def encode(rows):
        order = sorted({x for row in rows.values() for x in row})
        rounded = {}
        for c, row in rows.items():
            ends = [
                math.floor(denominator * sum(row.get(x, Fraction(0)) for x in order[: k + 1]))
                for k in range(len(order))
            ]
            widths = [end - start for start, end in zip([0, *ends], ends, strict=False)]
            rounded[c] = {x: Fraction(w, denominator) for x, w in zip(order, widths, strict=True) if w}
        law, encoders = by_quantiles(rounded)
        full = frozenset(order)
        return law, {c: {x: encoders[c].get(x) or {full: Fraction(1)} for x in row} for c, row in rows.items()}

    return encode


def off_by(reference, joint, statuses, sensitive):
    """The largest total variation between a query given any past and anything hidden, and the public law."""
    worst = Fraction(0)
    for t in range(1, len(statuses)):
        for queries, laws in query_laws(joint, statuses, sensitive, t).items():
            public = {R | sensitive: p for R, p in reference.step(queries)[0].items()}
            worst = max(worst, *(distance(law, public) for _, law in laws.values()))
    return worst


@pytest.mark.parametrize("units", [8, 16, 64])
@pytest.mark.parametrize(("P", "sensitive"), [(TWO, {}), (THREE, {}), (THREE, {2}), (PERIODIC, {3})])
def test_whole_units_put_a_query_off_by_at_most_a_unit_for_each_source_given_any_past(P, sensitive, units):
    statuses, sensitive = (True, False, False, False), frozenset(sensitive)
    reference = Reference(P, statuses, sensitive, in_units(units))
    joint = stream_law(P, statuses, reference.draw)
    assert 0 < off_by(reference, joint, statuses, sensitive) <= Fraction(len(P) - len(sensitive), units)
