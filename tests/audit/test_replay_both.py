"""Clients of the promise `both` with one planted mistake: each is found at its first wrong step.

Streams are made by the client's own code, patched, with kills, lost answers and restarts (`replaykit`). `wrong` are the
steps at which the patched code did something else than the honest one would have done with the same numbers.
"""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest

from onoff import plan
from onoff.audit import law
from onoff.audit.exhibits import law_digest
from onoff.client import promises
from onoff.client.laws import PlanDigests
from onoff.plans.plan import Plan
from onoff.plans.race import RacePlan
from onoff.plans.table import TablePlan
from onoff.schemes.clocks import to_integers
from onoff.schemes.law import Law
from replaykit import CHAIN, CheapestPlan, drawing, life, plans, race

FULL = tuple(range(CHAIN.n))


# Draws: the rules are kept, the number is not followed.


def sometimes_openly(share):
    coin = random.Random(share)

    def openly(honest, plan, request, *context):
        query = honest(plan, request, *context)
        return (request,) if coin.random() < share else query

    return openly


def lag_too_high_in_secret(honest, plan, request, last, next, lag, below):
    return honest(plan, request, last, next, lag + 1, below)


def bound_off_by_one(honest, plan, *context):
    *place, below = context
    return honest(plan, *place, lambda bound: below(bound - 1))


