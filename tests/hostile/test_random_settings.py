"""Random settings of both promises, enumerated as they are drawn: what the server sees tells nothing of what is hidden.

252 settings of `past` and 40 of `both`. A setting is a chain, a pattern of statuses and, for `past`, sensitive sources.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from onoff import plan
from onoff.past import Candidates, PastState
from oracles import dependence, joint_law, random_chain
from pastkit import World
from sampling import LONG

KINDS = ("dense", "sparse", "periodic", "symmetric")
PAST = range(252 if LONG else 36)
BOTH = range(40 if LONG else 5)


def setting(number, most):
    """A chain, statuses that begin ON, and sensitive sources, all by the number."""
    rng = np.random.default_rng([29, number])
    n = int(rng.integers(2, most + 1))
    chain = random_chain(KINDS[number % len(KINDS)], n, number)
    statuses = (True, *(rng.random(int(rng.integers(2, 4))) < 0.3).tolist(), False)
    return chain, statuses, tuple(np.flatnonzero(rng.random(n) < 0.25).tolist())


@pytest.mark.parametrize("part", range(4))
def test_past_tells_nothing_beyond_the_stated_rounding(part):
    for number in PAST[part::4]:
        chain, statuses, sensitive = setting(number, 3)
        for seen in World(chain, sensitive).streams(statuses):
            assert seen.off <= Fraction(seen.step.rounding), (number, seen.past)


def test_both_tells_nothing_beyond_the_stated_rounding():
    for number in BOTH:
        chain, statuses, _ = setting(number, 3)
        plans = {lag: plan(chain, lag) for lag in range(1, len(statuses))}
        law = joint_law(chain, statuses, plans, lambda lag, last, path, t: (lag + 1, last))
        rounding = sum(Fraction(found.rounding_at(lag)) for lag, found in plans.items())  # at least that of the stream
        assert dependence(law, statuses) <= 2 * rounding, number


def test_a_client_that_forgets_a_candidate_is_seen_in_a_random_setting(monkeypatch):
    monkeypatch.setattr(PastState, "candidates", property(lambda self: Candidates(self.chain, self.sensitive, (0,))))
    found = []
    for number in PAST[:12]:
        chain, statuses, sensitive = setting(number, 3)
        found += [seen.apart for seen in World(chain, sensitive).streams(statuses)]
    assert max(found) > 0.01
