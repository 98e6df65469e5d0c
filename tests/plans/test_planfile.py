"""Plans as files: read back as written, refused when damaged or dishonest."""

from __future__ import annotations

import json

import pytest

from onoff import Chain, Plan, bounds, plan
from onoff.errors import PlanError
from onoff.plans.planner import compute, is_final
from onoff.plans.race import race_plan
from onoff.plans.store import PlanStore
from onoff.schemes.certificate import SHIFT, outer_certificate
from oracles import random_chain
from planfiles import EXCHANGED, signed


def damage(file, change):
    """Change what a plan file says, and sign it anew."""
    data = json.loads(file.read_text())
    change(data)
    file.write_bytes(signed(data))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.__setitem__("lag", -1), "lag is -1"),
        (lambda d: d.__setitem__("chain", "0" * 64), "cannot be read"),
        (lambda d: d.__setitem__("chain", "../chain"), "what names its chain is no fingerprint"),
        (lambda d: d.__setitem__("version", 2), "version 2 of the plan format is not read; make the plan anew"),
        (lambda d: d.__setitem__("scheme", "foo"), "not a scheme"),
    ],
)
def test_a_plan_that_says_what_no_plan_can_is_refused(tmp_path, change, words):
    file = tmp_path / "plan.json"
    plan(random_chain("dense", 4, 2), 1, "optimal").save(file)
    damage(file, change)
    with pytest.raises(PlanError, match=words):
        Plan.load(file)


@pytest.mark.parametrize(
    ("chain", "lag", "kind"),
    [
        (Chain.symmetric(6, 0.05), 1, "sizes"),
        (Chain.symmetric(5, 0.0), 2, "cuts"),
        (random_chain("dense", 4, 2), 1, "outer"),
    ],
)
def test_certificates_of_every_kind_are_kept_under_the_users_seal_and_else_not_believed(tmp_path, chain, lag, kind):
    made = plan(chain, lag)
    assert made.certificate.kind == kind
    file = tmp_path / "plan.json"
    made.save(file)
    assert Plan.load(file) == made

    def forge(data):
        data["certificate"]["bound"] = made.cost * (1 + 1e-6)

    damage(file, forge)
    assert Plan.load(file).certificate == outer_certificate(chain.posterior(lag))


def test_a_forged_bound_for_many_sources_does_not_stop_better_planning(tmp_path):
    """A plan that claims to be optimal must not keep a better one from being made."""
    chain = random_chain("dense", 24, 2)
    store = PlanStore(chain, tmp_path)
    store.save(plan(chain, 1, "everything"))
    cuts = {"kind": "cuts", "bound": 24.0, "cuts": [[x] for x in range(24)], "weights": [2**SHIFT] * 24}
    damage(store.path(1), lambda data: data.update(certificate=cuts))
    outer = bounds(chain, 1).outer
    assert store.load(1).lower_bound == pytest.approx(outer, rel=1e-9)
    assert not is_final(store.load(1))
    compute(store, 1)
    assert store.load(1).cost < 1.01 * outer


@pytest.mark.parametrize("exchange", EXCHANGED, ids=lambda exchange: exchange.__name__)
def test_a_chain_that_was_exchanged_is_refused_and_written_anew(tmp_path, exchange):
    """A stranger's directory: links, pipes, devices, terabytes and other chains end in an error, and at once."""
    made = plan(random_chain("dense", 4, 2), 1)
    made.save(tmp_path / "plan.json")
    file = tmp_path / f"{made.chain.fingerprint}.chain"
    exchange(file)
    with pytest.raises(PlanError, match=f"plan.json.*{file.name}"):
        Plan.load(tmp_path / "plan.json")
    if file.is_dir():
        file.rmdir()  # what is not ours to delete
    made.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == made
    assert not file.is_symlink()


def test_the_chain_is_kept_once_and_is_small(tmp_path):
    chain = random_chain("dense", 60, 2)
    for lag in (1, 2, 3):
        race_plan(chain, lag, draws=2).save(tmp_path / f"{lag}.plan.json")
    [kept] = tmp_path.glob("*.chain")
    assert kept.stat().st_size < 8 * 60**2 + 500
    assert all(file.stat().st_size < 600 for file in tmp_path.glob("*.json"))


def test_every_damaged_byte_is_noticed(tmp_path):
    file = tmp_path / "plan.json"
    plan(Chain.symmetric(3, 0.2), 1).save(file)
    whole = file.read_bytes()
    for position in range(0, len(whole), 7):
        file.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        try:
            same = json.loads(file.read_bytes()) == json.loads(whole)
        except ValueError:
            same = False
        if not same:
            with pytest.raises(PlanError):
                Plan.load(file)
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PlanError, match="not a plan file"):
        Plan.load(file)
    with pytest.raises(PlanError, match="cannot be read"):
        Plan.load(tmp_path / "none.json")
