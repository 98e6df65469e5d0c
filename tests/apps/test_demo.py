from __future__ import annotations

import numpy as np

from onoff.apps import demo
from onoff.apps import terminal as report
from onoff.model.bounds import outer_bound


def test_the_reader_is_a_chain_of_eight_channels():
    chain = demo.reader()
    assert chain.names == demo.CHANNELS
    assert len(chain.names) == 8


def test_statuses_do_not_depend_on_the_requests():
    assert demo.statuses(50, np.random.default_rng(3)) == demo.statuses(50, np.random.default_rng(3))
    assert 0 < sum(demo.statuses(200, np.random.default_rng(1))) < 200


def test_the_demonstration_is_real_repeats_nothing_and_betrays_nothing(capsys):
    seen = []
    result = demo.demonstrate(60, 3, seen.append)
    assert result.steps == result.delivered == 60
    assert 30 <= result.killed_at < 60
    assert result.queries_per_step == 1
    assert result.retries in (0, 1)
    assert result.outer < result.paper < result.everything
    assert result.outer <= result.expected < result.everything
    frame = result.everything // (60 * 8)
    assert result.downloaded % frame == 0
    # Sizes vary by less than 4 sources: six standard deviations of the sum, a false alarm below 1e-8.
    assert abs(result.downloaded - result.expected) < 6 * 4 * frame * 60**0.5
    assert max(seen) >= 59
    assert result.outer >= frame * 60 * outer_bound(demo.reader().posterior(50))
    assert result.audit.clean
    ours, naive = result.audit.log.verdict, result.audit.naive.verdict
    assert ours.attacked == 60
    assert ours.private.max_bits < 1e-12
    assert naive.succeeded
    assert naive.private.mean_bits > 0.01
    report.print_demo(result)
    assert "the server learned nothing about them" in capsys.readouterr().out
