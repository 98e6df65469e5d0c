"""Laws are kept beside the journal, and made anew wherever what was kept is not the user's own."""

from __future__ import annotations

import json
import os
import stat

import pytest

from onoff.client import lawstore
from onoff.client.lawstore import LawStore, laws_beside
from onoff.past import Candidates, PastState
from oracles import random_chain

CHAIN = random_chain("dense", 6, 1)
WANTED = PastState.start(CHAIN, (2,)).candidates
OTHERS = [Candidates(CHAIN, (2,), states) for states in ((0, 1, 2), (1, 2, 3), (2, 3, 4, 5))]


@pytest.fixture
def makings(monkeypatch):
    """The candidates whose laws are made, not taken from the file."""
    found, prepare = [], lawstore.prepare
    monkeypatch.setattr(lawstore, "prepare", lambda candidates: found.append(candidates) or prepare(candidates))
    return found


def law(path, candidates=WANTED):
    """The law as a new process has it."""
    return LawStore(path).step(candidates).as_dict()


def test_a_law_is_made_once_and_kept_for_this_user_alone(tmp_path, makings):
    path, store = tmp_path / "journal", LawStore(tmp_path / "journal")
    first = [store.step(candidates).as_dict() for candidates in (WANTED, *OTHERS)]
    assert store.step(WANTED) is store.step(WANTED)
    assert [law(path, candidates) for candidates in (WANTED, *OTHERS)] == first
    assert makings == [WANTED, *OTHERS]
    assert laws_beside(path).stat().st_mode & 0o777 == 0o600
    law(path, Candidates(CHAIN, (), (1,)))
    law(path, Candidates(CHAIN, (), (1, 3)))
    assert len(laws_beside(path).read_bytes().splitlines()) == 1 + len(OTHERS)  # couplings are quick to make


def rewritten(change, resealed=False):
    """Changes the entries of the only line."""

    def act(file):
        data = json.loads(file.read_bytes())
        change(data)
        if resealed:
            data["seal"] = lawstore.seal({key: value for key, value in data.items() if key != "seal"})
        file.write_text(json.dumps(data) + "\n")

    return act


def another(data):
    """The law of other candidates under this key: whoever has the user's key made a mistake."""
    step = LawStore(lawstore.Path("/nowhere/journal")).step(OTHERS[0])
    data["mass"] = lawstore.b64encode(step.inner.mass.astype("<i8").tobytes()).decode()
    data["member"] = lawstore.b64encode(lawstore.np.packbits(step.inner.member).tobytes()).decode()


DAMAGES = {
    "half": lambda file: os.truncate(file, file.stat().st_size // 2),
    "bytes": lambda file: file.write_bytes(b"\xff\x00\n" + file.read_bytes()[:-9]),
    "unsealed": rewritten(lambda data: data.pop("seal")),
    "null": rewritten(lambda data: data.update(seal=None)),
    "foreign": rewritten(lambda data: data.update(seal="0" * 64)),
    "wrong": rewritten(another, resealed=True),
    "erased": lambda file: file.unlink(),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_was_damaged_or_written_by_others_is_made_anew_and_kept_again(tmp_path, makings, name):
    path = tmp_path / "journal"
    honest = law(path)
    DAMAGES[name](laws_beside(path))
    makings.clear()
    assert law(path) == honest
    assert makings[-1:] == [WANTED]
    assert law(path) == honest  # (behind half a line it was lost again)
    makings.clear()
    assert law(path) == honest
    assert not makings


def test_what_cannot_be_kept_is_made_again(tmp_path, makings):
    laws_beside(tmp_path / "journal").mkdir()
    assert law(tmp_path / "journal") == law(tmp_path / "journal")
    assert makings == [WANTED] * 2


def planted(key):
    """Files that somebody else may have put there, by name."""
    return {
        "a pipe": os.mkfifo,
        "a link": lambda file: file.symlink_to(file.with_name("precious")),
        "a link to a device": lambda file: file.symlink_to("/dev/zero"),
        "for all to read": lambda file: (file.touch(), file.chmod(0o666)),
        "lists in lists": lambda file: file.write_text(f'{{"key": "{key}", "seal": {"[" * 200_000}\n'),
        "a text": lambda file: file.write_text(f'"12345678{key}"\n'),
        "large": lambda file: (file.touch(), os.truncate(file, lawstore.LARGEST + 1)),
    }


@pytest.mark.parametrize("name", planted(""))
def test_what_others_have_put_there_stops_no_request_and_stays_no_longer(tmp_path, makings, name):
    path, precious = tmp_path / "journal", tmp_path / "precious"
    precious.write_text("mine")
    planted(lawstore._key(WANTED))[name](laws_beside(path))
    honest = law(path)
    assert makings == [WANTED]
    status = laws_beside(path).lstat()
    assert (stat.S_IFMT(status.st_mode), status.st_mode & 0o777) == (stat.S_IFREG, 0o600)
    assert precious.read_text() == "mine"
    assert law(path) == honest
    assert makings == [WANTED]  # it was kept


def test_without_a_key_nothing_is_kept(tmp_path, makings, monkeypatch):
    """Nobody could read it, and every process would add the same laws."""
    monkeypatch.setattr(lawstore, "seal", lambda _: "")
    assert law(tmp_path / "journal") == law(tmp_path / "journal")
    assert makings == [WANTED] * 2
    assert not laws_beside(tmp_path / "journal").exists()


def test_a_file_that_is_too_large_begins_anew(tmp_path, makings, monkeypatch):
    path = tmp_path / "journal"
    law(path)
    size = laws_beside(path).stat().st_size
    monkeypatch.setattr(lawstore, "LARGEST", 2 * size)
    store = LawStore(path)
    for candidates in OTHERS:
        store.step(candidates)
        assert laws_beside(path).stat().st_size <= 2 * size
    makings.clear()
    law(path, OTHERS[-1])
    law(path)
    assert makings == [WANTED]
    monkeypatch.setattr(lawstore, "LARGEST", size // 2)
    law(path)  # larger than the whole file may be
    assert not laws_beside(path).exists()


def test_laws_of_another_machine_or_chain_are_others(tmp_path, makings, monkeypatch):
    law(tmp_path / "journal")
    law(tmp_path / "journal", PastState.start(random_chain("dense", 6, 2), (2,)).candidates)
    monkeypatch.setattr(lawstore, "maker", lambda: "another")
    law(tmp_path / "journal")
    assert len(makings) == 3
