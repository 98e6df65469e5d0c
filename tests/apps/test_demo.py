from __future__ import annotations

from dataclasses import replace

import pytest

from onoff.apps.demo.compare import DECOYS
from onoff.apps.demo.run import demonstrate, narrate

STEPS = 40


@pytest.fixture(scope="module")
def result():
    return demonstrate(STEPS, 3)


def named(rows):
    return {row.client: row for row in rows}


def test_every_message_arrives_and_is_the_latest(result):
    assert result.findings == ()


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


def test_a_finding_is_told_and_nothing_is_praised(result):
    lines = narrate(replace(result, findings=("onoff, past: it leaks",))).splitlines()
    assert lines[-1] == "This is a bug: onoff, past: it leaks"
    assert not any(line.startswith("You saw") for line in lines)
