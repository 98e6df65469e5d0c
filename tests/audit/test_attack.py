"""The attack on a log: what it believes is judged with a stated false-alarm rate, and leaks are found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clientstreams import bits, random_habits, statuses, stream
from onoff import Chain, OnoffError, plan
from onoff.audit import attack as module
from onoff.audit.attack import SeenStep, attack, naive_steps, recorded_view
from onoff.audit.clients import Announced, Decoys, Everything, Naive, Past
from onoff.audit.exhibits import law_line
from onoff.past import PastState
from oracles import random_chain

CHAIN = Chain([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [0.2, 0.2, 0.6]])
FOUR = random_chain("dense", 4, 2)


def seen_of(client, chain, private, rng):
    path, steps, queries = stream(client, chain, private, rng)
    return path[:-1], [SeenStep(on, query, step) for on, query, step in zip(private, queries, steps, strict=True)]


def switched(steps, rng):
    return [True, *(bool(on) for on in np.cumsum(rng.random(steps - 1) < 0.3) % 2 == 0)]


def attacked(client, seed=1, steps=200, **options):
    rng = np.random.default_rng(seed)
    path, seen = seen_of(client, CHAIN, switched(steps, rng), rng)
    return attack(CHAIN, "both", seen, truth=path, **options)


def recorded(chain, sensitive, text, seed):
    """A stream of the promise `past` from its record: what the server saw, and the lines of laws by step."""
    client = Past(PastState.start(chain, sensitive), chain.n, sensitive)
    path, steps, queries = stream(client, chain, statuses(text), np.random.default_rng(seed))
    lines = {t: law_line(step.exhibit.prepare().as_dict(), chain.n) for t, step in enumerate(steps) if step.lag}
    return path[:-1], queries, lines


def from_record(chain, sensitive, text, queries, lines):
    on = Everything(chain.n).on()
    views = {t: recorded_view(chain, line, queries[t], sensitive) for t, line in lines.items()}
    return [SeenStep(asked, queries[t], on if asked else views.get(t)) for t, asked in enumerate(statuses(text))]


def test_naive_clients_are_caught_and_ours_is_not():
    ours = attacked(Announced(3, [plan(CHAIN, 1)]), rounding=200 * 2.0**-40)
    assert not attacked(Everything(3)).succeeded  # though floats move beliefs, and no rounding is stated
    naive, decoys = attacked(Naive(3)), attacked(Decoys(3, 1))
    assert (ours.succeeded, ours.conclusive) == (False, True)
    assert ours.private.bits < 1e-12
    assert ours.private.guessed == ours.private.guessed_before
    assert naive.succeeded
    assert naive.private.bits > 0.05
    assert naive.open.guessed == 1
    assert decoys.succeeded
    assert decoys.private.guessed > decoys.private.guessed_before


def test_a_leak_as_small_as_rounding_is_allowed_and_a_larger_one_is_not(monkeypatch):
    client, honest = Everything(3), module.infer
    on, off = (SeenStep(step.lag == 0, (0, 1, 2), step) for step in (client.on(), client.off(client.on(), ())))
    for promise, last, shift, expected in (
        ("both", on, 1e-10, False),
        ("both", on, 1e-6, True),
        ("both", off, 1e-6, False),
        ("past", on, 1e-6, True),
        ("past", off, 1e-10, False),
        ("past", off, 1e-6, True),  # later queries must not tell about an open request, either
    ):

        def moved(*given, shift=shift, **named):
            found = honest(*given, **named)
            found.after[-1] += shift * np.array([1, -1, 0])
            return found

        monkeypatch.setattr(module, "infer", moved)
        assert attack(CHAIN, promise, [on, on, on, last], rounding=1e-11).succeeded == expected


@pytest.mark.parametrize("sensitive", [(), (1,), (0, 2)])
@pytest.mark.parametrize("chain", [FOUR, random_habits(4, np.random.default_rng(1))])
def test_a_record_of_laws_is_enough_and_nothing_is_learned_at_or_after_a_request(chain, sensitive):
    text = "1101000110"
    path, queries, lines = recorded(chain, sensitive, text, 3)
    found = attack(chain, "past", from_record(chain, sensitive, text, queries, lines), sensitive, 1e-12, path)
    assert (found.succeeded, found.conclusive, found.missed, found.beliefs.silent) == (False, True, 0, ())
    assert found.private.bits < 1e-25
    assert (found.sensitive is None) == (not sensitive)
    naive = attack(chain, "past", naive_steps(4, statuses(text), path), sensitive, truth=path)
    assert naive.succeeded


def test_beliefs_follow_a_wrong_record_and_show_what_it_tells():
    """Readers in one state use the encoder of another: the attack knows it, and learns."""
    _, queries, lines = recorded(FOUR, (1,), "10", 5)
    first, second = sorted(lines[1].encoders)[:2]
    swapped = {**lines[1].encoders, first: lines[1].encoders[second], second: lines[1].encoders[first]}
    wrong = {1: replace(lines[1], encoders=swapped)}
    found = attack(FOUR, "past", from_record(FOUR, (1,), "10", queries, wrong), (1,))
    before, own, after = bits(found.beliefs, 0)
    assert (before, own) == (0, 0)
    assert after > 1e-5


def test_steps_without_a_law_or_with_a_race_are_counted_and_say_nothing():
    _, queries, lines = recorded(FOUR, (1,), "100010", 5)
    del lines[2]
    found = attack(FOUR, "past", from_record(FOUR, (1,), "100010", queries, lines), (1,))
    assert (found.off, found.missed) == (4, 2)
    np.testing.assert_allclose(found.beliefs.at[2:4], found.beliefs.before[2:4])
    race = Announced(3, [plan(CHAIN, 1, "race")])
    off = race.off(race.on(), ())
    blind = attack(CHAIN, "both", [SeenStep(True, (0, 1, 2), race.on()), SeenStep(False, (0, 1), off)])
    assert (blind.off, blind.missed) == (1, 1)


def test_no_law_is_used_that_speaks_for_a_query_that_is_not_in_the_log():
    """Of habits that remember two requests two full sets in a row are needed; step 4 follows one."""
    habits, text = random_habits(3, np.random.default_rng(1)), "11010110"
    for seed in range(3):
        _, queries, lines = recorded(habits, (1,), text, seed)
        seen = from_record(habits, (1,), text, queries, lines)
        seen[2] = replace(seen[2], query=None)
        found = attack(habits, "past", seen, (1,), 1e-12)
        assert (found.succeeded, found.off, found.missed) == (False, 2, 1)


def test_what_does_not_fit_is_an_error():
    full = SeenStep(True, (0, 1, 2), Everything(3).on())
    with pytest.raises(OnoffError, match="the truth has 1 requests, the stream 2"):
        attack(CHAIN, "both", [full] * 2, truth=(0,))
    with pytest.raises(OnoffError, match="its first step on, which must be ON"):
        attack(CHAIN, "both", [SeenStep(False, (0,), None)])
    absorbing = Chain([[1.0, 0.0], [1.0, 0.0]])
    two = [SeenStep(True, (0, 1), Everything(2).on())] * 2
    # A stream may begin where it never comes back to, and what is asked ON need not be possible.
    for truth in ((1, 0), (0, 1)):
        assert not attack(absorbing, "both", two, truth=truth).succeeded
