"""The audit's own filter of the everyday mode: its beliefs are Bayes', and laws that are not right are found."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from everydayaudit import paths, seen_law, stream
from onoff import Chain, OnoffError
from onoff.audit.everyday.beliefs import attack, divergence
from onoff.audit.everyday.checks import check
from onoff.audit.everyday.pasts import LOST, Pasts
from onoff.audit.everyday.record import Seen, Table, law_of, recorded
from onoff.audit.everyday.walk import walk
from onoff.errors import LogError
from onoff.everyday import Everyday
from oracles import random_chain

ENDS = Chain([[0, 1, 0], [0.5, 0, 0.5], [0, 0, 1]])  # zeros and an absorbing end
CASES = [
    (random_chain("dense", 3, 1), (), "10010"),
    (random_chain("dense", 3, 1), (1,), "100010"),
    (random_chain("dense", 3, 2), (0, 2), "10000"),
    (random_chain("dense", 3, 2), (0, 1, 2), "1010"),
    (random_chain("sparse", 3, 1), (2,), "100100"),
    (ENDS, (1,), "10000"),
    (random_chain("periodic", 4, 1), (1,), "10000"),
]


def uniform(chain):
    return np.full(chain.n, 1 / chain.n)


def statuses(text):
    return [status == "1" for status in text]


def law_of_request(chain, found, t):
    total = sum(found.values())
    return [float(sum((p for path, p in found.items() if path[t] == x), Fraction(0)) / total) for x in range(chain.n)]


def some_sensitive(sensitive, found, t):
    """The probability that a sensitive source was asked for at t or before."""
    asked = (p for path, p in found.items() if set(path[: t + 1]) & set(sensitive))
    return float(sum(asked, Fraction(0)) / sum(found.values()))


@pytest.mark.parametrize(("chain", "sensitive", "text"), CASES)
@pytest.mark.parametrize("seed", range(3))
def test_beliefs_before_at_and_after_a_request_are_those_of_all_paths(chain, sensitive, text, seed):
    seen, behind = stream(chain, sensitive, statuses(text), seed)
    beliefs = attack(chain, sensitive, seen, uniform(chain))
    everything = paths(chain, sensitive, seen, behind)
    assert beliefs.silent == ()
    for t in range(len(seen)):
        before = paths(chain, sensitive, [*seen[:t], Seen(True, ())], [*behind[:t], None])
        at = paths(chain, sensitive, seen[: t + 1], behind[: t + 1])
        for rows, found in ((beliefs.before, before), (beliefs.at, at), (beliefs.after, everything)):
            assert rows[t] == pytest.approx(law_of_request(chain, found, t), abs=1e-12)
        assert beliefs.some_before[t] == pytest.approx(some_sensitive(sensitive, before, t), abs=1e-12)
        assert beliefs.some_at[t] == pytest.approx(some_sensitive(sensitive, at, t), abs=1e-12)


@pytest.mark.parametrize(("chain", "sensitive", "text"), CASES)
def test_rows_given_the_last_hidden_thing_are_those_of_all_paths(chain, sensitive, text):
    private = statuses(text)
    seen, behind = stream(chain, sensitive, private, 1)
    pasts = Pasts.begin(chain, sensitive, uniform(chain))
    for t, step in enumerate(seen):
        pasts = pasts.on() if step.private else pasts.off(step.query, step.law)
        if t + 1 == len(seen):
            break
        found = paths(chain, sensitive, [*seen[: t + 1], Seen(True, ())], [*behind[: t + 1], None])
        total = sum(found.values())
        weights = {}
        for path, p in found.items():
            made = max(s for s in range(t + 1) if private[s] or path[s] in sensitive)
            key = path[made], made, path[t + 1]
            weights[key] = weights.get(key, 0) + p / total
        kept = {
            (int(source), int(made), x): pasts.weight[k, x]
            for k, (source, made) in enumerate(zip(pasts.sources, pasts.made, strict=True))
            for x in np.flatnonzero(pasts.possible[k]).tolist()
        }
        assert set(kept) == set(weights)
        assert all(kept[key] == pytest.approx(float(p), rel=1e-12) for key, p in weights.items())


def test_the_error_of_a_row_counts_every_step_since_its_thing():
    """The full set is asked for at every OFF step, so that no row is ever known."""
    chain = random_chain("dense", 4, 2)
    state, pasts = Everyday.start(chain), Pasts.begin(chain, (), uniform(chain)).on()
    for steps in range(4):
        assert pasts.ages.tolist() == [steps] * 4
        assert (pasts.errors >= 2 * 12 * 2.0**-53 * (steps + 1)).all()
        step = state.prepare()
        pasts = pasts.off(step.sets[-1], seen_law(state, step))
        state = state.advance(step, step.sets[-1])
    assert pasts.on().ages.tolist() == [0] * 4


def test_a_place_that_the_record_does_not_have_is_lost():
    chain = random_chain("dense", 3, 1)
    state = Everyday.start(chain)
    law = seen_law(state, state.prepare())
    pasts = Pasts.begin(chain, (), uniform(chain)).on()
    assert pasts.homes(law).tolist() == list(state.joined)
    assert pasts.homes(replace(law, joined=law.joined[:2])).tolist() == [*state.joined[:2], LOST]
    later = replace(pasts, step=2, contexts=np.array([-1, 0, 7]))
    assert later.homes(replace(law, place=(2, 1))).tolist() == [LOST, 2, LOST]


@pytest.mark.parametrize(("chain", "sensitive", "text"), CASES)
def test_streams_of_the_engine_are_in_order_and_tell_nothing(chain, sensitive, text):
    for seed in range(3):
        seen, _ = stream(chain, sensitive, statuses(text), seed)
        found = walk(chain, sensitive, seen, uniform(chain))
        assert found.faults == ()
        assert max(step.bits for step in found.steps) < 1e-25
        beliefs = attack(chain, sensitive, seen, uniform(chain))
        told = np.array([beliefs.told(t) for t in range(len(seen))])
        assert told[:, 1:].max() < 1e-25
        assert np.abs(beliefs.some_at - beliefs.some_before).max() < 1e-14


def test_what_queries_before_a_private_request_tell_is_not_nothing():
    chain = random_chain("dense", 3, 1)
    seen, _ = stream(chain, (), statuses("10001"), 1)
    before, own, later = attack(chain, (), seen).told(4)
    assert before > 1e-3
    assert max(own, later) < 1e-30


def test_a_long_stream_with_many_things_stays_in_order():
    chain = random_chain("dense", 5, 3)
    seen, _ = stream(chain, (0, 3), [True] + [False] * 150, 2)
    found = walk(chain, (0, 3), seen)
    assert found.faults == ()
    assert found.distance < 1e-13
    beliefs = attack(chain, (0, 3), seen)
    assert max(beliefs.told(t)[2] for t in range(len(seen))) < 1e-22


# Laws that are not right


@pytest.fixture
def record():
    """A stream of four sources, one sensitive, and its third step."""
    chain = random_chain("dense", 4, 2)
    seen, behind = stream(chain, (1,), statuses("10000"), 5)
    return chain, seen, behind


def forged(record, t, **changes):
    chain, seen, _ = record
    return walk(chain, (1,), [*seen[:t], replace(seen[t], law=replace(seen[t].law, **changes)), *seen[t + 1 :]])


def rules(found):
    return {fault.rule for _, fault in found.faults}


def changed(table, **changes):
    return Table(**{"request": table.request, "column": table.column, "units": table.units, **changes})


def test_nothing_is_wrong_with_the_record_itself(record):
    assert forged(record, 2).faults == ()


def test_a_set_without_a_sensitive_source_is_found(record):
    law = record[1][2].law
    sets = tuple(tuple(x for x in query if x != 1) if i == 0 else query for i, query in enumerate(law.sets))
    assert "sensitive" in rules(forged(record, 2, sets=sets))


def test_a_set_without_its_request_is_found(record):
    law = record[1][2].law
    query, index = min((query, i) for i, query in enumerate(law.sets) if len(query) < 4)
    other = next(x for x in range(4) if x not in query)
    table = law.tables[0]
    moved = changed(table, request=np.where(table.column == index, other, table.request))
    assert "encoder" in rules(forged(record, 2, tables={**law.tables, 0: moved}))


def test_a_request_that_is_no_source_is_found(record):
    law = record[1][2].law
    request = law.tables[0].request.copy()
    request[0] = 99
    assert "encoder" in rules(forged(record, 2, tables={**law.tables, 0: changed(law.tables[0], request=request)}))


def test_one_unit_that_is_missing_from_a_column_is_found(record):
    law = record[1][2].law
    units = law.tables[0].units.copy()
    units[units.argmax()] -= 1
    assert "encoder" in rules(forged(record, 2, tables={**law.tables, 0: changed(law.tables[0], units=units)}))


def test_masses_that_do_not_sum_up_are_found(record):
    law = record[1][2].law
    assert "law" in rules(forged(record, 2, masses=(law.masses[0] + 1, *law.masses[1:])))


def test_encoders_of_exchanged_contexts_are_found(record):
    law = record[1][2].law
    first, second = sorted(law.tables)[:2]
    swapped = {**law.tables, first: law.tables[second], second: law.tables[first]}
    assert rules(forged(record, 2, tables=swapped)) == {"rows"}


def test_a_context_without_an_encoder_is_found(record):
    law = record[1][2].law
    left = {context: table for context, table in law.tables.items() if context != 0}
    assert "context" in rules(forged(record, 2, tables=left))


def test_an_encoder_for_nobody_is_found(record):
    law = record[1][2].law
    more = {**law.tables, 99: law.tables[0]}
    assert rules(forged(record, 2, tables=more)) == {"context"}


def test_a_sensitive_request_that_makes_no_context_is_found(record):
    law = record[1][2].law
    joined = tuple(-1 if x == 1 else c for x, c in enumerate(law.joined))
    assert "context" in rules(forged(record, 2, joined=joined))


def test_contexts_that_went_elsewhere_are_found(record):
    law = record[1][2].law
    home = law.joined[1]
    exchanged = {"place": (home,) * 4, "joined": tuple(law.place[0] if c == home else c for c in law.joined)}
    assert "rows" in rules(forged(record, 2, **exchanged))


def test_a_law_that_was_prepared_for_an_older_query_is_found(record):
    _, seen, _ = record
    assert rules(forged(record, 3, **{name: getattr(seen[2].law, name) for name in ("sets", "masses", "tables")}))


def test_a_rounding_that_is_stated_too_small_is_found_where_a_query_is_off():
    chain = random_chain("dense", 4, 2)
    state = Everyday.start(chain)
    law = seen_law(state, state.prepare())
    first, second = sorted(law.tables)[:2]
    swapped = replace(law, tables={**law.tables, first: law.tables[second]})
    pasts = Pasts.begin(chain, (), uniform(chain)).on()
    off = check(pasts, swapped)
    assert [fault.rule for fault in off.faults] == ["rows"]
    assert check(pasts, replace(swapped, rounding=off.distance)).faults[0].rule == "coarse"  # no lie is large enough


def test_a_merge_of_rows_that_are_not_near_is_found_unless_it_is_charged(monkeypatch):
    """Two of three rows are 0.04 apart and merged: stated too coarse with a charge, and a lie without."""
    monkeypatch.setattr("onoff.everyday.contexts.ALIKE", 0.12)
    chain = Chain([[0.5, 0.3, 0.2], [0.46, 0.3, 0.24], [0.1, 0.2, 0.7]])
    state = Everyday.start(chain)
    law = seen_law(state, state.prepare())
    pasts = Pasts.begin(chain, (), uniform(chain)).on()
    assert {fault.rule for fault in check(pasts, law).faults} == {"coarse"}
    for charge, faults in ((0.0, {"merge"}), (0.019, {"merge", "charge"})):
        lie = replace(law, charge=charge, rounding=1e-14)
        assert {fault.rule for fault in check(pasts, lie).faults} == faults


def test_a_charge_that_is_not_in_the_stated_rounding_is_found(monkeypatch):
    """It would excuse any merge, and the sum of roundings that the attack is judged by would not know of it."""
    monkeypatch.setattr("onoff.everyday.contexts.ALIKE", 0.12)
    chain = Chain([[0.5, 0.3, 0.2], [0.46, 0.3, 0.24], [0.1, 0.2, 0.7]])
    state = Everyday.start(chain)
    law = seen_law(state, state.prepare())
    pasts = Pasts.begin(chain, (), uniform(chain)).on()
    for charge in (0.05, 1.0, float("inf")):
        assert [fault.rule for fault in check(pasts, replace(law, charge=charge, rounding=1e-14)).faults] == ["charge"]


def test_a_merge_of_an_earlier_step_is_no_fault_of_a_later_one(monkeypatch):
    monkeypatch.setattr("onoff.everyday.contexts.ALIKE", 0.12)
    chain = Chain([[0.5, 0.3, 0.2], [0.46, 0.3, 0.24], [0.1, 0.2, 0.7]])
    for seed in range(10):
        seen, _ = stream(chain, (), statuses("10000"), seed)
        assert rules(walk(chain, (), seen)) <= {"coarse"}


def test_an_encoder_for_a_forgotten_past_may_be_off_by_what_its_merge_cost(record):
    chain, seen, _ = record
    law = seen[1].law
    pasts = replace(Pasts.begin(chain, (1,), uniform(chain)).on(), forgotten=True)
    swapped = replace(law, tables={**law.tables, 0: law.tables[2], 2: law.tables[0]})
    off = check(pasts, swapped)
    assert "rows" in {fault.rule for fault in off.faults}
    assert "rows" not in {fault.rule for fault in check(pasts, swapped, charged=off.distance / 1e6).faults}


def test_a_missing_law_is_a_fault_and_silences_the_stream_until_the_full_set(record):
    chain, seen, _ = record
    steps = [*seen[:2], replace(seen[2], law=None), *seen[3:], *seen[:2]]
    found = walk(chain, (1,), steps)
    assert [(t, fault.rule) for t, fault in found.faults] == [(2, "record")]
    assert found.silent == attack(chain, (1,), steps).silent == (2, 3, 4)


def test_a_query_that_the_law_does_not_have_is_found(record):
    chain, seen, _ = record
    steps = [*seen[:4], replace(seen[4], query=(1, 9))]
    found = walk(chain, (1,), steps)
    assert [(t, fault.rule) for t, fault in found.faults] == [(4, "query")]
    assert attack(chain, (1,), steps).silent == (4,)


def test_a_query_that_no_request_can_have_caused_is_found():
    seen, _ = stream(ENDS, (), statuses("10"), 1)
    law = seen[1].law
    nobody = replace(law, sets=(*law.sets, (0,)), masses=(*law.masses, 0))
    steps = [seen[0], Seen(False, (0,), nobody)]
    assert "query" in rules(walk(ENDS, (), steps))
    assert attack(ENDS, (), steps).silent == (1,)


def test_a_full_set_that_is_not_full_is_found(record):
    chain, seen, _ = record
    assert rules(walk(chain, (1,), [replace(seen[0], query=(0, 1)), *seen[1:]])) == {"full"}


def test_a_stream_must_start_with_the_full_set(record):
    chain, seen, _ = record
    with pytest.raises(OnoffError, match="from the first"):
        walk(chain, (1,), seen[1:])


def test_beliefs_follow_a_wrong_record_and_show_what_it_tells(record):
    """Readers of one context use the encoder of another: the attack knows it, and learns."""
    chain, seen, _ = record
    law = seen[1].law
    first, second = sorted(law.tables)[:2]
    swapped = replace(law, tables={**law.tables, first: law.tables[second], second: law.tables[first]})
    told = attack(chain, (1,), [seen[0], replace(seen[1], law=swapped)]).told(0)
    assert told[1] == 0
    assert told[2] > 1e-5


# Lines of a record


def line(**changes):
    state = Everyday.start(random_chain("dense", 3, 1), (1,))
    found = {
        "format": "onoff-law", "version": 1, "stream": "ab", "step": 4, "place": list(state.place),
        "joined": list(state.joined), "charge": state.charge.hex(), "law": state.prepare().as_dict(),
    }  # fmt: skip
    return json.loads(json.dumps(found)) | changes


def test_a_line_of_a_record_is_read_back():
    found = recorded(line())
    state = Everyday.start(random_chain("dense", 3, 1), (1,))
    step = state.prepare()
    assert (found.stream, found.step) == ("ab", 4)
    assert (found.law.sets, found.law.masses, found.law.denominator) == (step.sets, step.masses, step.denominator)
    assert found.law.cost == pytest.approx(step.cost)
    for context in step.contexts:
        table = step.encoder(context).toarray()
        assert found.law.tables[context].totals(3).tolist() == table.sum(axis=1).tolist()
        assert found.law.tables[context].on(0, 3).tolist() == table[:, 0].tolist()


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "other"}, {"version": 2}, {"stream": 7}, {"step": -1}, {"step": True}, {"place": [-2]},
        {"joined": ["a"]}, {"joined": None}, {"charge": "zz"}, {"charge": 1.0}, {"charge": "-0x1p-3"}, {"law": {}},
        {"law": line()["law"] | {"denominator": 2**60}}, {"law": line()["law"] | {"masses": [1]}},
        {"law": line()["law"] | {"masses": [0.5, 0.5]}}, {"law": line()["law"] | {"rounding": float("nan")}},
        {"law": line()["law"] | {"sets": []}}, {"law": line()["law"] | {"encoders": {"0": [[0], [0], [2**53]]}}},
        {"law": line()["law"] | {"encoders": {"0": [[0], [99], [1]]}}},
        {"law": line()["law"] | {"encoders": {"0": [[0], [0, 0], [1]]}}},
        {"law": line()["law"] | {"encoders": {"0": [[-1], [0], [1]]}}},
        {"law": line()["law"] | {"encoders": {"-1": [[0], [0], [1]]}}},  # the context of a reader who has none
    ],
)  # fmt: skip
def test_a_damaged_line_is_refused(changes):
    with pytest.raises(LogError):
        recorded(line(**changes))


def test_a_law_of_numbers_that_are_none_is_refused():
    with pytest.raises(LogError):
        law_of({"sets": [[0]]}, [], [], 0.0)


def test_a_divergence_far_below_the_rounding_of_logarithms_is_seen():
    a = np.array([0.3, 0.7])
    assert divergence(a + np.array([1e-12, -1e-12]), a) == pytest.approx(
        1e-24 / 2 * (1 / 0.3 + 1 / 0.7) / np.log(2), rel=1e-3
    )
    assert divergence(np.array([1.0, 0.0]), np.array([0.5, 0.5])) == 1.0
