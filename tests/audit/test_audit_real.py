"""A server of the second order: its beliefs against enumeration, and what it must and must not find."""

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

from clikit import call, interrupt
from onoff import Chain, OnoffError, plan
from onoff.apps.cli.audit.real import real
from onoff.audit.models import Encoder, Everything, Naive, Planned
from onoff.audit.real import people as people_of
from onoff.audit.real.replay import REAL, SIMULATED, Case, Rules, Score, attack, halves, leaks, replay, switched
from onoff.audit.real.secondorder import STRENGTHS, SecondOrder, beliefs, counted, evidence
from onoff.audit.setting import lags_of
from onoff.logs.read import read_sequences

ONOFF = Path(sys.executable).with_name("onoff")


def random_model(n, rng):
    return SecondOrder(*(rng.dirichlet(np.ones(n), shape) for shape in ((), n, (n, n))))


def echo(n, faith=0.9):
    """Strongly of the second order: the request before the last one comes back, shifted by one, most of the time."""
    second = np.full((n, n, n), (1 - faith) / n)
    for a in range(n):
        second[a, :, (a + 1) % n] += faith
    return SecondOrder(np.full(n, 1 / n), np.full((n, n), 1 / n), second)


def planned(chain, grid=(1, 2, 3)):
    plans = [plan(chain, lag) for lag in grid]
    return Rules("onoff", chain.n, lambda lag: Planned([made for made in plans if made.lag <= max(lag, 1)][-1]))


def naive(n):
    return Rules("naive", n, lambda lag: Naive(n))


def fitted(paths, n):
    training, attacked = halves(paths, np.random.default_rng(0))
    chain = Chain.from_counts(counted(training, n, 2))
    model = SecondOrder.fit(training, chain.P > 0)
    return chain, {"second order": model, "the chain": SecondOrder.of_chain(chain, model.start)}, attacked


def found(paths, n, clients, rate=0.4):
    """The leaks when the second half of these people is attacked, by case."""
    chain, servers, attacked = fitted(paths, n)
    scores = list(replay(attacked, [make(chain) for make in clients], servers, rate, seed=1))
    return {leak.case: leak for leak in leaks(scores, seed=1)}


# The exact beliefs, against enumeration in fractions


def enumerated(model, rules, private, queries):
    """p(path, queries) of every path, in fractions: the floats of the model and the integers of the client, exactly."""
    n, joint = model.n, {}
    for path in product(range(n), repeat=len(private)):
        p = Fraction(model.start[path[0]]) * Fraction(model.first[path[0], path[1]])
        for a, b, c in zip(path, path[1:], path[2:], strict=False):
            p *= Fraction(model.second[a, b, c])
        last = None
        for t, lag in enumerate(lags_of(private)):
            last = path[t] if lag == 0 else last
            if lag:
                encoder = rules.encoder(last, path[t + 1], lag)
                weights = encoder.weights[path[t]].tolist()
                hits = sum(w for w, s in zip(weights, encoder.sets, strict=True) if s == queries[t])
                p *= Fraction(hits, sum(weights))
        joint[path] = p
    return joint


@pytest.mark.parametrize(("n", "statuses"), [(2, "10010011"), (2, "1110001"), (3, "100101"), (3, "101101"), (3, "11")])
@pytest.mark.parametrize("client", ["onoff", "naive"])
def test_beliefs_are_those_of_enumeration(n, statuses, client):
    rng = np.random.default_rng([n, len(statuses)])
    chain = Chain(rng.dirichlet(np.ones(n), n))
    rules = planned(chain) if client == "onoff" else naive(n)
    private = [status == "1" for status in statuses]
    for model in (random_model(n, rng), SecondOrder.of_chain(chain, rng.dirichlet(np.ones(n)))):
        truth = model.simulate(len(private), rng)
        queries = rules.queries(truth, private, rng)
        joint = enumerated(model, rules, private, queries)
        at, seen = lags_of(private), np.flatnonzero(private)
        rows, logarithm = beliefs(model, private, lambda t: rules.likelihood(queries[t], at[t]))  # noqa: B023
        total = sum(joint.values())
        assert logarithm == pytest.approx(math.log2(total), abs=1e-9)
        for row, t in zip(rows, seen, strict=True):
            exact = [float(sum(p for path, p in joint.items() if path[t] == x) / total) for x in range(n)]
            assert row == pytest.approx(exact, rel=1e-9)
        agree = sum(p for path, p in joint.items() if all(path[t] == truth[t] for t in seen))
        known = evidence(model, private, lambda t: rules.likelihood(queries[t], at[t]), truth)  # noqa: B023
        assert known == pytest.approx(math.log2(agree), abs=1e-9)
        check_score(model, rules, queries, private, truth, joint)