DRAWS = {
    "1 % openly": (sometimes_openly(0.01), 600),
    "a lag too high": (lag_too_high_in_secret, 60),
    "a bound too small by one": (bound_off_by_one, 20),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_that_does_not_follow_its_number_is_found_at_the_first_one(tmp_path, name):
    mistake, count = DRAWS[name]
    made = life(tmp_path, seed=3)
    made.live(count, [drawing(made, TablePlan, mistake)])
    found = made.audit()
    assert made.wrong, "the mistake was never made"
    assert (found.first.step, found.first.rule) == (made.wrong[0], "draw"), str(found)
    assert found.word == "FAILED"


@pytest.mark.parametrize("lag", [1, 2])
def test_draws_of_a_race_are_made_again_from_its_clocks(tmp_path, lag):
    planner = CheapestPlan(race(CHAIN, 1), race(CHAIN, lag))
    honest = life(tmp_path, name="honest", planner=planner, seed=2).live(60).audit()
    assert (honest.word, honest.drawn) == ("PASSED", honest.off), str(honest)
    made = life(tmp_path, planner=planner, seed=2)
    made.live(60, [drawing(made, RacePlan, sometimes_openly(0.2))])
    found = made.audit()
    assert (found.first.step, found.first.rule) == (made.wrong[0], "draw"), str(found)


def test_a_race_whose_past_is_drawn_without_the_request_is_found(tmp_path):
    def without_request(self, request, last, lag, randbelow):
        weights = to_integers(self._walks.row(last, lag - self.lag) * (self._walk[:, request] > 0))
        ends = np.cumsum(np.array(weights, dtype=object))
        return int(np.searchsorted(ends, randbelow(int(ends[-1])), side="right"))

    made = life(tmp_path, planner=CheapestPlan(race()), seed=2)
    made.live(40, [patch.object(RacePlan, "_earlier", without_request)])
    lags = [step.lag for step in made.steps()]
    assert (made.audit().first.step, made.audit().first.rule) == (lags.index(2), "draw")


# Rules: statuses, lags, plans, announcements.


def plan_of_a_larger_lag(made):
    """The next plan of the grid is cheaper; that it does not serve this lag is not checked."""
    best = CheapestPlan.best

    def greedy(self, lag):
        if lag == 1:
            made.wrong.append(made.t)
        return best(self, lag + 1)

    served = patch.object(Plan, "served_lag", lambda plan, lag: max(plan.lag, lag or 0))
    return patch.object(CheapestPlan, "best", greedy), served


def on_in_secret(made):
    """The client goes ON for one source, which nobody asked it to."""
    begin = promises.begin_both

    def wrong(state, chain, request, next, private, plan, below, _):
        if request != 2 or private or state.last is None:
            return begin(state, chain, request, next, private, plan, below)
        made.wrong.append(made.t)
        begun = begin(state, chain, request, next, True, None, below)
        pending = replace(begun.pending, asked_private=False)
        return replace(begun, state=replace(begun.state, pending=pending), pending=pending)

    return (patch.object(promises, "begin_both", wrong),)


RULES = {"plan": plan_of_a_larger_lag, "status": on_in_secret}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_is_broken_is_found_at_the_first_step(tmp_path, rule):
    made = life(tmp_path, seed=5)
    made.live(60, RULES[rule](made))
    found = made.audit()
    off = [step.step for step in made.steps() if step.lag or not step.asked_private]
    expected = next(step for step in made.wrong if step in off)
    assert (found.first.step, found.first.rule) == (expected, rule), str(found)


def test_one_full_set_after_another_stream_is_wrong_if_that_is_this_clients_and_not_certified_if_it_is_anybodys(
    tmp_path,
):
    """A journal that is made as if nothing had ever been asked before, where the log shows that something was."""
    lost = life(tmp_path, name="lost", first_ever=True).live(10)
    made = life(tmp_path, first_ever=True, private=0.0, lines=list(lost.lines)).live(10)
    found = made.audit(others=[lost.journal_file])
    assert (found.first.step, found.first.rule) == (1, "status")
    found = made.audit()
    assert (found.word, found.unchecked[0][0]) == ("NO VERDICT", 1)
    assert "others asked from this address before" in str(found)
    assert life(tmp_path, name="right", private=0.0, lines=list(lost.lines)).live(10).audit().word == "PASSED"
    assert life(tmp_path, name="alone", first_ever=True, private=0.0).live(10).audit().word == "PASSED"


def test_another_request_than_the_announced_one_is_found(tmp_path):
    begin = promises.begin_both
    made = life(tmp_path, kills=0.0)

    def forgetful(state, chain, request, *rest):
        if state.announced is not None and made.t == 12:
            request = next(x for x in range(chain.n) if x != request)
            made.wrong.append(made.t)
        return begin(replace(state, announced=None), chain, request, *rest)

    made.live(30, [patch.object(promises, "begin_both", forgetful)])
    found = made.audit()
    assert (found.first.step, found.first.rule, made.wrong) == (12, "next", [12])


# Plans.


def coarse(units):
    """A plan whose law is rounded to so few units that what it states would allow a leak."""
    made = plan(CHAIN, 1, "everything")
    return replace(made, law=Law.of_sets([FULL], [units], CHAIN.n))


def test_a_law_of_few_units_is_found_at_its_first_use(tmp_path):
    made = life(tmp_path, planner=CheapestPlan(coarse(999))).live(20)
    found = made.audit()
    assert (found.first.step, found.first.rule) == (first_off(made), "rows")
    assert life(tmp_path, name="fine", planner=CheapestPlan(coarse(2**40))).live(20).audit().word == "PASSED"


def first_off(made):
    return next(step.step for step in made.steps() if step.lag)


class Altered:
    """The exhibit of a plan whose encoder was changed."""

    kind = "table"

    def __init__(self, plan, change):
        self.sets, self.masses, self._plan, self._change = plan.sets, plan.masses, plan, change

    def encoder(self, *context):
        table = self._plan.encoder(*context).toarray()
        self._change(table)
        return SimpleNamespace(toarray=lambda: table)


def move_a_unit(table):
    x, i = next((x, i) for x, i in zip(*table.nonzero(), strict=True) if table[x, i] > 1)
    table[x, i] -= 1
    table[x, (i + 1) % table.shape[1]] += 1


def test_an_encoder_that_does_not_keep_the_promise_is_found_at_its_first_use(tmp_path):
    """The client draws from the altered encoder and notes its digest: only the law check can tell."""
    dear = plan(CHAIN, 1, "comb")
    altered = Altered(dear, move_a_unit)

    def digest(self, plan, last, next, lag):  # noqa: ARG001
        table = altered.encoder(last, next, lag).toarray()
        return law_digest(law.Law(plan.sets, plan.masses), {last * CHAIN.n + next: table})

    made = life(tmp_path, planner=CheapestPlan(dear)).live(20, [patch.object(PlanDigests, "of", digest)])
    found = made.audit(plans={dear.name: altered})
    assert (found.first.step, found.first.rule) == (first_off(made), "columns")


def test_a_plan_that_is_not_at_hand_or_an_encoder_with_other_digits_leaves_steps_unchecked(tmp_path):
    made = life(tmp_path).live(40)
    cheap = plans()[2]
    found = made.audit(plans={cheap.name: cheap})
    ones = [step.step for step in made.steps() if step.lag == 1]
    assert (found.word, [step for step, _ in found.unchecked]) == ("NO VERDICT", ones)
    assert "is not at hand" in str(found)
    other = Altered(plans()[1], move_a_unit)
    found = made.audit(plans={cheap.name: cheap, plans()[1].name: other})
    assert (found.word, [step for step, _ in found.unchecked]) == ("NO VERDICT", ones)
    assert "the law that the journal notes is not on record" in str(found)


def test_a_plan_switched_back_to_a_dearer_one_is_found_and_one_that_gets_cheaper_is_not(tmp_path):
    dear, cheap = plan(CHAIN, 1, "everything"), plans()[1]
    for name, change, word in (("up", lambda t: t < 20, "PASSED"), ("back", lambda t: t >= 20, "FAILED")):
        made = life(tmp_path, name=name, planner=CheapestPlan(dear, cheap))
        made.planner.best = lambda lag, made=made, change=change: dear if change(made.t) else cheap
        found = made.live(40).audit()
        assert found.word == word, str(found)
    due = next(step.step for step in made.steps() if step.step >= 20 and step.lag)
    assert (found.first.step, found.first.rule) == (due, "dearer")
