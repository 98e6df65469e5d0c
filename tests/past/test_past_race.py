"""The race of the promise `past`: its winners have the exact law, whoever races, and the request is among them."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from onoff import Chain
from onoff.past import Candidates, RaceStep
from onoff.schemes import clocks
from onoff.testing import chains
from oracles import seeds
from sampling import examples

FALSE_ALARM = 1e-6  # of each statistical test; seeds are fixed, so a run either always alarms or never
ROWS = np.array([[1, 3, 2], [2, 1, 5], [6, 1, 1], [0, 1, 0]])
TENTHS = np.array([[1, 1, 3, 5], [2, 0, 0, 8], [4, 2, 4, 0], [0, 10, 0, 0]])
STEPS = [  # three open sources, and one that is hidden; in the last state no open request is possible
    RaceStep(Candidates(Chain(ROWS[:3] / ROWS[:3].sum(axis=1, keepdims=True)), (), (0, 1, 2))),
    RaceStep(Candidates(Chain(TENTHS / 10), (1,), (0, 2, 3))),
]


def exact_law(rows):
    """The law of the winners of three sources.

    With exponential clocks w wins all these rows with probability 1 / sum_y max_z r_z(y) / r_z(w).
    """

    def wins_all(w, some):
        return 1 / (some / some[:, w : w + 1]).max(axis=0).sum() if some[:, w].all() else 0.0

    numbers = range(1, len(rows) + 1)
    some = {w: sum((-1) ** (k + 1) * wins_all(w, rows[list(part)]) for k in numbers
                   for part in combinations(range(len(rows)), k)) for w in range(3)}  # fmt: skip
    law = {(w,): wins_all(w, rows) for w in range(3)}
    for w in range(3):
        others = tuple(x for x in range(3) if x != w)
        law[others] = 1 - some[w] - sum(law[x,] for x in others)
    return {**law, (0, 1, 2): 1 - sum(law.values())}


def alarm(step, reader, draws=3000):
    """How unlikely the sets are that a reader asks for, by the exact law. Without a state it is a hidden request."""
    rng, randbelow, opened = np.random.default_rng(1), random.Random(1).randrange, step.candidates.open_sources
    row = ~opened if reader is None else step.candidates.chain.P[reader] * opened
    requests = rng.choice(len(row), draws, p=row / row.sum())
    counts = Counter(step.draw(int(x), 0 if reader is None else reader, randbelow) for x in requests)
    places = np.flatnonzero(opened).tolist()
    law = exact_law(step.candidates.rows(step.candidates.live))
    sets = {tuple(sorted([*step.candidates.hidden, *(places[x] for x in R)])): p for R, p in law.items() if p > 1e-12}
    assert counts.keys() <= sets.keys()
    return chisquare([counts[query] for query in sets], [draws * p for p in sets.values()]).pvalue


@pytest.mark.parametrize(("number", "reader"), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (1, None)])
def test_winners_have_the_exact_law_in_every_state_and_for_a_hidden_request(number, reader):
    assert alarm(STEPS[number], reader) > FALSE_ALARM


def test_clocks_that_forget_the_request_are_seen(monkeypatch):
    def forgetful(weights, request, randbelow):
        times = clocks.fresh_clocks(len(weights), randbelow)
        times[request] *= weights[request] / weights.sum()  # planted: only its own clock depends on it
        return times

    monkeypatch.setattr(clocks, "given_request", forgetful)
    assert alarm(STEPS[0], 0) < FALSE_ALARM


def test_the_request_is_in_the_query_even_if_it_is_not_among_the_winners(monkeypatch):
    monkeypatch.setattr(RaceStep, "winners", lambda self, times: times < 0)
    assert STEPS[1].draw(2, 0) == (1, 2)


@given(chains(max_sources=6), st.data(), seeds)
@settings(max_examples=examples(60))
def test_every_possible_request_is_served_however_unlikely(chain, data, seed):
    hidden = tuple(sorted(data.draw(st.sets(st.integers(0, chain.n - 1)))))
    step, randbelow = RaceStep(Candidates(chain, hidden, tuple(range(chain.n)))), random.Random(seed).randrange
    assume(step.candidates.live)  # else it is no race
    for z in range(chain.n):
        for x in range(chain.n):
            if chain.P[z, x] or x in hidden:
                query = step.draw(x, z, randbelow)
                assert {x, *hidden} <= {*query}
                assert list(query) == sorted({*query})
    assert 0 < step.rounding < 2.0**-45
    assert len(hidden) <= step.lower_bound <= chain.n


def test_the_numbers_of_a_draw_are_as_long_for_a_hidden_request_as_for_an_open_one():
    """They are written into the journal, and how much is written must not tell."""
    step, bounds = STEPS[1], []
    for request in (0, 1):
        step.draw(request, 0, lambda bound: bounds.append(bound) or bound // 3)
    assert bounds[0] == bounds[1]
