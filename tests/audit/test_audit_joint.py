"""Whole streams: enumeration against fractions, dynamic programming and bounds against enumeration, planted leaks."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, replace
from fractions import Fraction
from math import log2
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from typer.testing import CliRunner

from onoff import Chain, plan
from onoff.apps.cli.app import app
from onoff.apps.cli.audit.showjoint import at_most
from onoff.audit.joint.continuity import allowed_by, by_bound, information_bound, step_distance
from onoff.audit.joint.enumeration import by_enumeration, enumerate_streams
from onoff.audit.joint.merging import by_beliefs, by_sampling
from onoff.audit.joint.sampled import by_draws
from onoff.audit.joint.strongest import audit
from onoff.audit.joint.switching import chance_user, sensitive_user, switching
from onoff.audit.measures import information, total_variation
from onoff.audit.models import Decoys, Encoder, Everything, Naive, Planned, TooLarge
from onoff.audit.setting import Plans, lags_of, parse_statuses, serving, start_law
from onoff.errors import OnoffError
from onoff.plans.table import TablePlan
from onoff.testing import chains
from oracles import from_fractions, random_chain
from sampling import examples

READER = Path(__file__).parents[2] / "examples" / "reader.csv"


def tables(chain, scheme, lags):
    return Plans(scheme, chain.n, [Planned(plan(chain, lag, scheme)) for lag in lags])


def patterns(steps):
    return [parse_statuses("1" + "".join(rest)) for rest in itertools.product("01", repeat=steps - 1)]


@pytest.fixture(scope="module")
def three():
    return random_chain("dense", 3, 3)


@pytest.fixture(scope="module")
def optimal(three):
    return tables(three, "optimal", range(1, 5))


# Enumeration in units, against enumeration in fractions.


def in_fractions(chain, statuses, model, start, last_while_off=None):
    """Pr[queries, X_B] from all paths; `last_while_off(path, t)` plants another `last` (and lag 1) while OFF."""
    P = [[Fraction(p) / sum(map(Fraction, row)) for p in row] for row in chain.P.tolist()]
    total = sum(map(Fraction, start.tolist()))
    hidden = [t for t, private in enumerate(statuses) if private] + [len(statuses)]
    joint = {}
    for path in itertools.product(range(chain.n), repeat=len(statuses) + 1):
        weight = Fraction(start[path[0]]) / total
        for a, b in itertools.pairwise(path):
            weight *= P[a][b]
        if not weight:
            continue
        streams = {(): weight}
        for t, lag in enumerate(lags_of(statuses)):
            last = path[t - lag]
            if lag and last_while_off is not None:
                lag, last = 1, last_while_off(path, t)  # noqa: PLW2901
            encoder = model.encoder(last, path[t + 1], lag)
            row = encoder.weights[path[t]].tolist()
            options = {q: Fraction(w, sum(row)) for q, w in zip(encoder.sets, row, strict=True) if w}
            streams = {(*seen, q): p * w for seen, p in streams.items() for q, w in options.items()}
        for queries, p in streams.items():
            key = queries, tuple(path[t] for t in hidden)
            joint[key] = joint.get(key, Fraction(0)) + p
    views, secrets = sorted({q for q, _ in joint}), sorted({x for _, x in joint})
    return from_fractions([[joint.get((q, x), Fraction(0)) for x in secrets] for q in views])


@pytest.mark.parametrize("statuses", ["10", "100", "1010", "1100"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_enumeration_agrees_with_fractions(statuses, kind):
    chain = random_chain(kind, 2 if len(statuses) > 3 else 3, 3)
    start, parsed = start_law(chain, uniform=True), parse_statuses(statuses)
    for model in (tables(chain, "optimal", (1, 2)), Naive(chain.n), Decoys(chain.n, 1)):
        *_, (joint, hidden) = enumerate_streams(chain, parsed, model, start)
        exact = in_fractions(chain, parsed, model, start)
        assert hidden == [*(t for t, status in enumerate(parsed, 1) if status), len(parsed) + 1]
        assert information(joint) == pytest.approx(information(exact), rel=1e-9, abs=1e-80)
        assert abs(total_variation(joint) - total_variation(exact)) < Fraction(1, 2**300)


# Our schemes tell nothing.


@pytest.mark.parametrize("scheme", ["paper", "optimal", "comb"])
def test_ours_are_zero_within_rounding_for_all_statuses(scheme):
    chain = random_chain("dense", 2, 5)
    model, start = tables(chain, scheme, range(1, 6)), start_law(chain)
    for statuses in patterns(6):
        found = by_enumeration(chain, statuses, model, start, model.rounding_at)
        assert found.holds
        assert max(found.bits) < 1e-25
        assert found.distance <= found.allowed


@pytest.mark.parametrize("statuses", ["10000", "10101", "11001", "100100"])
@pytest.mark.parametrize("kind", ["dense", "sparse", "periodic"])
def test_three_sources_and_the_bound_above_what_is_enumerated(statuses, kind):
    chain = random_chain(kind, 3, 4)
    parsed = parse_statuses(statuses)
    model, start = tables(chain, "optimal", (1, 2)), start_law(chain)  # the plan of lag 2 serves lags 3 and 4
    found = by_enumeration(chain, parsed, model, start, model.rounding_at)
    bound = by_bound(chain, parsed, model, model.rounding_at)
    assert found.holds
    assert bound.holds
    assert found.distance <= 2 * bound.distance
    assert all(bits <= most for bits, most in zip(found.bits, bound.bits, strict=True))
    assert max(bound.bits) < 1e-10


@settings(max_examples=examples(10))
@given(chains(max_sources=3))
def test_every_kind_of_chain_is_private_and_every_method_agrees(chain):
    model, start, statuses = tables(chain, "optimal", (1, 2)), start_law(chain), parse_statuses("1001")
    found = by_enumeration(chain, statuses, model, start, model.rounding_at)
    bound = by_bound(chain, statuses, model, model.rounding_at)
    assert found.holds
    assert bound.holds
    assert all(bits <= most for bits, most in zip(found.bits, bound.bits, strict=True))
    for leaky in (Naive(chain.n), Decoys(chain.n, 1)):
        exact = by_enumeration(chain, statuses, leaky, start)
        assert by_beliefs(chain, statuses, leaky, start).bits == pytest.approx(exact.bits, abs=1e-9)


def test_everything_tells_exactly_nothing(three):
    found = by_enumeration(three, parse_statuses("10010"), Everything(3), start_law(three), lambda lag: 0.0)
    assert found.holds
    assert found.bits == (0.0,) * 5
    assert found.whole.maximal_leakage == 0


def test_the_bound_on_information_holds_for_any_client(three):
    # h(d) + d log2 |X_B| with the measured distances of clients that leak.
    noisy = Noisy(tables(three, "optimal", (1, 2)))
    for text in ("10", "100", "1010"):
        statuses, start = parse_statuses(text), start_law(three)
        found, bound = by_enumeration(three, statuses, noisy, start), by_bound(three, statuses, noisy)
        assert 1e-7 < found.bits[-1] <= bound.bits[-1] < 0.5


def test_the_bound_on_information_is_capped_by_the_entropy():
    assert information_bound(Fraction(0), 3, 5) == 0
    assert information_bound(Fraction(3, 4), 3, 5) == 5 * log2(3)
    assert information_bound(Fraction(1, 2), 2, 1) == 1


def test_the_bound_on_information_grows_with_the_secret():
    # With probability d the view names the secret, else it says nothing: d log2 |X_B| bits, at a distance below d.
    for d, hidden in itertools.product((Fraction(1, 2), Fraction(1, 4), Fraction(1, 1000)), (1, 20)):
        assert float(d) * hidden <= information_bound(d, 2, hidden) <= h(float(d)) + float(d) * hidden + 1e-12


def test_a_bound_is_shown_rounded_up():
    assert [at_most(x) for x in (0.0, 3.1e-14, 3e-14, 9.5e-6, 0.12341)] == ["0", "4e-14", "3e-14", "1e-05", "0.1235"]


def test_what_is_stated_too_small_is_found_however_little_it_tells():
    # The information is quadratic in the distance, far below any bound: the distance itself must be compared.
    chain = Chain([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.125, 0.375, 0.5]])  # rows with the sum 1 exactly
    client, statuses = tables(chain, "optimal", (1,)), parse_statuses("100")
    found = by_enumeration(chain, statuses, client, start_law(chain), lambda lag: 1e-20 * (lag > 0))
    assert found.bits[-1] < information_bound(Fraction(1e-20), 3, 1)
    assert found.distance > found.allowed
    assert not found.holds


def test_a_request_without_a_query_is_an_error(three):
    mute = SimpleNamespace(name="mute", encoder=lambda *_: Encoder(((0, 1, 2),), np.array([[1], [1], [0]])))
    with pytest.raises(OnoffError, match="a request that happens is given no query"):
        by_enumeration(three, parse_statuses("10"), mute, start_law(three))


def test_the_cheapest_plan_that_fits_serves_a_lag_as_with_the_client(three):
    cheap, dear = plan(three, 1), plan(three, 2, "everything")
    mixed = Plans("mixed", 3, [Planned(cheap), Planned(dear)])
    assert mixed.encoder(0, 1, 3).sets == cheap.sets != dear.sets
    assert mixed.rounding_at(3) == cheap.rounding_at(3)
    race = SimpleNamespace(lag=1, cost=cheap.cost - 0.1, at_most=cheap.cost + 0.1)
    assert serving([race, cheap], 1) is cheap
    assert serving([cheap, replace(cheap, lag=2)], 3).lag == 2
    assert serving([dear], 1) is None


# The baselines leak what they must.


@pytest.mark.parametrize("alpha", [0.5, 0.7, 0.95])
def test_asking_openly_leaks_its_closed_form(alpha):
    # I(X_1, X_k; X_2..X_{k-1}) = H(X_1, X_k) - H(X_1 | X_2) - H(X_k | X_{k-1})
    chain = Chain.symmetric(2, alpha)
    found = by_enumeration(chain, parse_statuses("1000"), Naive(2), start_law(chain))
    for t in (2, 3, 4):
        same = (1 + (2 * alpha - 1) ** t) / 2
        assert found.bits[t - 1] == pytest.approx(1 + h(same) - 2 * h(alpha), abs=1e-12)
    assert found.bits[0] == 0


def test_decoys_leak_and_one_of_them_its_closed_form():
    chain = Chain.symmetric(4, 0.25)  # independent requests: each query narrows its own to k + 1
    found = by_enumeration(chain, parse_statuses("101"), Decoys(4, 1), start_law(chain))
    assert found.bits == pytest.approx((1, 1, 2))
    assert found.whole.guess == pytest.approx(found.whole.prior_guess * 4)
    assert [found.single[t].information for t in (1, 3, 4)] == pytest.approx([1, 1, 0], abs=1e-12)


def h(p):
    return 0.0 if p in (0, 1) else -p * log2(p) - (1 - p) * log2(1 - p)


# Dynamic programming and sampling agree with enumeration.


@pytest.mark.parametrize("kind", ["dense", "sparse", "periodic"])
def test_dynamic_programming_is_exact(kind):
    chain = random_chain(kind, 3, 2)
    start = start_law(chain)
    for statuses in patterns(4):
        for model in (Everything(3), Naive(3), Decoys(3, 1)):
            exact = by_enumeration(chain, statuses, model, start)
            assert by_beliefs(chain, statuses, model, start).bits == pytest.approx(exact.bits, abs=1e-10)


def test_sampling_has_no_bias(three):
    # 8 numbers within 4.5 standard errors: a false alarm in less than one of 10,000 runs (and the seed is fixed).
    statuses, start = parse_statuses("1001"), start_law(three)
    for model in (Naive(3), Decoys(3, 1)):
        exact, found = (f(three, statuses, model, start) for f in (by_enumeration, by_sampling))
        for truth, bits, margin in zip(exact.bits, found.bits, found.margin, strict=True):
            assert abs(bits - truth) <= 4.5 / 1.96 * margin + 1e-9


def test_decoys_with_more_sets_than_can_be_listed_are_sampled():
    chain = Chain.symmetric(40, 1 / 40)  # independent requests: each query narrows its own to K + 1
    found = audit(chain, parse_statuses("101"), Decoys(40, 19), start_law(chain), streams=10)
    assert found.method == "estimate"
    assert found.bits == pytest.approx((1, 1, 2))


def test_each_client_gets_the_strongest_method_that_fits(three, optimal):
    chain = random_chain("dense", 9, 1)
    long, start = parse_statuses("1001100010" * 10), start_law(chain)
    assert audit(chain, long, Everything(9), start, lambda lag: 0.0).bits == (0.0,) * 100
    naive = audit(chain, long, Naive(9), start)
    assert naive.method == "exact (dynamic programming)"
    assert np.diff(naive.bits)[[9, 19, 29]] == pytest.approx(0, abs=1e-9)  # an ON query adds nothing
    assert naive.bits[-1] > 5
    assert audit(chain, long[:20], Decoys(9, 4), start, streams=20).method == "estimate"
    assert audit(three, long, optimal, start_law(three), optimal.rounding_at).method == "bound"
    assert audit(three, long[:5], optimal, start_law(three), optimal.rounding_at).method == "exact (enumeration)"
    with pytest.raises(TooLarge, match="last private request"):
        by_beliefs(three, long, optimal, start_law(three))


# Planted leaks: every one is far above what is allowed, by enumeration and by the bound.


@dataclass(frozen=True)
class Noisy:
    """A little of each query's probability depends on the last private request."""

    inner: Plans
    name: str = "noisy"

    def encoder(self, last, following, lag):
        encoder = self.inner.encoder(last, following, lag)
        if lag and last == 0:
            weights = encoder.weights.copy()
            weights[:, -1] += weights.sum(axis=1) // 500
            return type(encoder)(encoder.sets, weights)
        return encoder


