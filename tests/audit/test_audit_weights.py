"""Weights in the audit: they are computed again from public things, and a lie about them is found."""

from __future__ import annotations

import random

import numpy as np
import pytest

from everydaylogs import CHAIN, Reader, everyday_log
from onoff.audit.everyday.weights import Weights, weights_digest
from onoff.audit.transcript.choices import choices
from onoff.audit.transcript.everyday.weighing import weighing_choices
from onoff.audit.transcript.reading import Step
from onoff.audit.transcript.rules import due
from onoff.everyday import Everyday
from onoff.plans.lengths import Weighing

MINE = Weighing((900.0, 30.0, 2000.0, 5.0, 400.0, 77.0), (1.0, 0.3, 0.05, 0.5, 0.9, 0.1))
OTHER = Weighing((5.0, 2000.0, 30.0, 900.0, 77.0, 400.0), MINE.chances)
KNOWN = Weights(MINE.lengths, MINE.chances)
STEPS = 24


class Weighed(Reader):
    """Lays its laws out by lengths and chances, as the client does."""

    def __init__(self):
        self.asked = dict.fromkeys(range(CHAIN.n), -1)

    def weighing(self, request, t):  # noqa: ARG002
        return MINE

    def used(self, request, t):
        """What the law is made with; `weighing` is what the record states."""
        return self.weighing(request, t)

    def status(self, asked, request, t):
        found = super().status(asked, request, t)
        if found[1]:
            self.asked = dict.fromkeys(range(CHAIN.n), t)
        return found

    def prepared(self, state, request, t):
        self.stated = self.weighing(request, t)
        return state.prepare(self.used(request, t).after([t - self.asked[x] for x in range(CHAIN.n)]))

    def draw(self, step, request, context, below, t):
        query = super().draw(step, request, context, below, t)
        self.asked.update(dict.fromkeys(query, t))
        return query

    def line(self, state, step):
        return {**super().line(state, step), "weights": self.stated.as_dict()}


class ByRequest(Weighed):
    """Chooses its lengths by the request, and says so in the record."""

    def weighing(self, request, t):  # noqa: ARG002
        return MINE if request % 2 else OTHER


class Secretly(Weighed):
    """Chooses its lengths by the request, and states those of the journal."""

    def used(self, request, t):  # noqa: ARG002
        return MINE if request % 2 else OTHER


class Forgetful(Weighed):
    """Does not count how long ago a source was asked for."""

    def prepared(self, state, request, t):
        self.stated = self.weighing(request, t)
        return state.prepare(MINE.fixed)


class Later(Weighed):
    """Gets other lengths at step 15."""

    def weighing(self, request, t):  # noqa: ARG002
        return MINE if t >= 15 else OTHER


class Often(Weighed):
    """Gets other lengths every five steps."""

    def weighing(self, request, t):  # noqa: ARG002
        return MINE if t // 5 % 2 else OTHER


class Thrice(Weighed):
    """Gets other lengths at steps 7, 12 and 18, the last time those of before."""

    def weighing(self, request, t):  # noqa: ARG002
        return next(weighing for first, weighing in reversed(ERAS) if first <= t)


class Cheaper(Weighed):
    """Never has the same lengths twice, and makes the wanted source's a little smaller."""

    def weighing(self, request, t):
        lengths = [900.0 + t + (0 if x == request else 1) for x in range(CHAIN.n)]
        return Weighing(tuple(lengths))


class ByTheOneBefore(Weighed):
    """Learns the length of what it has read, and of nothing else."""

    def __init__(self):
        super().__init__()
        self.lengths, self.last = [1.0] * CHAIN.n, 0

    def status(self, asked, request, t):
        if t:
            self.lengths[self.last] = 900.0 + t
        self.last = request
        return super().status(asked, request, t)

    def weighing(self, request, t):  # noqa: ARG002
        return Weighing(tuple(self.lengths))


LONG = 80
ERAS = ((0, OTHER), (7, Weighing(MINE.lengths)), (12, OTHER), (18, MINE))


def known(weighing):
    return Weights(weighing.lengths, weighing.chances)


def history(eras):
    """What a journal remembers of lengths from these steps on: the last ones, since when, and digests of the others."""
    *before, (since, last) = eras
    return known(last), since, tuple((first, weights_digest(known(weighing))) for first, weighing in before)


def made_up(log):
    """The history that fits a record best, whatever its client has done."""
    eras = []
    for line in log.record:
        stated = Weighing(*(None if part is None else tuple(part) for part in line["weights"].values()))
        if not eras or eras[-1][1] != stated:
            eras.append((line["step"], stated))
    return history(eras)


def audited(reader, weights=KNOWN, since=0, engine=Everyday.start):
    return everyday_log(STEPS, 5, reader, sensitive=(1,)).audit(engine, weights, since)


def test_every_law_is_made_again_with_the_weights_of_the_queries_so_far():
    found = audited(Weighed())
    assert found.findings == ()
    assert found.notes == ()
    assert found.remade == found.off > 15
    assert found.rules.kept


