"""`onoff audit people`: exact beliefs of servers with deeper habits, and what they must and must not find."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from clientstreams import Shallow, query_laws, random_habits
from clikit import ONOFF, call, interrupted
from onoff import Chain, plan
from onoff.audit.clients import Announced, Naive, Past
from onoff.audit.people import OWN, audit_people, estimate_leak, private_runs, replay, score
from onoff.logs.habits import split_people
from onoff.past import PastState
from oracles import random_chain


def echo(n, faith=0.9):
    """Strongly of the second order: the request before the last one comes back, shifted by one, most of the time."""
    states = [(x,) for x in range(n)] + list(product(range(n), repeat=2))
    P = np.full((len(states), n), 1 / n)
    for row, state in zip(P[n:], states[n:], strict=True):
        row[:] = (1 - faith) / n
        row[(state[0] + 1) % n] += faith
    return Chain(P, states=states)


def chance_of(habits, path):
    """p(path), from the definition."""
    p = Fraction(1, habits.n)
    for t in range(1, len(path)):
        p *= Fraction(habits.P[habits.state_of(path[:t]), path[t]])
    return p


CHAIN, DEEP = random_chain("dense", 3, 1), random_habits(3, np.random.default_rng(5))
CLIENTS = {
    "both": (CHAIN, lambda: Announced(3, [plan(CHAIN, lag) for lag in (1, 2)])),
    "naive": (CHAIN, lambda: Naive(3)),
    "past": (CHAIN, lambda: Past(PastState.start(CHAIN, ()), 3)),
    "memory 2": (DEEP, lambda: Past(PastState.start(DEEP, ()), 3)),
}
SERVERS = {depth: random_habits(3, np.random.default_rng(depth), depth) for depth in (1, 2, 3)}
UNIFORM = np.full(3, 1 / 3)


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("order", SERVERS)
def test_every_figure_of_a_score_is_that_of_all_paths(name, order, monkeypatch):
    rng, habits, (chain, make) = np.random.default_rng([len(name), order]), SERVERS[order], CLIENTS[name]
    client, path = make(), np.array([0, 1, 2, 0, 1])
    private = [True, chain.depth > 1, False, False, True]
    asked, draw = [], type(client.on()).draw
    for kind in {type(client.on()), type(client.off(client.on(), (0, 1, 2)))}:
        monkeypatch.setattr(kind, "draw", lambda self, *a: asked.append(draw(self, *a)) or asked[-1])
    views, messages = replay(client, chain, path, private, rng)
    steps = np.flatnonzero(private)
    found = score(habits, chain, UNIFORM, path, views, steps)
    prior = {other: chance_of(habits, other) for other in product(range(3), repeat=5)}

    def given(queries):
        return {
            other: p * query_laws(client, private[: len(queries)], (*other, other[-1])).get(tuple(queries), 0)
            for other, p in prior.items()
        }

    def law(joint, t):
        return {v: float(sum(p for other, p in joint.items() if other[t] == v) / sum(joint.values())) for v in range(3)}

    whole, figures = given(asked), dict.fromkeys(("before", "after", "moved", "right"), 0.0)
    for t in steps:
        first, second, third = law(prior, t), law(given(asked[:t]), t), law(whole, t)
        x = int(path[t])
        figures["before"] += math.log2(second[x] / first[x])
        figures["after"] += math.log2(third[x] / second[x])
        figures["moved"] += sum(p * math.log2(p / second[v]) for v, p in third.items() if p)
        best = [v for v, p in third.items() if p >= max(third.values()) * (1 - 1e-9)]
        figures["right"] += (x in best) / len(best)
    for figure, value in figures.items():
        assert found[figure] == pytest.approx(value, abs=1e-9), figure
    assert found["bits"] == pytest.approx(figures["before"] + figures["after"], abs=1e-9)
    assert messages == sum(map(len, asked))


def test_private_runs_have_their_share_and_length():
    """Both means are within 4 standard errors: a false alarm in 1 of 15,000 runs, for a seed taken at random."""
    found = np.array([private_runs(100, 0.2, 3.0, np.random.default_rng(seed)) for seed in range(2000)])
    assert found.mean() == pytest.approx(0.2, abs=4 * np.sqrt(0.16 * 5 / found.size))
    ends = (found[:, :-1] & ~found[:, 1:]).sum() / found[:, :-1].sum()
    assert ends == pytest.approx(1 / 3, abs=4 * np.sqrt(2 / 9 / found[:, :-1].sum()))


def test_intervals_are_as_wide_as_they_should_be():
    """People of unequal weight: against the linearised standard error of a ratio, over 1.96 of it on both sides."""
    rng = np.random.default_rng(14)
    hidden = rng.integers(1, 20, 900)
    bits = hidden * rng.normal(0.3, 1.0, 900)
    blank = {"requests": 1}
    leak = estimate_leak(("c", "s"), [{**blank, "hidden": m, "bits": b} for m, b in zip(hidden, bits, strict=True)], 3)
    mean = bits.sum() / hidden.sum()
    error = np.std(bits - mean * hidden) / hidden.mean() / 30
    assert leak.figures["bits"].value == pytest.approx(mean)
    assert leak.figures["bits"].low == pytest.approx(mean - 1.96 * error, abs=0.3 * error)
    assert leak.figures["bits"].high == pytest.approx(mean + 1.96 * error, abs=0.3 * error)
    assert (leak.people, leak.hidden) == (900, hidden.sum())


# What must and must not be found


def audit(habits, count, steps=9, *, past=False, memory=(1,), orders=(2,), **options):
    """The figures when half of the people with these habits are attacked, by (client, server)."""
    rng = np.random.default_rng(4)
    starts = rng.integers(habits.n, size=count)
    sequences = [[f"s{x}" for x in habits.simulate(steps, rng, int(start))] for start in starts]
    parts = split_people(sequences, memory=memory, orders=orders)
    plans = [] if past else [plan(parts.clients[1], lag) for lag in (1, 2)]
    found = audit_people(parts, plans, PastState.start if past else None, **options)
    return {(leak.client, leak.server): leak.figures for leak in found.leaks}


def largest(*estimates):
    return max(max(map(abs, (one.value, one.low, one.high))) for one in estimates)


def test_nothing_leaks_to_who_knows_no_more_than_the_chain_and_much_to_who_does():
    """The first is a theorem, whatever people do. The chain of these is near uniform: sets are small, and betray."""
    result = audit(echo(3), 320)
    ours = result["both", OWN]
    assert largest(ours["bits"], ours["moved"]) < 1e-9
    better, openly = (result[client, "order 2"] for client in ("both", "naive"))
    for figures in (better, openly):
        assert figures["bits"].low > 0.1
        assert figures["right"].low > figures["right_prior"].value
    assert openly["bits"].value > better["bits"].value > 0.2


def test_people_who_follow_a_chain_lose_nothing():
    """For a seed taken at random, an interval misses 0 in about one of twenty runs; what it finds is tiny always."""
    figures = audit(Chain(np.random.default_rng(10).dirichlet(np.ones(4), 4)), 800, 10)["both", "order 2"]
    assert figures["bits"].low <= 1e-9
    assert figures["bits"].high >= -1e-9
    assert abs(figures["bits"].value) < 0.002
    assert figures["moved"].value < 0.002


def test_who_remembers_as_much_as_the_client_learns_nothing_at_or_after_a_request_and_who_remembers_more_does():
    """The request before the last one comes back: for these people memory 1 is the wrong one, and 2 the right one."""
    result = audit(echo(3), 800, past=True, share=0.3, memory=(1, 2), orders=(2,))
    for client in ("past, memory 1", "past, memory 2"):
        assert largest(result[client, OWN]["after"], result[client, OWN]["moved"]) < 1e-9
    wrong, right = ([result[f"past, memory {k}", f"order 2{whose}"] for whose in ("", ", of others")] for k in (1, 2))
    assert min(figures["after"].low for figures in wrong) > 0.1
    assert max(abs(figures["after"].value) for figures in right) < 0.01
    assert max(figures["moved"].value for figures in right) < 0.01
    assert 1 < wrong[0]["messages"].value < right[0]["messages"].value < 3
    assert result["naive", OWN]["moved"].low > 1e-4  # their chain is near uniform


def test_a_client_that_remembers_the_last_private_request_alone_is_seen_to_leak():
    """A server with the client's own chain, and no other, learns from it."""
    habits, start = echo(3), PastState.start(echo(3), ())
    honest, wrong = Past(start, 3), Past(Shallow(start), 3)
    rng = np.random.default_rng(2)
    scores = {honest: 0.0, wrong: 0.0}
    for client in scores:
        for _ in range(40):
            path = habits.simulate(8, rng, 0)
            private = [True, True, False, False, False, True, False, False]
            views, _ = replay(client, habits, path, private, rng)
            scores[client] += score(habits, habits, UNIFORM, path, views, np.flatnonzero(private))["moved"]
    assert scores[honest] < 1e-12
    assert scores[wrong] > 1