def check_score(model, rules, queries, private, truth, joint):
    """Every number of a score, from the enumeration with the queries and the one without."""
    n, seen, total = model.n, np.flatnonzero(private), sum(joint.values())
    full = [tuple(range(n))] * len(private)
    blank = enumerated(model, Rules("everything", n, lambda lag: Everything(n)), private, full)
    bits = divergence = 0.0
    for t in seen:
        after = [float(sum(p for path, p in joint.items() if path[t] == x) / total) for x in range(n)]
        before = [float(sum(p for path, p in blank.items() if path[t] == x)) for x in range(n)]
        bits += math.log2(after[truth[t]] / before[truth[t]])
        divergence += sum(p * math.log2(p / q) for p, q in zip(after, before, strict=True) if p)
    agree = [sum(p for path, p in every.items() if all(path[t] == truth[t] for t in seen)) for every in (joint, blank)]
    score = attack(model, rules, queries, private, truth)
    assert score.private == len(seen)
    assert score.bits == pytest.approx(bits, abs=1e-8)
    assert score.divergence == pytest.approx(divergence, abs=1e-8)
    assert score.together == pytest.approx(math.log2(agree[0] / total / agree[1]), abs=1e-8)


def test_impossible_queries_are_an_error():
    model = SecondOrder(np.ones(2) / 2, np.eye(2), np.array([np.eye(2)] * 2))
    with pytest.raises(OnoffError, match="impossible"):  # always the same source, and yet first one, then the other
        beliefs(model, [True, False, False, True], lambda t: Naive(2).likelihood((t % 2,), 1))


# The model


def test_runs_of_requests_are_counted_as_by_a_plain_loop():
    rng = np.random.default_rng(5)
    paths = [rng.integers(3, size=length) for length in (1, 7, 2, 3, 0, 12)]
    for order in (1, 2, 3):
        expected = np.zeros((3,) * order)
        for path in paths:
            for t in range(len(path) - order + 1):
                expected[tuple(path[t : t + order])] += 1
        assert (counted(paths, 3, order) == expected).all()
    assert counted([], 2, 3).shape == (2, 2, 2)


def test_a_fit_finds_the_model_and_gives_impossible_steps_no_probability():
    rng = np.random.default_rng(6)
    model = random_model(3, rng)
    fit = SecondOrder.fit([model.simulate(40, rng) for _ in range(500)], np.ones((3, 3), dtype=bool))
    assert np.abs(fit.second - model.second).max() < 0.08  # a row of 600 counts is off by 0.02 (one sigma) or less
    possible = ~np.eye(3, dtype=bool)
    barred = SecondOrder.fit([np.array([0, 1, 2, 0, 1])] * 10, possible)
    assert (barred.second[:, ~possible] == 0).all()
    assert barred.second.sum(axis=2) == pytest.approx(1)


def test_the_back_off_is_chosen_by_the_sequences_held_out():
    """Few data of a chain: the second order is left to noise unless the back-off is strong."""
    rng = np.random.default_rng(7)
    chain = Chain(rng.dirichlet(np.ones(6), 6))
    paths = [chain.simulate(10, rng) for _ in range(60)]
    fit = SecondOrder.fit(paths, chain.P > 0)
    raw = counted(paths, 6, 3) + STRENGTHS[0] * fit.first
    raw /= raw.sum(axis=2, keepdims=True)
    error = np.abs(fit.second - fit.first).mean()
    assert error < 0.2 * np.abs(raw - fit.first).mean()
    assert SecondOrder.of_chain(chain, fit.start).marginals(3)[2] == pytest.approx(fit.start @ chain.power(2))


