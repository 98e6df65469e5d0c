"""`onoff audit people`: exact beliefs of servers of the second order, and what they must and must not find."""

from __future__ import annotations

import json
import math
import os
import pty
import re
import subprocess
import sys
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from clientstreams import query_laws, random_habits, simulate
from clikit import call, interrupt
from onoff import Chain, OnoffError, plan
from onoff.apps.cli.audit.people import people as command
from onoff.audit.clients import Announced, Naive, Past
from onoff.audit.people import audit_people, estimate_leak, private_runs, replay, score, switch_at_random
from onoff.logs.habits import split_people
from onoff.model.requests import Requests
from onoff.past import PastState
from oracles import random_chain

ONOFF = Path(sys.executable).with_name("onoff")


def echo(n, faith=0.9):
    """Strongly of the second order: the request before the last one comes back, shifted by one, most of the time."""
    second = np.full((n, n, n), (1 - faith) / n)
    for a in range(n):
        second[a, :, (a + 1) % n] += faith
    return Requests(np.full(n, 1 / n), np.full((n, n), 1 / n), second)


def chance_of(habits, path):
    """p(path), from the definition."""
    p = Fraction(habits.start[path[0]])
    for t in range(len(path) - 1):
        first_order = t == 0 or habits.second is None
        row = habits.first[path[t]] if first_order else habits.second[path[t - 1], path[t]]
        p *= Fraction(row[path[t + 1]])
    return p


CHAIN = random_chain("dense", 3, 1)
CLIENTS = {
    "both": lambda: Announced(3, [plan(CHAIN, lag) for lag in (1, 2)]),
    "naive": lambda: Naive(3),
    "past": lambda: Past(PastState.start(CHAIN, ()), 3),
}


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("order", ["second order", "the chain"])
def test_every_figure_of_a_score_is_that_of_all_paths(name, order, monkeypatch):
    rng = np.random.default_rng([len(name), len(order)])
    habits = random_habits(3, rng) if order == "second order" else Requests(rng.dirichlet(np.ones(3)), CHAIN.P)
    client, private, path = CLIENTS[name](), [True, False, False, True, True], np.array([0, 1, 2, 0, 1])
    asked, draw = [], type(client.on()).draw
    for kind in {type(client.on()), type(client.off(client.on(), ()))}:
        monkeypatch.setattr(kind, "draw", lambda self, *a: asked.append(draw(self, *a)) or asked[-1])
    seen = replay(client, path, private, rng)
    steps = np.flatnonzero(private)
    found = score(habits, seen, steps)
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
    assert (found["hidden"], found["messages"]) == (len(steps), sum(map(len, asked)))


def test_statuses_switch_at_the_rate_and_begin_and_end_on():
    rng = np.random.default_rng(15)
    assert switch_at_random(5, 0.0, rng) == [True] * 5
    assert switch_at_random(6, 1.0, rng) == [True, True, False, True, False, True]
    many = switch_at_random(20000, 0.25, rng)
    assert np.mean(np.diff(np.array(many, dtype=int)) != 0) == pytest.approx(0.25, abs=0.015)  # five sigma


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


def audit(habits, count, steps=9, *, past=False, **options):
    """The figures when half of the people with these habits are attacked, by (client, server)."""
    rng = np.random.default_rng(4)
    sequences = [[f"s{x}" for x in simulate(habits, steps, rng)] for _ in range(count)]
    parts = split_people(sequences)
    plans = [plan(parts.chain, lag) for lag in (1, 2)]
    found = audit_people(parts, plans, PastState.start if past else None, **options)
    return {(leak.client, leak.server): leak.figures for leak in found.leaks}


def largest(*estimates):
    return max(max(map(abs, (one.value, one.low, one.high))) for one in estimates)


def test_nothing_leaks_to_who_knows_no_more_than_the_chain_and_much_to_who_does():
    """The first is a theorem, whatever people do. The chain of these is near uniform: sets are small, and betray."""
    result = audit(echo(3), 160)
    ours = result["both", "the chain"]
    assert largest(ours["bits"], ours["moved"], ours["won"]) < 1e-9
    better, openly = (result[client, "second order"] for client in ("both", "naive"))
    for figures in (better, openly):
        assert min(figures[name].low for name in ("bits", "won")) > 0.1
    assert openly["bits"].value > better["bits"].value > 0.2