@dataclass(frozen=True)
class LagTooHigh:
    inner: Plans
    name: str = "the plan of a larger lag"

    def encoder(self, last, following, lag):
        return self.inner.encoder(last, following, lag + 2 if lag else 0)


@dataclass(frozen=True)
class NextIgnored:
    inner: Plans
    name: str = "next ignored"

    def encoder(self, last, following, lag):
        return self.inner.encoder(last, 0 if lag else following, lag)


@dataclass(frozen=True)
class LastIgnored:
    inner: Plans
    name: str = "last ignored"

    def encoder(self, last, following, lag):
        return self.inner.encoder(0 if lag else last, following, lag)


@dataclass(frozen=True)
class FreeAfterTwo:
    inner: Plans
    name: str = "OFF is free after two steps"

    def encoder(self, last, following, lag):
        return self.inner.encoder(last, following, lag) if lag <= 2 else Naive(3).encoder(last, following, lag)


@pytest.mark.parametrize("mutant", [Noisy, LagTooHigh, NextIgnored, LastIgnored, FreeAfterTwo])
def test_a_planted_leak_is_above_the_bound(three, optimal, mutant):
    statuses, model = parse_statuses("1000"), mutant(optimal)
    found = by_enumeration(three, statuses, model, start_law(three), optimal.rounding_at)
    assert not found.holds
    assert found.bits[-1] > 1e-7
    assert found.distance > 1e3 * found.allowed
    assert not by_bound(three, statuses, model, optimal.rounding_at).holds


