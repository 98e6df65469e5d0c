"""Habits with memory: clients with one planted mistake, each found at its first wrong step.

A step is wrong if the engine's own code, in the reader's true context and with the same numbers, asks for another set.
"""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from onoff.client import promises
from onoff.client.journal import Journal
from onoff.client.protocol import ANEW, begin_past
from onoff.past import PastState
from pastkit import habits
from replaykit import Life, life

DEEP = habits(3, 3, 2, full=True, zeros=False)


def first_wrong(made):
    """The first step at which the true reader's draw is another one."""
    chain, rows, context, requests = made.chain, None, None, []
    for step in made.steps():
        requests.append(step.request)
        state = chain.state_of(requests)
        if len(requests) <= chain.depth:  # none of these counts as ON
            continue
        if step.lag == 0:
            rows = PastState.start(chain, made.sensitive) if rows is None else rows.after_full_set()
            context = rows.context(state, None, private=True)
            continue
        ready, [(bound, number)] = rows.prepare(), step.numbers
        asked = []

        def again(below, asked=asked, number=number):
            asked.append(below)
            return min(number, below - 1)

        due = ready.draw(step.request, context, again)
        if (due, asked) != (step.query, [bound]):
            return step.step
        rows = rows.advance(ready, step.query)
        context = rows.context(state, context, private=False)
    raise AssertionError("the mistake was never made")


def knows(last):
    """A client that takes any state which agrees with the true one in so many of the last requests."""
    honest = PastState.context

    def context(self, state, context, private):
        true, known = self.chain.states[state], last()
        alike = [z for z, end in enumerate(self.chain.states) if end[-known:] == true[-known:] and self.joined[z] >= 0]
        return honest(self, alike[0] if alike else state, context, private)

    return patch.object(PastState, "context", context)


def after_a_restart(made):
    """The reader's state is not kept: the client knows the requests since it was opened."""
    opened = Life._open

    def noted(self, client=None):
        self.since = self.t
        return opened(self, client)

    def last():
        return max(1, min(made.chain.depth, made.t - made.since))

    return patch.object(Life, "_open", noted), knows(last)


MISTAKES = {
    "state not kept across a restart": after_a_restart,
    "context of the last request only": lambda made: (knows(lambda: 1),),
    "context of the wrong depth": lambda made: (knows(lambda: 2),),
}


@pytest.mark.parametrize("sensitive", [(), (1,)])
@pytest.mark.parametrize("name", MISTAKES)
def test_a_state_that_is_not_the_readers_is_found_at_the_first_draw_that_it_changes(tmp_path, name, sensitive):
    made = life(tmp_path, "memory", chain=DEEP, sensitive=sensitive, seed=6, restarts=0.4)
    made.live(120, MISTAKES[name](made))
    found = made.audit()
    assert (found.first.step, found.first.rule) == (first_wrong(made), "draw"), str(found)


def test_a_private_step_made_with_the_law_of_another_state_is_found_at_the_first_law_made_of_it(tmp_path):
    honest = PastState.after_full_set

    def rolled(self):
        found = honest(self)
        joined = np.array(found.joined)
        joined[joined >= 0] = np.roll(joined[joined >= 0], 1)
        return replace(found, joined=tuple(joined.tolist()))

    made = life(tmp_path, "memory", chain=DEEP, first_ever=True)
    made.asked = lambda t, request, wanted: t in (9, 10)
    made.live(20, [patch.object(PastState, "after_full_set", rolled)])
    assert (made.audit().first.step, made.audit().first.rule) == (11, "rows")


@pytest.mark.parametrize("first_ever", [False, True])
def test_a_missing_full_set_in_a_new_journal_is_found_there(tmp_path, first_ever):
    """As many full sets are due as the memory is deep, and one more after a journal that was lost."""
    create = Journal._create

    def shallow(self, *about):
        return create(self, *about[:-1], about[-1] - 1)

    made = life(tmp_path, "memory", chain=DEEP, first_ever=first_ever, private=0.0)
    due = DEEP.depth + (not first_ever)
    made.live(20, [patch.object(Journal, "_create", shallow), *[knows(lambda: 2)] * first_ever])
    found = made.audit()
    lost = life(tmp_path, "memory", name="lost", chain=DEEP).live(5)
    made.lines = [*lost.lines, *made.lines]
    again = made.change_log(lambda lines: lines).audit(others=[lost.journal_file])
    assert (again.first.step, again.first.rule) == (due - 1, "status")
    if first_ever:
        assert (found.first.step, found.first.rule) == (due - 1, "status")
    else:  # as if nothing had ever been asked before
        assert found.word == "PASSED"


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


def test_a_client_that_makes_one_full_set_after_a_gap_is_found_there(tmp_path):
    def goes_on(*given):
        *drawn, anew, _ = given
        begun = begin_past(*drawn)
        pending = replace(begun.pending, plan=ANEW if anew else begun.pending.plan)
        return replace(begun, pending=pending, state=replace(begun.state, pending=pending))

    made = life(tmp_path, "memory", chain=DEEP, private=0.0)
    made.gap = lambda t: t == 9
    found = made.live(20, [patch.object(promises, "begin_past", goes_on)]).audit()
    assert (found.first.step, found.first.rule) == (10, "status"), str(found)


def test_a_law_that_is_missing_leaves_steps_unchecked_until_as_many_full_sets_as_the_memory_is_deep(tmp_path):
    made = life(tmp_path, "memory", chain=DEEP, seed=3)
    made.asked = lambda t, request, wanted: t in (10, 14, 15, 20, 21, 22)
    made.live(30)
    lines = made.record_file.read_text().splitlines(keepends=True)
    made.record_file.write_text("".join(line for line in lines if '"step": 8,' not in line))
    found = made.audit()
    assert found.findings == ()
    assert [step for step, _ in found.unchecked] == [8, 9, 11, 12, 13, 16, 17, 18, 19]
