"""`onoff audit plan`: what is true is verified, what was tampered with is caught by the right rule."""

from __future__ import annotations

import json
import random
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clikit import call
from onoff import Chain, Plan, plan
from onoff.audit.plan import FEW, audit_plan, check_race_cost, estimate_cost
from onoff.audit.rows import Walk
from onoff.errors import ContextError
from onoff.plans.race import race_plan
from onoff.plans.store import PlanStore
from onoff.testing import chains
from oracles import ExactPosterior
from planfiles import signed
from sampling import examples


def hollow(n, seed=0):
    """A chain that rarely stays where it is: its optimum lies above the outer bound, so that cuts must prove it."""
    P = np.random.default_rng(seed).dirichlet(np.full(n, 50.0), n) * (1 - 0.9 * np.eye(n))
    return Chain(P / P.sum(axis=1, keepdims=True), [f"s{x}" for x in range(n)])


CHAIN = hollow(5)
PLAN = plan(CHAIN, 1)
LATER = plan(CHAIN, 3)
SPARSE = Chain([[0.5, 0.5, 0, 0], [0, 0.25, 0.75, 0], [0.5, 0, 0, 0.5], [0.25, 0, 0.75, 0]], list("abcd"))
RACE = race_plan(CHAIN, 1, randbelow=random.Random(0).randrange)


def audit(chain, made, lags=(), load=Plan.load, **options):
    """The verdict on a plan, saved to a file, or on the contents of a plan file."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "made.plan.json"
        if isinstance(made, bytes):
            file.write_bytes(made)
            chain.save(Path(directory) / f"{chain.fingerprint}.chain")
        else:
            made.save(file)
        return audit_plan(chain, file, load, lags, **{"draws": 400, "randbelow": random.Random(1).randrange, **options})


def contents(made):
    with tempfile.TemporaryDirectory() as directory:
        made.save(Path(directory) / "plan.json")
        return json.loads((Path(directory) / "plan.json").read_text())


def rules(verdict):
    return {finding.rule for finding in verdict.findings}


def finding(verdict, rule):
    (found,) = (found for found in verdict.findings if found.rule == rule)
    return found


# What is true is verified.


@settings(max_examples=examples(40))
@given(
    chains(max_sources=5),
    st.sampled_from(["everything", "paper", "comb", "optimal"]),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_every_plan_of_every_scheme_is_verified(chain, scheme, lag, more):
    made = plan(chain, lag, scheme)
    verdict = audit(chain, made, [lag + more])
    assert verdict.findings == ()
    assert verdict.cost == made.law.cost()
    assert made.lower_bound * (1 - 1e-12) <= verdict.proved <= verdict.cost
    assert [check.lag for check in verdict.checks] == sorted({lag, lag + more})
    for check in verdict.checks:
        exact = ExactPosterior(chain, check.lag)
        assert check.kept == check.contexts == len(exact.contexts)
        rows = made.encoder(*check.at, check.lag).sum(axis=1).tolist()
        posterior = zip(rows, exact.row(*check.at), strict=True)
        due = sum(abs(Fraction(units, made.denominator) - p) for units, p in posterior) / 2
        assert due <= check.largest <= due + Fraction(1, 2**200)
        assert check.largest <= Fraction(check.stated)


@pytest.mark.parametrize("chain", [Chain.symmetric(7, 0.05), Chain.symmetric(6, 0.0), Chain.symmetric(5, 0.6)])
def test_the_optimum_of_symmetric_chains_is_verified(chain):
    verdict = audit(chain, plan(chain, 1), [2])
    assert verdict.valid
    assert float(verdict.cost) == pytest.approx(verdict.proved, rel=1e-6)


def stated(kind, weights, cuts=()):
    return {"kind": kind, "bound": 1e300, "cuts": cuts, "weights": weights}


def test_multipliers_out_of_all_proportion_prove_no_more_than_the_outer_bound():
    """64-bit integers wrap around: a forger's bound is not proved, and the audit does not end."""
    made, cuts = plan(SPARSE, 1, "everything"), [(x,) for x in range(SPARSE.n)]
    for weight in (0, 1, 2**62):
        assert made.prove(stated("cuts", [weight] * SPARSE.n, cuts), 10) <= made.lower_bound * (1 + 1e-12)


def test_sizes_prove_something_on_symmetric_chains_only():
    two_columns = np.full((5, 5), 0.125)
    two_columns[[0, 1, 2, 3, 4], [0, 1, 2, 3, 3]] = 0.5
    for chain in (CHAIN, Chain(two_columns)):
        made = plan(chain, 1, "everything")
        assert made.prove(stated("sizes", [6 << 40, 0, 0, 0, 0]), 10) == made.lower_bound
    made = plan(Chain.symmetric(5, 0.05), 1)
    assert made.certificate.kind == "sizes"
    assert made.prove(stated("sizes", made.certificate.weights), 10) == made.lower_bound


