"""`onoff audit log`: words, JSON and exit codes."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from clikit import call
from onoff import Chain
from onoff.plans.store import PlanStore
from replaykit import life


@pytest.fixture(scope="module", params=["both", "past"])
def made(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp(request.param)
    made = life(directory, request.param, kills=0.0, losses=0.0).live(60)
    made.chain.save(directory / "chain.json")
    if request.param == "both":
        for one in made.plans().values():
            PlanStore(made.chain, directory / "plans").save(one)
    return made


@pytest.fixture
def words(made):
    made.change_log(lambda lines: lines)
    own = ("--plans", made.directory / "plans") if made.promise == "both" else ("--laws", made.record_file)
    chain = made.directory / "chain.json"
    return ("audit", "log", made.log_file, "--chain", chain, "--journal", made.journal_file, *own)


def test_an_honest_log_passes_and_the_attack_betrays_nothing(words):
    before = {file: file.read_bytes() for file in words[2].parent.iterdir() if file.is_file()}
    done = call(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "betrays nothing that is private" in done.stdout
    assert "believed: the journal's requests and numbers" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("AUDIT PASSED; NOT CHECKED: ")
    found = json.loads(call(*words, "--json").stdout)
    assert (found["word"], found["drawn"], found["unchecked"]) == ("PASSED", found["off"], [])
    assert found["attack"]["private"]["most"] < 1e-25
    assert found["naive"]["succeeded"]
    assert before == {file: file.read_bytes() for file in before}


def test_the_first_wrong_step_is_named_with_what_was_expected(made, words):
    at = next(t for t, line in enumerate(made.lines) if 1 < len(line["sources"]) < made.chain.n)
    made.change_log(lambda lines: [*lines[:at], {**lines[at], "sources": [0], "held": [0]}, *lines[at + 1 :]])
    done = call(*words)
    assert done.returncode == 1
    due = ", ".join(made.chain.names[x] for x in made.lines[at]["sources"])
    saw = f"the journal has this set, and the server saw another one (line {at + 2}): {{{due}}}"
    assert f"AUDIT FAILED: step {at}: log: {saw}" in done.stdout.splitlines()[-1]
    assert done.stdout.count(saw) == 1
    found = json.loads(call(*words, "--json").stdout)
    assert (found["first_wrong_step"], found["word"]) == (at, "FAILED")


def test_without_plans_or_laws_the_verdict_says_what_was_not_checked(made, words, tmp_path):
    done = call(*words[:-2], *(("--plans", tmp_path) if made.promise == "both" else ()))
    if made.promise == "both":
        assert done.returncode == 1
        assert "AUDIT NO VERDICT; NOT CHECKED" in done.stdout
        assert "is not at hand" in done.stdout
    else:  # made again by the installed code, with the same digests
        assert done.returncode == 0, done.stdout
        assert call(*words, "--remake").returncode == 0
        proved = call(*words, "--no-remake")
        assert proved.returncode == 0, proved.stdout
        assert "whether the request chose among right laws (--remake)" in proved.stdout
        assert "AUDIT NO VERDICT" in call(*words[:-2], "--no-remake").stdout


def test_without_a_journal_nothing_is_certified_and_the_attack_needs_statuses(made, words, tmp_path):
    if made.promise == "past":
        for own in ((), ("--statuses", "110"), ("--statuses", "110", *words[-2:])):
            done = call(*words[:5], *own)
            assert done.returncode == 2
            assert "a stream of `past` cannot be audited without its journal" in " ".join(done.stderr.split())
        return
    statuses = "".join("0" if step.lag else "1" for step in made.steps())
    names = "\n".join(made.chain.names[step.request] for step in made.steps())
    (tmp_path / "truth").write_text(names)
    alone = (*words[:5], "--plans", made.directory / "plans", "--statuses", statuses)
    done = call(*alone, "--truth", tmp_path / "truth")
    assert done.returncode == 1
    assert "betrays nothing that is private" in done.stdout
    assert "without the journal nobody knows what it was drawn for" in done.stdout.splitlines()[-1]
    assert call(*alone[:-1], statuses[:-3]).returncode == 2


@pytest.mark.parametrize("promise", ["both", "past"])
def test_requests_that_do_not_follow_the_chain_leave_no_verdict(tmp_path, promise):
    """Every draw is right, and the promise holds for habits of another kind."""
    chain = Chain(np.full((4, 4), 0.25), tuple("abcd"))
    made = life(tmp_path, promise, chain=chain, sensitive=())
    made.chain.save(tmp_path / "chain.json")
    made.chain.__dict__["simulate"] = lambda count, rng: np.arange(count) % 4
    made.live(100)
    for one in made.plans().values():
        PlanStore(made.chain, tmp_path / "plans").save(one)
    own = ("--plans", tmp_path / "plans") if promise == "both" else ("--laws", made.record_file)
    chain_file = tmp_path / "chain.json"
    done = call("audit", "log", made.log_file, "--chain", chain_file, "--journal", made.journal_file, *own)
    assert done.returncode == 1
    assert re.search(r"DO NOT FOLLOW .*", done.stdout)
    last = done.stdout.splitlines()[-1]
    assert last.startswith("AUDIT NO VERDICT: the requests do not follow the chain; every query was drawn as the rules")
    assert "PASSED" not in last
