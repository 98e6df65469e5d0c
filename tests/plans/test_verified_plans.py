"""Plans of strangers: a coarse law is refused when it is read, and none is used before every context was checked."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

from onoff import Chain, Plan, Planner, plan
from onoff.errors import PlanError
from onoff.files import cache_directory
from onoff.plans.store import PlanStore
from onoff.plans.table import TablePlan
from onoff.schemes.law import Law
from oracles import random_chain
from planfiles import signed, wait


@pytest.fixture(autouse=True)
def _fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def chain():
    return random_chain("dense", 5, 2)


@pytest.fixture(scope="module")
def honest(chain):
    return plan(chain, 1)


def hand_over(store, made):
    """Write the file of a plan as a stranger would, past the store and with the key of another user."""
    key = cache_directory("plans.key")
    made.save(store.path(made.lag))
    key.unlink(missing_ok=True)


def cheap_and_wrong(honest):
    """A law of fine masses, as cheap as can be, that contexts in which source 0 is unlikely cannot realise."""
    n, total = honest.n, honest.denominator
    full = int(total * ((honest.lower_bound - 1) / (n - 1) + 0.001))
    return replace(honest, law=Law.of_sets(((0,), tuple(range(n))), (total - full, full), n))


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
    store.path(1).write_bytes(signed(data))
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
    assert Plan.load(store.path(1)) == wrong  # an audit reads it
    with pytest.raises(PlanError, match="not realisable before"):
        wrong.verify()
    with pytest.raises(PlanError, match="not realisable before"):
        store.load(1)
    with Planner(chain, tmp_path / "plans") as found:
        assert found.best(1) != wrong
        assert wait(found, 1, 60) == honest  # the background makes it anew, however cheap the other says it is
    assert store.load(1) == honest
    assert not silent_contexts(honest)


def test_a_set_that_misses_a_context_is_found():
    """A ring with a chord: from some contexts a set is out of reach, and what is left over for it has no taker."""
    ring = Chain([[0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5], [0.5, 0, 0, 0.5]])
    honest = plan(ring, 1)
    replace(honest, law=honest.law).verify()
    masses = (1, *honest.masses[:-1], honest.masses[-1] - 1)
    wrong = replace(honest, law=Law.of_sets(((2,), *honest.sets), masses, 4))
    with pytest.raises(PlanError, match="holds no possible request in some context"):
        wrong.verify()


@pytest.fixture
def verifications(monkeypatch):
    """The lags of the plans that were verified."""
    calls, verify = [], TablePlan.verify
    monkeypatch.setattr(TablePlan, "verify", lambda made: (made.verified or calls.append(made.lag), verify(made)))
    return calls


def test_a_plan_of_a_stranger_is_verified_whenever_its_file_is_opened(chain, honest, tmp_path, verifications):
    hand_over(PlanStore(chain, tmp_path / "plans"), honest)
    for _ in range(2):
        with Planner(chain, tmp_path / "plans", background=False) as found:
            assert found.best(1) == honest
    assert verifications == [1, 1]


def test_plans_made_here_carry_a_seal_and_are_not_verified_again(chain, honest, tmp_path, verifications):
    store = PlanStore(chain, tmp_path / "plans")
    assert store.save(pickle.loads(pickle.dumps(honest)))  # made by another process of ours
    assert store.load(1) == honest
    assert verifications == []
    assert cache_directory("plans.key").stat().st_mode & 0o777 == 0o600
    assert [file.name for file in store.directory.iterdir() if file.name.startswith(".")] == []
    assert not replace(honest, law=honest.law).verified


@pytest.mark.parametrize("seal", ["", "0" * 64, None])
def test_a_law_under_the_seal_of_another_or_none_is_verified(chain, honest, tmp_path, seal):
    """A stranger who knows what our plans look like cannot make the seal of a law that we have not made."""
    store, wrong = PlanStore(chain, tmp_path / "plans"), cheap_and_wrong(honest)
    store.save(honest)
    data = json.loads(store.path(1).read_text())
    law = {"sets": wrong.sets, "masses": wrong.masses, "denominator": wrong.denominator}
    data |= law | ({} if seal is None else {"seal": seal})  # None: the seal of the honest plan is kept
    store.path(1).write_bytes(signed(data))
    with pytest.raises(PlanError, match="not realisable"):
        store.load(1)


def test_a_plan_that_was_not_verified_gets_no_seal(chain, honest, tmp_path):
    store, wrong = PlanStore(chain, tmp_path / "plans"), cheap_and_wrong(honest)
    store.save(wrong)
    assert json.loads(store.path(1).read_text())["seal"] == ""
    with pytest.raises(PlanError, match="not realisable"):
        store.load(1)


def test_where_most_contexts_need_no_flow_a_bad_one_is_still_found():
    large = random_chain("dense", 55, 1)
    made = plan(large, 1, "comb")
    replace(made, law=made.law).verify()
    largest = max(range(len(made.sets) - 1), key=lambda i: made.masses[i])
    others = tuple(x for x in range(large.n) if x not in made.sets[largest])  # a dearer set that is of no use there
    masses = [made.masses[largest] // 2, *made.masses]
    masses[1 + largest] -= masses[0]
    with pytest.raises(PlanError, match="not realisable"):
        replace(made, law=Law.of_sets((others, *made.sets), masses, large.n)).verify()
