"""Queries that came again: the journal counts every one, and they do not follow the requests."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from auditstreams import CHAIN, lines_of, steps_of
from everydaylogs import everyday_log
from onoff.audit.transcript.everyday import audit_everyday_transcript
from onoff.audit.transcript.everyday.laws import request_laws
from onoff.audit.transcript.naming import announced_requests
from onoff.audit.transcript.repeats import repeats
from onoff.audit.transcript.rules import due

UNNOTED = "queries came again, and the journal knows nothing of it"
FOLLOWS = "which queries come again follows the requests"


def noted(steps, attempts):
    return [replace(step, attempts=attempts(step)) for step in steps]


def repeated(lines, steps, times):
    return [line for line, step in zip(lines, steps, strict=True) for _ in range(times(step))]


def test_repeats_that_the_journal_lacks_are_found_and_counted():
    log = everyday_log(60, 3)
    steps = tuple(noted(log.steps, lambda step: 1))
    lines = tuple(repeated(log.lines, steps, lambda step: 1 + step.request))
    found = replace(log, steps=steps, lines=lines).audit(engine=None)
    more = sum(step.request for step in steps)
    assert found.repeats.lines == more
    assert found.repeats.findings[0].startswith(f"{more} {UNNOTED}")
    assert not found.passed
    once = (*log.lines[:20], log.lines[19], *log.lines[20:])
    assert replace(log, steps=steps, lines=once).audit(engine=None).repeats.findings[0].startswith(f"1 {UNNOTED}")


def test_an_older_journal_does_not_count_and_what_it_lacks_is_named_as_not_tested():
    log = everyday_log(60, 3)
    steps = tuple(noted(log.steps, lambda step: 1))
    lines = tuple(replace(line, damaged=None) for line in repeated(log.lines, steps, lambda step: 1 + step.step % 2))
    evidence = replace(log, steps=steps, lines=lines).evidence()
    for counted, uncounted in ((None, 30), (60, 30), (59, 29)):
        notes = replace(evidence.notes, counted=counted)
        found = audit_everyday_transcript(replace(evidence, notes=notes), log.laws())
        assert found.repeats.uncounted == uncounted
        assert bool(found.findings) == (counted == 59)
        assert f"whether {uncounted} queries had to come again" in str(found.outcome)


def test_repeats_that_the_journal_counts_pass_and_fewer_arrive_than_were_sent():
    log = everyday_log(60, 3)
    rng = random.Random(4)
    steps = tuple(noted(log.steps, lambda step: rng.choice([1, 1, 2, 3])))
    lines = tuple(repeated(log.lines, steps, lambda step: rng.randint(1, step.attempts)))
    lines = tuple(replace(line, damaged=None) for line in lines)
    found = replace(log, steps=steps, lines=lines).audit(engine=None)
    assert found.repeats.lines > 10
    assert found.passed, found.outcome


@pytest.mark.parametrize("mode", ["past", "both"])
def test_repeats_that_follow_the_requests_are_found_though_the_journal_counts_them(mode):
    def times(step):
        return 2 if step.request == 2 else 1

    if mode == "past":
        log = everyday_log(160, 5)
        steps = tuple(noted(log.steps, times))
        lines = tuple(replace(line, damaged=None) for line in repeated(log.lines, steps, times))
        findings = replace(log, steps=steps, lines=lines).audit(engine=None).repeats.findings
    else:
        steps = noted(steps_of(200, 5, private=0.8), times)
        lines = repeated(lines_of(steps), steps, times)
        findings = repeats(lines, steps, announced_requests(CHAIN, steps, due(steps))).findings
    assert [finding.startswith(FOLLOWS) for finding in findings] == [True]


def test_queries_that_are_sent_twice_for_sensitive_requests_are_found():
    log = everyday_log(150, 5)

    def found(times):
        lines = tuple(replace(line, damaged=None) for line in repeated(log.lines, log.steps, times))
        return replace(log, lines=lines).audit(engine=None)

    assert found(lambda step: 1 + (step.step % 3 == 0)).passed  # a server that fails at times
    [finding] = found(lambda step: 1 + (step.request in log.sensitive)).findings
    assert finding.startswith(FOLLOWS)


def test_how_often_a_query_comes_again_tells_too():
    """Every query comes again, and those of sensitive requests once more."""
    log = everyday_log(150, 5)

    def times(step):
        return 3 if step.request in log.sensitive else 2

    steps = tuple(noted(log.steps, times))
    lines = tuple(replace(line, damaged=None) for line in repeated(log.lines, steps, times))
    [finding] = replace(log, steps=steps, lines=lines).audit(engine=None).findings
    assert finding.startswith(FOLLOWS)


def test_repeats_by_chance_or_by_the_set_raise_no_alarm():
    """100 logs with repeats by chance, and 12 of a server that fails for small sets: the rate is 1 in 10,000 for each.

    Small sets are sent for some requests more than for others. Only the law of the request given its set is fair there.
    """
    for seed in range(100):
        rng = np.random.default_rng(seed)
        steps = noted(steps_of(80, seed % 10, private=0.6), lambda step: 2)
        lines = repeated(lines_of(steps), steps, lambda step, rng=rng: 1 + (rng.random() < 0.3))
        assert repeats(lines, steps, announced_requests(CHAIN, steps, due(steps))).findings == ()
    for seed in range(12):
        log = everyday_log(100, seed, sensitive=())
        steps = noted(log.steps, lambda step: 2)
        lines = repeated(log.lines, steps, lambda step: 2 if len(step.query) == 1 and step.query[0] < 3 else 1)
        laws = request_laws(log.chain, steps, due(steps, announced=False), log.laws().by_step, ())
        assert repeats(lines, steps, laws).findings == ()


def test_without_a_journal_repeats_are_counted_and_not_judged():
    steps = steps_of(20, 1)
    lines = repeated(lines_of(steps), steps, lambda step: 2)
    assert (repeats(lines, steps, None).lines, repeats(lines, steps, None).findings) == (20, ())