def test_people_who_follow_a_chain_lose_nothing():
    """For a seed taken at random, an interval misses 0 in about one of twenty runs; what it finds is tiny always."""
    chain = Chain(np.random.default_rng(10).dirichlet(np.ones(4), 4))
    figures = audit(Requests.of_chain(chain), 400, 10)["both", "second order"]
    assert figures["bits"].low <= 1e-9
    assert figures["bits"].high >= -1e-9
    assert abs(figures["bits"].value) < 0.002
    assert figures["moved"].value < 0.002


def test_nothing_is_learned_at_or_after_a_private_request_by_who_knows_the_chain_alone():
    result = audit(echo(3), 60, past=True, share=0.3)
    ours, naive, both = (result[client, "the chain"] for client in ("past", "naive", "both"))
    assert largest(ours["after"], ours["moved"], both["before"], both["after"]) < 1e-9
    assert naive["moved"].low > 1e-4  # their chain is near uniform
    assert result["past", "second order"]["after"].low > 0.05  # the same queries tell who knows the habits
    assert 1 < ours["messages"].value < 3
    assert naive["messages"].value < both["messages"].value


# The front door and the command


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """Three hundred people of the second order, in the format with categories."""
    rng = np.random.default_rng(19)
    file = tmp_path_factory.mktemp("people") / "people.seq"
    lines = [" ".join(str(x + 1) for x in simulate(echo(3), 9, rng)) for _ in range(300)]
    file.write_text("% Different categories found:\n\nred green blue\n\n% Sequences:\n\n" + "\n".join(lines) + "\n")
    return file


def run(*arguments):
    return call("audit", "people", *arguments)


def test_the_command_prints_tables_and_a_sentence(people):
    done = run(people, "--users", 30, "--jobs", 1)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("30 people, ")
    assert "the server learned from 150 others" in done.stdout
    words = re.search(r"about a hidden request: ([\d.]+) \[([\d.]+), ([\d.]+)\] \(both\)", done.stdout)
    assert 0.1 < float(words[2]) < float(words[1]) < float(words[3])
    done = run(people, "--users", 10, "--jobs", 1, "--promise", "past")
    assert "before it (not" in done.stdout
    assert "(past)" in done.stdout


def test_json_is_the_same_however_many_processes_attack(people, tmp_path):
    file = tmp_path / "chain.json"
    P = [[0.5, 0.25, 0.25], [0.4, 0.3, 0.3], [0.5, 0.5, 0.0]]
    Chain(P, ["red", "green", "blue"]).save(file)
    words = (people, "--chain", file, "--users", 45, "--min-length", 4, "--json")
    first, second = (run(*words, "--jobs", jobs) for jobs in (1, 2))
    assert first.stdout == second.stdout
    result = json.loads(first.stdout)
    assert result["cut"] > 50  # blue after blue
    assert len(result["leaks"]) == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"min_length": 10}, "0 sequences of 10 to 200 requests are left"),
        ({"lags": "2"}, "a plan for lag 1 is needed"),
        ({"scheme": "race"}, "no table"),
        ({"promise": "future"}, "choose both or past"),
    ],
)
def test_errors_say_what_to_do(people, options, words):
    with pytest.raises(OnoffError, match=words):
        command(people, **options)


def test_ctrl_c_prints_what_was_reached(people, tmp_path):
    file = tmp_path / "many"
    head, body = people.read_text().split("% Sequences:\n\n")
    file.write_text(head + "% Sequences:\n\n" + body * 100)
    terminal, end = pty.openpty()
    command = [ONOFF, "audit", "people", file, "--users", "15000", "--jobs", "2"]
    environment = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=end, env=environment, text=True)
    os.close(end)
    try:
        shown = interrupt(process, terminal, rb"[1-9][0-9]*/15000")
        printed = process.communicate(timeout=120)[0]
        assert process.returncode == 130
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    reached = re.search(rb"stopped after (\d+) of 15000 people", shown)
    assert printed.startswith(f"{int(reached[1])} people, ")
    assert "95 % intervals" in printed
    assert b"Traceback" not in shown