def test_code_lengths_and_marginals_are_those_of_the_model():
    model = random_model(2, np.random.default_rng(8))
    lengths = {path: model.code_length(np.array(path)) for path in product(range(2), repeat=5)}
    mass = {path: model.start[path[0]] * 2.0**-bits for path, bits in lengths.items()}
    assert sum(mass.values()) == pytest.approx(1)
    for t, row in enumerate(model.marginals(5)):
        assert row[1] == pytest.approx(sum(p for path, p in mass.items() if path[t] == 1))


# What must and must not be found


def test_nothing_leaks_to_who_knows_no_more_than_the_chain():
    """Whatever people do: a theorem, not a statistic. And a client that asks for everything leaks to nobody."""
    model = echo(3)
    rng = np.random.default_rng(9)
    everything = Rules("everything", 3, lambda lag: Everything(3))
    result = found([model.simulate(8, rng) for _ in range(60)], 3, [planned, lambda chain: everything])
    ours = result[Case("onoff", "the chain", REAL)]
    nothing = result[Case("everything", "second order", REAL)]
    for leak in (ours, nothing):
        for estimate in (leak.bits, leak.together, leak.divergence, leak.guesses_won):
            assert max(map(abs, (estimate.value, estimate.low, estimate.high))) < 1e-9
    assert result[Case("onoff", "second order", REAL)].divergence.low > 0.01  # the same queries do tell the other one


def test_people_who_follow_a_chain_lose_nothing():
    """For a seed taken at random, an interval misses 0 in about one of twenty runs; what it finds is tiny always."""
    rng = np.random.default_rng(10)
    chain = Chain(rng.dirichlet(np.ones(4), 4))
    result = found([chain.simulate(10, rng) for _ in range(400)], 4, [planned])
    leak = result[Case("onoff", "second order", REAL)]
    assert leak.bits.low <= 1e-9
    assert leak.bits.high >= -1e-9
    assert abs(leak.bits.value) < 0.002
    assert leak.divergence.value < 0.002


def test_people_of_the_second_order_lose_much():
    """The chain of such people is near uniform: the client believes in no habit and asks almost openly."""
    rng = np.random.default_rng(11)
    model = echo(3)
    result = found([model.simulate(10, rng) for _ in range(160)], 3, [planned, lambda chain: naive(3)])
    ours, openly = (result[Case(client, "second order", REAL)] for client in ("onoff", "naive"))
    for leak in (ours, openly):
        assert leak.bits.low > 0.2
        assert leak.together.low > 0.1
        assert leak.guesses_won.low > 0.1
    assert openly.bits.value > ours.bits.value > result[Case("onoff", "the chain", REAL)].bits.value + 0.2


def test_bits_and_divergence_agree_where_the_model_is_the_truth_and_only_there():
    """Both estimate I(X; Q) then: a difference of 4 standard errors has a false alarm in 1 of 15,000 runs."""
    rng = np.random.default_rng(12)
    model, wrong = echo(3, 0.6), echo(3, 0.95)
    rules = naive(3)

    def difference(server):
        gaps = []
        for _ in range(250):
            private = switched(8, 0.5, rng)
            path = model.simulate(8, rng)
            score = attack(server, rules, rules.queries(path, private, rng), private, path)
            gaps.append((score.bits - score.divergence) / score.private)
        return np.mean(gaps) / (np.std(gaps) / len(gaps) ** 0.5)

    assert abs(difference(model)) < 4
    assert difference(wrong) < -8  # it believes too much and is misled: a planted error


def test_simulated_people_follow_the_first_server():
    rng = np.random.default_rng(13)
    people = [rng.integers(3, size=12) for _ in range(120)]  # no habits at all
    servers = {"echo": echo(3), "other": random_model(3, rng)}
    result = {leak.case: leak for leak in leaks(list(replay(people, [naive(3)], servers, 0.5, seed=2)), seed=2)}
    assert set(result) == {Case("naive", *case) for case in (("echo", REAL), ("other", REAL), ("echo", SIMULATED))}
    assert result[Case("naive", "echo", SIMULATED)].bits.low > 0.2
    assert result[Case("naive", "echo", REAL)].bits.high < 0  # misled: they do not follow it


