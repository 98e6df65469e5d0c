"""Lengths of time in words, for whoever asks for one."""

from __future__ import annotations

import pytest

from onoff.durations import parse_duration, parse_fresh
from onoff.errors import OnoffError

LENGTHS = [
    ("90", 90), (90, 90), (0.5, 0.5), ("1.5s", 1.5), ("30s", 30), ("30m", 1800), (" 2 h ", 7200), ("1d", 86400),
    ("0", 0), ("0s", 0),
]  # fmt: skip
BAD = ["", "5 parsecs", "-5m", -1, "5M", "1e300", "1_0", "٣", "s", "m5", "5m 3s", "inf", float("nan"), True, None]


@pytest.mark.parametrize(("given", "seconds"), LENGTHS)
def test_a_length_of_time_in_words(given, seconds):
    assert parse_duration(given) == seconds


@pytest.mark.parametrize("parse", [parse_duration, parse_fresh])
@pytest.mark.parametrize("given", BAD)
def test_what_is_no_length_of_time_is_refused_in_one_sentence(parse, given):
    with pytest.raises(OnoffError, match="is not a length of time: write 30s, 5m"):
        parse(given)


def test_messages_are_fresh_for_at_most_an_hour():
    assert [parse_fresh(given) for given in ("0", "5m", "1h", 3600)] == [0, 300, 3600, 3600]
    for given in ("3601", "60.1m", "2h", "1d", "9" * 400):
        with pytest.raises(OnoffError, match="at most an hour"):
            parse_fresh(given)
