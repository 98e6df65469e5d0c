"""Whole streams: enumeration against fractions, bounds against enumeration, planted leaks."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import FrozenInstanceError
from fractions import Fraction
from math import log2
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from clientstreams import query_laws
from clikit import call
from exactstreams import chain_of
from onoff import Chain, OnoffError, plan
from onoff.audit import enumeration, streams
from onoff.audit.clients import Announced, Decoys, Everything, Naive, Past
from onoff.audit.streams import audit_streams, parse_statuses
from onoff.model.measures import information, total_variation
from onoff.model.misfit import information_bound
from onoff.model.requests import start_law
from onoff.past import PastState
from onoff.plans.table import TablePlan
from onoff.testing import chains
from oracles import from_fractions, random_chain
from pastkit import habits
from sampling import examples

READER = Path(__file__).parents[2] / "examples" / "reader.csv"
THREE = random_chain("dense", 3, 3)


def ours(chain, lags=(1, 2), scheme="optimal"):
    return Announced(chain.n, [plan(chain, lag, scheme) for lag in lags], scheme)


def bits_of(found):
    return [step.bits for step in found.steps]


def audited(chain, text, client, **options):
    return audit_streams(chain, parse_statuses(text), client, **options)


# Enumeration in units, against enumeration in fractions.


def in_fractions(chain, private, client, start):
    """Pr[queries, X_B] from all paths, by the client's own rules."""
    P = chain_of(chain.P.tolist())
    total = sum(map(Fraction, start.tolist()))
    hidden = [t for t, on in enumerate(private) if on] + [len(private)]
    joint = {}
    for path in itertools.product(range(chain.n), repeat=len(private) + 1):
        weight = Fraction(start[path[0]]) / total * math.prod(P[a][b] for a, b in itertools.pairwise(path))
        for queries, p in query_laws(client, private, path).items() if weight else ():
            key = queries, tuple(path[t] for t in hidden)
            joint[key] = joint.get(key, Fraction(0)) + weight * p
    seen, secrets = sorted({q for q, _ in joint}), sorted({x for _, x in joint})
    return from_fractions([[joint.get((q, x), Fraction(0)) for x in secrets] for q in seen])


