"""Which of many alike cases every run of the tests has, and which are left to the long ones."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from itertools import product
from typing import Any

import pytest

IN_CI = os.environ.get("CI") == "true"
LONG = IN_CI or "ONOFF_STRESS" in os.environ or os.environ.get("ONOFF_LONG") == "1"


def examples(number: int) -> int:
    """So many examples of Hypothesis with the long tests, else half of them, which are the first: the seed is fixed."""
    return number if LONG else number // 2


def one_in(every: int, cases: Iterable[Any]) -> list[Any]:
    """Values for `parametrize`: every so many of the cases, from the first on, and all others marked `long`."""
    return [_case(case, place % every == 0) for place, case in enumerate(cases)]


def in_turn(firsts: Iterable[Any], seconds: Collection[Any]) -> list[Any]:
    """Pairs for `parametrize`: each of the first with one of the second, which take turns, and all others `long`."""
    return [
        _case((one, other), i % len(seconds) == j)
        for (i, one), (j, other) in product(enumerate(firsts), enumerate(seconds))
    ]


def _case(case: Any, always: bool) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=() if always else pytest.mark.long)
