"""Clients of the everyday mode with one planted mistake: each is caught in its log, and the honest one passes.

What a record shows to be wrong leaves no doubt. Mistakes in drawing are found by a bet whose false alarms are at most 1
in 10,000, and choices by a test with 1 in 1,000; seeds are fixed. With ten other seeds every mistake in drawing was
found in ten logs of ten, each with p below 1e-8.
"""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from onoff.audit.everyday.record import Table

from everydaylogs import CHAIN, Reader, everyday_log
from onoff.audit.transcript.draws import FALSE_ALARM
from onoff.audit.transcript.everyday.draws import everyday_draws
from onoff.audit.transcript.rules import due
from oracles import random_chain
from sampling import in_turn

SMALL = {"chain": random_chain("dense", 4, 2), "sensitive": (1,), "private": 0.1}
FULL = tuple(range(CHAIN.n))


def broken(found):
    return {breach.rule for breach in found.rules.breaches}


@pytest.mark.parametrize(
    ("sensitive", "kind"), in_turn([(), (1,), (0, 2), (0, 1, 2, 3)], ["dense", "sparse", "periodic"])
)
def test_honest_logs_pass(kind, sensitive):
    log = everyday_log(40, 1, chain=random_chain(kind, 4, 1), sensitive=sensitive, private=0.15)
    found = log.audit()
    assert found.passed, (found.findings, found.rules)
    assert found.remade == found.off == sum(not step.private for step in log.steps)
    assert max(found.verdict.private.after, found.verdict.private.own) < 1e-25
    assert found.naive.succeeded


@pytest.mark.long
def test_alarms_of_honest_draws_are_as_rare_as_stated():
    """At a rate of 0.2 forty logs give 8 alarms on average at most; 17 or more are seen with probability 0.0007."""
    alarms = 0
    for seed in range(40):
        log = everyday_log(30, seed, **SMALL)
        laws = log.laws().by_step
        found = everyday_draws(log.steps, due(log.steps, announced=False), laws, 4, (1,), (), 0.2)
        alarms += found.rejected
    assert alarms < 17


# Mistakes that the record shows


class RowOfAnotherContext(Reader):
    """The law is right, but two contexts have each other's rows."""

    def prepared(self, state, request, t):  # noqa: ARG002
        order = np.roll(np.arange(len(state.rows)), 1)
        return replace(state, rows=state.rows[order], possible=state.possible[order]).prepare()

    def after(self, state, step, query):
        return state.advance(replace(step, state=state), query)


class NotJoined(Reader):
    """After an OFF step readers of sensitive sources get no context of their own: all go where open ones go."""

    def after(self, state, step, query):
        found = state.advance(step, query)
        some = next(home for home in found.place if home >= 0)
        joined = tuple(some if home >= 0 else -1 for home in found.joined)
        return replace(found, joined=joined)


class StaleLaw(Reader):
    """Law and encoders of the step before serve again, where they fit: they were prepared before its query was sent."""

    kept = None

    def prepared(self, state, request, t):
        fresh, old = super().prepared(state, request, t), self.kept
        self.kept = fresh
        return old if t % 3 == 0 and old is not None and old.contexts == fresh.contexts else fresh

    def after(self, state, step, query):
        return state.advance(replace(step, state=state), query)


class RowsOfAnOlderStep(Reader):
    """Rows restored from an older step, as from a backup; what else is kept is of now."""

    def __init__(self):
        self.kept = []

    def state(self, state, t):
        older = [
            old for old in self.kept if len(old.rows) == len(state.rows) and not np.array_equal(old.rows, state.rows)
        ]
        self.kept.append(state)
        if t % 5 or not older:
            return state
        return replace(state, rows=older[-1].rows, possible=older[-1].possible, spreads=older[-1].spreads)


