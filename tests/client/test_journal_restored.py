"""Journals that were restored, moved or merely survived something: refused exactly if they are older than they were."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from clientkit import answer_of
from onoff import Chain
from onoff.client.journal import Journal
from onoff.client.protocol import begin_both, finish
from onoff.errors import JournalError
from onoff.files import cache_directory

CHAIN = Chain.symmetric(3, 0.2)


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "journal"


def opened(path):
    return Journal(path, CHAIN.fingerprint, "catalogue")


def make_step(path, request=1, answered=True):
    """One more step, by a process that ends in order."""
    journal = opened(path)
    begun = begin_both(journal.state, CHAIN, request, None, True, None)
    journal.begin(begun, cost=3.0)
    if answered:
        journal.finish(finish(journal.state), begun.pending.query, answer_of([b"message"] * 3, size=100))
    journal.close()


def steps_of(path):
    """How many steps the journal has, once it was taken again."""
    journal = opened(path)
    journal.close()
    return journal.state.step


@pytest.mark.parametrize("answered", [True, False])
def test_a_journal_that_is_restored_together_with_its_lock_is_refused(path, tmp_path, answered):
    """Also if all that it lacks is a query that was drawn and never answered."""
    make_step(path)
    backup = tmp_path / "backup"
    backup.mkdir()
    for name in ("journal", "journal.lock"):
        shutil.copy2(path.with_name(name), backup / name)
    make_step(path, 2, answered)
    for name in ("journal", "journal.lock"):
        shutil.copy2(backup / name, path.with_name(name))  # what `cp -p` does to a file that is there: the same inode
    with pytest.raises(JournalError, match="older than what was last written"):
        opened(path)
    # That it is the witness who tells: without one the restored journal would draw again.
    shutil.rmtree(cache_directory("journals"))
    opened(path).close()


# What must never cause a refusal.


def test_a_machine_that_went_down_is_no_reason_to_refuse(path):
    """Only files survive, and whatever the log of the database holds is read from them."""
    make_step(path)
    code = (
        "import os, signal; from onoff import Chain; from onoff.client.journal import Journal;"
        "from onoff.client.protocol import begin_both;"
        f"chain = Chain.symmetric(3, 0.2); journal = Journal({str(path)!r}, chain.fingerprint, 'catalogue');"
        "journal.begin(begin_both(journal.state, chain, 1, None, True, None), cost=3.0);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    assert path.with_name("journal-wal").stat().st_size > 0
    path.with_name("journal-shm").unlink()  # memory of the kernel in all but name
    journal = opened(path)
    journal.finish(finish(journal.state), journal.state.pending.query, answer_of([b"m"] * 3))
    journal.close()
    make_step(path)
    assert steps_of(path) == 3


def test_a_journal_that_is_moved_with_its_lock_is_taken(path, tmp_path):
    make_step(path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("journal", "journal.lock"):
        path.with_name(name).rename(elsewhere / name)
    make_step(elsewhere / "journal")
    for name in ("journal", "journal.lock"):
        (elsewhere / name).rename(tmp_path / name.replace("journal", "renamed"))
    make_step(tmp_path / "renamed")
    assert steps_of(tmp_path / "renamed") == 3


@pytest.mark.parametrize("damage", ["gone", "empty", "garbage", "short", "a directory", "no place", "no home"])
def test_a_witness_that_is_lost_or_cannot_be_written_says_nothing(path, monkeypatch, damage):
    make_step(path)
    witness = witness_beside(path)
    if damage in ("gone", "a directory", "no place"):
        witness.unlink()
    if damage == "a directory":
        witness.mkdir()
    if damage == "no place":
        shutil.rmtree(witness.parent)
        witness.parent.write_text("a file, where the directory should be")
    if damage == "no home":
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setattr("pathlib.Path.home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    if damage in ("empty", "garbage", "short"):
        witness.write_bytes({"empty": b"", "garbage": b"\xff\0 12", "short": b"0000"}[damage])
    make_step(path)
    make_step(path)
    if damage in ("gone", "empty", "garbage", "short"):
        assert int(witness.read_text()) == int(path.with_name("journal.lock").read_text().split()[0])


def witness_beside(path):
    return cache_directory("journals") / path.with_name("journal.lock").read_text().split()[1]