# The front door and the command


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """Six hundred people of the second order, in the format with categories."""
    rng, habits = np.random.default_rng(19), echo(3)
    file = tmp_path_factory.mktemp("people") / "people.seq"
    lines = [" ".join(str(x + 1) for x in habits.simulate(9, rng, number % 3)) for number in range(600)]
    file.write_text("% Different categories found:\n\nred green blue\n\n% Sequences:\n\n" + "\n".join(lines) + "\n")
    return file


def run(*arguments):
    return call("audit", "people", *arguments)


def test_the_command_prints_tables(people):
    done = run(people, "--users", 30, "--jobs", 1)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("30 people, ")
    assert "clients learned from 300 others" in done.stdout
    intervals = [line for line in done.stdout.splitlines() if re.search(r"\d to \d", line)]
    assert intervals
    assert not any("both" in line or "naive" in line for line in intervals)  # they stand below the figures
    words = ("--promise", "past", "--memory", "1,2", "--orders", "2-3", "--json")
    found = json.loads(run(people, "--users", 5, "--jobs", 1, *words).stdout)
    assert {leak["client"] for leak in found["leaks"]} == {"past, memory 1", "past, memory 2", "naive"}
    assert {leak["server"] for leak in found["leaks"]} == {
        OWN,
        "order 2",
        "order 2, of others",
        "order 3",
        "order 3, of others",
    }