def test_a_last_request_updated_while_off_is_above_the_bound(three, optimal):
    statuses = parse_statuses("100")
    joint = in_fractions(three, statuses, optimal, start_law(three), lambda path, t: path[t - 1])
    allowed = allowed_by(three, statuses, optimal.rounding_at)[-1]
    assert information(joint) > 1e-4 > 1e6 * information_bound(allowed, 3, 2)
    assert total_variation(joint) > 1e6 * allowed


def test_a_leak_of_one_unit_in_the_law_is_measured(three, optimal):
    # The distance of a step is that of the plan's own roundings, far below what is stated, and grows with one planted.
    honest = step_distance(three, optimal, 1)
    assert 0 < honest < Fraction(optimal.rounding_at(1))
    assert step_distance(three, Noisy(optimal), 1) > Fraction(1, 10_000)


# The race has no table.


def test_the_race_is_estimated_and_a_leaky_one_is_accused(three):
    # False alarms: less than 1 in 1000 (3.3 standard deviations, and the spread is over- rather than underestimated).
    races = {lag: plan(three, lag, "race") for lag in (1, 2, 3)}

    def rounding_at(lag):
        return races[lag].rounding_at(lag) if lag else 0.0

    def honest(request, last, following, lag, below):
        return races[lag].draw(request, last, following, lag, below)

    def larger_lag(request, last, following, lag, below):
        return races[3].draw(request, last, following, max(lag, 3), below)

    statuses, start = parse_statuses("100"), start_law(three)
    found = by_draws("race", three, statuses, honest, start, rounding_at, draws=100)
    assert found.holds
    assert abs(found.bits[-1]) <= 2 * found.margin[-1]
    assert found.bias[-1] > 0
    leaky = by_draws("race", three, statuses, larger_lag, start, rounding_at, draws=100)
    assert not leaky.holds
    assert leaky.bits[-1] > 0.02


