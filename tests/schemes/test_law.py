"""The tools behind plans: combs, flows, repair, screening, certificates, files."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onoff import Chain, Plan, bounds, plan
from onoff.errors import PlanError
from onoff.model.bounds import outer_bound
from onoff.model.symmetric import is_symmetric
from onoff.plans.race import RacePlan
from onoff.schemes.certificate import SHIFT, cut_certificate, outer_certificate, size_certificate
from onoff.schemes.comb import comb, comb_law
from onoff.schemes.law import DENOMINATOR, Law, everything, merged, quantised
from onoff.schemes.optimum.centre import central_point
from onoff.schemes.optimum.separation import novel
from onoff.schemes.realisation.network import Network, supplies
from onoff.schemes.realisation.realise import hard_contexts, realised
from onoff.schemes.realisation.repair import Repair
from onoff.schemes.realisation.sinkhorn import Screen
from onoff.testing import chains
from oracles import all_sets, paper_program, random_chain

seeds = st.integers(0, 2**32)


def random_law(n, sets, seed):
    rng = np.random.default_rng(seed)
    member = rng.random((sets, n)) < 0.4
    member[np.arange(sets), rng.integers(0, n, sets)] = True
    return member, rng.dirichlet(np.ones(sets))


def realisable_by_hall(law, row):
    """Pr[Q meets C] >= p(C | u) for every C, in integers: what a flow of the floored supplies decides."""
    supply = supplies(row, law.total)
    n = len(row)
    for size in range(1, n + 1):
        for cut in combinations(range(n), size):
            met = int(law.mass[law.member[:, list(cut)].any(axis=1)].sum())
            if met < int(supply[list(cut)].sum()):
                return False
    return True


# Flows


@given(st.integers(2, 6), seeds)
def test_a_flow_decides_halls_condition_and_its_cuts_are_violated(n, seed):
    law = quantised(*random_law(n, 6, seed), DENOMINATOR)
    row = np.random.default_rng(seed + 1).dirichlet(np.full(n, 0.5))
    network = Network(law.member, law.mass)
    supply = supplies(row, law.total)
    short = int(supply.sum()) - network.ship(supply)
    assert (short == 0) == realisable_by_hall(law, row)
    assert (network.edges() >= 0).all()
    assert network.shipped().sum() == network.filled().sum() == supply.sum() - short
    if short:
        for cut in (network.cut(), network.largest_cut()):
            met = int(law.mass[law.member[:, cut].any(axis=1)].sum())
            assert int(supply[cut].sum()) - met == short


@given(st.integers(2, 30), seeds)
def test_supplies_never_exceed_their_row_or_their_total(n, seed):
    row = np.random.default_rng(seed).dirichlet(np.full(n, 0.3))
    row /= row.sum()
    units = supplies(row, DENOMINATOR)
    assert int(units.sum()) <= DENOMINATOR
    assert all(int(u) <= Fraction(p) * DENOMINATOR for u, p in zip(units, row.tolist(), strict=True))
    assert DENOMINATOR - int(units.sum()) <= n + 2


# Laws


@given(st.integers(2, 8), st.integers(1, 12), seeds)
def test_integer_masses_sum_to_their_total_and_sets_are_distinct(n, sets, seed):
    member, mass = random_law(n, sets, seed)
    law = quantised(np.concatenate([member, member]), np.concatenate([mass, mass]), DENOMINATOR)
    assert law.total == DENOMINATOR
    assert len({row.tobytes() for row in law.member}) == len(law.member)
    assert (law.mass > 0).all()
    expected = sum(float(m) * row.sum() for row, m in zip(member, mass, strict=True))
    assert float(law.cost()) == pytest.approx(expected, abs=1e-12)
    assert law.cost((2.0,) * n) == 2 * law.cost()


def test_merging_adds_up_and_drops_what_is_empty():
    member = np.array([[1, 0], [1, 0], [0, 1]], dtype=bool)
    sets, mass = merged(member, np.array([1, 2, 0]))
    assert sets.tolist() == [[True, False]]
    assert mass.tolist() == [3]


# Combs


@given(st.integers(2, 12), seeds)
def test_a_comb_hits_each_source_with_its_length(n, seed):
    rng = np.random.default_rng(seed)
    lengths = rng.random(n)
    lengths = np.minimum(lengths * max(1.0, 1.2 / lengths.sum()), 1.0)
    if lengths.sum() >= 1:
        member, mass = comb(lengths, rng.permutation(n))
        assert len(mass) <= n + 2
        assert mass.sum() == pytest.approx(1)
        assert np.allclose(mass @ member, lengths, atol=1e-12)
        assert member.any(axis=1).all()


@pytest.mark.parametrize("lag", [1, 2])
def test_the_comb_is_near_the_outer_bound_on_dense_chains(lag):
    posterior = Chain(np.random.default_rng(2).dirichlet(np.full(30, 5.0), 30)).posterior(lag)
    assert 1 <= float(comb_law(posterior).cost()) / outer_bound(posterior) < 1.03


# Repair


@given(st.integers(2, 6), seeds)
@settings(max_examples=60)
def test_repair_makes_any_law_realisable_at_no_more_than_the_shortfall(n, seed):
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(n, 0.5), 5)
    law = quantised(*random_law(n, 5, seed), DENOMINATOR)
    repair = Repair(law)
    total = sum(repair.shortfall(row) for row in rows)
    repair.fix_all([rows[:2], rows[2:]])
    assert repair.law.total == DENOMINATOR
    assert all(realisable_by_hall(repair.law, row) for row in rows)
    assert repair.law.cost() - law.cost() <= Fraction(total, DENOMINATOR)
    assert not any(repair.fix(row) for row in rows)


def test_many_flows_are_shared_out_to_processes(monkeypatch):
    rows = np.random.default_rng(3).dirichlet(np.ones(6), 40)
    blocks = [rows[:7], rows[7:7], rows[7:30], rows[30:]]
    repair = Repair(quantised(*random_law(6, 8, 1), DENOMINATOR))
    alone = repair._shortfalls(blocks, np.inf)
    monkeypatch.setattr("onoff.schemes.realisation.repair.PARALLEL", 1)
    assert repair._shortfalls(blocks, np.inf) == alone
    assert any(map(any, alone))


@given(chains(max_sources=5), st.integers(1, 2), seeds)
@settings(max_examples=40)
def test_a_realised_law_is_realisable_in_every_context(chain, lag, seed):
    posterior = chain.posterior(lag)
    law = realised(posterior, *random_law(chain.n, 4, seed))
    assert law.total == DENOMINATOR
    assert law.member[-1].all()
    assert law.mass[-1] >= chain.n
    flowing = Law(law.member, np.append(law.mass[:-1], law.mass[-1] - chain.n))
    for (last, following), row in zip(posterior.contexts.tolist(), posterior.rows, strict=True):
        assert law.member[:, posterior.possible(last, following)].any(axis=1).all()
        supply = supplies(row, flowing.total)
        assert Network(flowing.member, flowing.mass).ship(supply) >= int(supply.sum()) - chain.n


def test_hard_contexts_are_those_that_reach_the_peaks():
    posterior = random_chain("dense", 8, 1).posterior(1)
    top = posterior.peaks
    assert np.allclose(top, bounds(posterior).peaks, rtol=1e-12)
    for following, rows in hard_contexts(posterior, per_group=2).items():
        closeness = (posterior.group(following) ** 2 / top).sum(axis=1)
        assert (rows**2 / top).sum(axis=1)[0] == pytest.approx(closeness.max())


# Screening


@pytest.mark.parametrize("slack", [1e-2, 1e-4])
def test_what_the_screen_certifies_a_flow_confirms(slack):
    posterior = Chain(np.random.default_rng(4).dirichlet(np.full(20, 5.0), 20)).posterior(2)
    law = comb_law(posterior)
    passed, _ = Screen(law, slack).passes(posterior.rows, rounds=200)
    assert passed.any()
    units = int(slack * law.total)
    helped = Network(np.concatenate([law.member, np.ones((1, 20), dtype=bool)]), np.append(law.mass, units))
    total = law.total + units
    for row in posterior.rows[passed]:
        supply = supplies(row, total)
        assert helped.ship(supply) == supply.sum()


def test_the_screen_does_not_certify_a_law_that_falls_short():
    posterior = random_chain("dense", 10, 4).posterior(1)
    member, mass = comb(posterior.peaks, np.arange(10))
    law = quantised(member, mass, DENOMINATOR)
    repair = Repair(law)
    slack = 1e-3
    short = np.array([repair.shortfall(row) / law.total > slack for row in posterior.rows])
    assert short.any()
    passed, _ = Screen(law, slack).passes(posterior.rows, rounds=200)
    assert not (passed & short).any()


# Certificates


@given(chains(max_sources=4), st.integers(1, 2), seeds)
@settings(max_examples=60)
def test_any_multipliers_give_a_valid_bound(chain, lag, seed):
    posterior = chain.posterior(lag)
    rng = np.random.default_rng(seed)
    cuts = np.array([[x in q for x in range(chain.n)] for q in all_sets(chain.n)])
    multipliers = rng.random(len(cuts)) * (rng.random(len(cuts)) < 0.5)
    reached = (posterior.rows @ cuts.T).max(axis=0)
    proof, limiting = cut_certificate(
        cuts, multipliers, reached, posterior.relative_error, np.ones(chain.n), cuts[:0], time_limit=10
    )
    assert proof.bound <= paper_program(posterior.rows) + 1e-9
    assert limiting.any()


def test_table_and_solver_find_the_same_minimum(monkeypatch):
    rng = np.random.default_rng(5)
    cuts = rng.random((40, 9)) < 0.4
    cuts[:, 0] |= ~cuts.any(axis=1)
    arguments = cuts, rng.random(40), rng.random(40), 1e-12, rng.random(9) + 0.5, rng.random((3, 9)) < 0.5, 30.0
    by_table, _ = cut_certificate(*arguments)
    monkeypatch.setattr("onoff.schemes.certificate.TABLE_LIMIT", 3)
    by_solver, _ = cut_certificate(*arguments)
    assert by_solver.weights == by_table.weights
    assert by_table.bound - 1e-9 < by_solver.bound <= by_table.bound


def test_the_least_over_all_sets_is_exact():
    from onoff.schemes.certificate import _least_in_table

    rng = np.random.default_rng(6)
    cuts, weights = rng.random((7, 5)) < 0.5, rng.integers(0, 2**SHIFT, 7)
    must = np.array([[1, 1, 0, 0, 0]], dtype=bool)
    prices = [int(p) for p in rng.integers(1, 2**SHIFT, 5)]

    def value(q):
        chosen = list(q)
        return sum(prices[x] for x in q) - sum(
            int(w) for cut, w in zip(cuts, weights, strict=True) if cut[chosen].any()
        )

    allowed = [q for q in all_sets(5) if set(q) & {0, 1}]
    least, limiting = _least_in_table(cuts, weights, prices, must)
    assert least == min(map(value, allowed)) == value(tuple(np.flatnonzero(limiting)))


def test_certificates_refuse_to_overflow():
    with pytest.raises(OverflowError):
        cut_certificate(
            np.eye(3, dtype=bool), np.ones(3), np.ones(3), 0.0, np.full(3, 1e9), np.eye(3, dtype=bool)[:0], 1.0
        )


def test_the_outer_bound_is_below_its_exact_value():
    for seed in range(5):
        chain = random_chain("dense", 4, seed)
        exact = bounds(chain.exact_posterior(2)).outer
        proof = outer_certificate(chain.posterior(2))
        assert exact * (1 - Fraction(1, 10**13)) < Fraction(proof.bound) <= exact


def test_the_bound_by_sizes_equals_the_bound_by_cuts_on_a_symmetric_chain():
    posterior = Chain.symmetric(5, 0.1).posterior(1)
    sizes = np.array([0.7, 0.1, 0.0, 0.4, 0.2])
    reached = np.sort(posterior.rows, axis=1)[:, ::-1].cumsum(axis=1).max(axis=0)
    cuts = np.array([[x in q for x in range(5)] for q in all_sets(5)])
    counts = np.bincount(cuts.sum(axis=1))[1:]
    spread = (sizes / counts)[cuts.sum(axis=1) - 1]
    by_cuts, _ = cut_certificate(cuts, spread, reached[cuts.sum(axis=1) - 1], 0.0, np.ones(5), cuts[:0], 1.0)
    assert size_certificate(sizes, reached, 0.0).bound == pytest.approx(by_cuts.bound, abs=1e-9)


# The interior point and small helpers


def test_the_central_point_solves_a_covering_program():
    cost, hits, need = np.array([1.0, 1.0, 1.5]), np.array([[1.0, 0, 1], [0, 1, 1]]), np.array([0.8, 0.6])
    centre = central_point(cost, hits, need, 1e-9)
    # Masses a, b, c of {1}, {2}, {1, 2}: c = 0.4 is forced by 0.8 + 0.6 - 1.
    assert np.allclose(centre.masses, [0.4, 0.2, 0.4], atol=1e-6)
    assert need @ centre.multipliers + centre.total_multiplier == pytest.approx(cost @ centre.masses, abs=1e-6)


def test_novel_rows_are_distinct_and_new():
    old = np.array([[1, 0]], dtype=bool)
    new = np.array([[1, 0], [0, 1], [0, 1], [1, 1]], dtype=bool)
    assert novel(new, old).tolist() == [[False, True], [True, True]]


def test_symmetric_chains_are_recognised_up_to_relabelling():
    chain = Chain.symmetric(5, 0.1)
    assert is_symmetric(chain)
    assert is_symmetric(Chain(chain.P[[2, 0, 1, 4, 3]]))
    assert is_symmetric(Chain.symmetric(4, 0.25))
    assert not is_symmetric(Chain.symmetric(5, 1.0))
    assert not is_symmetric(random_chain("dense", 5, 1))
    swapped = chain.P.copy()
    swapped[0, [0, 1]] = swapped[0, [1, 0]]
    assert not is_symmetric(Chain(swapped))


# Files


@pytest.mark.parametrize("scheme", ["everything", "paper", "comb", "optimal", "race"])
@pytest.mark.parametrize("lengths", [None, (1.0, 2.5, 3.0, 0.1)])
def test_a_plan_survives_its_file(tmp_path, scheme, lengths):
    made = plan(random_chain("sparse", 4, 2), 2, scheme, lengths=lengths)
    made.save(tmp_path / "a.plan.json")
    loaded = Plan.load(tmp_path / "a.plan.json")
    assert loaded == made
    assert (loaded.cost, loaded.gap, loaded.rounding) == (made.cost, made.gap, made.rounding)
    assert type(made).load(tmp_path / "a.plan.json") == made


def damaged(data, change):
    from onoff.plans.file import checksum

    body = {key: value for key, value in data.items() if key != "checksum"}
    change(body)
    return json.dumps({**body, "checksum": checksum(body)})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["masses"].__setitem__(0, d["masses"][0] + 1), "masses sum to"),
        (lambda d: d["masses"].__setitem__(0, -d["masses"][0]), "positive integer"),
        (lambda d: d["masses"].__setitem__(0, 0.5), "positive integer"),
        (lambda d: d["sets"].__setitem__(0, [3, 1]), "sorted set"),
        (lambda d: d["sets"].__setitem__(0, [1, 9]), "sorted set"),
        (lambda d: d["sets"].__setitem__(0, []), "sorted set"),
        (lambda d: d["sets"].__setitem__(0, d["sets"][1]), "no set twice"),
        (lambda d: d["sets"].reverse(), "must be the full one"),
        (lambda d: d["certificate"].__setitem__("bound", 99.0), "below its own lower bound"),
        (lambda d: d["certificate"].__setitem__("bound", -1.0), "lower bound is -1"),
        (lambda d: d.__setitem__("lag", -1), "lag is -1"),
        (lambda d: d.__setitem__("lag", True), "lag is True"),
        (lambda d: d.__setitem__("lengths", [1.0]), "1 lengths were given"),
        (lambda d: d["matrix"].__setitem__(0, [0.5, 0.1, 0.1, 0.1]), "sums to"),
        (lambda d: d.pop("sets"), "sets"),
        (lambda d: d.__setitem__("denominator", 2**53), "not to the denominator"),
        (lambda d: d["certificate"].__setitem__("bound", d["certificate"]["bound"] * (1 + 5e-10)), "proves only"),
        (lambda d: d["certificate"].__setitem__("kind", 7), "not a kind"),
        (lambda d: d["certificate"].__setitem__("bound", 10**400), "checks"),
        (lambda d: d.__setitem__("scheme", "foo"), "not a scheme"),
        (lambda d: d.__setitem__("lag", 10**25), "lag is"),
        (lambda d: d.__setitem__("lengths", [10**400] * 4), "sequence of numbers"),
    ],
)
def test_a_plan_that_fails_its_own_checks_is_refused(tmp_path, change, words):
    file = tmp_path / "plan.json"
    plan(random_chain("dense", 4, 2), 1, "optimal").save(file)
    file.write_text(damaged(json.loads(file.read_text()), change))
    with pytest.raises(PlanError, match=words):
        Plan.load(file)


@pytest.mark.parametrize(
    ("chain", "kind"), [(Chain.symmetric(6, 0.05), "sizes"), (random_chain("symmetric", 5, 1), "cuts")]
)
def test_certificates_of_every_kind_are_proved_again_on_loading(tmp_path, chain, kind):
    made = plan(chain, 1, lengths=None if kind == "sizes" else [1.0, 2.0, 1.0, 3.0, 1.0])
    if kind == "cuts" and made.certificate.kind != "cuts":
        made = plan(Chain.symmetric(5, 0.02), 1, lengths=[1.0, 1.0, 1.0, 1.0, 1.0000001])
    assert made.certificate.kind == kind
    file = tmp_path / "plan.json"
    made.save(file)
    assert Plan.load(file) == made

    def forge(data):
        data["certificate"]["bound"] = made.cost * (1 - 1e-12)
        data["certificate"]["weights"] = [w // 2 for w in data["certificate"]["weights"]]

    file.write_text(damaged(json.loads(file.read_text()), forge))
    with pytest.raises(PlanError, match="proves only"):
        Plan.load(file)


def test_a_solver_without_time_gives_a_bound_that_still_holds(monkeypatch):
    rng = np.random.default_rng(5)
    cuts = rng.random((60, 9)) < 0.4
    cuts[:, 0] |= ~cuts.any(axis=1)
    arguments = [cuts, rng.random(60), rng.random(60), 1e-12, rng.random(9) + 0.5, cuts[:0]]
    by_table, _ = cut_certificate(*arguments, 1.0)
    monkeypatch.setattr("onoff.schemes.certificate.TABLE_LIMIT", 3)
    hurried, _ = cut_certificate(*arguments, 1e-6)
    assert hurried.bound <= by_table.bound


def test_a_mean_row_stands_for_a_block_only_if_all_rows_are_within_the_slack(monkeypatch):
    from onoff.schemes.realisation import realise

    chain = random_chain("dense", 6, 1)
    posterior = chain.posterior(1)
    far = posterior.group(0)
    law = comb_law(posterior)
    monkeypatch.setattr(
        realise.Screen, "passes", lambda self, rows, *a, **k: (np.zeros(len(rows), bool), np.zeros(rows.shape))
    )
    assert [len(rows) for rows in realise._uncertain(posterior, [0], law, 1e-3)] == [len(far)]
    spread = float((1 - far.min(axis=0) / far.mean(axis=0)).max())
    assert [len(rows) for rows in realise._uncertain(posterior, [0], law, spread / 0.71)] == [1]
    assert [len(rows) for rows in realise._uncertain(posterior, [0], law, spread / 0.80)] == [len(far)]


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
    file.write_text('{"format": "onoff-plan", "version": 99}')
    with pytest.raises(PlanError, match="version 99"):
        Plan.load(file)
    file.write_text("[]")
    with pytest.raises(PlanError, match="format"):
        Plan.load(file)


def test_a_race_with_an_impossible_cost_is_refused():
    with pytest.raises(PlanError, match="interval"):
        RacePlan(Chain.symmetric(3, 0.5), 1, cost=2.0, interval=(2.5, 3.0), lower_bound=1.0)


def test_everything_is_the_full_set():
    assert everything(4).cost() == 4
    assert Chain.symmetric(4, 0.5).posterior(0).peaks.tolist() == [1, 1, 1, 1]
