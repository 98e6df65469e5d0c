"""An everyday client whose chain is not the true one: what it tells is within the bound, and false bounds are seen."""

from __future__ import annotations

import json
from dataclasses import replace
from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clikit import call
from onoff import Chain, OnoffError
from onoff.audit.everyday import audit_everyday, audit_everyday_mistaken, misfit
from onoff.audit.setting import parse_statuses
from onoff.everyday import Everyday
from onoff.testing import dense
from sampling import examples

USED = Chain([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2], [0.1, 0.1, 0.8]])
FAR = Chain([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7], [0.4, 0.5, 0.1]])
pairs = st.integers(2, 3).flatmap(lambda n: st.tuples(dense(n), dense(n), st.sampled_from([0.0, 0.02, 0.3, 1.0])))


def towards(used, other, share):
    return Chain((1 - share) * used.P + share * other.P)


def audited(used, true, text, sensitive=()):
    return audit_everyday_mistaken(used, true, parse_statuses(text), Everyday.start(used, sensitive), sensitive)


@settings(max_examples=examples(40), deadline=None)
@given(pairs, st.sampled_from(["10", "100", "1001", "1010"]), st.sampled_from([(), (1,)]))
def test_what_is_told_under_the_true_chain_is_within_the_bound(pair, text, sensitive):
    used, other, share = pair
    found = audited(used, towards(used, other, share), text, sensitive)
    assert found.found.method == "exact (enumeration)"
    assert found.found.faults == ()
    assert found.holds
    for step, most, apart, here, anywhere in zip(
        found.found.steps, found.bits, found.allowed, found.distances, found.anywhere, strict=True
    ):
        assert step.bits <= most + 1e-80
        assert (step.average or 0.0) <= apart + 1e-80
        assert here <= anywhere * (1 + 1e-9)
    if share == 0:
        assert max(found.allowed) < 1e-12
        assert found.found.bits < 1e-24


def test_the_bound_is_that_of_its_definition():
    """Steps 2 and 3 are OFF: d is eps under the start law, then also under the law one step on; ON starts anew."""
    eps = np.abs(USED.P - FAR.P).sum(axis=1) / 2
    found = audited(USED, FAR, "10010")
    first = FAR.stationary() @ eps
    assert found.distances == pytest.approx((0, first, 2 * first, 0, first), abs=1e-11)
    assert found.allowed == pytest.approx((0, first, 3 * first, 0, first), abs=1e-11)
    assert found.anywhere == pytest.approx((0, eps.max(), 2 * eps.max(), 0, eps.max()), abs=1e-11)
    assert found.total == pytest.approx(3 * eps.max())
    assert found.guess == 1.0
    near = audited(USED, towards(USED, FAR, 0.01), "1001")
    d = near.distances[1]
    assert near.bits[1] == pytest.approx(-d * log2(d) - (1 - d) * log2(1 - d) + d * log2(3))
    assert near.guess == pytest.approx(2 * near.total)
    with_sensitive = audited(USED, FAR, "10", (1,))
    assert with_sensitive.allowed[1] == pytest.approx(2 * first)


def test_what_is_found_is_what_all_paths_of_the_true_chain_tell():
    """Bits about a private request from the next query: by brute force over pairs of requests."""
    found = audited(USED, FAR, "10")
    state = Everyday.start(USED)
    step = state.prepare()
    start, laws = FAR.stationary(), []
    for i in range(3):
        table = step.encoder(state.context(i, None, True)).toarray()
        laws.append(FAR.P[i] @ (table / table.sum(axis=1, keepdims=True)))
    mean = start @ np.array(laws)
    expected = sum(start[i] * law @ np.log2(law / mean) for i, law in enumerate(laws))
    assert found.found.bits == pytest.approx(expected, rel=1e-9)
    assert expected > 1e-3


def test_a_bound_that_is_none_is_seen(monkeypatch):
    """Planted: a misfit forgotten, halved, or of other rows; a sum that does not add up over steps."""
    assert audited(USED, FAR, "100").holds
    exact = misfit.row_misfit
    monkeypatch.setattr(misfit, "row_misfit", lambda true, used: np.zeros(3))
    assert not audited(USED, FAR, "100").holds
    monkeypatch.setattr(misfit, "row_misfit", lambda true, used: exact(true, used) / 2)
    assert not audited(USED, FAR, "10").holds
    monkeypatch.setattr(misfit, "row_misfit", lambda true, used: np.abs(true.P.T - used.P.T).max(axis=1) / 4)
    assert not audited(USED, FAR, "10").holds


