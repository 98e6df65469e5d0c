"""Clients of the promise `past` with one planted mistake: each is found at its first wrong step.

Laws, rows and contexts are the client's own, patched. What is wrong in a law shows in the record; what is wrong in a
draw shows in the numbers.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from onoff.client import promises
from onoff.past import PastState, StepLaw
from oracles import random_chain
from replaykit import drawing, life, write_lines
from sampling import in_turn

SMALL = {"chain": random_chain("dense", 4, 2), "sensitive": (1,), "private": 0.1}


@pytest.mark.parametrize(
    ("sensitive", "kind"), in_turn([(), (1,), (0, 2), (0, 1, 2, 3)], ["dense", "sparse", "periodic"])
)
def test_honest_streams_pass_with_a_record_and_with_laws_made_again(tmp_path, kind, sensitive):
    made = life(tmp_path, "past", chain=random_chain(kind, 4, 1), sensitive=sensitive, private=0.15).live(60)
    for options in ({}, {"engine": made.engine()}, {"engine": made.engine(), "record": None}):
        found = made.audit(**options)
        assert (found.word, found.drawn) == ("PASSED", found.off), str(found)
        assert found.rounding < 1e-9


# Draws that do not follow their number.


def as_an_open_request(honest, step, request, context, below):
    """A sensitive request is drawn from the encoder, as for the likeliest open request, instead of from mu."""
    if request in step.state.sensitive and context in step.contexts:
        request = int(step.encoder(context).toarray().sum(axis=1).argmax())
    return honest(step, request, context, below)


def same_set():
    kept = []

    def again(honest, step, request, context, below):
        query = honest(step, request, context, below)
        if kept and kept[-1] in step.sets and request in kept[-1]:
            query = kept[-1]
        kept.append(query)
        return query

    return again


def neighbour(honest, step, request, context, below):
    """The encoder of the next context serves, where it has the request."""
    other = context + 1 if request not in step.state.sensitive and context + 1 in step.contexts else context
    served = other != context and step.encoder(other).toarray()[request].any()
    return honest(step, request, other if served else context, below)


def lacks_the_sensitive(honest, step, request, context, below):
    query = honest(step, request, context, below)
    return query if request in step.state.sensitive else tuple(x for x in query if x not in step.state.sensitive)


def replaced(place, unfair):
    """Where `unfair` says so, the set at this place of those that have the source, by size; the numbers stay noted."""
    coin = random.Random(1).random

    def draw(honest, step, request, context, below):
        query, alike = honest(step, request, context, below), [one for one in step.sets if request in one]
        return sorted(alike, key=len)[place] if unfair(step, request, context, query, coin()) else query

    return draw


def is_full_at_first(step, request, _, query, __):
    return not step.state.place and request in step.state.sensitive and len(query) == step.state.chain.n


DRAWS = {
    "the smallest set if sensitive": replaced(0, lambda step, x, *_: x in step.state.sensitive),
    "the encoder instead of mu": as_an_open_request,
    "the same set again": same_set(),
    "the encoder of another context": neighbour,
    "without the sensitive source": lacks_the_sensitive,
    "the smallest set in 1 % of draws": replaced(0, lambda *given: given[-1] < 0.01),
    "no full set if sensitive, after ON": replaced(0, is_full_at_first),
    "more full sets if unlikely": replaced(-1, lambda step, x, c, _, coin: step.state.rows[c, x] < 0.16 and coin < 0.2),
    "more full sets if sensitive": replaced(-1, lambda step, x, _, __, coin: x in step.state.sensitive and coin < 0.2),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_that_does_not_follow_its_number_is_found_at_the_first_one(tmp_path, name):
    made, advance = life(tmp_path, "past", seed=7, **{**SMALL, "private": 0.3}), PastState.advance

    def moved(self, step, query):  # a set without the sensitive sources is none of the law
        return advance(self, step, query if query in step.sets else step.sets[-1])

    made.live(300, [drawing(made, StepLaw, DRAWS[name]), patch.object(PastState, "advance", moved)])
    found = made.audit()
    assert made.wrong, "the mistake was never made"
    assert (found.first.step, found.first.rule) == (made.wrong[0], "draw"), str(found)


# Laws that do not keep the promise: the client draws from them as it says.


def rows_of_another_context(made, honest, self):
    order = np.roll(np.arange(len(self.beliefs)), 1)
    if not np.array_equal(self.beliefs[order], self.beliefs):
        made.wrong.append(made.t)
    return replace(honest(replace(self, beliefs=self.beliefs[order], possible=self.possible[order])), state=self)


def law_of_the_step_before():
    kept = []

    def stale(made, honest, self):
        fresh = honest(self)
        old = kept[-1] if kept else None
        kept.append(fresh)
        if made.t % 3 or old is None or old.contexts != fresh.contexts or old.sets == fresh.sets:
            return fresh
        made.wrong.append(made.t)
        return replace(old, state=self)

    return stale


def set_without_a_sensitive_source(made, honest, self):
    step = honest(self)
    made.wrong.append(made.t)
    member = step.law.member.copy()
    member[0, 1] = False
    return replace(step, law=replace(step.law, member=member))


def a_unit_too_many(made, honest, self):
    step = honest(self)
    if step.encoders is not None and made.t > 9:
        made.wrong.append(made.t)
        step.encoders.extra[0, int(step.encoders.extra[0].argmax())] += 1
    return step


LAWS = {
    "rows": (rows_of_another_context, "rows"),
    "stale": (law_of_the_step_before(), "rows"),
    "sensitive": (set_without_a_sensitive_source, "sensitive"),
    "columns": (a_unit_too_many, "columns"),
}


@pytest.mark.parametrize("name", LAWS)
def test_a_law_that_does_not_keep_the_promise_is_found_at_its_first_step(tmp_path, name):
    mistake, rule = LAWS[name]
    made, honest = life(tmp_path, "past", seed=2, **SMALL), PastState.prepare

    def prepare(self):
        return mistake(made, honest, self)

    made.live(40, [patch.object(PastState, "prepare", prepare)])
    found = made.audit()
    assert (found.first.step, found.first.rule) == (made.wrong[0], rule), str(found)


def not_joined(made, found):
    """Readers of sensitive sources get no context of their own: all go where open ones go."""
    some = next((home for home in found.place if home >= 0), -1)
    joined = tuple(some if home >= 0 and some >= 0 else home for home in found.joined)
    if joined != found.joined:
        made.wrong.append(made.t + 1)
    return replace(found, joined=joined)


def merged_for_nothing(made, found):
    """Two contexts become one, although their beliefs differ."""
    if len(found.beliefs) < 3:
        return found
    made.wrong.append(made.t + 1)
    keep, possible = np.arange(len(found.beliefs)) != 1, found.possible.copy()
    possible[0] |= possible[1]
    beliefs = np.where(possible[0] & (found.beliefs[0] == 0), 2.0**-60, found.beliefs)
    return replace(
        found, beliefs=beliefs[keep], possible=possible[keep], spreads=found.spreads[keep],
        place=tuple(0 if c == 1 else c - (c > 1) for c in found.place),
        joined=tuple(0 if c == 1 else c - (c > 1) for c in found.joined),
    )  # fmt: skip


def beliefs_of_an_older_step():
    """Beliefs restored from an older step, as from a backup; what else is kept is of now."""
    kept = []

    def restored(made, found):
        now = found.beliefs
        older = [one for one in kept if one.shape == now.shape and not np.array_equal(one, now)]
        kept.append(now)
        if made.t % 5 or not older:
            return found
        made.wrong.append(made.t + 1)
        return replace(found, beliefs=older[-1].copy())

    return restored


STATES = {
    "not joined": (not_joined, "merge"),
    "merged": (merged_for_nothing, "merge"),
    "older": (beliefs_of_an_older_step(), "rows"),
}


@pytest.mark.parametrize("name", STATES)
def test_rows_and_contexts_that_are_wrong_are_found_at_the_first_law_made_of_them(tmp_path, name):
    mistake, rule = STATES[name]
    made, honest = life(tmp_path, "past", seed=2, **SMALL), PastState.advance
    advance = patch.object(PastState, "advance", lambda self, *given: mistake(made, honest(self, *given)))
    made.live(40, [advance])
    found = made.audit()
    off = next(step.step for step in made.steps() if step.lag and step.step in made.wrong)
    assert (found.first.step, found.first.rule) == (off, rule), str(found)


def test_a_law_that_was_chosen_by_the_request_leaves_that_step_unchecked_if_laws_are_made_again(tmp_path):
    """Every single law keeps the promise, so nothing is wrong by itself; but public things give another one."""
    made, honest = life(tmp_path, "past", seed=4), PastState.prepare

    def by_request(self):
        if made.path[made.t] not in made.sensitive:
            return honest(self)
        with patch("onoff.past.laws.PEELED_ROWS", 0), patch("onoff.past.laws.NEAR", 9.0):
            other = honest(self)
        if other.masses != honest(self).masses:
            made.wrong.append(made.t)
        return other

    made.live(40, [patch.object(PastState, "prepare", by_request)])
    found = made.audit(engine=made.engine())
    assert made.wrong
    assert (found.word, found.unchecked[0][0]) == ("NO VERDICT", made.wrong[0])
    assert "another law" in str(found)
    assert "--remake" in str(made.audit())


def test_going_on_for_a_sensitive_request_is_found(tmp_path):
    made, begin = life(tmp_path, "past", seed=2, **SMALL), promises.begin_past

    def switched(state, public, request, private, prepared, below, *_):
        if request != 1 or public.asks_for_all(private):
            return begin(state, public, request, private, prepared, below)
        made.wrong.append(made.t)
        done = begin(state, public, request, True, None, below)
        pending = replace(done.pending, asked_private=False)
        return replace(done, state=replace(done.state, pending=pending), pending=pending)

    made.live(40, [patch.object(promises, "begin_past", switched)])
    found = made.audit()
    assert (found.first.step, found.first.rule) == (made.wrong[0], "status")


# The record.


def record_of(made):
    return [json.loads(line) for line in made.record_file.read_text().splitlines()]


@pytest.fixture
def made(tmp_path):
    return life(tmp_path, "past", seed=3, kills=0.0, **SMALL).live(40)


def test_laws_of_another_stream_or_none_are_not_those_of_the_journal(made, tmp_path):
    other = life(tmp_path, "past", name="other", seed=5, **SMALL).live(40)
    found = made.audit(record=other.record_file)
    off = [step.step for step in made.steps() if step.lag]
    assert (found.word, [step for step, _ in found.unchecked]) == ("NO VERDICT", off)
    stream = record_of(made)[0]["stream"]
    write_lines(made.record_file, [{**line, "stream": stream} for line in record_of(other)])
    first = made.audit().first
    assert first.rule == "record"
    assert first.step in off


@pytest.mark.parametrize("sensitive", [(), (1,)])
def test_a_law_that_is_missing_leaves_steps_unchecked_until_the_next_on_step_and_accuses_nobody(tmp_path, sensitive):
    made = life(tmp_path, "past", seed=3, **{**SMALL, "sensitive": sensitive}).live(60)
    steps, lines = made.steps(), record_of(made)
    missing = lines[0]["step"]
    write_lines(made.record_file, [line for line in lines if line["step"] != missing])
    found = made.audit()
    until = next(step.step for step in steps if step.step > missing and not step.lag)
    assert found.word == "NO VERDICT"
    assert [step for step, _ in found.unchecked] == list(range(missing, until))


def test_a_law_that_was_recorded_twice_counts_once_and_the_last_must_be_the_journals(made):
    lines = record_of(made)
    at = lines[5]["step"]
    write_lines(made.record_file, [*lines[:6], *lines[5:]])
    assert made.audit().word == "PASSED"
    masses = lines[5]["law"]["masses"]
    other = {**lines[5], "law": {**lines[5]["law"], "masses": [masses[0] + 1, masses[1] - 1, *masses[2:]]}}
    write_lines(made.record_file, [*lines[:6], other, *lines[6:]])
    assert (made.audit().first.step, made.audit().first.rule) == (at, "record")


def test_half_a_line_is_passed_over_and_what_is_no_law_is_an_error_that_names_the_line(made):
    lines = made.record_file.read_text().splitlines()
    made.record_file.write_text("\n".join([*lines[:3], lines[3][:50], *lines[3:]]) + "\n")
    assert made.audit().word == "PASSED"
    fourth = json.loads(lines[3])
    empty = {**fourth, "law": {**fourth["law"], "masses": [0] * len(fourth["law"]["masses"])}}
    far = {**fourth, "law": {**fourth["law"], "encoders": {str(10**30): [[0], [0], [1]]}}}
    away = {**fourth, "place": [10**30]}
    for bad in ({"step": 3, "sources": [1]}, {**fourth, "version": 1}, empty, far, away):
        made.record_file.write_text("\n".join([*lines[:3], json.dumps(bad), *lines[3:]]) + "\n")
        with pytest.raises(Exception, match="line 4 is not one of a record of laws"):
            made.audit()


def test_without_a_record_laws_of_other_digits_are_not_checked_and_never_wrong(made):
    """The installed code is another version: it makes other laws, from the first OFF step on."""
    with patch("onoff.schemes.comb.SEED", 7), patch("onoff.past.state.PRICE", 0.3):
        found = made.audit(record=None, engine=made.engine())
    assert found.findings == ()
    assert (found.word, found.drawn < found.off) == ("NO VERDICT", True)
    assert "made again by the installed code" in str(found)
    found = made.audit(record=None)
    assert (found.word, found.drawn) == ("NO VERDICT", 0)