class MergedForNothing(Reader):
    """Two contexts are merged, although their rows differ, and nothing is charged for it."""

    def after(self, state, step, query):
        found = state.advance(step, query)
        if len(found.rows) < 3:
            return found
        keep = np.arange(len(found.rows)) != 1
        possible = found.possible.copy()
        possible[0] |= possible[1]
        rows = np.where(possible[0] & (found.rows[0] == 0), 2.0**-60, found.rows)
        home = lambda c: 0 if c == 1 else c - (c > 1)  # noqa: E731
        return replace(
            found, rows=rows[keep], possible=possible[keep], spreads=found.spreads[keep],
            place=tuple(map(home, found.place)), joined=tuple(map(home, found.joined)),
        )  # fmt: skip


class MergedAndUnderstated(MergedForNothing):
    """The same, charged with a millionth of a millionth."""

    def after(self, state, step, query):
        return replace(super().after(state, step, query), charge=1e-12)


class LawWithoutSensitive(Reader):
    """One set of the law lacks a sensitive source."""

    def prepared(self, state, request, t):
        step = super().prepared(state, request, t)
        sets = tuple(tuple(x for x in query if x != 1) if i == 0 else query for i, query in enumerate(step.sets))
        return replace(step, sets=sets)

    def after(self, state, step, query):
        honest = state.prepare()
        return state.advance(honest, honest.sets[step.sets.index(query)])


@pytest.mark.parametrize(
    ("reader", "rules"),
    [
        (RowOfAnotherContext, {"rows"}),
        (NotJoined, {"merge"}),
        (StaleLaw, {"rows"}),
        (RowsOfAnOlderStep, {"rows"}),
        (MergedForNothing, {"merge"}),
        (MergedAndUnderstated, {"merge"}),
        (LawWithoutSensitive, {"sensitive"}),
    ],
)
def test_a_wrong_law_is_found_in_the_record(reader, rules):
    found = everyday_log(40, 2, reader(), **SMALL).audit(engine=None)
    assert rules <= broken(found)
    assert not found.passed


class SensitiveMissing(Reader):
    """One query is sent without the sensitive source, when another is wanted."""

    done = False

    def draw(self, step, request, context, below, t):
        query = super().draw(step, request, context, below, t)
        if t < 20 or self.done or request == 1:
            return query
        self.done = True
        return tuple(x for x in query if x != 1)


def test_sensitive_sources_that_are_missing_from_one_query_are_found():
    found = everyday_log(30, 2, SensitiveMissing(), **SMALL).audit()
    assert {"sensitive", "query"} <= broken(found)
    assert found.rules.drawn.rejected
    assert not found.passed


class LawByRequest(Reader):
    """A law that is private in itself, but chosen by the request: always everything where a sensitive one is wanted."""

    def prepared(self, state, request, t):
        step = super().prepared(state, request, t)
        if request not in state.sensitive or not step.contexts:
            return step
        tables = {c: step.encoder(c).toarray().sum(axis=1) for c in step.contexts}
        totals = np.array([tables[c][state.open_sources] for c in step.contexts])
        return SimpleNamespace(
            state=state,
            sets=(tuple(range(state.chain.n)),),
            cost=float(state.chain.n),
            index=lambda query: 0,
            encoders=SimpleNamespace(column=lambda index: totals, totals=totals),
            draw=lambda request, context, below: tuple(range(state.chain.n)),
            as_dict=lambda: {
                "sets": [list(range(state.chain.n))], "masses": [step.denominator], "denominator": step.denominator,
                "lower_bound": step.lower_bound, "rounding": step.rounding,
                "encoders": {
                    str(c): [np.flatnonzero(units).tolist(), [0] * int((units > 0).sum()), units[units > 0].tolist()]
                    for c, units in tables.items()
                },
            },
        )  # fmt: skip


def test_a_law_that_was_chosen_by_the_request_is_found_by_making_it_again():
    log = everyday_log(30, 4, LawByRequest(), **SMALL)
    found = log.audit()
    assert any("another law" in finding for finding in found.findings)
    assert not found.passed
    assert log.audit(engine=None).rules.breaches == ()  # no single law is wrong


def test_laws_of_another_record_are_not_those_of_the_stream():
    log, other = (everyday_log(30, seed, **SMALL) for seed in (4, 5))
    found = replace(log, record=other.record).audit()
    assert broken(found) & {"rows", "query", "context", "record"}
    assert not found.passed


