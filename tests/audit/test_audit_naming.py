"""Versions that queries name: given the queries they tell nothing about requests. A client that lets them is found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from everydayaudit import paths, stream

from everydaylogs import CHAIN, everyday_log
from onoff.audit.transcript import naming
from onoff.audit.transcript.everyday.laws import request_laws
from onoff.audit.transcript.reading import Line, Step
from onoff.audit.transcript.rules import due
from oracles import random_chain

FULL = tuple(range(CHAIN.n))
LIES = {
    "the wanted alone": lambda source, version, request: version if source == request else 0,
    "all but the wanted": lambda source, version, request: 0 if source == request else version,
    "an older one of the wanted": lambda source, version, request: (
        max(1, version - 1) if source == request else version
    ),
}


def with_versions(lines, requests, rng, lie=lambda source, version, request: version):
    """The lines with what a client names that forgets some sources now and then, while new rounds are published."""
    rounds, held, found = [2] * CHAIN.n, {}, []
    for line, request in zip(lines, requests, strict=True):
        named = tuple(lie(s, held[s], request) if s in held else 0 for s in line.sources)
        found.append(replace(line, held=named))
        rounds = [number + int(rng.random() < 0.2) for number in rounds]
        held |= {source: rounds[source] for source in line.sources if rng.random() < 0.9}
        held = {source: version for source, version in held.items() if rng.random() < 0.95}
    return tuple(found)


def audited(lie=None, seed=3, steps=80):
    log = everyday_log(steps, seed)
    options = () if lie is None else (LIES[lie],)
    lines = with_versions(log.lines, [step.request for step in log.steps], np.random.default_rng(seed), *options)
    return replace(log, lines=lines).audit(engine=None)


def test_a_client_that_names_what_it_holds_passes():
    assert audited().passed


@pytest.mark.parametrize("lie", list(LIES)[:2])
def test_versions_that_are_named_by_the_request_are_found(lie):
    found = audited(lie)
    assert not found.passed
    assert [finding.partition(" (")[0] for finding in found.findings] == [
        "the versions that queries name follow the requests"
    ]


@pytest.mark.parametrize("sensitive", [(), (1,)])
def test_the_law_of_a_request_given_those_before_and_the_queries_is_that_of_all_paths(sensitive):
    chain = random_chain("dense", 3, 5)
    for seed in range(4):
        seen, behind = stream(chain, sensitive, [True, False, False, True, False], seed)
        everything = paths(chain, sensitive, seen, behind)
        true = max(everything)  # any path that is possible
        lags = [0, 1, 2, 0, 1]
        steps = [
            Step(t, step.private, step.private, lags[t], "", step.query, true[t], None) for t, step in enumerate(seen)
        ]
        known = {t: step.law for t, step in enumerate(seen) if step.law is not None}
        found = request_laws(chain, steps, due(steps, announced=False), known, sensitive)
        assert sorted(found) == [1, 2, 3, 4]
        # A path has the chance of what came up to step t if later factors are divided out: compare at the last step.
        last = [float(sum(p for path, p in everything.items() if path == (*true[:4], x))) for x in range(3)]
        assert found[4] == pytest.approx(np.array(last) / sum(last), abs=1e-12)


def on_stream(rng, steps=60):
    path = CHAIN.simulate(steps, rng).tolist()
    made = [Step(t, True, True, 0, "everything", FULL, request, None) for t, request in enumerate(path)]
    return made, [Line(t, FULL) for t in range(steps)]


def announced_findings(lie, rng):
    made, lines = on_stream(rng)
    named = with_versions(lines, [step.request for step in made], rng, lie)
    sent = [line for line in named for _ in range(1 + (rng.random() < 0.3))]  # some answers are damaged
    return naming.naming_findings(sent, made, naming.announced_requests(CHAIN, made, due(made)), CHAIN.n)


def test_honest_versions_raise_an_alarm_no_more_often_than_stated(monkeypatch):
    monkeypatch.setattr(naming, "FALSE_ALARM", 0.1)
    rng = np.random.default_rng(8)
    alarms = sum(bool(announced_findings(lambda source, version, request: version, rng)) for _ in range(200))
    assert alarms <= 37  # 20 at most on average; more than 37 by chance of 1 in 5000


@pytest.mark.parametrize("lie", LIES)
def test_versions_of_private_requests_that_follow_them_are_found_in_the_announced_mode_too(lie):
    assert announced_findings(LIES[lie], np.random.default_rng(4))
