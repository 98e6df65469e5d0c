"""`onoff audit transcript` for a journal of the everyday mode: from the log, the journal and the record of laws."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from clikit import call
from everydaylogs import STREAM, Reader, everyday_log, write_everyday_files, write_lines
from onoff import OnoffError
from onoff.audit.transcript import Exhibits, audit_transcript
from onoff.audit.transcript.everyday import audit_everyday_transcript, read_laws
from onoff.audit.transcript.reading import Line, read_notes
from onoff.errors import LogError
from onoff.everyday import Everyday
from onoff.logs.follow import follows
from oracles import random_chain

CHAIN = random_chain("dense", 4, 2)


def some_log(count=40, seed=3, sensitive=(1,), **options):
    return everyday_log(count, seed, chain=CHAIN, sensitive=sensitive, private=0.15, **options)


@pytest.fixture
def files(tmp_path):
    return write_everyday_files(tmp_path, some_log())


@pytest.mark.parametrize("sensitive", [(), (1,)])
def test_an_honest_log_tells_nothing_at_and_after_private_requests_and_something_before(tmp_path, sensitive):
    words = write_everyday_files(tmp_path, some_log(sensitive=sensitive))
    done = call(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "this log: tells nothing about private requests, at them or after them" in done.stdout
    assert "naive client: BETRAYS private requests" in done.stdout
    assert "NOT promised" in done.stdout
    assert "the rules of the client: kept" in done.stdout
    assert "drawn as the recorded laws say" in done.stdout
    assert ("asked for at all" in done.stdout) == bool(sensitive)
    found = json.loads(call(*words, "--json").stdout)
    assert found["passed"]
    assert found["remade"] == found["off"] > 20
    for told in filter(None, (found["log"]["private"], found["log"]["open"])):
        assert told["before"] > 1e-3
        assert max(told["own"], told["after"]) < 1e-25
    assert found["naive"]["private"]["after"] > 0.01


def test_a_log_that_is_not_private_is_exit_code_1_with_what_is_wrong(tmp_path):
    log = some_log()
    record = tuple({**line, "law": {**line["law"], "rounding": 1e-3}} for line in log.record)
    done = call(*write_everyday_files(tmp_path, replace(log, record=record)))
    assert done.returncode == 1
    assert "SAYS NOTHING: an allowance of 1 or more would let any leak pass" in done.stdout
    assert "rule broken (coarse)" in done.stdout


def test_a_rounding_that_is_stated_too_large_is_found_though_it_may_be_certified(tmp_path):
    """It would buy a larger allowance for the attack."""
    log = some_log()
    record = tuple({**line, "law": {**line["law"], "rounding": 2.0**-31}} for line in log.record)
    done = call(*write_everyday_files(tmp_path, replace(log, record=record)))
    assert done.returncode == 1
    assert "states a rounding of 4.7e-10, and the law has" in done.stdout + done.stderr


def test_encoders_of_exchanged_contexts_betray_requests_to_the_attack():
    """The attack takes the record for what the client does: the more is wrong in it, the more the log tells."""
    log = some_log(120, sensitive=())
    record = []
    for one in log.record:
        tables = one["law"]["encoders"]
        turned = dict(zip(tables, [*list(tables.values())[1:], *list(tables.values())[:1]], strict=True))
        record.append({**one, "law": {**one["law"], "encoders": turned}})
    found = replace(log, record=tuple(record)).audit()
    assert found.verdict.succeeded or found.verdict.silent
    assert "rows" in {breach.rule for breach in found.rules.breaches}
    assert not found.passed


def test_requests_that_refute_the_chain_leave_no_verdict():
    log = some_log()
    evidence, laws = log.evidence(), log.laws()
    following = replace(follows(CHAIN, evidence.requests), found_at=7)
    assert audit_everyday_transcript(evidence, laws).passed
    assert not audit_everyday_transcript(evidence, laws, following=following).passed


def test_laws_that_were_not_recorded_are_made_again_from_public_things(files):
    recorded, made = (json.loads(call(*words, "--json").stdout) for words in (files, files[:-2]))
    assert (recorded["recorded"], made["recorded"], made["remade"]) == (True, False, None)
    assert made["passed"]
    assert {**recorded["log"], "allowed": made["log"]["allowed"]} == made["log"]
    assert recorded["draws"] == made["draws"]


class Numbered(Reader):
    """Its random numbers depend on a secret and the step alone."""

    def draw(self, step, request, context, below, t):  # noqa: ARG002
        return step.draw(request, context, random.Random(f"secret {t}").randrange)


@pytest.mark.long
def test_numbers_of_another_journal_are_compared_without_a_record_too(tmp_path):
    words = write_everyday_files(tmp_path, everyday_log(80, 7, Numbered()))
    (tmp_path / "other").mkdir()
    write_everyday_files(tmp_path / "other", everyday_log(80, 7, Numbered()))
    assert call(*words[:-2]).returncode == 0
    done = call(*words[:-2], "--other", tmp_path / "other" / "journal")
    assert done.returncode == 1
    assert "of the other journal" in done.stdout


def test_openly_asked_steps_do_not_pass_without_a_record_either():
    log = some_log()
    sets = [step.query if step.private else tuple(sorted({step.request, *log.sensitive})) for step in log.steps]
    lines = [replace(line, sources=query) for line, query in zip(log.lines, sets, strict=True)]
    steps = [replace(step, query=query) for step, query in zip(log.steps, sets, strict=True)]
    evidence = replace(log, lines=tuple(lines), steps=tuple(steps)).evidence()
    assert not audit_everyday_transcript(evidence, None, engine=Everyday.start).passed
    with pytest.raises(OnoffError, match="no record of laws"):
        audit_everyday_transcript(evidence, None)


def test_only_the_everyday_mode_has_a_record(files, tmp_path):
    log = some_log()
    with pytest.raises(OnoffError, match="everyday mode"):
        audit_transcript(log.evidence(), Exhibits((), None))
    announced = replace(log.evidence(), notes=replace(log.evidence().notes, promise="both"))
    with pytest.raises(OnoffError, match="not a journal of the everyday mode"):
        audit_everyday_transcript(announced, log.laws())
    (tmp_path / "statuses").write_text("1")
    done = call(*files[:5], "--statuses", "1" + "0" * 39, "--record", tmp_path / "record")
    assert done.returncode == 2
    assert "--record is for the everyday mode" in done.stderr


def test_sensitive_sources_and_the_promise_are_read_from_the_journal(files, tmp_path):
    assert files
    notes = read_notes(tmp_path / "journal")
    assert (notes.promise, notes.sensitive) == ("past", (1,))


# The record


def line(step, log, **changes):
    found = next(one for one in log.record if one["step"] == step)
    return {**found, **changes}


def test_a_law_that_was_recorded_twice_counts_once_and_two_that_differ_are_reported(tmp_path):
    log = some_log()
    first = log.record[0]["step"]
    write_lines(tmp_path / "record", [*log.record, line(first, log)])
    assert read_laws(tmp_path / "record", STREAM).findings == ()
    other = line(first, log, charge=(0.25).hex())
    write_lines(tmp_path / "record", [other, *log.record])
    found = read_laws(tmp_path / "record", STREAM)
    assert found.by_step[first].charge == 0
    assert found.findings == (f"step {first}: different laws were recorded for it, the last in line 2",)
    assert not audit_everyday_transcript(log.evidence(), found).passed


def test_a_line_that_was_torn_is_noted_and_its_step_needs_another_one(tmp_path):
    log = some_log()
    text = "".join(json.dumps(one) + "\n" for one in log.record)
    last = json.dumps(log.record[-1])
    (tmp_path / "record").write_text(text + last[: len(last) // 2] + "\n" + last + "\n")
    laws = read_laws(tmp_path / "record", STREAM)
    assert len(laws.damaged) == 1
    assert audit_everyday_transcript(log.evidence(), laws).passed
    (tmp_path / "record").write_text(text.removesuffix(last + "\n") + last[: len(last) // 2] + "\n")
    laws = read_laws(tmp_path / "record", STREAM)
    found = audit_everyday_transcript(log.evidence(), laws)
    assert {breach.rule for breach in found.rules.breaches} == {"record"}
    assert not found.passed


@pytest.mark.parametrize("sensitive", [(), (1,)])
def test_a_record_that_begins_late_leaves_no_verdict_and_accuses_no_draw(tmp_path, sensitive):
    log = some_log(sensitive=sensitive)
    done = call(*write_everyday_files(tmp_path, replace(log, record=log.record[1:])))
    assert done.returncode == 1
    assert "this log: NO VERDICT" in done.stdout
    assert "tells nothing" not in done.stdout
    assert "rule broken (record)" in done.stdout
    assert "drawn as the recorded laws say" in done.stdout
    assert "NOT drawn" not in done.stdout


def test_laws_of_other_streams_are_not_looked_at_and_what_is_no_law_is_an_error(tmp_path):
    log = some_log()
    write_lines(tmp_path / "record", [*log.record, {**log.record[0], "stream": "ab" * 16}])
    assert len(read_laws(tmp_path / "record", STREAM).by_step) == len(log.record)
    write_lines(tmp_path / "record", [{"step": 3, "sources": [1]}])
    with pytest.raises(LogError, match="line 1"):
        read_laws(tmp_path / "record", STREAM)


def test_a_step_that_the_log_lacks_is_not_taken_from_the_journal():
    log = some_log()
    missing = next(i for i, step in enumerate(log.steps) if len(step.query) < 4)
    found = replace(log, lines=(*log.lines[:missing], *log.lines[missing + 1 :])).audit()
    assert {breach.rule for breach in found.rules.breaches} == {"steps"}
    assert found.silent
    assert (found.steps, found.unseen, found.rules.drawn.tested) == (39, 1, found.off)
    assert str(found.outcome).startswith("AUDIT FAILED: 1 finding; 1 broken rule")


@pytest.mark.parametrize("cut", [slice(1, None), slice(30, None), slice(-5, None), slice(-3), slice(1, 5)])
def test_a_log_that_was_cut_fails_with_what_it_lacks_unless_it_is_called_a_part(cut):
    log = some_log()
    kept = log.lines[cut]
    found = replace(log, lines=kept).audit()
    missing = 40 - len(kept) - (cut.stop is not None)  # the last step may be pending
    assert found.findings[0].startswith(f"{missing} of the 40 steps of the journal")
    assert "--part" in found.findings[0]
    off = sum(not log.steps[line.step].private for line in kept)
    assert (found.steps, found.off, found.rules.drawn.tested) == (len(kept), off, off)
    assert found.outcome.word == "FAILED"
    part = replace(log, lines=kept).audit(part=True)
    assert part.findings == ()
    first = next((i for i, line in enumerate(kept) if log.steps[line.step].private), len(kept))
    judged = any(not log.steps[line.step].private for line in kept[first:])
    assert part.outcome.word == ("PASSED" if judged else "NO VERDICT")
    assert part.outcome.untested[0] == f"{missing} step{'s' * (missing > 1)} that the log lacks"


def test_a_pending_step_may_be_missing():
    log = some_log()
    pending = replace(log, lines=log.lines[:-1])
    assert pending.audit().passed
    answered = (*log.steps[:-1], replace(log.steps[-1], attempts=1))
    assert pending.audit().unseen == 0
    assert replace(pending, steps=answered).audit().unseen == 1


def test_the_last_line_is_the_verdict_and_nothing_is_called_private_in_an_audit_that_fails(tmp_path):
    log = some_log()
    words = write_everyday_files(tmp_path, log)
    done = call(*words)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "AUDIT PASSED")
    lines = (tmp_path / "log").read_text().splitlines()
    (tmp_path / "log").write_text("\n".join(lines[:-4]))
    done, shown = call(*words), json.loads(call(*words, "--json").stdout)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "AUDIT FAILED: 1 finding; NOT TESTED: 3 steps that the log lacks"
    assert shown["outcome"] == {
        "word": "FAILED",
        "reasons": ["1 finding"],
        "untested": ["3 steps that the log lacks"],
    }
    assert not shown["passed"]
    assert "tells nothing" not in done.stdout
    assert "kept" not in done.stdout


def test_a_field_that_no_check_knows_is_named_as_not_tested(tmp_path):
    log = some_log()
    words = write_everyday_files(tmp_path, log)
    head, *lines = map(json.loads, (tmp_path / "log").read_text().splitlines())
    told = [{**line, "wanted": step.request} for line, step in zip(lines, log.steps, strict=True)]
    write_lines(tmp_path / "log", [head, *told])
    done = call(*words)
    assert done.stdout.splitlines()[-1] == "AUDIT PASSED; NOT TESTED: what the field 'wanted' of the log tells"


def test_versions_that_the_log_lacks_are_named_as_not_tested():
    assert "the versions that queries name, which the log lacks" in some_log().audit().outcome.untested


def test_the_same_files_give_the_same_figures(files):
    assert call(*files).stdout == call(*files).stdout
    assert json.loads(call(*files, "--seed", "2", "--json").stdout)["passed"]


def test_queries_on_the_side_that_lack_sensitive_sources_are_found():
    log = some_log()
    own = tuple(replace(line, number=line.step + 1) for line in log.lines)

    def beside(wanted):
        sets = [tuple(range(log.chain.n)) if step.step < 2 else wanted(step) for step in log.steps]
        lines = (Line(t, query, "here", number=100 + t, stream="ab" * 16) for t, query in enumerate(sets))
        return replace(log, lines=(*own, *lines)).audit(engine=None)

    assert beside(lambda step: step.query).passed  # as another journal of the same client
    [finding] = beside(lambda step: (step.request,)).findings
    assert "lack sensitive sources" in finding