@pytest.mark.long
def test_the_fewest_draws_that_are_taken_raise_no_more_alarms_than_stated(chain_file):
    """Of a private client that draws fast: a table's. With 10 draws one of 30 would be accused."""
    chain = Chain([[0.7, 0.3], [0.2, 0.8]])
    private = plan(chain, 1)
    ends = {(a, b): np.cumsum(private.encoder(a, b, 1).toarray(), axis=1) for a in (0, 1) for b in (0, 1)}

    def draw(request, last, following, lag, below):  # noqa: ARG001
        row = ends[last, following][request]
        return private.sets[int(np.searchsorted(row, below(int(row[-1])), side="right"))]

    def alarms(draws, runs):
        found = (
            by_draws("table", chain, (True, False), draw, start_law(chain), private_at, draws, seed)
            for seed in range(runs)
        )
        return sum(not one.holds for one in found)

    def private_at(lag):
        return 1e-14 * (lag > 0)

    assert alarms(100, 50) <= 1  # of less than 0.05 on average
    assert alarms(10, 100) >= 2
    assert run("joint", chain_file, "--statuses", "10", "--scheme", "race", "--draws", "99").exit_code == 2


@pytest.mark.long
def test_a_race_with_too_many_streams_shows_what_it_states_and_says_so():
    [found] = json.loads(run("joint", READER, "--statuses", "1001", "--scheme", "race", "--json").stdout)
    assert found["method"] == "bound as stated, not checked"
    assert 0 < found["allowed"] < found["bits"][-1] < 1e-9
    assert found["bits"][0] == 0