def test_a_law_that_is_missing_silences_its_stream_and_does_not_pass():
    log = everyday_log(30, 4, **SMALL)
    found = replace(log, record=log.record[:-5]).audit()
    assert "record" in broken(found)
    assert found.verdict.silent
    assert found.rules.drawn.untested
    assert not found.passed


def test_an_allowance_of_one_or_more_does_not_pass():
    log = everyday_log(30, 4, **SMALL)
    record = tuple({**line, "law": {**line["law"], "rounding": 2e-4}} for line in log.record)
    found = replace(log, record=record).audit(engine=None)
    assert not found.verdict.conclusive
    assert "coarse" in broken(found)
    assert not found.passed


def test_encoders_that_were_forged_are_found():
    log = everyday_log(20, 4, **SMALL)
    laws = log.laws()
    step, law = next(iter(laws.by_step.items()))
    context, table = next(iter(law.tables.items()))
    units = table.units.copy()
    units[0] += 1
    forged = replace(law, tables={**law.tables, context: Table(table.request, table.column, units)})
    changed = replace(laws, by_step={**laws.by_step, step: forged})
    found = everyday_log(20, 4, **SMALL)
    object.__setattr__(found, "laws", lambda: changed)
    assert "encoder" in broken(found.audit(engine=None))


# Mistakes in rules


class OnIfSensitive(Reader):
    """Privacy is switched ON for sensitive requests, by the client or by its user."""

    def __init__(self, asked):
        self.asked = asked

    def status(self, asked, request, t):
        on = asked or request == 1
        return (on if self.asked else asked), on or t == 0


def test_going_on_for_a_sensitive_request_is_found():
    found = everyday_log(60, 2, OnIfSensitive(asked=False), **SMALL).audit()
    assert {"status", "record"} <= broken(found)
    found = everyday_log(300, 2, OnIfSensitive(asked=True), **SMALL).audit(engine=None)
    assert broken(found) == set()
    assert found.rules.chosen.rejected
    assert not found.passed


def test_a_step_that_was_asked_twice_otherwise_is_found():
    log = everyday_log(30, 4, **SMALL)
    at = next(i for i, step in enumerate(log.steps) if 0 < len(step.query) < 4)
    again = replace(log.lines[at], sources=tuple(range(4)))
    found = replace(log, lines=(*log.lines[: at + 1], again, *log.lines[at + 1 :])).audit()
    assert {"one query", "journal"} <= broken(found)


def test_a_stream_that_does_not_begin_with_the_full_set_is_found():
    log = everyday_log(30, 4, **SMALL)
    first = replace(log.steps[0], query=(0, 1, 2))
    lines = (replace(log.lines[0], sources=(0, 1, 2)), *log.lines[1:])
    found = replace(log, steps=(first, *log.steps[1:]), lines=lines).audit()
    assert {"full set", "full"} <= broken(found)


# Mistakes in drawing, of which the record knows nothing


class SensitiveAlone(Reader):
    """When the request is sensitive, the smallest set is sent."""

    def draw(self, step, request, context, below, t):
        if request in step.state.sensitive:
            return min(step.sets, key=len)
        return super().draw(step, request, context, below, t)


class SensitiveAsOpen(Reader):
    """When the request is sensitive, R is drawn as for some open request."""

    def draw(self, step, request, context, below, t):
        if request in step.state.sensitive and context in step.contexts:
            units = step.encoder(context).toarray()
            request = int(units.sum(axis=1).argmax())
        return super().draw(step, request, context, below, t)


class FullIfSensitive(Reader):
    """The full set is sent when the request is sensitive."""

    def draw(self, step, request, context, below, t):
        if request in step.state.sensitive:
            return step.sets[-1]
        return super().draw(step, request, context, below, t)


class SameNumber(Reader):
    """The random number of a draw is used four times."""

    last = None

    def draw(self, step, request, context, below, t):  # noqa: ARG002 (the signature of the others)
        def again(bound):
            number = self.last if t % 4 and self.last is not None else random.Random(f"at {t}").random()
            self.last = number
            return int(number * bound)

        return super().draw(step, request, context, again, t)


