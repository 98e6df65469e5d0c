"""Clients of the promise `past` with one planted mistake: each is found at its first wrong step.

Laws and candidates are the client's own, patched. What is wrong in a law shows in the record, what is wrong in a draw
in the numbers, and a law that depends on the request when the installed code makes the laws again.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from onoff import Chain
from onoff.audit.exhibits import law_line
from onoff.audit.habits import Recorded
from onoff.audit.law import is_proved
from onoff.audit.rows import Candidates as Referee
from onoff.client import promises
from onoff.client.lawstore import LawStore
from onoff.past import Candidates, PastState, RaceStep, StepLaw
from onoff.past import step as past_step
from onoff.past.step import prepare
from onoff.schemes.certificate import Certificate
from onoff.schemes.law import Law, everything
from oracles import random_chain
from pastkit import table
from replaykit import drawing, life, write_lines
from sampling import in_turn

SMALL = {"chain": random_chain("dense", 4, 2), "sensitive": (1,), "private": 0.1}
LARGE = {"chain": random_chain("dense", 101, 2), "private": 0.3}


def three_ways(made):
    """Laws of the record, laws of the record that the installed code makes again, and only the latter."""
    return {}, {"engine": made.engine()}, {"engine": made.engine(), "record": None}


@pytest.mark.parametrize(
    ("sensitive", "kind"), in_turn([(), (1,), (0, 2), (0, 1, 2, 3)], ["dense", "sparse", "periodic"])
)
def test_honest_streams_pass_with_a_record_and_with_laws_made_again(tmp_path, kind, sensitive):
    made = life(tmp_path, "past", chain=random_chain(kind, 4, 1), sensitive=sensitive, private=0.15).live(60)
    for options in three_ways(made):
        found = made.audit(**options)
        assert (found.word, found.drawn) == ("PASSED", found.off), str(found)
        assert found.rounding < 1e-9


def test_one_law_of_many_states_passes(tmp_path):
    """All rows are equal, so all candidates of one source have one law, with an encoder for each state."""
    row = [[0.4, 0.3, 0.2, 0.1]] * 4
    made = life(tmp_path, "past", chain=Chain(row), sensitive=(), private=0.1).live(60)
    steps = made.steps()
    assert {step.digest for step in steps if step.lag and steps[step.step - 1].query == (0,)} == {
        step.digest for step in steps if step.lag and steps[step.step - 1].query == (1,)
    }
    for options in three_ways(made):
        assert made.audit(**options).word == "PASSED"


# Draws that do not follow their number.


def as_an_open_request(honest, step, request, state, below):
    """A sensitive request is drawn from the encoder, as for the likeliest open request, instead of from mu."""
    if request in step.candidates.hidden:
        request = int(table(step, state).sum(axis=1).argmax())
    return honest(step, request, state, below)


def neighbour(honest, step, request, state, below):
    """The encoder of another candidate serves, where it has the request."""
    others = [z for z in step.candidates.live if z != state and table(step, z)[request].any()]
    return honest(step, request, others[0] if others else state, below)


def smallest_at_times():
    """One draw of a hundred takes the smallest set that has the source; the numbers stay noted."""
    coin = random.Random(1).random

    def draw(honest, step, request, state, below):
        query = honest(step, request, state, below)
        smallest = min((one for one in step.sets if request in one), key=len)
        return smallest if coin() < 0.01 else query

    return draw


DRAWS = {
    "the encoder instead of mu": as_an_open_request,
    "the encoder of another state": neighbour,
    "the smallest set in 1 % of draws": smallest_at_times(),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_that_does_not_follow_its_number_is_found_at_the_first_one(tmp_path, name):
    made = life(tmp_path, "past", seed=7, **{**SMALL, "private": 0.3})
    made.live(300, [drawing(made, StepLaw, DRAWS[name])])
    found = made.audit()
    assert made.wrong, "the mistake was never made"
    assert (found.first.step, found.first.rule) == (made.wrong[0], "draw"), str(found)


@pytest.mark.parametrize("sensitive", [(), (3, 70)])
def test_races_are_run_again_from_their_clocks(tmp_path, sensitive):
    made = life(tmp_path, "past", sensitive=sensitive, **LARGE).live(30)
    raced = [step for step in made.steps() if step.lag and step.digest is None]
    assert len(raced) > 5
    found = made.audit()
    assert (found.word, found.drawn) == ("PASSED", found.off), str(found)
    assert 0 < found.rounding < 1e-9


def test_a_race_that_is_not_kept_to_is_found_at_the_first_one(tmp_path):
    def openly(honest, step, request, state, below):
        query = honest(step, request, state, below)
        return (request,) if request not in step.candidates.hidden and request % 2 else query

    made = life(tmp_path, "past", sensitive=(3, 70), **LARGE)
    made.live(30, [drawing(made, RaceStep, openly)])
    found = made.audit()
    assert (found.first.step, found.first.rule) == (made.wrong[0], "draw"), str(found)


# Laws that do not keep the promise: the client draws from them as it says.


def forgotten(honest, candidates):
    """The law serves all candidates but the last."""
    if len(candidates.live) < 4:
        return honest(candidates)
    return replace(prepare(replace(candidates, states=candidates.states[:-1])), candidates=candidates)


def set_without_a_sensitive_source(honest, candidates):
    """It is the least likely one: otherwise the client itself would not get far."""
    step = honest(candidates)
    if len(candidates.live) > 2:
        member = step.law.member.copy()
        member[step.law.mass.argmin(), 1] = False
        vars(step)["law"] = Law(member, step.law.mass)
    return step


LAWS = {"rows": forgotten, "sensitive": set_without_a_sensitive_source}


def planted(made, mistake):
    """Patch the store of laws; `made.wrong` gets the steps whose law is another one than it should be."""
    honest = LawStore.step

    def step(self, candidates):
        right = prepare(candidates)
        found = mistake(lambda candidates: honest(self, candidates), candidates)
        if (found.sets, found.masses) != (right.sets, right.masses):
            made.wrong.append(made.t)
        return found

    return patch.object(LawStore, "step", step)


@pytest.mark.parametrize("rule", LAWS)
def test_a_law_that_does_not_keep_the_promise_is_found_at_its_first_step(tmp_path, rule):
    made = life(tmp_path, "past", seed=2, chain=random_chain("dense", 6, 3), sensitive=(1,), private=0.1)
    made.live(40, [planted(made, LAWS[rule])])
    for options in three_ways(made)[:2]:
        found = made.audit(**options)
        assert (found.first.step, found.first.rule) == (made.wrong[0], rule), str(found)


def test_candidates_without_the_sensitive_sources_of_the_set_are_found_at_the_first_law_made_of_them(tmp_path):
    """Only what was drawn counts: a reader of a sensitive source would be none of the candidates."""
    made, honest = life(tmp_path, "past", seed=2, **SMALL), PastState.candidates.func

    def wrong(self):
        right = honest(self)
        states = tuple(z for z in right.states if z not in right.hidden)
        if made.t == 0 or made.path[made.t - 1] in right.hidden or not states:
            return right  # the client itself would stop
        made.wrong += [made.t] * (len(states) > 2)
        return replace(right, states=states) if len(states) > 2 else right

    made.live(40, [patch.object(PastState, "candidates", property(wrong))])
    off = next(step.step for step in made.steps() if step.lag and step.step in made.wrong)
    found = made.audit(engine=made.engine())
    assert (found.first.step, found.first.rule) == (off, "law by request"), str(found)
    assert made.audit().unchecked[0][0] == off


# Laws that keep the promise, each by itself, and are chosen by the request.


def full_set(candidates):
    """Everything, whatever is asked for: a law of which nothing is wrong."""
    inner = everything(int(candidates.open_sources.sum()))
    return StepLaw(candidates, inner, Certificate("outer", 1.0))


def another(candidates):
    """A law that is as good as the one that the code makes: some units go to the full set, the last."""
    step = prepare(candidates)
    mass = step.inner.mass.copy()
    mass[mass.argmax()] -= 1000
    mass[-1] += 1000
    return replace(step, inner=Law(step.inner.member, mass))


def chosen(made, law, when):
    seen = set()

    def by_request(honest, candidates):
        first = candidates not in seen
        seen.add(candidates)
        is_wrong = (
            made.path[made.t] % 2 and len(candidates.live) > 2 and when in ("ever", "first" if first else "again")
        )
        return law(candidates) if is_wrong else honest(candidates)

    return by_request


@pytest.mark.parametrize("when", ["ever", "first", "again"])
@pytest.mark.parametrize("law", [full_set, another])
def test_a_law_that_was_chosen_by_the_request_is_found_at_the_first_one(tmp_path, law, when):
    """Also if it is on record. Without the installed code it is found where a public state comes again."""
    made = life(tmp_path, "past", chain=random_chain("dense", 5, 3), sensitive=(), seed=5)
    made.live(120, [planted(made, chosen(made, law, when))])
    for record in (True, None):
        found = made.audit(engine=made.engine(), record=record)
        assert (found.first.step, found.first.rule) == (made.wrong[0], "law by request"), str(found)
    found = made.audit()
    steps, laws = made.steps(), {}
    again = [
        step for step in steps if step.lag and laws.setdefault(steps[step.step - 1].query, step.digest) != step.digest
    ]
    assert (found.first.step, found.first.rule) == (again[0].step, "law by request"), str(found)
    assert law is not full_set or made.wrong[0] in [step for step, _ in found.unchecked]


def test_laws_of_another_maker_that_the_installed_code_makes_otherwise_leave_no_verdict(tmp_path):
    """A client that lies about who made the laws that it has chosen is not certified."""
    made = life(tmp_path, "past", sensitive=(), seed=4)
    honest, marks = promises.maker, {}

    def mark():
        return marks.setdefault(made.t, "another" if made.t in made.wrong else honest())

    plants = [planted(made, chosen(made, another, "first")), patch.object(promises, "maker", mark)]
    made.live(60, [*plants, patch("onoff.client.laws.maker", mark)])
    found = made.audit(engine=made.engine())
    assert (found.word, found.unchecked[0][0]) == ("NO VERDICT", made.wrong[0])
    assert "another law" in str(found)
    assert made.audit(engine=made.engine(), record=None).word == "NO VERDICT"


# Proofs that a law is near the cheapest.


def test_a_law_far_above_the_outer_bound_is_proved_by_its_cuts_and_by_nothing_less():
    far = 0
    for seed in range(40):
        candidates = Candidates(random_chain("sparse", 6, seed), (), tuple(range(6)))
        step, rows = prepare(candidates), candidates.rows(candidates.live)
        line, outer = law_line(step.as_dict(), 6), rows.max(axis=0).sum()
        assert is_proved(line, rows, 0), seed
        if step.cost < 1.02 * outer or step.cost > 1.01 * step.certificate.bound:
            continue
        far += 1
        assert not is_proved(replace(line, certificate=()), rows, 0)
        sets, masses = (*line.law.sets, tuple(range(6))), (*line.law.masses, line.law.denominator // 10)
        assert not is_proved(replace(line, law=replace(line.law, sets=sets, masses=masses)), rows, 0)
        half = tuple((cut, weight // 2) for cut, weight in line.certificate)
        twice = tuple((cut, weight * 2) for cut, weight in line.certificate)
        assert not is_proved(replace(line, certificate=half), rows, 0)
        assert not is_proved(replace(line, certificate=twice), rows, 0)
        assert is_proved(replace(line, certificate=(*line.certificate, ((9,), 2**50))), rows, 0)  # of no source
    assert far > 3


def test_laws_of_rows_with_few_sources_are_proved_by_the_sets_that_hold_a_request_of_each():
    rng = np.random.default_rng(0)
    for _ in range(60):
        P = np.zeros((7, 7))
        for row in P:
            row[rng.choice(7, 3, replace=False)] = rng.dirichlet(np.ones(3))
        candidates = Candidates(Chain(P), (), tuple(range(7)))
        assert is_proved(law_line(prepare(candidates).as_dict(), 7), candidates.rows(candidates.live), 0)


@pytest.mark.parametrize("n", [100, 101])
def test_a_race_is_run_where_the_client_runs_one(n):
    chain = random_chain("dense", n, 1)
    recorded = Recorded(chain.P, chain.step, chain.depth)
    for query in (tuple(range(40)), tuple(range(41))):
        is_race = Referee(recorded, (), [query]).is_race
        assert is_race == (n > 100 and len(query) > 40)
        assert not is_race or isinstance(prepare(Candidates(chain, (), query)), RaceStep)
    assert (past_step.MANY, past_step.SEVERAL) == (100, 40)


# The record.


@pytest.fixture
def made(tmp_path):
    return life(tmp_path, "past", seed=3, kills=0.0, restarts=0.0, **SMALL).live(40)


def test_a_law_that_is_missing_or_changed_leaves_its_steps_unchecked_and_no_others(made):
    lines = [json.loads(line) for line in made.record_file.read_text().splitlines()]
    masses = lines[2]["law"]["masses"]
    other = {**lines[2], "law": {**lines[2]["law"], "masses": [masses[0] + 1, masses[1] - 1, *masses[2:]]}}
    digest = law_line(lines[2]["law"], 4).digest
    missing = [step.step for step in made.steps() if step.digest == digest]
    for changed in ([], [other]):
        write_lines(made.record_file, [*lines[:2], *changed, *lines[3:]])
        found = made.audit()
        assert (found.word, [step for step, _ in found.unchecked]) == ("NO VERDICT", missing)
        assert made.audit(engine=made.engine()).word == "PASSED"


def test_half_a_line_is_passed_over_and_what_is_no_law_is_an_error_that_names_the_line(made):
    lines = made.record_file.read_text().splitlines()
    made.record_file.write_text("\n".join([*lines[:3], lines[3][:50], *lines[2:]]) + "\n")
    assert made.audit().word == "PASSED"
    fourth = json.loads(lines[3])
    empty = {**fourth, "law": {**fourth["law"], "masses": [0] * len(fourth["law"]["masses"])}}
    far = {**fourth, "law": {**fourth["law"], "encoders": {str(10**30): [[0], [0], [1]]}}}
    away = {**fourth, "states": [10**30]}
    for bad in ({"step": 3, "sources": [1]}, {**fourth, "version": 1}, empty, far, away):
        made.record_file.write_text("\n".join([*lines[:3], json.dumps(bad), *lines[3:]]) + "\n")
        with pytest.raises(Exception, match="line 4 is not one of a record of laws"):
            made.audit()


def test_laws_of_other_digits_are_not_checked_and_never_wrong_if_the_installed_code_makes_none_of_them(made):
    """It is another version: it makes other laws, from the first OFF step on."""
    engine = lambda *public: another(Candidates(*public))  # noqa: E731
    for record in (True, None):
        found = made.audit(record=record, engine=engine)
        assert found.findings == ()
        assert found.word == "NO VERDICT"
        assert "makes another law there" in str(found)
    found = made.audit(record=None)
    assert (found.word, found.drawn) == ("NO VERDICT", 0)