# Privacy that is switched because of the request.


def switching_in_paths(chain, model, chances, start, steps, step):
    """Mean divergence and best guess about the request of `step`, if ON, from all paths and statuses."""
    joint = {}
    for path in itertools.product(range(chain.n), repeat=steps + 1):
        weight = start[path[0]] * np.prod([chain.P[a, b] for a, b in itertools.pairwise(path)])
        for rest in itertools.product([True, False], repeat=steps - 1):
            statuses = (True, *rest)
            p = weight * np.prod([chances[x] if on else 1 - chances[x] for x, on in zip(path[1:], rest, strict=False)])
            streams = {(): p} if p else {}
            for t, lag in enumerate(lags_of(statuses)):
                encoder = model.encoder(path[t - lag], path[t + 1], lag)
                row = encoder.weights[path[t]]
                options = {q: w / row.sum() for q, w in zip(encoder.sets, row, strict=True) if w}
                streams = {(*seen, q): p * w for seen, p in streams.items() for q, w in options.items()}
            for queries, p in streams.items():
                if statuses[step - 1]:
                    views = joint.setdefault((statuses, queries), np.zeros(chain.n))
                    views[path[step - 1]] += p
    prior = start @ np.linalg.matrix_power(chain.P, step - 1)
    on = sum(p.sum() for p in joint.values())
    bits = sum((p[p > 0] * np.log2((p / p.sum() / prior)[p > 0])).sum() for p in joint.values()) / on
    return bits, sum(p.max() for p in joint.values()) / on