class SameSet(Reader):
    """The set of the step before is sent again where it can be."""

    last = None

    def draw(self, step, request, context, below, t):
        query = super().draw(step, request, context, below, t)
        if t % 2 and self.last in step.sets and request in self.last:
            query = self.last
        self.last = query
        return query


class Neighbour(Reader):
    """The encoder of the next context serves, where it has the request."""

    def draw(self, step, request, context, below, t):
        if request not in step.state.sensitive and context + 1 in step.contexts:
            units = step.encoder(context + 1).toarray()[request]
            if units.any():
                return step.sets[int(np.searchsorted(np.cumsum(units), below(int(units.sum())), side="right"))]
        return super().draw(step, request, context, below, t)


class Unjoined(Reader):
    """The reader forgets that its sensitive request made a new context."""

    def context(self, state, request, context, private):
        if not private and request in state.sensitive and context is not None and state.place[context] >= 0:
            return state.place[context]
        return super().context(state, request, context, private)

    def draw(self, step, request, context, below, t):
        if step.state.possible[context, request]:
            return super().draw(step, request, context, below, t)
        return step.sets[-1]


class Seeded(Reader):
    """A generator that is seeded from request and step."""

    def draw(self, step, request, context, below, t):  # noqa: ARG002 (the signature of the others)
        return super().draw(step, request, context, random.Random(f"{request},{t}").randrange, t)


class SmallerOfTwo(Reader):
    """Two draws, the smaller set is sent."""

    def draw(self, step, request, context, below, t):
        return min((Reader.draw(self, step, request, context, below, t) for _ in range(2)), key=len)


class Openly(Reader):
    """One step in three asks for the request alone, beside the sensitive sources."""

    def draw(self, step, request, context, below, t):
        alone = tuple(sorted({*step.state.sensitive, request}))
        if t % 3 == 0 and alone in step.sets:
            return alone
        return super().draw(step, request, context, below, t)


class NeverTheSame(Reader):
    """A set that came the step before is drawn again, once."""

    last = None

    def draw(self, step, request, context, below, t):
        query = super().draw(step, request, context, below, t)
        if query == self.last:
            query = super().draw(step, request, context, below, t)
        self.last = query
        return query


class HoldsTheNext(Reader):
    """A set that lacks the next request is drawn again, up to five times."""

    path = ()

    def draw(self, step, request, context, below, t):
        for _ in range(5):
            query = super().draw(step, request, context, below, t)
            if t + 1 < len(self.path) and self.path[t + 1] in query:
                break
        return query


DRAWS = {
    SensitiveAlone: 100,
    SensitiveAsOpen: 200,
    FullIfSensitive: 60,
    SameNumber: 160,
    SameSet: 100,
    Neighbour: 60,
    Unjoined: 200,
    Seeded: 60,
    SmallerOfTwo: 300,
    Openly: 300,
    NeverTheSame: 500,
}


@pytest.mark.parametrize(
    "reader", [pytest.param(reader, marks=pytest.mark.long if steps >= 100 else ()) for reader, steps in DRAWS.items()]
)
def test_sets_that_were_not_drawn_as_recorded_are_found(reader):
    found = everyday_log(DRAWS[reader], 7, reader()).audit(engine=None)
    assert broken(found) <= {"query"}
    assert found.rules.drawn.rejected, found.rules.drawn
    assert found.rules.drawn.false_alarm == FALSE_ALARM == 1e-4
    assert not found.passed


@pytest.mark.long
def test_sets_that_were_drawn_for_the_next_request_are_found():
    reader = HoldsTheNext()
    reader.path = [step.request for step in everyday_log(300, 7).steps]
    log = everyday_log(300, 7, reader)
    assert [step.request for step in log.steps] == reader.path
    drawn = log.audit(engine=None).rules.drawn
    assert drawn.rejected
    assert "next request" in drawn.hint


def test_the_bets_of_named_mistakes_find_what_they_are_for():
    for reader, hint in ((Neighbour, "context after"), (Seeded, "random.Random"), (FullIfSensitive, "sensitive")):
        found = everyday_log(DRAWS[reader], 8, reader()).audit(engine=None).rules.drawn
        assert hint in found.hint or found.impossible
