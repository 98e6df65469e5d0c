from __future__ import annotations

import numpy as np
import pytest

from onoff import demo, plan
from onoff.schemes.paper import paper


def test_the_reader_is_a_chain_of_eight_channels():
    chain = demo.reader()
    assert chain.names == demo.CHANNELS
    assert len(chain.names) == 8


def test_while_off_the_last_private_request_stays_what_it_was():
    # The query must hide this one: what is asked while OFF is no secret and must never take its place.
    requests = [3, 1, 4, 1, 5, 2, 6, 0]
    private = [True, False, False, True, True, False, False, True]
    assert list(demo._with_lag(requests, private)) == [
        *((3, 0, 3), (1, 1, 3), (4, 2, 3), (1, 0, 1)),
        *((5, 0, 5), (2, 1, 5), (6, 2, 5), (0, 0, 0)),
    ]


def test_what_is_downloaded_is_near_what_is_expected_and_above_the_bound():
    result = demo.simulate(steps=2000, seed=2)
    assert result.all_delivered
    assert result.everything == 16_000
    assert 0 < result.private_steps < 2000
    assert result.lower_bound <= result.expected <= result.paper < result.everything
    # The size of a query has a standard deviation below 4: six of the sum's, a false alarm below 1e-8.
    assert abs(result.downloaded - result.expected) < 6 * 4 * 2000**0.5


def test_the_bounds_are_the_sums_over_the_lags_met():
    steps, seed = 40, 5
    rng = np.random.default_rng(seed)
    chain = demo.reader()
    requests = chain.simulate(steps, rng).tolist()
    lags = [lag for _, lag, _ in demo._with_lag(requests, demo.statuses(steps, rng))]
    assert max(lags) > 2
    found = demo.simulate(steps, seed)
    plans = {lag: plan(chain, lag) for lag in set(lags)}
    assert found.expected == pytest.approx(sum(plans[lag].cost for lag in lags))
    assert found.lower_bound == pytest.approx(sum(plans[lag].lower_bound for lag in lags))
    assert found.paper == pytest.approx(sum(paper(chain.posterior(lag)).cost for lag in lags))
    assert found.private_steps == lags.count(0)
