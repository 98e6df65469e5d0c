"""The bet against the client: fair if sets are drawn as the plans say, and won if they are not."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from onoff.audit.models import Encoder

from auditstreams import CHAIN, models, plans, steps_of
from onoff.audit.transcript.draws import draws
from onoff.audit.transcript.gambling import PARTS, Drawn, gamblers, racers
from onoff.audit.transcript.mistakes import (
    Shunned,
    generators,
    larger_of_two,
    mistakes,
    smaller_of_two,
    without_previous,
)
from onoff.audit.transcript.reading import Step
from onoff.errors import OnoffError


def drawn(row, sizes, index, step, before):
    return Drawn(step, step.request, 1 + before % 2, np.array(sizes), np.array(row), index, before)


@pytest.mark.parametrize("number", range(len(gamblers())))
def test_no_gambler_expects_to_gain(number):
    """The expected capital over all ways that four draws can come is 1."""
    rows = [(1, 2, 4, 0), (3, 1, 1, 1), (1, 2, 4, 0), (2, 0, 5, 9)]
    steps = [step for step in steps_of(40, 3) if step.lag][:4]
    expected = total = 0.0
    for outcome in itertools.product(range(4), repeat=len(rows)):
        chance = math.prod(row[i] / sum(row) for row, i in zip(rows, outcome, strict=True))
        if chance:
            gambler, before = gamblers()[number], 0
            for row, i, step in zip(rows, outcome, steps, strict=True):
                one = drawn(row, (1, 1, 2, 3), i, step, before)
                gambler.bet(one)
                before = one.place
            expected += chance * math.exp(gambler.log_capital)
            total += chance
    assert total == pytest.approx(1)
    assert expected == pytest.approx(1, abs=1e-12)


def test_the_gamblers_share_one_capital():
    """The p-value is 1 over the largest mean, over four groups, of their mean capitals: the best is not fair."""
    sets, row = ((0,), (1,), (0, 1)), np.array([1, 2, 5])
    model = SimpleNamespace(encoder=lambda last, next, lag: Encoder(sets, np.tile(row, (CHAIN.n, 1))))
    outcome = [0, 0, 1, 0, 0, 2, 2]
    steps = [Step(0, True, True, 0, "everything", (), 0, 0)]
    steps += [Step(t, False, False, t, "one", sets[i], 0, 0) for t, i in enumerate(outcome, 1)]
    groups, before, most, previous = [gamblers(), racers(), mistakes(), generators()], 0, 1.0, 0
    for step, i in zip(steps[1:], outcome, strict=True):
        table = np.tile(row, (CHAIN.n, 1))
        context = sets, CHAIN.n, table, lambda last, next, lag: row, None, previous
        one = Drawn(step, 0, step.step, np.array([1, 1, 2]), row, i, before, *context)
        for gambler in (*groups[0], *groups[2], *groups[3]):
            gambler.bet(one)
        before = one.place
        means = [sum(math.exp(gambler.log_capital) for gambler in group) / len(group) for group in groups]
        most = max(most, sum(means) / len(means))
    assert most > 2
    assert draws(steps, {"one": model}).p_value == pytest.approx(1 / most)


@pytest.mark.parametrize("number", range(len(gamblers())))
def test_every_gambler_wins_against_its_mistake(number):
    """Sets that follow the request, the next one, ..., where the plan tosses a coin."""
    hidden, gambler = random.Random(number), gamblers()[number]
    keyed = {2: "request", 3: "last", 4: "next", 5: "lag", 7: "before", 8: "request"}.get(number)
    for step in [step for step in steps_of(200, 3) if step.lag][:100]:
        bit = hidden.randrange(2)
        told = {"request": 0, "last": 0, "next": 0, "lag": 1, "before": 0} | ({keyed: bit} if keyed else {})
        noted = replace(step, request=told["request"], next=told["next"], plan="one")
        row, index = np.array([1, 1]), bit if keyed else 0
        gambler.bet(Drawn(noted, told["last"], told["lag"], np.array([1, 2]), row, index, told["before"]))
    assert gambler.log_capital > 30  # of 69, the most that 100 tosses can bring


def test_the_parts_of_the_range_hold_the_sets_in_their_order():
    one = drawn((1, 0, 6, 1), (1, 1, 1, 1), 2, steps_of(1, 1)[0], 0)
    assert one.parts.shape == (PARTS, 4)
    assert one.parts.sum(axis=0) == pytest.approx([1, 0, 1, 1])
    assert np.allclose(one.parts @ one.p, 1 / PARTS)
    assert one.parts[:, 0].argmax() == 0
    assert one.parts[:, 3].argmax() == PARTS - 1


@pytest.mark.long
def test_false_alarms_are_as_rare_as_stated():
    """At most 5 % of honest streams may alarm at 5 %; of 100, more than 15 would with probability below 1e-4."""
    alarms = sum(draws(steps_of(40, seed), models(), false_alarm=0.05).rejected for seed in range(100))
    assert alarms <= 15


def modulo_bias(seed):
    """Enough bits and then the remainder: small numbers come twice as often as large ones."""
    source = random.Random(seed)
    return lambda bound: source.getrandbits(bound.bit_length()) % bound


def tired(seed):
    """A generator that gives the same number again and again before it moves on."""
    calls = itertools.count()
    return lambda bound: int(random.Random(seed + next(calls) // 10).random() * bound)


@pytest.mark.parametrize(
    ("randbelow", "steps"), [pytest.param(modulo_bias, 5000, marks=pytest.mark.long), (tired, 1000)]
)
def test_bad_random_numbers_are_caught(randbelow, steps):
    found = draws(steps_of(steps, 2, randbelow(7)), models())
    assert found.rejected
    assert "random number" in found.hint
    assert found.impossible == ()
    honest = draws(steps_of(steps, 2, random.Random(7).randrange), models())
    assert not honest.rejected
    assert honest.tested == found.tested > 0.6 * steps


def test_a_set_that_cannot_come_is_proof():
    steps = steps_of(30, 3)
    victim = next(step for step in steps if step.lag)
    for query in ((), tuple(x for x in range(CHAIN.n) if x != victim.request)):  # outside the law; of weight 0
        found = draws([replace(step, query=query) if step is victim else step for step in steps], models())
        assert (found.p_value, found.impossible) == (0.0, (victim.step,))
        assert found.rejected


def test_contexts_are_recomputed_and_not_believed():
    steps = [replace(step, lag=7, private=True) if step.step > 1 else step for step in steps_of(100, 4)]
    assert draws(steps, models()) == draws(steps_of(100, 4), models())


def test_steps_without_their_plan_are_counted_as_untested():
    steps = steps_of(100, 3)
    off = sum(step.lag > 0 for step in steps)
    first = sum(step.lag == 1 for step in steps)
    name = plans()[1].name
    found = draws(steps, {name: models()[name]})
    assert (found.tested, found.untested) == (first, off - first)
    nothing = draws(steps, {})
    assert (nothing.tested, nothing.p_value, nothing.rejected) == (0, 1.0, False)
    with pytest.raises(OnoffError, match="a probability between 0 and 1"):
        draws(steps, models(), false_alarm=0)


def test_chances_of_a_second_draw_are_those_of_all_pairs_of_draws():
    """Each set that may come first and second: which one such a client sends."""
    sets = ((0,), (1,), (0, 1), (0, 1, 2))
    weights = np.array([4, 3, 2, 1])
    sizes = np.array([len(query) for query in sets])
    step = Step(5, False, False, 1, "plan", sets[0], 0, None)
    one = Drawn(step, 0, 1, sizes, weights, 1, 0, sets, 3, previous=1)
    shunned = Shunned("the set of the step before")
    shunned.bet(one)  # which was number 1
    sent = {
        "smaller": (smaller_of_two, lambda i, j: i if sizes[i] <= sizes[j] else j),
        "larger": (larger_of_two, lambda i, j: i if sizes[i] >= sizes[j] else j),
        "without the request before": (without_previous, lambda i, j: j if 1 in sets[i] else i),
        "not the same": (shunned.chances, lambda i, j: j if i == 1 else i),
    }
    for name, (chances, which) in sent.items():
        expected = np.zeros(len(sets))
        for i, j in itertools.product(range(len(sets)), repeat=2):
            expected[which(i, j)] += one.p[i] * one.p[j]
        assert chances(one) == pytest.approx(expected), name