def test_switching_agrees_with_all_paths():
    chain = random_chain("dense", 2, 3)
    start = start_law(chain)
    for model in (tables(chain, "optimal", (1, 2, 3)), Naive(2)):
        for chances in (sensitive_user(chain, [1]), np.array([0.2, 0.9])):
            for found in switching(chain, model, chances, start, 4):
                bits, guess = switching_in_paths(chain, model, chances, start, 4, found.step)
                assert (found.bits, found.guess) == (pytest.approx(bits, abs=1e-9), pytest.approx(guess))


def test_the_promise_is_void_for_a_user_who_goes_on_for_sensitive_sources_only():
    chain = Chain.load(READER)
    start, model = start_law(chain), tables(chain, "optimal", (1, 2))
    sources = [chain.index("health"), chain.index("science")]
    for seen in (Everything(chain.n), model):
        for found in switching(chain, seen, sensitive_user(chain, sources), start, 3):
            assert found.bits > 2
            assert found.guess > 0.5 > 3 * found.prior_guess
        for found in switching(chain, seen, chance_user(chain, sources, start), start, 3):
            assert found.bits < 1e-9
            assert found.guess == pytest.approx(found.prior_guess)
            assert found.frequency == pytest.approx(start[sources].sum())
    [one] = switching(chain, Everything(chain.n), sensitive_user(chain, sources[:1]), start, 2)
    assert one.bits == pytest.approx(log2(1 / start[sources[0]]))
    assert one.guess == 1


# The command line.


@pytest.fixture
def chain_file(three, tmp_path):
    three.save(tmp_path / "chain.json")
    return str(tmp_path / "chain.json")


def run(*arguments):
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


def test_the_command_shows_zeros_for_ours_and_leaks_for_the_others(chain_file, tmp_path):
    done = run("joint", chain_file, "--statuses", "1001", "--plot", tmp_path / "bits.svg", "--decoys", "1")
    assert done.exit_code == 0
    assert done.stdout.count("0 within rounding") == 3
    assert (tmp_path / "bits.svg").stat().st_size > 1000
    done = run("joint", chain_file, "--statuses", "1001", "--json")
    found = {finding["scheme"]: finding for finding in json.loads(done.stdout)}
    assert list(found) == ["everything", "paper", "optimal", "naive", "decoys"]
    assert max(found["paper"]["bits"] + found["optimal"]["bits"]) < 1e-25
    assert min(found["naive"]["bits"][-1], found["decoys"]["bits"][-1]) > 0.05


def test_given_plans_are_used(three, chain_file, tmp_path):
    plan(three, 2, "paper").save(tmp_path / "two.plan")
    plan(three, 1, "paper").save(tmp_path / "one.plan")
    both = ["--plan", tmp_path / "one.plan", "--plan", tmp_path / "two.plan"]
    done = run("joint", chain_file, "--statuses", "100", *both, "--json")
    assert done.exit_code == 0
    assert [finding["scheme"] for finding in json.loads(done.stdout)] == ["everything", "paper", "naive", "decoys"]
    missing = run("joint", chain_file, "--statuses", "100", "--plan", tmp_path / "two.plan")
    assert isinstance(missing.exception, OnoffError)
    assert "no plan for lag 1 or less" in str(missing.exception)
    Chain.symmetric(3, 0.5).save(tmp_path / "other.json")
    other = run("joint", tmp_path / "other.json", "--statuses", "100", *both)
    assert "for another chain" in str(other.exception)