@pytest.mark.parametrize("text", ["10", "100", "1010", "1100"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_enumeration_agrees_with_fractions(text, kind):
    chain = random_chain(kind, 2 if len(text) > 3 else 3, 3)
    for client in (ours(chain), Naive(chain.n), Decoys(chain.n, 1)):
        found = audited(chain, text, client)
        exact = in_fractions(chain, parse_statuses(text), client, start_law(chain))
        assert found.method == "exact"
        assert found.steps[-1].bits == pytest.approx(information(exact), rel=1e-9, abs=1e-80)
        assert found.steps[-1].distance == pytest.approx(float(total_variation(exact)), rel=1e-9, abs=1e-80)


# Our schemes tell nothing.


@pytest.mark.parametrize("scheme", ["paper", "optimal", "comb"])
def test_ours_are_zero_within_rounding_for_all_statuses(scheme):
    chain = random_chain("dense", 2, 5)
    client = ours(chain, range(1, 5), scheme)
    for rest in itertools.product("01", repeat=4):
        found = audited(chain, "1" + "".join(rest), client)
        assert found.holds
        assert max(bits_of(found)) < 1e-25
        assert found.steps[-1].distance <= 2 * found.steps[-1].stated


@pytest.mark.parametrize("kind", ["dense", "sparse", "periodic"])
def test_the_bound_is_above_what_is_enumerated(kind, monkeypatch):
    chain = random_chain(kind, 3, 4)
    client = ours(chain)  # the plan of lag 2 serves lags 3 and 4
    for text in ("10000", "10101", "100100"):
        found = audited(chain, text, client)
        with monkeypatch.context() as patch:
            patch.setattr(enumeration, "STATES", 0)
            bound = audited(chain, text, client)
        assert (found.method, bound.method, found.holds, bound.holds) == ("exact", "bound", True, True)
        assert found.steps[-1].distance <= 2 * bound.steps[-1].distance
        assert all(bits <= most for bits, most in zip(bits_of(found), bits_of(bound), strict=True))
        assert max(bits_of(bound)) < 1e-10


@settings(max_examples=examples(10))
@given(chains(max_sources=3))
def test_every_kind_of_chain_is_private(chain):
    assert audited(chain, "1001", ours(chain)).holds


# The others leak what they must.


def h(p):
    return 0.0 if p in (0, 1) else -p * log2(p) - (1 - p) * log2(1 - p)


@pytest.mark.parametrize("alpha", [0.5, 0.7, 0.95])
def test_asking_openly_leaks_its_closed_form(alpha):
    # I(X_1, X_k; X_2..X_{k-1}) = H(X_1, X_k) - H(X_1 | X_2) - H(X_k | X_{k-1})
    found = audited(Chain.symmetric(2, alpha), "1000", Naive(2))
    for t in (2, 3, 4):
        same = (1 + (2 * alpha - 1) ** t) / 2
        assert found.steps[t - 1].bits == pytest.approx(1 + h(same) - 2 * h(alpha), abs=1e-12)
    assert (found.steps[0].bits, found.holds) == (0, None)


def test_decoys_leak_their_closed_form(monkeypatch):
    chain = Chain.symmetric(4, 0.25)  # independent requests: each query narrows its own to k + 1
    found = audited(chain, "101", Decoys(4, 1))
    assert bits_of(found) == pytest.approx([1, 1, 2])
    monkeypatch.setattr(enumeration, "STATES", 0)
    with pytest.raises(OnoffError, match="a smaller chain"):
        audited(chain, "101", Decoys(4, 1))


# Planted leaks: every one is far above what is allowed, by enumeration and by the bound.


class Wrong:
    """A plan with a mistake: whatever is not overridden is the plan's."""

    def __init__(self, honest):
        self.honest = honest

    def __getattr__(self, name):
        return getattr(self.honest, name)

    def encoder(self, last, following, lag):
        return self.honest.encoder(last, following, lag)


class Noisy(Wrong):
    """A little of each query's probability depends on the last private request."""

    def encoder(self, last, following, lag):
        found = self.honest.encoder(last, following, lag).tolil()
        if last == 0:
            for x, total in enumerate(found.sum(axis=1)):
                found[x, -1] += int(total) // 500
        return found


class LagTooHigh(Wrong):
    def encoder(self, last, following, lag):
        return self.honest.encoder(last, following, lag + 2)


class LastIgnored(Wrong):
    def encoder(self, last, following, lag):  # noqa: ARG002
        return self.honest.encoder(0, following, lag)


@pytest.mark.parametrize("mistake", [Noisy, LagTooHigh, LastIgnored])
def test_a_planted_leak_is_above_what_is_stated(mistake, monkeypatch):
    client = Announced(3, [mistake(plan(THREE, lag)) for lag in (1, 2)])
    found = audited(THREE, "1000", client)
    assert found.holds is False
    assert found.steps[-1].bits > 1e-7
    assert found.steps[-1].distance > 1e3 * found.steps[-1].stated
    monkeypatch.setattr(enumeration, "STATES", 0)
    bound = audited(THREE, "1000", client)
    assert (bound.method, bound.holds) == ("bound", False)
    assert found.steps[-1].bits <= bound.steps[-1].bits


def test_what_is_stated_too_small_is_found_however_little_it_tells():
    # The information is quadratic in the distance, far below any bound: the distance itself must be compared.
    class Boasting(Wrong):
        def rounding_at(self, lag):  # noqa: ARG002
            return 1e-20

    chain = Chain([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.125, 0.375, 0.5]])  # rows with the sum 1 exactly
    found = audited(chain, "100", Announced(3, [Boasting(plan(chain, 1))]))
    assert found.steps[-1].bits < information_bound(Fraction(1e-20), log2(3))
    assert found.steps[-1].distance > 2 * found.steps[-1].stated
    assert found.holds is False


def test_a_request_without_a_query_is_a_finding():
    class Mute(Everything):
        def off(self, before, query):
            step = super().off(before, query)
            return streams.replace(step, encoder=lambda *_: np.array([[1], [1], [0]]))

    found = audited(THREE, "10", Mute(3))
    assert (found.holds, [finding.rule for finding in found.findings]) == (False, ["query"])


def test_a_race_cannot_be_enumerated():
    with pytest.raises(OnoffError, match="a race has no table to enumerate: choose another scheme"):
        audited(Chain.load(READER), "1001", Announced(8, [plan(Chain.load(READER), 1, "race")], "race"))


# The front door and the command.


@pytest.mark.parametrize("promise", ["both", "past"])
@pytest.mark.parametrize("private", [(), (False, True), [False]])
def test_statuses_that_begin_off_or_are_empty_are_an_error_in_one_sentence(promise, private):
    client = Everything(3) if promise == "both" else Past(PastState.start(THREE), 3)
    with pytest.raises(OnoffError, match="a client makes its first request ON"):
        audit_streams(THREE, private, client, promise)


def test_the_result_is_frozen_and_what_does_not_fit_is_an_error():
    with pytest.raises(FrozenInstanceError):
        audited(THREE, "10", Everything(3)).holds = False
    with pytest.raises(OnoffError, match="for another chain"):
        audited(random_chain("dense", 3, 2), "10", ours(THREE))
    with pytest.raises(OnoffError, match="choose both or past"):
        audited(THREE, "10", Naive(3), promise="future")
    with pytest.raises(OnoffError, match="no number from 0 to 2"):
        audited(THREE, "10", Naive(3), promise="past", sensitive=[3])
    with pytest.raises(OnoffError, match="fewer steps"):
        audited(random_chain("dense", 6, 1), "1" + "0" * 9, Naive(6))
    deep = habits(12, 2, 1, full=True)
    with pytest.raises(OnoffError, match="onoff audit log"):
        audited(deep, "110", Past(PastState.start(deep), 12), promise="past")


@pytest.fixture
def files(tmp_path):
    THREE.save(tmp_path / "chain.json")
    for lag in (1, 2):
        plan(THREE, lag, "paper").save(tmp_path / f"{lag}.plan")
    return tmp_path


def run(files, *words):
    return call("audit", "streams", *words, cwd=files)


def test_the_command_shows_zeros_for_ours_and_leaks_for_the_others(files):
    done = run(files, "chain.json", "--statuses", "1001", "--decoys", "1")
    assert done.returncode == 0
    assert done.stdout.count("0 within rounding") == 3
    found = {one["client"]: one for one in json.loads(run(files, "chain.json", "--statuses", "1001", "--json").stdout)}
    assert list(found) == ["everything", "paper", "optimal", "naive", "decoys"]
    last = {name: one["steps"][-1]["bits"] for name, one in found.items()}
    assert max(last["paper"], last["optimal"]) < 1e-25
    assert min(last["naive"], last["decoys"]) > 0.05


def test_given_plans_are_used_and_those_that_would_not_be_audited_are_an_error(files):
    both = ["--plan", "1.plan", "--plan", "2.plan"]
    found = json.loads(run(files, "chain.json", "--statuses", "100", *both, "--json").stdout)
    assert [one["client"] for one in found] == ["everything", "paper", "naive", "decoys"]
    assert "no plan for lag 1 or less" in run(files, "chain.json", "--statuses", "100", "--plan", "2.plan").stderr
    done = run(files, "chain.json", "--statuses", "10", "--plan", "1.plan", "--scheme", "optimal")
    assert "of the scheme 'paper' is given, which is not audited" in done.stderr
    Chain.symmetric(3, 0.5).save(files / "other.json")
    assert "for another chain" in run(files, "other.json", "--statuses", "100", *both).stderr


def test_a_leak_is_exit_code_1(files, monkeypatch):
    honest = TablePlan.encoder
    monkeypatch.setattr(TablePlan, "encoder", lambda plan, last, following, lag=None: honest(plan, last, 0, lag))
    done = run(files, "chain.json", "--statuses", "100", "--scheme", "optimal")
    assert done.returncode == 1
    assert "MORE THAN STATED" in done.stdout
    assert "0 within rounding" not in done.stdout


def test_the_command_shows_bounds_under_a_true_chain(files):
    Chain(0.95 * THREE.P + 0.05 / 3, THREE.names).save(files / "true.json")
    done = run(files, "chain.json", "--statuses", "1001", "--true-chain", "true.json", "--scheme", "optimal")
    assert done.returncode == 0
    assert "within the bound; a guess at something hidden is right more often" in " ".join(done.stdout.split())


def test_streams_of_a_chain_with_transient_sources_start_anywhere(files):
    """In the stationary law of a -> b -> c only c is asked for, and nothing could be told."""
    (files / "absorbing.csv").write_text("a,b,c\n0.5,0.5,0\n0,0.5,0.5\n0,0,1\n")
    words = "absorbing.csv", "--statuses", "10", "--scheme", "naive"
    [naive] = json.loads(run(files, *words, "--json").stdout)
    assert naive["steps"][-1]["bits"] > 0.5


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--statuses", "0101"), "first request ON"),
        (("memory.json", "--statuses", "110"), "the promise `both` needs a Markov chain"),
        (("memory.json", "--statuses", "10", "--promise", "past"), "first 2 requests ON"),
        (("--statuses", "1x"), "1 for ON and 0 for OFF"),
        (("--statuses", "10", "--scheme", "decoys", "--decoys", "8"), "fewer than the sources"),
        (("--statuses", "10", "--sensitive", "1"), "--promise past"),
        (("--statuses", "10", "--promise", "past", "--scheme", "optimal"), "leave out --scheme"),
    ],
)
def test_options_that_do_not_fit_are_errors(files, options, says):
    habits(2, 2, 1, full=True).save(files / "memory.json")
    done = run(files, *(() if options[0].endswith("json") else ("chain.json",)), *options)
    assert done.returncode == 2
    assert says in done.stderr
