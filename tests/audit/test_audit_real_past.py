"""`onoff audit real --promise past`: exact beliefs of a server of the second order, before and after a request."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from clikit import call
from onoff import OnoffError, plan
from onoff.audit.real import audit_real_past, people, split
from onoff.audit.real.past import runs
from onoff.audit.real.secondorder import SecondOrder
from onoff.audit.real.views import Everyday as Client
from onoff.audit.real.views import Openly, beliefs
from onoff.everyday import Everyday
from oracles import random_chain

CHAIN = random_chain("dense", 3, 1)


def random_model(n, rng):
    return SecondOrder(*(rng.dirichlet(np.ones(n), shape) for shape in ((), n, (n, n))))


def chance_of(client, path, private, queries):
    """p(queries | path) of a client of the everyday mode, by the engine itself, in fractions."""
    chance, state, context = Fraction(1), None, None
    for x, on, query in zip(path, private, queries, strict=True):
        if on:
            state = Everyday.start(CHAIN, client)
            context = state.context(x, None, True)
            continue
        step = state.prepare()
        units = step.masses if x in client else step.encoder(context).toarray()[x].tolist()
        chance *= Fraction(units[step.sets.index(query)], sum(units))
        state = state.advance(step, query)
        if not chance:
            break
        context = state.context(x, context, False)
    return chance


@pytest.mark.parametrize("sensitive", [(), (1,)])
@pytest.mark.long
def test_beliefs_before_and_after_are_those_of_all_paths(sensitive):
    rng = np.random.default_rng(5)
    model, private = random_model(3, rng), [True, False, False, True, False]
    path = np.array([0, 1, 2, 0, 2])
    asked = []

    class Noting(Client):
        def _drawn(self, law, request, context, rng):
            asked.append(super()._drawn(law, request, context, rng))
            return asked[-1]

    views = Noting(Everyday.start(CHAIN, sensitive), 3, sensitive).views(path, private, np.random.default_rng(2))
    before, after, ever = beliefs(model, views, sensitive)
    drawn = iter(asked)
    queries = [(0, 1, 2) if on else next(drawn) for on in private]
    joint = {}
    for other in product(range(3), repeat=5):
        p = model.start[other[0]] * model.first[other[0], other[1]]
        for a, b, c in zip(other, other[1:], other[2:], strict=False):
            p *= model.second[a, b, c]
        joint[other] = p
    whole = {other: p * float(chance_of(sensitive, other, private, queries)) for other, p in joint.items()}
    asked_some = sum(p for other, p in whole.items() if set(other) & set(sensitive))
    assert ever == pytest.approx(asked_some / sum(whole.values()), abs=1e-12)
    for t in range(5):
        early = {
            other: p * float(chance_of(sensitive, other[:t], private[:t], queries[:t])) for other, p in joint.items()
        }
        for rows, found in ((before, early), (after, whole)):
            law = [sum(p for other, p in found.items() if other[t] == x) for x in range(3)]
            assert rows[t] == pytest.approx(np.array(law) / sum(law), abs=1e-12)


def test_the_chance_that_a_source_is_never_asked_for_is_that_of_all_paths():
    model = random_model(3, np.random.default_rng(1))
    total = 0.0
    for a, b, c, d in product((0, 2), repeat=4):
        total += model.start[a] * model.first[a, b] * model.second[a, b, c] * model.second[b, c, d]
    assert model.never([1], 4) == pytest.approx(total)


def test_private_runs_have_their_share_and_length():
    """Both means are within 4 standard errors: a false alarm in 1 of 15,000 runs, for a seed taken at random."""
    found = np.array([runs(100, 0.2, 3.0, np.random.default_rng(seed)) for seed in range(2000)])
    assert found.mean() == pytest.approx(0.2, abs=4 * np.sqrt(0.16 * 5 / found.size))
    ends = (found[:, :-1] & ~found[:, 1:]).sum() / found[:, :-1].sum()
    assert ends == pytest.approx(1 / 3, abs=4 * np.sqrt(2 / 9 / found[:, :-1].sum()))


def made(model, count=60, steps=9, seed=4, n=3):
    rng = np.random.default_rng(seed)
    return [[f"s{x}" for x in model.simulate(steps, rng)] for _ in range(count)], [f"s{x}" for x in range(n)]


def found(sensitive=(), share=0.3, seed=4):
    """People of a strong rule of the second order: the request before the last comes back, shifted."""
    second = np.full((3, 3, 3), 0.1 / 3)
    for a in range(3):
        second[a, :, (a + 1) % 3] += 0.9
    sequences, _ = made(SecondOrder(np.full(3, 1 / 3), np.full((3, 3), 1 / 3), second), seed=seed)
    parts = split(people(sequences), users=30, seed=1)
    plans = [] if sensitive else [plan(parts.chain, 1)]
    result = audit_real_past(parts, Everyday.start, sensitive=sensitive, plans=plans, share=share)
    return {(leak.client, leak.server): leak for leak in result.leaks}


def test_nothing_is_learned_after_a_private_request_by_who_knows_the_chain_alone():
    result = found()
    ours, naive = result["everyday", "the chain"], result["naive", "the chain"]
    assert max(abs(ours.after.low), abs(ours.after.high), ours.moved.high) < 1e-9
    assert naive.moved.low > 1e-4  # their chain is near uniform
    announced = result["announced", "the chain"]
    assert max(abs(announced.before.value), abs(announced.after.value)) < 1e-9
    better = result["everyday", "second order"]
    assert better.after.low > 0.05  # the same queries tell who knows the habits
    assert 1 < ours.messages.value < 3
    assert naive.messages.value < announced.messages.value


def test_nothing_is_learned_about_sensitive_sources_by_who_knows_the_chain_alone():
    result = found(sensitive=(1,))
    ours, naive = result["everyday", "the chain"], result["naive", "the chain"]
    covered = result["naive, ON if sensitive", "the chain"]
    assert max(abs(ours.after.value), ours.moved.value, abs(ours.sensitive_after.value)) < 1e-9
    assert naive.right.value == covered.right.value == 1  # it is plain from its own query
    assert naive.sensitive_after.value > 1
    assert naive.ever.value > 0
    assert ours.right.value < 1


def test_views_of_an_open_client_say_what_it_asked():
    path = np.array([0, 1, 2])
    views = Openly(3, covered=(1,)).views(path, [True, False, False], np.random.default_rng(0))
    assert [view.size for view in views] == [3, 3, 1]
    assert [view.chances[0].tolist() for view in views] == [[1, 1, 1], [0, 1, 0], [0, 0, 1]]


def test_the_command_prints_tables_and_json(tmp_path):
    sequences, _ = made(SecondOrder.of_chain(CHAIN, np.full(3, 1 / 3)))
    (tmp_path / "people").write_text("".join(" ".join(line) + "\n" for line in sequences))
    words = ("audit", "real", tmp_path / "people", "--promise", "past", "--users", 10)
    done = call(*words, check=True)
    assert "bits about a private request" in done.stdout
    assert "promised" in done.stdout
    assert "announced" in done.stdout
    result = json.loads(call(*words, "--sensitive", "s1", "--json", check=True).stdout)
    assert result["sensitive"] == ["s1"]
    assert {leak["client"] for leak in result["leaks"]} == {"everyday", "naive", "naive, ON if sensitive"}
    again = json.loads(call(*words, "--sensitive", "s1", "--json", check=True).stdout)
    assert again == result


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--promise", "future"), "choose both or past"),
        (("--sensitive", "s1"), "add --promise past"),
        (("--promise", "past", "--sensitive", "horses"), "no source is called"),
    ],
)
def test_errors_say_what_to_do(tmp_path, options, words):
    sequences, _ = made(SecondOrder.of_chain(CHAIN, np.full(3, 1 / 3)))
    (tmp_path / "people").write_text("".join(" ".join(line) + "\n" for line in sequences))
    done = call("audit", "real", tmp_path / "people", *options)
    assert done.returncode == 2
    assert words in done.stderr


def test_a_share_that_is_none_is_an_error():
    sequences, _ = made(SecondOrder.of_chain(CHAIN, np.full(3, 1 / 3)))
    with pytest.raises(OnoffError, match="give a share"):
        audit_real_past(split(people(sequences)), Everyday.start, share=1.0)