def test_a_given_plan_that_would_not_be_audited_is_an_error(three, chain_file, tmp_path):
    plan(three, 1, "paper").save(tmp_path / "one.plan")
    done = run("joint", chain_file, "--statuses", "10", "--plan", tmp_path / "one.plan", "--scheme", "optimal")
    assert "of the scheme 'paper' is given, which is not audited" in str(done.exception)


def test_statuses_that_are_all_on_need_no_plan(chain_file):
    schemes = ["--scheme", "optimal", "--scheme", "paper", "--scheme", "race"]
    for statuses in ("1", "11"):
        done = run("joint", chain_file, "--statuses", statuses, *schemes, "--json")
        assert done.exit_code == 0, done.exception
        assert {bits for finding in json.loads(done.stdout) for bits in finding["bits"]} == {0}


def test_a_leak_is_exit_code_1(chain_file, monkeypatch):
    honest = TablePlan.encoder
    monkeypatch.setattr(TablePlan, "encoder", lambda plan, last, following, lag=None: honest(plan, last, 0, lag))
    done = run("joint", chain_file, "--statuses", "100", "--scheme", "optimal")
    assert done.exit_code == 1
    assert "MORE THAN STATED" in done.stdout
    assert "0 within rounding" not in done.stdout


def test_the_switching_command_shows_both_users():
    done = run("switching", READER, "--sensitive", "health,science", "--steps", "2", "--json")
    assert done.exit_code == 0
    found = {(row["user"], row["seen"]): row["steps"][0]["bits"] for row in json.loads(done.stdout)}
    assert found["if sensitive", "and queries"] >= found["if sensitive", "statuses"] > 2
    assert found["by chance", "and queries"] == 0
    assert "if sensitive" in run("switching", READER, "--sensitive", "health", "--steps", "2").stdout


def test_streams_of_a_chain_with_transient_sources_start_anywhere(tmp_path):
    """In the stationary law of a -> b -> c only c is asked for, and nothing could be told."""
    (tmp_path / "absorbing.csv").write_text("a,b,c\n0.5,0.5,0\n0,0.5,0.5\n0,0,1\n")
    done = run("joint", tmp_path / "absorbing.csv", "--statuses", "10", "--scheme", "naive")
    assert "the first request may be anything" in done.stdout
    [naive] = json.loads(
        run("joint", tmp_path / "absorbing.csv", "--statuses", "10", "--scheme", "naive", "--json").stdout
    )
    assert naive["bits"][-1] > 0.5
    found = json.loads(run("switching", tmp_path / "absorbing.csv", "--sensitive", "a", "--json").stdout)
    assert [step["frequency"] for step in found[0]["steps"]] == pytest.approx([1 / 6, 1 / 12])
    (tmp_path / "left.csv").write_text("a,b\n0,1\n0,1\n")
    done = run("switching", tmp_path / "left.csv", "--sensitive", "a", "--json")
    assert [step["frequency"] for step in json.loads(done.stdout)[0]["steps"]] == [0, 0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["joint", READER, "--statuses", "0101"], "start with 1"),
        (["joint", READER, "--statuses", "1x"], "1 for ON and 0 for OFF"),
        (["joint", READER, "--statuses", ""], "1 for ON and 0 for OFF"),
        (["joint", READER, "--statuses", "10", "--scheme", "best"], "no scheme 'best'"),
        (["joint", READER, "--statuses", "10", "--plot", "x.txt"], "picture"),
        (["joint", READER, "--statuses", "10", "--scheme", "decoys", "--decoys", "8"], "fewer than the sources"),
        (["switching", READER, "--sensitive", "horses"], "no source is called"),
        (["switching", READER, "--sensitive", "health", "--steps", "9"], "fewer steps"),
    ],
)
def test_errors_say_what_to_do(arguments, words):
    assert words in str(run(*arguments).exception)
