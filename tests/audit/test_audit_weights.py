"""Weights in the audit: they are computed again from public things, and a lie about them is found."""

from __future__ import annotations

import pytest

from everydaylogs import CHAIN, Reader, everyday_log
from onoff.audit.everyday.weights import Weights
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
