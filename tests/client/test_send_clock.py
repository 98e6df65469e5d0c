"""The grid on which everything leaves, on a clock of its own: points depend on slots, never on moments within them."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onoff.client import clock as send_clock
from onoff.client.clock import EARLY, MISSED, SendClock

DELAY = 0.05


class Clock:
    """Time that passes only when somebody sleeps or looks."""

    def __init__(self, monkeypatch):
        self.time, self.slept, self.late = 1000.0, [], []
        monkeypatch.setattr(send_clock, "now", self.now)
        monkeypatch.setattr(send_clock.asyncio, "sleep", self.sleep)
        monkeypatch.setattr(send_clock, "time", SimpleNamespace(sleep=self.doze))

    def now(self):
        self.time += 1e-6
        return self.time

    def doze(self, seconds):
        self.time += seconds

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.time += seconds + (self.late.pop(0) if self.late else 0.0)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def left_at(clock, handled, drawn, wait=SendClock.after_call):
    """When a query leaves, in delays after the end of the step before; seconds spent by the caller and by the draw.

    `SendClock.end_of_call` tells when a call counts as ended that is given up after waiting so long.
    """
    found = SendClock()
    found.restart()
    start = clock.time
    clock.time += handled
    called = clock.now()
    clock.time += drawn
    asyncio.run(wait(found, called, DELAY))
    return (clock.time - start) / DELAY


@given(handled=st.floats(0, 0.4), drawn=st.floats(0, 0.3))
def test_a_query_leaves_one_point_after_the_point_of_its_call_or_when_it_is_drawn(handled, drawn):
    with pytest.MonkeyPatch.context() as patch:
        left = left_at(Clock(patch), handled, drawn)
    point = round(left)
    assert left == pytest.approx(point, abs=0.001)
    slack = 1e-4  # looking at the clock takes time here
    earliest, latest = (
        max(max(1, math.ceil(handled / DELAY + shift)) + 1, math.ceil((handled + drawn) / DELAY + shift))
        for shift in (-slack, slack)
    )
    assert earliest <= point <= latest


def test_the_end_is_at_a_point_too_and_the_last_milliseconds_are_spent_awake(clock):
    for handled, point in ((0.0, 1), (0.049, 1), (0.051, 2)):
        found = SendClock()
        found.restart()
        start = clock.time
        clock.time += handled
        clock.slept.clear()
        asyncio.run(found.next_point(DELAY))
        assert clock.time - start == pytest.approx(point * DELAY, abs=1e-4)
        assert clock.slept == [pytest.approx(max(0.0, point * DELAY - handled - EARLY), abs=1e-4)]


@pytest.mark.parametrize(("busy", "point"), [(0.0, 2), (0.001, 2), (0.003, 3), (0.03, 3), (0.06, 4), (0.12, 5)])
def test_what_another_task_does_meanwhile_shows_in_whole_points_only(clock, busy, point):
    """The reader of the message before keeps the loop busy while a query waits for its point."""
    clock.late = [busy]
    assert left_at(clock, 0.0, 0.0) == pytest.approx(point, abs=0.001)


@pytest.mark.parametrize(("busy", "least", "most"), [(0.006, 3, 3), (0.02, 4, 4), (0.3, 2 + MISSED, 2 + 7 * MISSED)])
def test_a_loop_that_is_always_busy_keeps_nobody_waiting_for_ever(clock, busy, least, most):
    clock.late = [busy] * 100
    point = left_at(clock, 0.0, 0.0)
    assert point == pytest.approx(round(point), abs=0.001)
    assert least <= round(point) <= most


@pytest.mark.parametrize(("patience", "point"), [(0.01, 2), (0.12, 4), (0.14, 4), (5.01, 102)])
@pytest.mark.parametrize("handled", [0.001, 0.02, 0.048])
def test_when_a_call_was_made_that_is_given_up_shows_in_whole_points_only(clock, handled, patience, point):
    assert left_at(clock, handled, patience, SendClock.end_of_call) == pytest.approx(point, abs=0.001)
