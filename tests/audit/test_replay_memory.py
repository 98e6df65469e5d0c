"""Habits with memory, replayed: full sets at the beginning and after a gap, states and laws of the last requests."""

from __future__ import annotations

import pytest

from onoff.client.protocol import ANEW
from pastkit import habits
from replaykit import life

DEEP = habits(3, 3, 2, full=True, zeros=False)


def test_a_journal_after_a_lost_one_begins_with_as_many_full_sets_as_the_memory_is_deep(tmp_path):
    lost = life(tmp_path, "memory", name="lost", chain=DEEP, seed=8).live(5)
    made = life(tmp_path, "memory", chain=DEEP, private=0.0, lines=list(lost.lines)).live(20)
    assert [step.lag for step in made.steps()][: DEEP.depth + 1] == [0] * DEEP.depth + [1]
    assert made.audit(others=[lost.journal_file]).word == "PASSED"


GAPS = 0, 8, 16, 17, 25, 32  # steps before which a request may be missing


@pytest.mark.parametrize("depth", [1, 3])
def test_full_sets_after_a_gap_are_due_and_the_laws_after_them_are_those_of_a_new_journal(tmp_path, depth):
    made = life(tmp_path, "memory", chain=habits(3, depth, 2, full=True, zeros=False), private=0.1)
    made.gap = lambda t: t in GAPS
    made.live(40)
    assert [step.step for step in made.steps() if step.plan == ANEW] == list(GAPS)
    for options in ({}, {"engine": made.engine()}, {"engine": made.engine(), "record": None}):
        found = made.audit(**options)
        assert (found.word, found.drawn) == ("PASSED", found.off), str(found)
    assert found.off > 10
