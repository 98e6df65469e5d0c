"""Laws of the promise `past` for many sources: no search mends them."""

import numpy as np
import pytest

from onoff import Chain
from onoff.past import Candidates
from onoff.past.step import SEVERAL, prepare


@pytest.mark.parametrize("states", [18, SEVERAL])
def test_a_law_of_few_rows_with_few_likely_sources_is_at_its_bound(states):
    rng, P = np.random.default_rng(1), np.full((300, 300), 0.01 / 300)
    for row in P:
        row[rng.choice(300, 20, replace=False)] += 0.99 * rng.dirichlet(np.ones(20))
    step = prepare(Candidates(Chain(P), (), tuple(range(states))))
    assert step.cost <= 1.001 * step.lower_bound