def test_json_is_the_same_however_many_processes_attack(people, tmp_path):
    file = tmp_path / "chain.json"
    P = [[0.5, 0.25, 0.25], [0.4, 0.3, 0.3], [0.5, 0.5, 0.0]]
    Chain(P, ["red", "green", "blue"]).save(file)
    words = (people, "--chain", file, "--users", 45, "--min-length", 4, "--json")
    first, second = (run(*words, "--jobs", jobs) for jobs in (1, 2))
    assert first.stdout == second.stdout
    result = json.loads(first.stdout)
    assert result["cut"] > 50  # blue after blue
    assert len(result["leaks"]) == 6


def test_ctrl_c_prints_what_was_reached(people, tmp_path):
    file = tmp_path / "many"
    head, body = people.read_text().split("% Sequences:\n\n")
    file.write_text(head + "% Sequences:\n\n" + body * 100)
    command = [ONOFF, "audit", "people", file, "--users", "15000", "--jobs", "2"]
    code, shown, printed = interrupted(command, rb"[1-9][0-9]*/15000")
    assert code == 130
    reached = re.search(rb"stopped after (\d+) of 15000 people", shown)
    assert printed.startswith(f"{int(reached[1])} people, ")
    assert "95 % interval" in printed
    assert b"Traceback" not in shown