@pytest.mark.parametrize("reader", [ByRequest, Secretly, Forgetful, Often])
def test_weights_that_are_not_those_of_the_journal_and_the_queries_are_found(reader):
    found = audited(reader())
    assert found.findings
    assert not found.passed


def test_a_request_that_chooses_what_is_stated_is_named_with_its_step():
    found = audited(ByRequest(), engine=None)
    assert any("other lengths than the journal remembers" in words for words in found.findings)
    assert any("the journal does not say so" in words for words in found.findings)


def test_lengths_that_the_journal_says_have_changed_are_noted_and_nothing_more():
    found = audited(Later(), since=15)
    assert found.findings == ()
    assert found.remade == found.off
    [note] = found.notes
    assert "lengths changed there" in note
    assert audited(Later(), since=9, engine=None).findings  # the journal says another step
    assert audited(Often(), since=20, engine=None).findings  # it remembers the last change only


def test_a_journal_that_remembers_three_changes_of_lengths_passes():
    log = everyday_log(STEPS, 5, Thrice(), sensitive=(1,))
    weights, since, before = history(ERAS)
    found = log.audit(Everyday.start, weights, since, before)
    assert found.passed, (found.findings, found.rules)
    assert found.remade == found.off
    [note] = found.notes
    assert "step 7: lengths changed there and at 2 steps more" in note


@pytest.mark.parametrize(
    "wrong",
    [
        ERAS[
            1:
        ],  # it has forgotten the first ones: the changes that it knows are explained, and 7 is the first of them
        ((0, OTHER), (7, MINE), (12, OTHER), (18, MINE)),
        ((0, OTHER), (8, Weighing(MINE.lengths)), (12, OTHER), (18, MINE)),
        ((0, OTHER), (7, Weighing(MINE.lengths)), (13, OTHER), (18, MINE)),
        ((0, OTHER), (12, OTHER), (18, MINE)),
        ((12, OTHER), (18, MINE)),
        ((0, OTHER), (7, Weighing(MINE.lengths)), (12, OTHER), (17, MINE)),
        ((0, OTHER), (3, MINE), (7, Weighing(MINE.lengths)), (12, OTHER), (18, MINE)),
    ],
)
def test_a_history_of_lengths_that_does_not_fit_the_laws_is_found(wrong):
    log = everyday_log(STEPS, 5, Thrice(), sensitive=(1,))
    weights, since, before = history(wrong)
    assert bool(log.audit(None, weights, since, before).findings) == (wrong != ERAS[1:])


@pytest.mark.parametrize("reader", [ByRequest, Cheaper, ByTheOneBefore])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 5))])
def test_a_history_that_was_made_up_for_lengths_chosen_by_requests_is_found(reader, seed):
    """It fits every law, and every law is in order. What is left is that lengths follow the requests."""
    log = everyday_log(LONG, seed, reader(), sensitive=(1,))
    found = log.audit(None, *made_up(log))
    assert found.findings == ()
    assert found.rules.chosen.rejected
    assert "lengths" in found.rules.chosen.hint
    assert not found.passed


def test_lengths_that_change_at_random_raise_an_alarm_as_rarely_as_stated():
    """Each of 60 journals is rejected at 1/20 with probability 1/20 at most: 11 or more of them, 1 in 5,000 times."""
    alarms = 0
    for seed in range(60):
        rng, stated, steps = random.Random(seed), {}, []
        for t, request in enumerate(CHAIN.simulate(LONG, np.random.default_rng(seed)).tolist()):
            if t % 10 == 0 or rng.random() < 0.3:
                weights = Weights(tuple(rng.choice((1.0, 2.0)) for _ in range(CHAIN.n)), None)
            steps.append(Step(t, t == 0, t == 0, t, "past", (request,), request, None))
            stated |= {t: weights} if t else {}
        more = weighing_choices(stated, due(steps, announced=False), CHAIN.n)
        assert len(more) >= 6
        alarms += choices(steps, seed, 0.05, announced=False, more=more).rejected
    assert alarms <= 10


def test_a_journal_that_remembers_other_lengths_or_none_is_found():
    log = everyday_log(STEPS, 5, Weighed(), sensitive=(1,))
    for remembered in (None, Weights(MINE.lengths, None), Weights(OTHER.lengths, MINE.chances)):
        assert log.audit(None, remembered).findings
    assert everyday_log(STEPS, 5, sensitive=(1,)).audit(None, KNOWN).findings  # laws for messages, though


def test_weights_for_another_number_of_sources_are_found():
    class Short(Weighed):
        def line(self, state, step):
            return {**super().line(state, step), "weights": {"lengths": [1.0, 2.0], "chances": None}}

    found = audited(Short(), Weights((1.0, 2.0), None), engine=None)
    assert any("weighs 2 sources" in words for words in found.findings)


def test_without_weights_nothing_has_changed():
    found = everyday_log(STEPS, 5, sensitive=(1,)).audit(engine=Everyday.start)
    assert (found.findings, found.notes) == ((), ())
    assert found.remade == found.off
