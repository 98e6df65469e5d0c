"""Random laws, and the condition that decides whether one can be drawn from."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import strategies as st

from onoff.schemes.flow import supplies

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