# Intervals, statuses, repeatability


def test_intervals_are_as_wide_as_they_should_be():
    """People of unequal weight: against the linearised standard error of a ratio, over 1.96 of it on both sides."""
    rng = np.random.default_rng(14)
    private = rng.integers(1, 20, 900)
    bits = private * rng.normal(0.3, 1.0, 900)
    case = Case("c", "s", REAL)
    [leak] = leaks([{case: Score(int(m), b, 0.0, 0.0, 0.0, 0.0)} for m, b in zip(private, bits, strict=True)], 3)
    mean = bits.sum() / private.sum()
    error = np.std(bits - mean * private) / private.mean() / 30
    assert leak.bits.value == pytest.approx(mean)
    assert leak.bits.low == pytest.approx(mean - 1.96 * error, abs=0.3 * error)
    assert leak.bits.high == pytest.approx(mean + 1.96 * error, abs=0.3 * error)
    assert (leak.people, leak.private) == (900, private.sum())
    with pytest.raises(OnoffError, match="nothing to report"):
        leaks([], 3)


def test_statuses_switch_at_the_rate_and_begin_and_end_on():
    rng = np.random.default_rng(15)
    assert switched(5, 0.0, rng) == [True] * 5
    assert switched(6, 1.0, rng) == [True, True, False, True, False, True]
    many = switched(20000, 0.25, rng)
    assert many[0]
    assert many[-1]
    assert np.mean(np.diff(np.array(many, dtype=int)) != 0) == pytest.approx(0.25, abs=0.015)  # five sigma
    assert lags_of([True, False, False, True, False, True]) == [0, 1, 2, 0, 1, 0]


def test_queries_are_drawn_from_the_encoder():
    """Frequencies of the sets for one request, with a chi-square test at 1 in 10,000."""
    from scipy.stats import chisquare

    chain = Chain(np.random.default_rng(16).dirichlet(np.ones(3), 3))
    rules, rng = planned(chain), np.random.default_rng(17)
    drawn = [rules.queries(np.array([0, 1, 2]), [True, False, True], rng) for _ in range(4000)]
    assert {(queries[0], queries[2]) for queries in drawn} == {((0, 1, 2), (0, 1, 2))}
    encoder = rules.encoder(0, 2, 1)
    share = encoder.weights[1] / encoder.weights[1].sum()
    likely = [i for i in range(len(share)) if share[i] > 0.002]
    counts = [sum(queries[1] == encoder.sets[i] for queries in drawn) for i in likely]
    assert len(likely) > 1
    assert sum(counts) > 3980
    assert chisquare(counts, share[likely] / share[likely].sum() * sum(counts)).pvalue > 1e-4
    other = np.roll(share[likely], 1)
    assert chisquare(counts, other / other.sum() * sum(counts)).pvalue < 1e-9  # a planted error


class Telling:
    """A client whose queries give its context away: (last, next, lag)."""

    def encoder(self, last, next, lag):
        return Encoder(((last, next, lag),), np.ones((4, 1), dtype=np.int64))


def test_the_context_of_a_query_is_the_last_private_and_the_next_request():
    rules = Rules("telling", 4, lambda lag: Telling())
    queries = rules.queries(
        np.array([3, 1, 0, 2, 1, 0]), [True, False, False, True, False, True], np.random.default_rng(0)
    )
    assert [queries[t] for t in (1, 2, 4)] == [(3, 0, 1), (3, 2, 2), (2, 0, 1)]


def test_the_halves_share_nobody():
    paths = [np.array([i]) for i in range(11)]
    training, attacked = halves(paths, np.random.default_rng(18))
    assert sorted(int(path[0]) for path in training + attacked) == list(range(11))
    assert len(training) == 5


# The command


