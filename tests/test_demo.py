from __future__ import annotations

import numpy as np

from onoff import Chain, bounds, demo
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
    assert result.outer <= result.expected <= result.inner < result.everything
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
    both = [bounds(chain.posterior(lag)) for lag in lags]
    assert abs(found.inner - sum(b.inner for b in both)) < 1e-9
    assert abs(found.outer - sum(b.outer for b in both)) < 1e-9
    assert abs(found.expected - sum(paper(chain.posterior(lag)).cost for lag in lags)) < 1e-9
    assert found.private_steps == lags.count(0)


def test_a_request_that_rounding_left_without_mass_asks_for_everything():
    chain = Chain([[0.9, 0.1, 1e-18], [0.5, 0.5, 0], [0.3, 0.3, 0.4]])
    assert demo._draw(paper(chain.posterior(1)), 2, 0, 0, np.random.default_rng(1)) == (0, 1, 2)
