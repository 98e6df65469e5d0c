from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onoff.apps.demo import reader as demo
from onoff.apps.demo.compare import DECOYS
from onoff.apps.demo.run import demonstrate, introduce, narrate
from onoff.audit.attack import attack, naive_steps

STEPS = 40


@pytest.fixture(scope="module")
def result():
    return demonstrate(STEPS, 3)


def named(rows):
    return {row.client: row for row in rows}


def test_habits_are_so_strong_that_a_naive_client_is_guessed_right_most_of_the_time():
    """Of 3,000 requests some 400 are private: a share of 0.68 is above 0.5 by seven standard deviations."""
    chain, items = demo.reader(), demo.requests(3000, 7)
    path, statuses = [chain.index(source) for source, _ in items], np.array([on for _, on in items])
    found = attack(chain, "both", naive_steps(chain.n, statuses, path))
    right = found.beliefs.after.argmax(axis=1) == path
    assert right[statuses].mean() > 0.5
    assert chain.stationary().max() < 0.13


def test_every_message_arrives_and_is_the_latest_and_a_kill_repeats_nothing(result):
    assert result.findings == ()
    assert 15 <= result.killed.at < 30
    assert result.killed.steps == result.killed.delivered == 30
    assert result.killed.sets == 1


def test_ours_betray_nothing_and_what_people_do_today_betrays_much(result):
    private, sensitive = named(result.switched), named(result.marked)
    ours = [private["onoff, past"], private["onoff, both"], sensitive["onoff, sensitive"]]
    assert [row.promise for row in ours] == ["past", "both", "past"]
    for row in ours:
        assert row.bits < 1e-12
        assert row.guessed == pytest.approx(row.guessed_before)
    assert private["onoff, both"].bits_before < 1e-12
    assert private["onoff, both"].guessed == pytest.approx(result.by_habits)
    assert private["asks openly, always"].guessed == 1
    assert sensitive["asks openly, always"].guessed == 1
    for row in (private["asks openly while OFF"], sensitive["all if it is sensitive"]):
        assert row.bits > 0.1
    decoys = private[f"adds {DECOYS} random decoys"]
    assert decoys.bits > 0.1


def test_costs_are_those_on_the_wire(result):
    rows = {**named(result.switched), **named(result.marked)}
    everything, mirror = rows["downloads everything"], rows["mirrors all that changed"]
    assert (everything.messages, mirror.messages, rows["asks openly, always"].messages) == (8, 8, 1)
    assert rows["asks openly while OFF"].messages == pytest.approx(1 + 7 * result.private / STEPS)
    assert rows["all if it is sensitive"].messages == pytest.approx(1 + 7 * result.sensitive / STEPS)
    assert everything.bytes / 8 == everything.bytes // 8 > 4096  # whole frames, one for each channel
    for name in ("onoff, past", "onoff, both", "onoff, sensitive"):
        assert 1 < rows[name].messages < 8
        assert rows["asks openly, always"].bytes < rows[name].bytes < mirror.bytes < everything.bytes


def test_the_story_fits_a_terminal_and_ends_with_what_was_seen_and_what_to_try(result):
    lines = [*introduce(STEPS).splitlines(), *narrate(result).splitlines()]
    assert max(map(len, lines)) <= 80
    assert "".join(lines).isascii()
    naive = named(result.switched)["asks openly while OFF"]
    seen = next(line for line in lines if line.startswith("You saw: "))
    assert f"{100 * naive.guessed:.0f} %" in seen
    assert lines[-2].startswith("Try next: ")
    assert lines[-1].strip() == "onoff fit LOG -o habits.json && onoff costs habits.json --day"
    end = " ".join(lines[lines.index(seen) :])
    past = named(result.switched)["onoff, past"]
    for other, words in (
        ("downloads everything", "fewer bytes than downloading everything"),
        ("mirrors all that changed", "fewer than mirroring all that changed"),
    ):
        assert f"{100 * (1 - past.bytes / named(result.switched)[other].bytes):.0f} % {words}" in end


def test_a_finding_is_told_and_nothing_is_praised(result):
    lines = narrate(replace(result, findings=("onoff, past: it leaks",))).splitlines()
    assert lines[-1] == "This is a bug: onoff, past: it leaks"
    assert not any(line.startswith("You saw") for line in lines)
