"""Plans of strangers: a coarse law is refused when it is read, and none is used before every context was checked."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import replace

import numpy as np
import pytest

from clikit import call
from onoff import Chain, Plan, Planner, Settings, plan
from onoff.errors import PlanError, Unverified
from onoff.files import cache_directory
from onoff.plans import planner, realisable, verified
from onoff.plans.file import checksum
from onoff.plans.store import PlanStore
from oracles import random_chain


@pytest.fixture(autouse=True)
def _fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(verified, "_here", set())


@pytest.fixture(scope="module")
def chain():
    return random_chain("dense", 5, 2)


@pytest.fixture(scope="module")
def honest(chain):
    return plan(chain, 1)


def hand_over(store, made):
    """Write the file of a plan as a stranger would, past the store."""
    made.save(store.path(made.lag))


def cheap_and_wrong(honest):
    """A law of fine masses, as cheap as can be, that contexts in which source 0 is unlikely cannot realise."""
    n, total = honest.n, honest.denominator
    full = int(total * ((honest.lower_bound - 1) / (n - 1) + 0.001))
    return replace(honest, sets=((0,), tuple(range(n))), masses=(total - full, full))


def silent_contexts(used):
    """The requests in which a draw fails: where a client would fall silent because of what was asked."""
    found = set()
    for last, following in used.posterior.contexts:
        for request in np.flatnonzero(used.posterior.possible(last, following)):
            try:
                used.draw(int(request), int(last), int(following))
            except PlanError:
                found.add((int(request), int(last), int(following)))
    return found


@pytest.mark.parametrize("denominator", [12, 25, 2**20])
def test_a_coarse_plan_is_refused_when_it_is_read(chain, honest, tmp_path, denominator):
    """Re-signed: its checksum is right, and what it states is true; but it rounds by more than 2^-30."""
    store = PlanStore(chain, tmp_path / "plans")
    hand_over(store, honest)
    data = json.loads(store.path(1).read_text())
    share = [max(1, mass * denominator // honest.denominator) for mass in honest.masses[:-1]]
    share = [mass for mass in share if mass][: denominator // 2 - chain.n] if denominator < 100 else share
    data.update(
        sets=[*data["sets"][: len(share)], data["sets"][-1]],
        masses=[*share, denominator - sum(share)],
        denominator=denominator,
    )
    del data["checksum"]
    store.path(1).write_text(json.dumps({**data, "checksum": checksum(data)}))
    with pytest.raises(PlanError, match="it states a rounding of"):
        store.load(1)
    with Planner(chain, tmp_path / "plans") as found:
        assert found.best(1).scheme == "race"


def test_a_law_that_some_contexts_cannot_realise_is_never_used(chain, honest, tmp_path):
    wrong = cheap_and_wrong(honest)
    assert silent_contexts(wrong)  # what a client would do with it: fail for some requests and not for others
    assert wrong.rounding < 2.0**-30
    store = PlanStore(chain, tmp_path / "plans")
    hand_over(store, wrong)
    assert store.load(1) == wrong  # an audit reads it
    with pytest.raises(PlanError, match="not realisable before"):
        wrong.verify()
    with Planner(chain, tmp_path / "plans") as found:
        used = found.best(1)
        assert used != wrong
    store.verify()
    with pytest.raises(Unverified):
        store.usable(1)
    assert store.save(honest)  # however cheap the other says it is
    assert store.usable(1) == honest
    assert not silent_contexts(honest)


def test_a_set_that_misses_a_context_is_found():
    """A ring with a chord: from some contexts a set is out of reach, and what is left over for it has no taker."""
    ring = Chain([[0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5], [0.5, 0, 0, 0.5]])
    honest = plan(ring, 1)
    honest.verify()
    wrong = replace(honest, sets=((2,), *honest.sets), masses=(1, *honest.masses[:-1], honest.masses[-1] - 1))
    with pytest.raises(PlanError, match="holds no possible request in some context"):
        wrong.verify()


def test_a_plan_of_a_stranger_is_verified_once_per_file(chain, honest, tmp_path, monkeypatch):
    store = PlanStore(chain, tmp_path / "plans")
    hand_over(store, honest)
    with pytest.raises(Unverified):
        store.usable(1)
    calls = []
    check = realisable.check
    monkeypatch.setattr(realisable, "check", lambda made: (calls.append(made.lag), check(made)))
    for _ in range(3):
        with Planner(chain, tmp_path / "plans") as found:
            assert found.best(1) == honest
    assert calls == [1]
    assert len(list(cache_directory("verified").iterdir())) == 1
    store.path(1).write_bytes(store.path(1).read_bytes() + b"\n")  # the same plan in another file
    with pytest.raises(Unverified):
        store.usable(1)


def test_that_a_directory_says_it_was_verified_is_not_believed(chain, honest, tmp_path):
    """What is remembered lies in the user's cache; a copy of it beside the plans means nothing."""
    store = PlanStore(chain, tmp_path / "plans")
    hand_over(store, honest)
    digest = store._read(1)[1]
    for place in (store.directory, store.directory / "verified", tmp_path / "plans" / "verified"):
        place.mkdir(exist_ok=True)
        (place / digest).touch()
    with pytest.raises(Unverified):
        store.usable(1)


