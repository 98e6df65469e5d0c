"""Lengths that change while a journal is in use: the journal says for every step with which it was made."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from onoff import Chain, connect
from onoff.audit.everyday.weights import Weights, weights_digest
from onoff.audit.transcript import read_evidence
from onoff.audit.transcript.everyday import audit_everyday_transcript, read_laws
from onoff.audit.transcript.reading import read_notes
from onoff.client import settings
from onoff.client.journal import COUNTED
from onoff.client.journalfile import checksum, notes_digest, notes_of, read_meta
from onoff.client.settings import BEFORE, SINCE
from onoff.client.snapshot import snapshot
from onoff.errors import JournalError, OnoffError, Unavailable
from onoff.everyday import Everyday
from recordingserver import LoggingOrigin, RecordingServer, reply

NAMES = ("news", "sports", "science", "weather", "culture")
CHAIN = Chain(np.random.default_rng(3).dirichlet(np.full(5, 0.8), 5) * 0.95 + 0.01, NAMES)
FIRST, SECOND, THIRD, FOURTH = (
    (1.0, 2.0, 3.0, 4.0, 5.0),
    (50.0, 1.0, 1.0, 1.0, 1.0),
    (1.0, 1.0, 80.0, 1.0, 9.0),
    (2.0,) * 5,
)
MEASURED = {
    "format": "onoff-measured",
    "sources": {name: {"length": 7 + x, "visits": 9, "changes": x} for x, name in enumerate(NAMES)},
}


class Reading:
    """Requests of one journal with other lengths from time to time, and all that there is to audit."""

    def __init__(self, directory, respond=lambda *_: None):
        self.directory, self.journal = directory, directory / "journal"
        self.origin = LoggingOrigin({name: f"about {name}".encode() for name in NAMES}, 200, respond)
        self.path = iter(CHAIN.simulate(200, np.random.default_rng(1)).tolist())

    def ask(self, lengths, count, resume=False):
        async def asked():
            where = {"server": self.url, "journal": self.journal, "record": self.directory / "record"}
            options = {"delay": 0.0, "attempts": 1, "first_ever": True, "lengths": lengths}
            async with connect(CHAIN, **where, **options) as client:
                if resume:
                    await client.resume()
                for _ in range(count):
                    await client.get(NAMES[next(self.path)], private=client.journal.state.step % 9 == 0)

        asyncio.run(asked())

    def __enter__(self):
        self.server = RecordingServer(self.origin).__enter__()
        self.url = self.server.url
        return self

    def __exit__(self, *error):
        self.server.wait_closed()
        self.server.__exit__(*error)

    def audit(self, recorded=True):
        self.origin.write_log(self.directory / "log")
        evidence = read_evidence(CHAIN, self.directory / "log", journal=self.journal)
        laws = read_laws(self.directory / "record", evidence.notes.stream) if recorded else None
        return audit_everyday_transcript(evidence, laws, engine=Everyday.start)


def digest(lengths):
    return weights_digest(None if lengths is None else Weights(lengths, None))


def note_by_hand(journal, notes):
    """Change notes as an older version would have left them; None deletes one."""
    with closing(sqlite3.connect(journal)) as database, database:
        for key, value in notes.items():
            database.execute("DELETE FROM meta WHERE key = ?", (f"note {key}",))
            if value is not None:
                database.execute("INSERT INTO meta VALUES (?, ?)", (f"note {key}", value))
        meta = read_meta(database)
        meta["notes"] = notes_digest(notes_of(meta))
        rows = [(meta["notes"], "notes"), (checksum(meta), "checksum")]
        database.executemany("UPDATE meta SET value = ? WHERE key = ?", rows)


def test_an_honest_journal_passes_its_audit_after_three_changes_of_lengths(tmp_path):
    with Reading(tmp_path) as reading:
        for lengths, count in ((None, 4), (None, 2), (FIRST, 5), (SECOND, 0), (MEASURED, 6), (None, 4), (FOURTH, 5)):
            reading.ask(lengths, count)
    notes = read_notes(tmp_path / "journal")
    measured = Weights((7.0, 8.0, 9.0, 10.0, 11.0), tuple((x + 1) / 9 for x in range(5)))
    assert notes.before == ((0, digest(None)), (6, digest(FIRST)), (11, weights_digest(measured)))  # not the second
    assert (notes.weights, notes.since) == (Weights(FOURTH, None), 21)
    found = reading.audit()
    assert found.passed, (found.findings, found.rules, found.verdict)
    assert found.remade == found.off == 23
    assert "and at 2 steps more" in found.notes[0]
    unrecorded = reading.audit(recorded=False)  # laws of lengths that are gone cannot be made again: nobody's fault
    assert unrecorded.outcome.word == "NO VERDICT", unrecorded.rules
    assert "--record" in str(unrecorded.outcome)


def test_a_step_that_was_pending_belongs_to_the_lengths_that_it_was_drawn_with(tmp_path):
    down = [True]
    with Reading(tmp_path, lambda step, _: reply(b"", 503) if step == 7 and down.pop(0) else None) as reading:
        down += [False] * 100
        reading.ask(FIRST, 4)
        with pytest.raises(Unavailable):
            reading.ask(SECOND, 6)
        reading.ask(THIRD, 5, resume=True)
    notes = read_notes(tmp_path / "journal")
    assert (notes.before, notes.since) == (((0, digest(FIRST)), (4, digest(SECOND))), 8)
    assert reading.audit().passed


def test_a_law_that_was_recorded_but_not_used_before_lengths_changed_is_in_order(tmp_path):
    """The record has its line, and then the disk is full. Without the change in the journal it is found."""

    async def refused():
        where = {"server": reading.url, "journal": reading.journal, "record": tmp_path / "record"}
        async with connect(CHAIN, **where, delay=0.0) as client:
            client.journal._database.execute(
                "CREATE TEMP TRIGGER full BEFORE INSERT ON steps BEGIN SELECT RAISE(ABORT, ''); END"
            )
            with pytest.raises(JournalError):
                await client.get("news", private=False)

    with Reading(tmp_path) as reading:
        reading.ask(FIRST, 5)
        asyncio.run(refused())
        reading.ask(SECOND, 5)
    lines = (tmp_path / "record").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert steps == [1, 2, 3, 4, 5, 5, 6, 7, 8]
    assert reading.audit().findings == ()
    again = {**json.loads(lines[5]), "step": 6}
    with (tmp_path / "record").open("a") as file:
        file.write(json.dumps({**again, "weights": json.loads(lines[0])["weights"]}) + "\n" + lines[6] + "\n")
    assert any("step 6: laws with different lengths" in finding for finding in reading.audit().findings)


def test_a_journal_of_before_is_audited_as_before_and_remembers_from_then_on(tmp_path):
    """It knows the last change alone: a second one before that is a finding, and later ones are not."""
    with Reading(tmp_path) as reading:
        reading.ask(FIRST, 5)
        reading.ask(SECOND, 5)
        note_by_hand(tmp_path / "journal", {BEFORE: None})
        assert reading.audit().findings == ()
        reading.ask(THIRD, 5)
    assert read_notes(tmp_path / "journal").before == ((5, digest(SECOND)),)
    assert reading.audit().findings == ()
    note_by_hand(tmp_path / "journal", {BEFORE: None})
    [finding] = reading.audit().findings
    assert finding.startswith("step 5: lengths changed there, and the journal does not say so")


def test_a_journal_of_before_says_from_which_step_on_its_sendings_are_counted(tmp_path):
    """A new one counts from the first. Of a step that is pending nobody knows how often it was sent before."""
    down = []
    with Reading(tmp_path, lambda step, _: reply(b"", 503) if down else None) as reading:
        reading.ask(None, 3)
        assert read_notes(tmp_path / "journal").counted == 0
        down.append(True)
        with pytest.raises(Unavailable):
            reading.ask(None, 1)
        note_by_hand(tmp_path / "journal", {COUNTED: None})
        assert read_notes(tmp_path / "journal").counted is None
        down.clear()
        reading.ask(None, 1, resume=True)
    assert read_notes(tmp_path / "journal").counted == 4
    note_by_hand(tmp_path / "journal", {COUNTED: "-1"})
    with pytest.raises(OnoffError, match="sendings are counted cannot be read"):
        read_notes(tmp_path / "journal")


def test_a_journal_remembers_so_many_changes_and_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "MOST_CHANGES", 2)
    with Reading(tmp_path) as reading:
        for lengths in (FIRST, SECOND, THIRD, FOURTH):
            reading.ask(lengths, 3)
    assert read_notes(tmp_path / "journal").before == ((3, digest(SECOND)), (6, digest(THIRD)))
    assert reading.audit().findings == ()  # the change at 3 is known, though not from what


def test_all_that_is_noted_of_a_change_is_noted_in_one_transaction(tmp_path, monkeypatch):
    """A client that is killed before that has changed nothing: it would draw with the new lengths after it alone."""
    with Reading(tmp_path) as reading:
        reading.ask(FIRST, 4)
        before = snapshot(tmp_path / "journal").notes

        def killed(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("onoff.client.journalfile.notes_digest", killed)
            with pytest.raises(KeyboardInterrupt):
                reading.ask(SECOND, 1)
        assert snapshot(tmp_path / "journal").notes == before
        reading.ask(SECOND, 1)
    assert snapshot(tmp_path / "journal").notes[SINCE] == "4"


@pytest.mark.parametrize(
    "wrong",
    [
        "[[1]]",
        "3",
        "[[3, 4]]",
        '[["0", "%s"]]',
        "[[0, %s]]",
        '[[2, "%s"], [1, "%s"]]',
        '[[9, "%s"]]',
        "{",
        '[[-1, "%s"]]',
    ],
)
def test_earlier_lengths_that_no_client_noted_are_refused_by_the_audit_and_left_out_by_the_client(tmp_path, wrong):
    with Reading(tmp_path) as reading:
        reading.ask(FIRST, 3)
        reading.ask(SECOND, 3)
        note_by_hand(tmp_path / "journal", {BEFORE: wrong.replace("%s", "0" * 64)})
        with pytest.raises(OnoffError, match="lengths noted in this journal cannot be read"):
            read_notes(tmp_path / "journal")
        reading.ask(THIRD, 1)
    assert json.loads(snapshot(tmp_path / "journal").notes[BEFORE])[-1] == [3, digest(SECOND)]
    read_notes(tmp_path / "journal")
