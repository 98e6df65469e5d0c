"""Streams beside the audited one: the bet on their sets raises false alarms as rarely as stated, and true ones."""

from __future__ import annotations

import numpy as np

from auditstreams import CHAIN, models, plans
from onoff.audit.transcript import others as beside
from onoff.audit.transcript.reading import Line

FULL = tuple(range(CHAIN.n))
AUDITED = [Line(t, FULL, number=t + 1) for t in range(5)]


def findings(queries):
    later = [Line(t, query, number=t + 10) for t, query in enumerate((FULL, FULL, *queries))]
    return beside.others([AUDITED, later], AUDITED, 5, CHAIN.n, models().values()).findings


def test_sets_drawn_by_any_of_the_plans_raise_an_alarm_no_more_often_than_stated(monkeypatch):
    monkeypatch.setattr(beside, "FALSE_ALARM", 0.1)
    rng = np.random.default_rng(5)
    laws = [(plan.sets, np.array(plan.masses) / plan.denominator) for plan in plans().values()]

    def drawn():
        sets, chances = laws[rng.integers(len(laws))]
        return sets[rng.choice(len(sets), p=chances)]

    alarms = sum(bool(findings([drawn() for _ in range(60)])) for _ in range(200))
    assert alarms <= 36  # 20 at most on average; more than 36 by chance of 1 in 5000


def test_sets_that_are_not_those_of_the_plans_are_found(monkeypatch):
    known = sorted(beside.likeliest(models().values()))
    assert findings([known[0]] * 60)
    assert not findings([FULL] * 60)
    monkeypatch.setattr(beside, "likeliest", lambda models: {known[0]: 1.0})
    assert not findings([known[0]] * 60)
    assert findings([known[1]])