# What was tampered with is caught: first without, then with a new checksum.


def moved(data, source, target, units):
    data["masses"][source] -= units
    data["masses"][target] += units


def needed_to_smaller(data):
    """Half the mass of a pair to one of its sources: cheaper than any scheme can be."""
    pair = max((i for i, q in enumerate(data["sets"]) if len(q) == 2), key=data["masses"].__getitem__)
    moved(data, pair, data["sets"].index([data["sets"][pair][0]]), data["masses"][pair] // 2)


def sets_exchanged(data):
    """The likeliest and the least likely pair change places: the cost stays what it was."""
    pairs = sorted((i for i, q in enumerate(data["sets"]) if len(q) == 2), key=data["masses"].__getitem__)
    first, second = pairs[0], pairs[-1]
    data["sets"][first], data["sets"][second] = data["sets"][second], data["sets"][first]


def cut_dropped(data):
    proof = data["certificate"]
    heaviest = int(np.argmax(proof["weights"]))
    del proof["weights"][heaviest], proof["cuts"][heaviest]


def race_cost(cost):
    return lambda data: data.update(cost=cost, interval=[cost - 0.05, cost + 0.05])


def twice(data):
    data["sets"].insert(0, data["sets"][0])
    data["masses"][0] -= 1
    data["masses"].insert(0, 1)


def put(*path_and_value):
    *path, last, value = path_and_value

    def change(data):
        for key in path:
            data = data[key]
        data[last] = value(data[last]) if callable(value) else value

    return change


TAMPERINGS = {
    "a unit vanishes": (PLAN, put("masses", 0, lambda mass: mass - 1), "refused"),
    "a mass of True": (PLAN, put("masses", 0, True), "refused"),
    "a set twice": (PLAN, twice, "refused"),
    "an unsorted set": (PLAN, put("sets", -2, lambda q: q[::-1]), "refused"),
    "no full set": (PLAN, lambda data: (data["sets"].reverse(), data["masses"].reverse()), "refused"),
    "the full set made small": (PLAN, lambda data: moved(data, -1, 0, data["masses"][-1] - 2), "refused"),
    "a law below the bound": (PLAN, needed_to_smaller, "cost"),
    "sets exchanged": (PLAN, sets_exchanged, "encoder"),
    "lag lowered": (LATER, put("lag", 1), "encoder"),
    "bound raised": (PLAN, put("certificate", "bound", lambda bound: bound * (1 + 1e-6)), "bound"),
    "multipliers halved": (PLAN, put("certificate", "weights", lambda all: [w // 2 for w in all]), "bound"),
    "a negative multiplier": (PLAN, put("certificate", "weights", 0, -1), "refused"),
    "multipliers of no size": (PLAN, put("certificate", "weights", 0, 2**62), "bound"),
    "a cut dropped": (PLAN, cut_dropped, "bound"),
    "another kind": (PLAN, put("certificate", {"kind": "outer", "bound": 1.9, "cuts": [], "weights": []}), "bound"),
    "sizes, not symmetric": (PLAN, put("certificate", lambda c: {**c, "kind": "sizes", "weights": [0] * 5}), "bound"),
    "another chain": (PLAN, put("chain", "0" * 64), "refused"),
    "version 1": (PLAN, put("version", 1), "refused"),
    "a coarse denominator": (PLAN, lambda data: data.update(sets=[[0, 1, 2, 3, 4]], masses=[999], denominator=999),
                             "refused"),
    "sets of text": (PLAN, put("sets", "01"), "refused"),
    "a bound too large for floats": (PLAN, put("certificate", "bound", 10**400), "refused"),
    "race: bound raised": (RACE, put("lower_bound", lambda bound: bound * (1 + 1e-6)), "bound"),
    "race: cost below": (RACE, race_cost(RACE.cost - 0.5), "race cost"),
    "race: cost below in a wide interval": (RACE, lambda data: data.update(cost=1.0, interval=[1.0, 15.0]),
                                            "race cost"),
    "race: an interval elsewhere": (RACE, put("interval", [0.1, 0.2]), "refused"),
    "race: a wide interval": (RACE, put("interval", [RACE.cost - 1, RACE.cost + 1]), "race interval"),
    "race: cost below the bound": (RACE, lambda data: data.update(cost=1.0, interval=[0.9, 1.1]), "race bound"),
}  # fmt: skip


@pytest.mark.parametrize("name", TAMPERINGS)
def test_what_a_forger_changes_and_signs_is_caught(name):
    made, change, rule = TAMPERINGS[name]
    data = contents(made)
    change(data)
    assert rules(audit(CHAIN, json.dumps(data).encode())) == {"refused"}
    assert rule in rules(audit(CHAIN, signed(data)))


@settings(max_examples=examples(40))
@given(st.data())
def test_nothing_in_a_file_makes_the_audit_crash(data):
    """Any value anywhere, signed: a verdict, never another error."""
    forged = contents(data.draw(st.sampled_from([PLAN, LATER, RACE])))
    where = forged
    while isinstance(where, dict | list) and where:
        inside, key = where, data.draw(st.sampled_from(list(where) if isinstance(where, dict) else range(len(where))))
        where = inside[key]
        if data.draw(st.booleans()):
            break
    inside[key] = data.draw(
        st.sampled_from([None, True, -1, 0, 7, 1e308, 10**400, "", "x", [], [0], [[0]], {}, {"a": 1}, 0.5, 2**53])
    )
    audit(CHAIN, signed(forged), draws=100)


# An exhibit that lies in memory.


class Exhibit:
    """A plan that is what it says, but for what is put in its place."""

    def __init__(self, plan, **replaced):
        self._plan = plan
        self.__dict__.update(replaced)

    def __getattr__(self, name):
        return getattr(self._plan, name)


def altered(made, change, at=(0, 1)):
    """An exhibit whose encoder in one context went through `change(dense encoder)`."""
    from scipy.sparse import csr_array

    def encoder(last, following, lag=None):
        table = made.encoder(last, following, lag)
        return csr_array(change(table.toarray())) if (last, following) == at else table

    return Exhibit(made, encoder=encoder)


def within_a_row(table):
    table[2, np.flatnonzero(table[2])[:2]] += [-1, 1]
    return table


def between_rows(table):
    table[[0, table[:, -1].argmax()], -1] += [1000, -1000]
    return table


def undecodable(table):
    table[[3, 4], PLAN.sets.index((3,))] += [-1, 1]
    return table


@pytest.mark.parametrize(
    ("change", "rule"),
    [(within_a_row, "columns"), (between_rows, "rounding"), (undecodable, "decoding"),
     (lambda table: table.astype(float), "encoder"), (lambda table: -table, "encoder")],
)  # fmt: skip
def test_an_encoder_that_is_off_is_caught_in_its_context(change, rule):
    found = finding(audit(CHAIN, PLAN, load=lambda _: altered(PLAN, change)), rule)
    assert found.context == (1, 0, 1)
    if change is within_a_row:
        assert found.query in PLAN.sets
        assert found.amount == 2.0**-52


def test_requests_without_a_set_and_sets_for_impossible_requests_are_caught():
    made = plan(SPARSE, 1, "everything")
    row = ExactPosterior(SPARSE, 1).row(0, 0)
    impossible, likely = int(np.flatnonzero(row == 0)[0]), int(np.argmax(row))

    def shift(table):
        table[[likely, impossible], 0] += [-1, 1]
        return table

    assert rules(audit(SPARSE, made, load=lambda _: altered(made, shift, (0, 0)))) == {"requests"}
    one = Chain([[0.5, 0.5], [0.5, 0.5]])
    both = plan(one, 1, "everything")
    forgetful = altered(both, lambda table: np.array([[0], [table.sum()]]), (0, 0))
    assert rules(audit(one, both, load=lambda _: forgetful)) == {"requests"}


def test_contexts_are_those_that_the_chain_allows():
    made = plan(SPARSE, 1)
    impossible = next((i, k) for i in range(4) for k in range(4) if not any(Walk(SPARSE.P).weights(i, k, 1)))

    def too_few(last, following, lag=None):
        if (last, following) == (0, 0):
            raise ContextError("impossible, they say", last=last, next=following)
        return made.encoder(last, following, lag)

    def too_many(last, following, lag=None):
        return made.encoder(*((0, 0) if (last, following) == impossible else (last, following)), lag)

    assert finding(audit(SPARSE, made, load=lambda _: Exhibit(made, encoder=too_few)), "contexts").context == (1, 0, 0)
    found = finding(audit(SPARSE, made, load=lambda _: Exhibit(made, encoder=too_many)), "contexts")
    assert found.context == (1, *impossible)


def test_a_rounding_that_is_stated_too_small_is_caught():
    (check,) = audit(CHAIN, PLAN).checks
    largest = float(check.largest)
    enough = Exhibit(PLAN, rounding_at=lambda lag: np.nextafter(largest, 1.0))
    assert audit(CHAIN, PLAN, load=lambda _: enough).valid
    found = finding(
        audit(CHAIN, PLAN, load=lambda _: Exhibit(PLAN, rounding_at=lambda lag: largest * (1 - 1e-9))), "rounding"
    )
    assert found.context == (1, *check.at)
    assert 0 < found.amount < 1e-8 * largest


@pytest.mark.parametrize(
    ("exhibit", "rule"),
    [(plan(SPARSE, 1), "refused"), (Exhibit(PLAN, masses=PLAN.masses[::-1]), "columns"),
     (Exhibit(PLAN, masses=(0, *PLAN.masses[1:])), "law"),
     (Exhibit(PLAN, cost=PLAN.cost * (1 - 1e-15)), "cost"), (Exhibit(PLAN, rounding_at=lambda lag: 0.1), "coarse")],
)  # fmt: skip
def test_an_exhibit_is_for_the_chain_and_states_what_it_does(exhibit, rule):
    assert rule in rules(audit(CHAIN, PLAN, load=lambda _: exhibit))


# Races.


def test_a_race_is_tested_and_its_bound_proved():
    verdict = audit(CHAIN, RACE, [2, 4])
    assert verdict.valid
    assert verdict.cost is None
    found = verdict.estimate
    assert abs(found.mean - RACE.cost) < 5 * found.error + (RACE.interval[1] - RACE.interval[0])
    outer = sum(max(column) for column in ExactPosterior(CHAIN, 1).rows.T)
    assert verdict.proved == pytest.approx(float(outer), rel=1e-12)


def test_a_statement_from_draws_that_saw_a_rare_large_query_is_no_lie():
    """Its chance is 1/2000: now the maker saw one, now the audit. By the deviation seen alone many would be accused."""
    rng, rare, accused = np.random.default_rng(4), 1 / 2000, 0
    for _ in range(2000):
        sizes = np.where(rng.random(2000) < rare, 8, 1)
        stated = np.where(rng.random(FEW) < rare, 8.0, 1.0)
        cost, half = stated.mean(), 1.96 * stated.std(ddof=1) / np.sqrt(FEW)
        found = estimate_cost(sizes, 8)
        accused += any(check_race_cost(found, cost, (cost - half, cost + half), Fraction(1)))
    assert accused == 0


DRAWS = {
    "race: no race at all": (RACE, lambda x, last, k, *rest: tuple(sorted({x, k, (x + 1) % 5}))),
    "race: the last request beside": (RACE, lambda x, last, *r: tuple(sorted({last, *RACE.draw(x, last, *r)}))),
    "a bound too small": (PLAN, lambda *place: PLAN.draw(*place[:-1], lambda bound: place[-1](bound - 1))),
    "seeded from the request": (PLAN, lambda x, *rest: PLAN.draw(x, *rest[:-1], random.Random(x).randrange)),
    "the smaller of two": (PLAN, lambda *place: min(PLAN.draw(*place) for _ in range(2))),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_that_do_not_follow_the_encoders_or_the_clocks_are_found(name):
    made, draw = DRAWS[name]
    assert rules(audit(CHAIN, made, load=lambda _: Exhibit(made, draw=draw), draws=100)) == {"draw"}


# The command.


def run(*arguments):
    return call("audit", "plan", *arguments)


@pytest.fixture
def store(tmp_path):
    """Two plans of one chain and one of another in a directory, and the chain's file."""
    CHAIN.save(tmp_path / "chain.json")
    kept = PlanStore(CHAIN, tmp_path / "plans")
    for made in (PLAN, LATER):
        kept.save(made)
    PlanStore(SPARSE, tmp_path / "plans").save(plan(SPARSE, 1))
    return kept


def test_the_command_prints_a_certificate_for_each_plan(store, tmp_path):
    done = run(tmp_path / "chain.json", tmp_path / "plans", "--at", "5")
    assert (done.returncode, "another chain" in done.stderr) == (0, True)
    assert done.stdout.count("verified") == 2
    assert f"cost: {PLAN.cost!r}" in done.stdout
    assert "25 of 25 contexts" in done.stdout
    done = run(tmp_path / "chain.json", store.directory, "--json")
    found = json.loads(done.stdout)
    assert [(each["lag"], each["cost"]) for each in found if each["valid"]] == [(1, PLAN.cost), (3, LATER.cost)]


def test_the_command_exits_with_1_and_names_the_witness(store, tmp_path):
    data = contents(LATER)
    data["lag"] = 1
    store.path(1).write_bytes(signed(data))
    done = run(tmp_path / "chain.json", store.path(1), store.path(3))
    assert done.returncode == 1
    (line,) = (line for line in done.stdout.splitlines() if line.strip().startswith("encoder:"))
    assert "context: last 's" in line
    assert f"{store.path(3)}: verified" in done.stdout
