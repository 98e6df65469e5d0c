"""Habits with memory: clients with one planted mistake, each found at its first wrong step."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest

from onoff.client.journal import Journal
from onoff.client.protocol import ANEW
from onoff.past import PastState, StepLaw
from pastkit import habits
from replaykit import Life, drawing, life

DEEP = habits(3, 3, 2, full=True, zeros=False)


def test_a_state_that_is_not_kept_across_a_restart_is_found_at_the_first_draw_that_it_changes(tmp_path):
    """The client takes any state that agrees with the true one in the requests since it was opened."""
    made, opened = life(tmp_path, "memory", chain=DEEP, seed=6, restarts=0.4), Life._open

    def noted(self, client=None):
        self.since = self.t
        return opened(self, client)

    def draw(honest, step, request, state, below):
        true, known = made.chain.states[state], max(1, min(made.chain.depth, made.t - made.since))
        alike = [z for z in step.candidates.live if made.chain.states[z][-known:] == true[-known:]]
        return honest(step, request, alike[0] if alike else state, below)

    found = made.live(120, [patch.object(Life, "_open", noted), drawing(made, StepLaw, draw)]).audit()
    assert (found.first.step, found.first.rule) == (made.wrong[0], "draw"), str(found)


def test_candidates_of_too_few_sets_are_found_at_the_first_law_made_of_them(tmp_path):
    """The last two sets decide, whatever was in the one before. The law serves all candidates, and is another one."""
    made, honest = life(tmp_path, "memory", chain=DEEP, private=0.1), PastState.candidates.func

    def wrong(self):
        found = honest(replace(self, queries=(tuple(range(made.chain.n)), *self.queries[1:])))
        made.wrong += [made.t] * (found.states != honest(self).states)
        return found

    made.live(60, [patch.object(PastState, "candidates", property(wrong))])
    off = next(step.step for step in made.steps() if step.lag and step.step in made.wrong)
    assert made.audit().unchecked[0][0] == off
    found = made.audit(engine=made.engine())
    assert (found.first.step, found.first.rule) == (off, "law by request"), str(found)


@pytest.mark.parametrize("first_ever", [False, True])
def test_a_missing_full_set_in_a_new_journal_is_found_there(tmp_path, first_ever):
    """As many full sets are due as the memory is deep, whatever came before."""
    create = Journal._create

    def shallow(self, *about):
        return create(self, *about[:-1], about[-1] - 1)

    made = life(tmp_path, "memory", chain=DEEP, first_ever=first_ever, private=0.0)
    everything = patch.object(StepLaw, "draw", lambda *_: (0, 1, 2))  # the client does not know its state
    made.live(DEEP.depth, [patch.object(Journal, "_create", shallow), everything])
    found = made.audit()
    assert (found.first.step, found.first.rule) == (DEEP.depth - 1, "status")
    lost = life(tmp_path, "memory", name="lost", chain=DEEP, seed=8).live(5)
    right = life(tmp_path, "memory", name="right", chain=DEEP, private=0.0, lines=list(lost.lines)).live(20)
    assert right.steps()[DEEP.depth].lag == 1
    assert right.audit(others=[lost.journal_file]).word == "PASSED"


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