def test_plans_made_here_were_checked_by_their_maker(chain, honest, tmp_path, monkeypatch):
    monkeypatch.setattr(realisable, "check", lambda made: pytest.fail("checked again"))
    store = PlanStore(chain, tmp_path / "plans")
    assert store.save(pickle.loads(pickle.dumps(honest)))  # made by another process of ours
    assert store.usable(1) == honest
    assert [file.name for file in store.directory.iterdir() if file.name.startswith(".")] == []
    for other in (replace(honest, masses=honest.masses), store.load(1), Plan.load(store.path(1))):
        assert not other.known_realisable
    monkeypatch.undo()


@pytest.mark.parametrize("scheme", ["everything", "paper", "comb", "optimal"])
@pytest.mark.parametrize("lag", [1, 3])
def test_what_every_scheme_makes_passes_the_check(scheme, lag):
    for kind in ("dense", "sparse"):
        made = plan(random_chain(kind, 7, 3), lag, scheme)
        assert made.known_realisable
        realisable.check(made)


def test_larger_plans_are_verified_by_the_background_and_serve_then(tmp_path):
    """Beyond VERIFY_AT_ONCE sources; the check certifies most contexts without a flow, and still finds a bad one."""
    large = random_chain("dense", 55, 1)
    assert large.n > planner.VERIFY_AT_ONCE
    made = plan(large, 1, "comb")
    store = PlanStore(large, tmp_path / "plans")
    hand_over(store, made)
    with Planner(large, tmp_path / "plans") as found:
        found.close()
        found._compute = lambda lag: None
        assert found.best(1).scheme == "race"
        store.verify()
        assert found.best(1) == made
    largest = max(range(len(made.sets) - 1), key=lambda i: made.masses[i])
    others = tuple(x for x in range(large.n) if x not in made.sets[largest])  # a dearer set that is of no use there
    masses = [made.masses[largest] // 2, *made.masses]
    masses[1 + largest] -= masses[0]
    with pytest.raises(PlanError, match="not realisable"):
        replace(made, sets=(others, *made.sets), masses=tuple(masses)).verify()


def test_a_cache_that_cannot_be_written_is_no_reason_to_stop(chain, honest, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file, where the directory should be")
    store = PlanStore(chain, tmp_path / "plans")
    hand_over(store, honest)
    with Planner(chain, tmp_path / "plans") as found:
        assert found.best(1) == honest  # remembered by this process
    monkeypatch.setattr(verified, "_here", set())
    with pytest.raises(Unverified):
        store.usable(1)


def test_links_in_a_strangers_directory_lead_nowhere(tmp_path):
    """What the planner keeps beside the plans is not written to a file of the user's that a link names."""
    chain = random_chain("dense", 4, 3)
    where = PlanStore(chain, tmp_path / "plans", make=False).directory
    where.mkdir(parents=True)
    for name in (f"{chain.fingerprint}.chain", "lengths.json", "lock", "log"):
        (tmp_path / f"precious {name}").write_text("precious")
        (where / name).symlink_to(tmp_path / f"precious {name}")
    with Planner(chain, tmp_path / "plans") as planner:
        assert planner.wait(1, 60).scheme != "race"
        assert planner.trouble is None
    assert [file.read_text() for file in tmp_path.glob("precious *")] == ["precious"] * 4
    assert not any(file.is_symlink() for file in where.iterdir())


@pytest.mark.parametrize("name", ["lengths.json", "grid.json", "lock", "log", "chain"])
def test_a_pipe_in_the_place_of_what_describes_the_plans_keeps_nobody_waiting(tmp_path, name):
    chain = random_chain("dense", 4, 3)
    store = PlanStore(chain, tmp_path / "plans")
    file = store.directory / (f"{chain.fingerprint}.chain" if name == "chain" else name)
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    store.make()
    assert not file.exists() or file.is_file()
    assert PlanStore.open(store.directory).chain == chain


def test_a_pipe_among_the_plans_is_no_plan(tmp_path):
    store = PlanStore(random_chain("dense", 4, 3), tmp_path / "plans")
    os.mkfifo(store.path(1))
    store.path(2).symlink_to("/dev/zero")
    assert store.lags() == {}


def test_a_file_that_took_the_place_of_a_plan_being_saved_is_not_called_verified(chain, honest, tmp_path, monkeypatch):
    store, wrong = PlanStore(chain, tmp_path / "plans"), cheap_and_wrong(honest)
    save = type(honest).save
    assert honest.known_realisable
    monkeypatch.setattr(type(honest), "save", lambda _, path: save(wrong, path))
    store.save(honest)
    with pytest.raises(Unverified):
        store.usable(1)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store.save(honest)
    assert store.usable(1).sets == honest.sets


def test_that_plans_of_others_wait_for_the_background_is_said(chain, honest, tmp_path, monkeypatch):
    monkeypatch.setattr(planner, "VERIFY_AT_ONCE", 0)
    monkeypatch.setitem(Settings.__init__.__kwdefaults__, "backoff", 0.001)
    store = PlanStore(chain, tmp_path / "plans")
    hand_over(store, honest)
    chain.save(tmp_path / "chain.json")
    common = ["--journal", tmp_path / "j", "--chain", tmp_path / "chain.json", "--plans", tmp_path / "plans"]
    words = ["get", chain.names[0], "--server", "http://127.0.0.1:1", "--promise", "both", *common, "--no-background"]
    assert "not used before they were verified" in call(*words).stderr
    store.verify()
    assert "verified" not in call(*words).stderr
