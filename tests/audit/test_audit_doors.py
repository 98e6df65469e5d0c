"""Every audit is one call from Python, with what the command line has: objects in, one frozen result out."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from auditstreams import CHAIN, plans, race, steps_of, write_files
from clikit import call
from onoff import Chain, OnoffError, Plan, plan
from onoff.audit.joint import Effort, audit_joint, audit_mistaken, audit_switching
from onoff.audit.plan import audit_plan, plan_files
from onoff.audit.real import audit_real, people, split
from onoff.audit.transcript import Exhibits, audit_transcript, read_evidence
from onoff.logs.follow import follows
from oracles import random_chain

STATUSES = (True, False, False)
LITTLE = Effort(draws=100, tried=400, streams=50)


def test_a_plan_is_audited_from_its_file_and_a_directory_tells_which_files_there_are(tmp_path):
    plans()[1].save(tmp_path / "lag-1.plan.json")
    (tmp_path / "foreign").mkdir()
    plan(random_chain("dense", 4, 2), 1).save(tmp_path / "foreign" / "lag-1.plan.json")
    found = plan_files(tmp_path, CHAIN)
    assert [file.name for file in found.files] == ["lag-1.plan.json"]
    assert found.foreign == (tmp_path / "foreign",)
    verdict = audit_plan(CHAIN, found.files[0], Plan.load, draws=200)
    assert verdict.valid
    with pytest.raises(FrozenInstanceError):
        verdict.findings = ()
    assert not audit_plan(CHAIN, tmp_path / "foreign" / "lag-1.plan.json", Plan.load).valid


def test_streams_are_audited_with_plans_as_objects():
    ours = audit_joint(CHAIN, STATUSES, "ours", list(plans().values()), effort=LITTLE)
    naive = audit_joint(CHAIN, STATUSES, "naive")
    assert ours.holds
    assert max(ours.bits) < 1e-20
    assert naive.bits[-1] > 0.01
    assert audit_joint(CHAIN, STATUSES, "everything").bits == (0, 0, 0)
    assert audit_joint(CHAIN, STATUSES, "decoys", decoys=1).bits[-1] > 0.01
    raced = audit_joint(CHAIN, STATUSES, "race", [race()], effort=LITTLE)
    assert raced.holds
    assert "one law in all contexts" in raced.tested


def test_a_plan_that_leaks_does_not_hold():
    class Shifted:
        """The encoder of another context."""

        def __init__(self, honest):
            self._honest = honest

        def __getattr__(self, name):
            return getattr(self._honest, name)

        def encoder(self, last, following, lag=None):  # noqa: ARG002
            return self._honest.encoder(last, 0, lag)

    assert not audit_joint(CHAIN, STATUSES, "ours", [Shifted(one) for one in plans().values()], effort=LITTLE).holds


def test_a_plan_for_another_chain_is_an_error():
    with pytest.raises(OnoffError, match="for another chain"):
        audit_joint(random_chain("dense", 4, 2), STATUSES, "ours", [plans()[1]])


def test_a_chain_that_is_not_the_true_one_is_audited_beside_its_bound():
    P = 0.98 * CHAIN.P + 0.02 / CHAIN.n
    true = Chain(P / P.sum(axis=1, keepdims=True), CHAIN.names)
    found = audit_mistaken(CHAIN, true, STATUSES, "ours", list(plans().values()))
    assert found.holds
    assert 1e-6 < found.found.bits[-1] < found.bits[-1]
    with pytest.raises(OnoffError, match="no table"):
        audit_mistaken(CHAIN, true, STATUSES, "race", [race()])


def test_switching_by_the_request_is_audited_beside_switching_by_chance():
    found = {(one.user, one.seen): one.steps[0].bits for one in audit_switching(CHAIN, [1], [plans()[1]], steps=2)}
    assert found["by chance", "statuses"] == found["by chance", "and queries"] == 0
    assert found["if sensitive", "statuses"] > 1


@pytest.fixture
def log(tmp_path):
    write_files(tmp_path, steps_of(120, 5))
    return tmp_path


def exhibits(**changes):
    return replace(Exhibits(list(plans().values()), Plan.load), **changes)


def test_a_transcript_is_audited_and_passes_or_not(log):
    evidence = read_evidence(CHAIN, log / "journal.log", journal=log / "journal")
    following = follows(CHAIN, evidence.requests)
    honest = audit_transcript(evidence, exhibits(), following=following, tried=200)
    assert honest.passed
    assert honest.rules.kept
    assert honest.audit.naive.verdict.succeeded
    assert not audit_transcript(evidence, exhibits(findings=("a plan cannot be used",)), tried=200).passed
    refuted = replace(following, found_at=50)
    assert not audit_transcript(evidence, exhibits(), following=refuted, tried=200).passed
    lines = [json.loads(line) for line in (log / "journal.log").read_text().splitlines()]
    off = next(line for line in lines[1:] if len(line["sources"]) < CHAIN.n)
    off["sources"] = [x for x in range(CHAIN.n) if x not in off["sources"]]
    del off["held"]
    (log / "other.log").write_text("".join(json.dumps(line) + "\n" for line in lines))
    changed = audit_transcript(read_evidence(CHAIN, log / "other.log", journal=log / "journal"), exhibits(), tried=200)
    assert not changed.passed
    assert {breach.rule for breach in changed.rules.breaches} == {"journal"}


def test_a_transcript_without_a_journal_needs_its_statuses(log):
    steps = steps_of(120, 5)
    evidence = read_evidence(CHAIN, log / "journal.log", statuses=[step.private for step in steps])
    found = audit_transcript(evidence, exhibits(), tried=200)
    assert found.rules is None
    assert found.passed
    assert audit_transcript(evidence, exhibits(plans=[race()]), tried=200).blind
    with pytest.raises(OnoffError, match="give the journal, or the statuses"):
        read_evidence(CHAIN, log / "journal.log")
    with pytest.raises(OnoffError, match="no client 'guess'"):
        audit_transcript(evidence, exhibits(), client="guess")


def test_real_people_are_audited_as_by_the_command(tmp_path):
    rng = np.random.default_rng(3)
    words = [[CHAIN.names[x] for x in CHAIN.simulate(8, rng)] for _ in range(40)]
    (tmp_path / "people").write_text("".join(" ".join(line) + "\n" for line in words))
    CHAIN.save(tmp_path / "chain.json")
    parts = split(people(words, CHAIN), CHAIN, users=5, seed=2)
    found = audit_real(parts, [plan(CHAIN, 1)], seed=2)
    assert (found.attacked, found.stopped, len(parts.attacked), parts.training) == (5, False, 5, 20)
    words = ("--chain", tmp_path / "chain.json", "--users", 5, "--seed", 2, "--lags", "1", "--json")
    printed = json.loads(call("audit", "real", tmp_path / "people", *words, check=True).stdout)
    assert [leak["bits"]["value"] for leak in printed["leaks"]] == [leak.bits.value for leak in found.leaks]
    with pytest.raises(OnoffError, match="no table"):
        audit_real(parts, [race()])
    with pytest.raises(OnoffError, match="no plans"):
        audit_real(parts, [])


def test_what_was_reached_is_the_result_when_somebody_stops_it():
    rng = np.random.default_rng(4)
    paths = [[CHAIN.names[x] for x in CHAIN.simulate(6, rng)] for _ in range(12)]
    parts = split(people(paths, CHAIN), CHAIN)

    def stopping(title):  # noqa: ARG001
        class Bar:
            def __enter__(self):
                self.left = 2
                return self.advance

            def advance(self):
                self.left -= 1
                if not self.left:
                    raise KeyboardInterrupt

            def __exit__(self, *error):
                return None

        return lambda total: Bar()

    found = audit_real(parts, [plan(CHAIN, 1)], progress=stopping)
    assert found.stopped
    assert (found.attacked, found.wanted) == (2, 6)
