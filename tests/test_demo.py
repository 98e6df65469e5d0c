from __future__ import annotations

from onoff import demo


def test_the_reader_is_a_chain_of_eight_channels():
    chain = demo.reader()
    assert chain.names == demo.CHANNELS
    assert len(chain.names) == 8


def test_what_is_downloaded_is_near_what_is_expected_and_above_the_bound():
    result = demo.simulate(steps=2000, seed=2)
    assert result.all_delivered
    assert result.everything == 16_000
    assert 0 < result.private_steps < 2000
    assert result.outer <= result.expected < result.everything
    # The size of a query has a standard deviation below 4: six of the sum's, a false alarm below 1e-8.
    assert abs(result.downloaded - result.expected) < 6 * 4 * 2000**0.5
