"""Habits with memory: clients with one planted mistake, each found at its first wrong step."""

from __future__ import annotations

import json
from dataclasses import replace
from unittest.mock import patch

import pytest

from onoff.audit.exhibits import law_line
from onoff.client import promises
from onoff.client.journal import Journal
from onoff.client.protocol import ANEW, begin_past
from onoff.past import PastState, StepLaw
from pastkit import habits
from replaykit import Life, drawing, life

DEEP = habits(3, 3, 2, full=True, zeros=False)


def knows(made, last):
    """A client that takes any state which agrees with the true one in so many of the last requests."""

    def draw(honest, step, request, state, below):
        true, known = made.chain.states[state], last()
        alike = [z for z in step.candidates.live if made.chain.states[z][-known:] == true[-known:]]
        return honest(step, request, alike[0] if alike else state, below)

    return drawing(made, StepLaw, draw)


def after_a_restart(made):
    """The reader's state is not kept: the client knows the requests since it was opened."""
    opened = Life._open

    def noted(self, client=None):
        self.since = self.t
        return opened(self, client)

    return patch.object(Life, "_open", noted), knows(made, lambda: max(1, min(made.chain.depth, made.t - made.since)))


MISTAKES = {
    "state not kept across a restart": after_a_restart,
    "state of the last request only": lambda made: (knows(made, lambda: 1),),
    "state of the wrong depth": lambda made: (knows(made, lambda: 2),),
}


@pytest.mark.parametrize("sensitive", [(), (1,)])
@pytest.mark.parametrize("name", MISTAKES)
def test_a_state_that_is_not_the_readers_is_found_at_the_first_draw_that_it_changes(tmp_path, name, sensitive):
    made = life(tmp_path, "memory", chain=DEEP, sensitive=sensitive, seed=6, restarts=0.4)
    found = made.live(120, MISTAKES[name](made)).audit()
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
        return create(self, *about[:-2], about[-2] - 1, about[-1])

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


def test_a_client_that_makes_one_full_set_after_a_gap_is_found_there(tmp_path):
    def goes_on(*given, anew, **_):
        begun = begin_past(*given)
        pending = replace(begun.pending, plan=ANEW if anew else begun.pending.plan)
        return replace(begun, pending=pending, state=replace(begun.state, pending=pending))

    made = life(tmp_path, "memory", chain=DEEP, private=0.0)
    made.gap = lambda t: t == 9
    found = made.live(20, [patch.object(promises, "begin_past", goes_on)]).audit()
    assert (found.first.step, found.first.rule) == (10, "status"), str(found)


def test_a_law_that_is_missing_leaves_its_steps_unchecked_and_no_others(tmp_path):
    made = life(tmp_path, "memory", chain=DEEP, seed=3, restarts=0.0, kills=0.0).live(30)
    lines = made.record_file.read_text().splitlines(keepends=True)
    made.record_file.write_text("".join(lines[:2] + lines[3:]))
    digest = law_line(json.loads(lines[2])["law"], 3).digest
    found = made.audit()
    assert found.findings == ()
    assert {made.steps()[step].digest for step, _ in found.unchecked} == {digest}
    assert made.audit(engine=made.engine()).word == "PASSED"
