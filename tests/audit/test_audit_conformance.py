"""Every rule of the client, broken in a log or journal that is otherwise in order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from onoff.audit.models import Planned

from auditstreams import CHAIN, lines_of, models, steps_of
from onoff import Chain, plan
from onoff.audit.transcript.conformance import RULES, conformance
from onoff.audit.transcript.reading import Line, Step, streams

STEPS = steps_of(60, 5)
LINES = lines_of(STEPS)
FULL = tuple(range(CHAIN.n))
PAIR = next(step.step for step in STEPS if 1 < len(step.query) < CHAIN.n)  # an OFF step with several sources, not all
SILENT = Planned(plan(CHAIN, 1, "everything"))


def found(lines, steps, known=None):
    known = models() | {SILENT.name: SILENT} if known is None else known
    return conformance(CHAIN, streams(lines, noted=[one.query for one in steps]), steps, known)


def rules(*args):
    return {finding.rule for finding in found(*args)}


def line(number, **change):
    return (*LINES[:number], replace(LINES[number], **change), *LINES[number + 1 :])


def step(number, **change):
    return (*STEPS[:number], replace(STEPS[number], **change), *STEPS[number + 1 :])


def both(number, query):
    """The same other set in log and journal."""
    return line(number, sources=query), step(number, query=query)


def repeated(**change):
    """A second query of the step PAIR."""
    return (*LINES[: PAIR + 1], replace(LINES[PAIR], **change), *LINES[PAIR + 1 :])


ON = next(step.step for step in STEPS[2:] if step.asked_private)
OTHER = (STEPS[PAIR].next + 1) % CHAIN.n
LATE = next(step.step for step in STEPS[PAIR + 1 :] if step.lag)
UNWANTED = tuple(source for source in FULL if source != STEPS[PAIR].request)
BROKEN = {
    "one query": (repeated(sources=FULL), STEPS),
    "versions": (line(0, held=(3, *(0,) * (len(FULL) - 1))), STEPS),
    "order": (line(PAIR, sources=STEPS[PAIR].query[::-1]), STEPS),
    "steps": (LINES[:PAIR] + LINES[PAIR + 1 :], STEPS),
    "retry": (line(PAIR, damaged=True), STEPS),
    "again": (repeated(), STEPS),
    "unread": (line(PAIR, unread=True), STEPS),
    "journal": (line(PAIR, sources=FULL), STEPS),
    "wanted": both(PAIR, UNWANTED),
    "full set": both(ON, FULL[1:]),
    "lag": (LINES, step(PAIR, lag=STEPS[PAIR].lag + 1)),
    "plan": (LINES, step(PAIR, plan="optimal, lag 50")),
    "at hand": (LINES, step(PAIR, plan="optimal, lag 1, 0123456789abcdef")),
    "law": (LINES, step(PAIR, plan=SILENT.name)),
    "next": (LINES, step(PAIR, next=OTHER)),
    "dearer": (LINES, step(LATE, plan=SILENT.name, query=FULL)),
    "cost": (LINES, step(PAIR, cost=1.0)),
}


def test_an_honest_stream_breaks_no_rule():
    assert found(LINES, STEPS) == ()
    twice = steps_of(60, 5, unsettled=1)
    assert found(lines_of(twice), twice) == ()
    unannounced = step(59, asked_private=False, private=True, next=None, lag=0, plan="everything", query=FULL)
    assert found(lines_of(unannounced), unannounced) == ()


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_found(rule):
    lines, steps = BROKEN[rule]
    named = [finding for finding in found(lines, steps) if finding.rule == rule]
    assert named
    assert all(f"step {finding.step}" in finding.message for finding in named)


def test_versions_are_of_what_was_asked_for_before_and_stay_in_a_retry():
    named, none = (7,) * len(LINES[PAIR].sources), (0,) * len(LINES[PAIR].sources)
    assert found(line(PAIR, held=named), STEPS) == ()
    watched = replace(LINES[PAIR], damaged=True, held=named)
    honest = (*LINES[:PAIR], watched, replace(watched, damaged=None), *LINES[PAIR + 1 :])
    changed = (*LINES[:PAIR], watched, replace(watched, damaged=None, held=none), *LINES[PAIR + 1 :])
    assert (rules(honest, STEPS), rules(changed, STEPS)) == (set(), {"versions"})


def test_all_rules_are_tested():
    assert {*BROKEN, "chain"} == set(RULES)


def test_requests_that_the_chain_calls_impossible():
    ring = Chain([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    steps = [Step(t, True, True, 0, "everything", (0, 1, 2), x, None) for t, x in enumerate((0, 1, 0))]
    lines = [Line(t, (0, 1, 2)) for t in range(3)]
    assert [(finding.rule, finding.step) for finding in conformance(ring, [lines], steps, {})] == [("chain", 2)]


def test_retries_are_in_order_where_nobody_saw_the_answers_or_they_were_damaged():
    damaged = (*LINES[:PAIR], replace(LINES[PAIR], damaged=True), *LINES[PAIR:])
    assert found(damaged, STEPS) == ()
    unseen = tuple(replace(one, damaged=None) for one in repeated())
    assert found(unseen, STEPS) == ()


def test_a_stream_that_starts_again_needs_two_full_sets_with_or_without_its_journal():
    lost = LINES[:20]
    again = steps_of(60, 6, unsettled=1)
    assert found(lost + lines_of(again), again) == ()
    hasty = steps_of(60, 9, private=0.0)
    assert len(hasty[1].query) < CHAIN.n
    assert found(lines_of(hasty), hasty) == ()
    assert {"full set", "lag"} <= rules(lost + lines_of(hasty), hasty)
    assert rules(lost + lines_of(hasty)[:20] + lines_of(again), again) == {"full set"}


def test_any_fixed_order_and_a_log_that_begins_late_are_in_order():
    other = [2, 0, 3, 1]
    lines = tuple(replace(one, sources=tuple(sorted(one.sources, key=other.index))) for one in LINES)
    assert found(lines, STEPS) == ()
    assert found(LINES[30:], STEPS) == ()


def test_a_restored_journal_sends_old_steps_again():
    assert "steps" in rules(LINES[:30] + LINES[25:], STEPS)


def test_what_was_sent_and_never_noted():
    assert rules(LINES, STEPS[:-1]) == {"journal"}


def test_only_races_may_be_missing_among_the_plans():
    assert rules(LINES, step(PAIR, plan="race, lag 1")) == set()
    assert rules(LINES, step(PAIR, plan="no plan")) == {"plan"}
    [missing] = found(LINES, step(PAIR, plan="any, lag 1"))
    assert missing.message.startswith(
        f"1 OFF steps, from step {PAIR} on, used the plan 'any, lag 1', which is not at hand"
    )
    named = {one.plan for one in STEPS if one.lag}
    assert [finding.rule for finding in found(LINES, STEPS, {})] == ["at hand"] * len(named)


def cheaper_and_dearer():
    """Two tables that serve lag 1, the cheaper one of them last."""
    return sorted((model for model in (*models().values(), SILENT) if model.plan.lag == 1), key=lambda m: -m.plan.cost)


def stream(*plans):
    """OFF steps of lag 1 made with these plans in turn, with what each of them costs."""
    steps = []
    for t, (name, cost) in enumerate(plans):
        steps.append(Step(2 * t, True, True, 0, "everything", FULL, 0, 0, 4.0))
        steps.append(Step(2 * t + 1, False, False, 1, name, FULL, 0, 0, cost))
    return steps


def test_plans_only_get_cheaper_and_which_one_was_better_is_named():
    dear, cheap = ((model.name, model.plan.cost) for model in cheaper_and_dearer())
    known = models() | {SILENT.name: SILENT}

    def dearer(*plans, since=0):
        steps = stream(*plans)
        found = conformance(CHAIN, [lines_of(steps)], steps, known, since)
        return [finding for finding in found if finding.rule == "dearer"]

    assert dearer(dear, cheap, cheap) == []
    [breach] = dearer(dear, cheap, dear, dear)
    assert (breach.step, cheap[0] in breach.message, "explain it" in breach.message) == (5, True, True)
    assert dearer(cheap, dear, since=2) == []  # the messages have other lengths since then
    lucky, unlucky = ("race, lag 1", cheap[1] - 0.1), ("race, lag 1", cheap[1] + 0.1)
    assert dearer(lucky, cheap, lucky) == []  # a race counts with more than it is estimated to cost
    assert [breach.step for breach in dearer(cheap, unlucky)] == [3]