def test_sequences_end_before_what_the_chain_does_not_have(tmp_path):
    file = tmp_path / "people"
    file.write_text("a b c a x b\n" + "a a b\n" + "b c b b c\n" * 3 + "a b c x a b\n" + "a x b c a b\n")
    chain = Chain([[0.0, 1.0, 0.0], [0.2, 0.0, 0.8], [0.5, 0.5, 0.0]], ["a", "b", "c"])
    found = people_of(read_sequences(file, chain.names), chain, 3, 6)
    assert [path.tolist() for path in found.paths] == [[0, 1, 2, 0]] + [[1, 2, 1]] * 3 + [[0, 1, 2]]
    assert (found.unknown, found.impossible) == (3, 4)
    free = people_of(read_sequences(file), None, 3, 6)
    assert free.names == ("a", "b", "c", "x")
    assert len(free.paths) == 7


def run(*arguments):
    return call("audit", "real", *arguments)


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """Three hundred people of the second order, in the format with categories."""
    rng = np.random.default_rng(19)
    file = tmp_path_factory.mktemp("people") / "people.seq"
    lines = [" ".join(str(x + 1) for x in echo(3).simulate(9, rng)) for _ in range(300)]
    file.write_text("% Different categories found:\n\nred green blue\n\n% Sequences:\n\n" + "\n".join(lines) + "\n")
    return file


def test_the_command_prints_a_table_and_a_sentence(people):
    done = run(people, "--users", 30)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("30 people, ")
    assert "the server learned from 150 others" in done.stdout
    words = re.search(r"learns ([\d.]+) \[([\d.]+), ([\d.]+)\] bits about a private request", done.stdout)
    assert 0.1 < float(words[2]) < float(words[1]) < float(words[3])


def test_json_is_repeatable_and_a_chain_may_lack_sources_and_steps(people, tmp_path):
    file = tmp_path / "chain.json"
    P = [[0.5, 0.25, 0.25], [0.4, 0.3, 0.3], [0.5, 0.5, 0.0]]
    Chain(P, ["red", "green", "blue"]).save(file)
    first, second = (run(people, "--chain", file, "--users", 8, "--min-length", 4, "--json") for _ in range(2))
    assert first.stdout == second.stdout
    result = json.loads(first.stdout)
    assert result["cut_unknown"] == 0
    assert result["cut_impossible"] > 50  # blue after blue
    assert len(result["leaks"]) == 6
    zero = {"client": "onoff", "server": "the chain", "people": "real"}
    [leak] = [leak for leak in result["leaks"] if leak["case"] == zero]
    assert abs(leak["divergence"]["value"]) < 1e-9
    Chain([[0.5, 0.5], [0.5, 0.5]], ["red", "green"]).save(file)
    result = json.loads(run(people, "--chain", file, "--users", 4, "--min-length", 3, "--json").stdout)
    assert result["cut_unknown"] > 200
    assert result["sources"] == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"min_length": 10}, "0 sequences of 10 to 200 requests are left"),
        ({"min_length": 8, "max_length": 7}, "less than --min-length"),
        ({"lags": "2"}, "a plan for lag 1 is needed"),
        ({"scheme": "race"}, "no table"),
        ({"scheme": "best"}, "no scheme 'best'"),
        ({"chain": Path("none.csv")}, "cannot be read"),
    ],
)
def test_errors_say_what_to_do(people, options, words):
    with pytest.raises(OnoffError, match=words):
        real(people, **options)


def test_too_many_sources_are_refused_and_an_error_is_one_line(tmp_path):
    (tmp_path / "many").write_text("\n".join(" ".join(f"s{10 * i + j}" for j in range(10)) for i in range(7)))
    done = run(tmp_path / "many")
    assert done.returncode == 2
    assert done.stderr.startswith("onoff: error: 70 sources")
    assert len(done.stderr.splitlines()) == 1


def test_ctrl_c_prints_what_was_reached(people, tmp_path):
    file = tmp_path / "many"
    head, body = people.read_text().split("% Sequences:\n\n")
    file.write_text(head + "% Sequences:\n\n" + body * 100)
    terminal, end = pty.openpty()
    command = [ONOFF, "audit", "real", file, "--users", "15000"]
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
    assert "percentage points" in printed
    assert b"Traceback" not in shown
