"""A log without a journal: sets that these plans do not draw are found, and such as they draw raise no alarm."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from onoff.audit.models import Planned

from auditstreams import CHAIN, models, plans, race, steps_of, write_files
from clikit import call
from onoff import plan
from onoff.audit.transcript import Exhibits, audit_transcript
from onoff.audit.transcript.belief import Asked
from onoff.audit.transcript.evidence import read_evidence
from onoff.audit.transcript.publiclaw import public_law
from onoff.plans.base import Plan
from sampling import IN_CI

FULL = tuple(range(CHAIN.n))
LIES = {
    "openly": lambda step: (step.request,),
    "everything": lambda step: FULL,
    "one set for ever": lambda step: plans()[1].sets[0],
}


def asked(steps, change=lambda step: step.query):
    return [Asked(step.lag, step.query if step.private else change(step), None) for step in steps]


def of_log(steps, *change, false_alarm=1e-4):
    return public_law(asked(steps, *change), models().values(), false_alarm)


@pytest.mark.parametrize("lie", LIES)
def test_sets_that_no_plan_draws_so_often_are_found_without_any_request(lie):
    for seed in range(5):
        found = of_log(steps_of(120, seed), LIES[lie])
        assert found.rejected
        assert found.untested == 0


def test_one_set_that_no_plan_has_is_enough():
    everything = Planned(plan(CHAIN, 1, "everything"))
    found = public_law([Asked(0, FULL, None), Asked(1, FULL, None), Asked(2, (1, 2), None)], [everything])
    assert found.impossible == (2,)
    assert found.p_value == 0


def test_logs_of_these_plans_raise_an_alarm_no_more_often_than_stated():
    """Also if nobody knows which of two plans has served a step: clients that had the dearer one only, or both."""

    def first(lag, request):  # noqa: ARG001
        return plans()[1]

    logs = [steps_of(30, seed, **({} if seed % 2 else {"choose": first})) for seed in range(100)]
    assert sum(of_log(log, false_alarm=0.1).rejected for log in logs) <= 21  # 10 at most; more by chance of 1 in 5000
    assert not any(of_log(log).rejected for log in logs)


def test_steps_that_only_a_race_serves_are_not_of_log():
    steps = steps_of(60, 4)
    found = public_law(asked(steps), [models()[plans()[2].name]])
    assert found.untested == sum(step.lag == 1 for step in steps) > 0
    assert found.tested == sum(step.lag > 1 for step in steps)


@pytest.fixture
def files(tmp_path):
    def made(change=lambda step: step.query, seed=5):
        steps = steps_of(120, seed)
        sent = [step if step.private else replace(step, query=change(step)) for step in steps]
        write_files(tmp_path, sent)
        (tmp_path / "truth").write_text("".join(f"{CHAIN.names[step.request]}\n" for step in steps))
        statuses = "".join("1" if step.private else "0" for step in steps)
        common = ("audit", "transcript", tmp_path / "journal.log", "--chain", tmp_path / "chain.json")
        return *common, "--plans", tmp_path / "plans", "--statuses", statuses, "--draws", "100"

    return made


def test_a_log_that_was_asked_openly_does_not_pass_without_a_journal(files, tmp_path):
    words = files(LIES["openly"])
    done = call(*words)
    assert done.returncode == 1
    assert "sets of OFF steps: NOT such as these plans draw" in done.stdout
    assert "tells nothing" not in done.stdout
    assert done.stdout.splitlines()[-1].startswith("AUDIT FAILED: ")
    known = call(*words, "--truth", tmp_path / "truth", "--json")
    assert known.returncode == 1
    assert json.loads(known.stdout)["draws"]["rejected"]


def test_an_honest_log_passes_without_a_journal_and_says_what_was_not_of_log(files, tmp_path):
    words = files()
    done = call(*words)
    assert done.returncode == 0, done.stdout
    assert "NOT TESTED: the rules and choices of the client" in done.stdout.splitlines()[-1]
    assert "which takes --truth" in done.stdout.splitlines()[-1]
    known = call(*words, "--truth", tmp_path / "truth")
    assert known.returncode == 0, known.stdout
    assert "sets: drawn as the plans say" in known.stdout
    assert "--truth" not in known.stdout.splitlines()[-1]


def test_good_logs_pass_without_a_journal_and_with_the_truth(tmp_path):
    """40 logs with fixed seeds. The attack has a rate of 1 %, the other tests of 1 in 10,000: none is expected.

    What certifies plans is tested elsewhere, and takes most of the time.
    """
    exhibits = Exhibits(list(plans().values()), Plan.load)
    for seed in range(40 if IN_CI else 3):
        steps = steps_of(60, seed)
        write_files(tmp_path, steps, f"journal{seed}")
        log = tmp_path / f"journal{seed}.log"
        evidence = read_evidence(CHAIN, log, statuses=[step.private for step in steps])
        found = audit_transcript(evidence, exhibits, tried=100)
        assert found.passed, found.outcome
        known = replace(evidence, requests=tuple(step.request for step in steps))
        found = audit_transcript(known, exhibits, tried=100)
        assert found.passed, found.outcome


def test_what_only_a_race_serves_leaves_no_verdict(tmp_path):
    steps = steps_of(60, 3)
    write_files(tmp_path, steps)
    evidence = read_evidence(CHAIN, tmp_path / "journal.log", statuses=[step.private for step in steps])
    found = audit_transcript(evidence, Exhibits([plans()[2], race()], Plan.load), tried=100)
    ones = sum(step.lag == 1 for step in steps)
    assert f"{ones} OFF steps cannot be tested without --journal: they are of a race" in found.outcome.reasons
    assert not found.passed


def test_statuses_that_the_log_lacks_are_a_finding(files):
    words = files()
    log = words[2]
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-10]))
    done = call(*words)
    assert done.returncode == 1
    assert "9 of the 120 steps of the statuses are not in the log" in done.stdout
    assert call(*words, "--part").returncode == 0


def test_law_of_large_logs_is_learned():
    """Power: how few OFF steps tell that the smaller of two draws was sent."""
    rng = np.random.default_rng(2)
    law = plans()[1]
    chances = np.array(law.masses) / law.denominator
    drawn = [min((law.sets[i] for i in rng.choice(len(chances), 2, p=chances)), key=len) for _ in range(400)]
    assert public_law([Asked(1, query, None) for query in drawn], [models()[law.name]]).rejected