def test_an_engine_that_leaks_exceeds_the_bound_of_a_true_chain_that_is_near():
    class Forgetful:
        def __init__(self, state):
            self.state = state

        def __getattr__(self, name):
            return getattr(self.state, name)

        def advance(self, step, query):
            return Forgetful(self.state.advance(step, query))

        def context(self, request, context, private):
            return self.state.context(0 if private else request, context, private)

    near = towards(USED, FAR, 1e-6)
    wrong = audit_everyday_mistaken(USED, near, parse_statuses("10"), Forgetful(Everyday.start(USED)))
    assert not wrong.holds
    assert wrong.found.bits > wrong.bits[1]


@pytest.mark.long
def test_sampled_streams_of_another_chain_are_not_accused_of_rows():
    rng = np.random.default_rng(1)
    used = Chain(rng.dirichlet(np.ones(8), 8))
    true = towards(used, Chain(rng.dirichlet(np.ones(8), 8)), 0.1)
    found = audited(used, true, "10000")
    assert found.found.method.startswith("exact after ")
    assert found.found.faults == ()
    assert found.holds
    assert 1e-5 < found.found.bits < max(found.bits)


def test_a_true_chain_with_other_sources_or_steps_is_refused():
    with pytest.raises(OnoffError):
        audited(USED, Chain(FAR.P, ["a", "b", "c"]), "10")
    with pytest.raises(OnoffError):
        audited(Chain([[0, 1, 0], [0.5, 0, 0.5], [0.2, 0.3, 0.5]]), Chain(FAR.P), "10")


# The command


@pytest.fixture
def files(tmp_path):
    USED.save(tmp_path / "used.json")
    FAR.save(tmp_path / "far.json")
    towards(USED, FAR, 0.05).save(tmp_path / "near.json")
    return tmp_path


def test_the_command_prints_what_is_told_what_is_not_promised_and_what_it_costs(files):
    words = "audit", "joint", "used.json", "--statuses", "1001", "--promise", "past"
    done = call(*words, "--sensitive", USED.names[1], cwd=files)
    assert done.returncode == 0
    printed = " ".join(done.stdout.split())
    assert "0 within rounding" in printed
    assert "not promised: bits that the queries before t tell" in printed
    assert "promises nothing" in printed
    data = json.loads(call(*words, "--json", cwd=files, check=True).stdout)
    found = audit_everyday(USED, parse_statuses("1001"), Everyday.start(USED))
    assert [client["client"] for client in data["clients"]] == ["everyday", "naive", "decoys"]
    for client, expected in zip(data["clients"], found.clients, strict=True):
        assert [step["bits"] for step in client["steps"]] == pytest.approx([step.bits for step in expected.steps])
    assert data["holds"] is True


def test_the_command_prints_bound_and_value_under_a_true_chain(files):
    words = "audit", "joint", "used.json", "--statuses", "1001", "--promise", "past", "--true-chain", "near.json"
    done = call(*words, cwd=files)
    assert done.returncode == 0
    assert "within the bound" in done.stdout
    assert "a guess at something hidden is right more often" in done.stdout
    data = json.loads(call(*words, "--json", cwd=files, check=True).stdout)
    expected = audited(USED, towards(USED, FAR, 0.05), "1001")
    assert data["bits"] == pytest.approx(expected.bits)
    assert data["guess"] == pytest.approx(expected.guess)


def test_the_command_draws_a_picture(files):
    words = "audit", "joint", "used.json", "--statuses", "101", "--promise", "past", "--plot", "told.svg"
    assert call(*words, cwd=files).returncode == 0
    assert (files / "told.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--promise", "future"), "choose both or past"),
        (("--promise", "past", "--sensitive", "nobody"), "nobody"),
        (("--sensitive", "x"), "--promise past"),
        (("--promise", "past", "--scheme", "optimal"), "leave out --scheme"),
        (("--promise", "past", "--true-chain", "far.json", "--plot", "a.svg"), "leave it out"),
    ],
)
def test_options_that_do_not_fit_together_are_errors(files, options, says):
    done = call("audit", "joint", "used.json", "--statuses", "10", *options, cwd=files)
    assert done.returncode != 0
    assert says in done.stderr


def test_a_wrong_engine_ends_the_command_with_an_error(files, monkeypatch):
    """The engine's contexts are mixed up: exit code 1, and the words say what is wrong."""
    start = Everyday.start.__func__

    def mixed(cls, chain, sensitive=()):
        found = start(cls, chain, sensitive)
        return replace(found, joined=(*found.joined[1:], found.joined[0]))

    monkeypatch.setattr(Everyday, "start", classmethod(mixed))
    done = call("audit", "joint", "used.json", "--statuses", "10", "--promise", "past", cwd=files)
    assert done.returncode == 1
    assert "MORE THAN STATED" in done.stdout
