"""`onoff costs`: the numbers of plans and of the engine, with honest intervals, and nothing lost when it is stopped."""

from __future__ import annotations

import csv
import json
import re
import subprocess

import numpy as np
import pytest

from clikit import ONOFF, call
from onoff import Chain, OnoffError, connect_sync, plan
from onoff.apps import costs as module
from onoff.apps.costs import Effort, costs, simulate
from onoff.past import PastState
from oracles import random_chain
from recordingserver import OnoffOrigin, RecordingServer

CHAIN = random_chain("dense", 3, 1)
MEMORY = Chain([*CHAIN.P, [0, 0.2, 0.8], [0.5, 0.5, 0]], states=[(0,), (1,), (2,), (0, 1), (1, 1)])
LENGTHS = {"0": 100.0, "1": 20.0, "2": 3.0}


def exactly(chain, sensitive, steps):
    """The mean cost of each step over all queries, starting from the stationary law: by the engine's stated laws."""
    now, means = [(1.0, PastState.start(chain, sensitive))], []
    for _ in range(steps):
        ready = [(p, state, state.prepare()) for p, state in now]
        means.append(sum(p * step.cost for p, _, step in ready))
        now = [
            (p * mass / step.denominator, state.after(query))
            for p, state, step in ready
            for query, mass in zip(step.sets, step.masses, strict=True)
        ]
    return means


@pytest.mark.parametrize(("chain", "sensitive"), [(CHAIN, ()), (CHAIN, (1,)), (MEMORY, ()), (MEMORY, (2,))])
def test_costs_of_the_promise_past_agree_with_those_of_all_queries(chain, sensitive):
    """4.5 standard errors at two steps: fails once in 60,000 runs of other seeds. 20 % more would be seen."""
    found = list(costs({"c": chain}, [1, 2, 3], sensitive=sensitive, effort=Effort(streams=150)))
    assert [(cost.lag, cost.promise, cost.scheme) for cost in found] == [(lag, "past", None) for lag in (1, 2, 3)]
    for cost, expected in zip(found, exactly(chain, sensitive, 3), strict=True):
        error = 4.5 / 1.96 * cost.margin + 1e-9
        assert cost.messages == pytest.approx(expected, abs=error)
        assert cost.messages * 1.2 > expected + error
        assert 1 <= cost.lower_bound <= cost.messages * (1 + 1e-9)
    assert found[0].margin == 0  # exact
    assert found[1].margin > 0


def test_the_promise_both_refuses_habits_with_memory_before_any_work(tmp_path):
    MEMORY.save(tmp_path / "memory.json")
    for words in (["--promise", "past", "--promise", "both"], ["--day", "--promise", "both"]):
        done = call("costs", tmp_path / "memory.json", *words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert "these habits remember 2 requests, and the promise both needs a Markov chain" in done.stderr


def test_costs_of_the_promise_both_are_those_of_plans():
    schemes = ("everything", "paper", "comb", "optimal", "race")
    chains = {"a": CHAIN, "b": Chain.symmetric(4, 0.6)}
    found = list(costs(chains, [1, 2], ["both"], schemes))
    assert [(cost.lag, cost.chain, cost.scheme) for cost in found] == [
        (lag, chain, scheme) for lag in (1, 2) for chain in "ab" for scheme in schemes
    ]
    for cost in found:
        if cost.scheme != "race":  # whose cost is an estimate
            made = plan(chains[cost.chain], cost.lag, cost.scheme)
            assert (cost.messages, cost.lower_bound, cost.margin) == (made.cost, made.lower_bound, 0)


def test_the_cost_of_a_race_is_an_estimate_and_says_how_good(chain_file):
    """Six standard errors: its cost on paper is never below the bound, and an estimate hardly ever by so much."""
    words = "costs", chain_file, "--lags", "1", "--promise", "both", "--scheme", "race"
    [cost] = json.loads(call(*words, "--json", check=True).stdout)["costs"]
    assert 0 < cost["margin"] < 0.3 * cost["messages"]
    assert cost["messages"] + 6 / 1.96 * cost["margin"] > cost["lower_bound"]
    assert re.search(r"\d ± 0\.\d\d ", call(*words, check=True).stdout)


def test_lengths_report_bytes_but_of_a_race():
    question = {"c": CHAIN}, [1, 2], ["past", "both"], ["optimal", "race"]
    found = list(costs(*question, lengths={"c": LENGTHS}, effort=Effort(streams=3)))
    step, sizes = PastState.start(CHAIN).prepare(), list(LENGTHS.values())
    expected = sum(mass * sum(sizes[x] for x in query) for query, mass in zip(step.sets, step.masses, strict=True))
    assert found[0].bytes == pytest.approx(expected / step.denominator)
    for cost in found:
        assert cost.everything == 123
        assert cost.bytes is None if cost.scheme == "race" else 3 < cost.bytes <= 123


def test_a_stream_ends_when_its_time_is_up_and_a_lag_that_two_do_not_reach_says_so(monkeypatch):
    assert len(simulate(CHAIN, (), 9, "seed").bounds) == 9
    prepare, deadlines = PastState.prepare, []

    def late(state, deadline):
        deadlines.append(deadline)
        if len(deadlines) == 4:
            raise TimeoutError
        return prepare(state, deadline)

    with monkeypatch.context() as patch:
        patch.setattr(PastState, "prepare", late)
        assert len(simulate(CHAIN, (), 9, "seed", time_limit=1e6).bounds) == 4 - 1
    short = simulate(CHAIN, (), 2, "seed")
    monkeypatch.setattr(module, "simulate", lambda *_: short)
    found = list(costs({"c": CHAIN}, [1, 2, 3], effort=Effort(streams=2)))
    assert [cost.error for cost in found] == [None, None, "0 streams got so far in their time; two are needed"]


def test_one_note_names_all_lags_for_which_there_was_no_time(chain_file):
    for words, code, said in (("--lags", "1-4"), 1, "chain.json, past, lag 1, 2, 3, 4"), (("--day",), 2, "error"):
        done = call("costs", chain_file, *words, "--time-limit", 0, "--jobs", 1)
        notes = [line for line in done.stderr.splitlines() if not re.search(r"after \d+ s$", line)]
        assert (done.returncode, done.stdout, notes) == (code, "", [f"onoff: {said}: {module.TOO_LONG}"])


def test_the_cost_of_a_first_step_needs_no_encoders(monkeypatch):
    expected = [cost.messages for cost in costs({"c": CHAIN}, [1, 2], effort=Effort(streams=2))]
    monkeypatch.setattr("onoff.schemes.encoder.LawEncoder.encode", None)
    other = Effort(time_limit=61)  # not cached
    assert [cost.messages for cost in costs({"c": CHAIN}, [1], effort=other)] == expected[:1]


@pytest.mark.long
@pytest.mark.parametrize(("successors", "elsewhere"), [(8, 0.0), (20, 0.01)])
def test_a_thousand_sources_have_their_first_cost(successors, elsewhere, tmp_path):
    rng = np.random.default_rng(1)
    rows = np.full((1000, 1000), elsewhere / 1000)
    for row in rows:
        row[rng.choice(1000, successors, replace=False)] += rng.dirichlet(np.ones(successors))
    rows[np.arange(1000), (np.arange(1000) + 1) % 1000] += 0.1
    Chain.from_counts(rows, smoothing=0.0).save(tmp_path / "chain.json")
    words = ONOFF, "costs", tmp_path / "chain.json", "--lags", "1", "--time-limit", "600", "--json"
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    [cost] = json.loads(done.stdout)["costs"]
    assert 1 < cost["lower_bound"] <= cost["messages"] < 1.8 * cost["lower_bound"]  # of a race


# The command


@pytest.fixture
def chain_file(tmp_path):
    file = tmp_path / "chain.json"
    Chain([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2], [0.1, 0.1, 0.8]], ["news", "sports", "health"]).save(file)
    return file


def rows_of(file):
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_the_command_prints_a_table_json_a_csv_and_a_picture(chain_file, tmp_path):
    (tmp_path / "lengths.json").write_text(json.dumps({"news": 500, "sports": 70, "health": 9, "more": 1}))
    out, picture = tmp_path / "costs.csv", tmp_path / "costs.svg"
    Chain.symmetric(4, 0.6).save(tmp_path / "other.csv")
    words = ["costs", chain_file, tmp_path / "other.csv", "--lags", "1-2"]
    words += ["--promise", "both", "--promise", "past", "--scheme", "paper", "--scheme", "optimal", "--streams", 2]
    done = call(*words, "--csv", out, "--plot", picture, check=True)
    chains = ("chain.json", "other.csv")
    found = json.loads(call(*words, "--json", check=True).stdout)
    kinds = [("both", "paper"), ("both", "optimal"), ("past", None)]
    assert [(cost["chain"], cost["promise"], cost["scheme"], cost["lag"]) for cost in found["costs"]] == [
        (chain, *kind, lag) for chain in chains for kind in kinds for lag in (1, 2)
    ]
    for cost in found["costs"]:
        assert f"{cost['messages']:.4f}" in done.stdout
    written = {(row["chain"], row["promise"], row["scheme"], int(row["lag"])): row for row in rows_of(out)}
    assert len(written) == len(found["costs"])
    for cost in found["costs"]:
        row = written[cost["chain"], cost["promise"], cost["scheme"] or "", cost["lag"]]
        assert (float(row["messages"]), float(row["margin"])) == (cost["messages"], cost["margin"])
    for words_in in (*chains, "past", "both, paper", "everything"):
        assert f"<!-- {words_in} -->" in picture.read_text()  # matplotlib notes each text beside its glyphs
    assert "…" not in done.stdout  # two names that are cut may be the same
    sized = call("costs", chain_file, "--lags", "1", "--lengths", tmp_path / "lengths.json", check=True)
    assert re.search(r"│ +579 │$", sized.stdout, flags=re.M)


def test_a_journal_knows_how_long_the_messages_were_that_it_received(chain_file, tmp_path):
    chain = Chain.load(chain_file)
    bodies = {"news": b"n" * 40, "sports": b"s" * 7, "health": b"h" * 3}
    with RecordingServer(OnoffOrigin(bodies)) as server:
        with connect_sync(chain, server=server.url, journal=tmp_path / "j", plans=tmp_path, delay=0) as client:
            client.get("news")
        server.wait_closed()
    words = "costs", chain_file, "--lags", "1", "--lengths", tmp_path / "j"
    done = call(*words, "--json", check=True)
    [cost] = json.loads(done.stdout)["costs"]
    assert (cost["everything"], cost["promise"]) == (50, "past")  # the promise that readers use is the default
    assert "an onoff server pads all of them to one length" in done.stderr
    Chain.symmetric(3, 0.5).save(tmp_path / "other.csv")
    done = call("costs", tmp_path / "other.csv", *words[2:])
    assert (done.returncode, "a journal of another chain" in done.stderr) == (2, True)


def test_a_cost_that_fails_is_named_and_the_exit_code_is_1(chain_file, tmp_path, monkeypatch):
    def broken(chain, lag, *_, **__):
        if lag == 1:
            raise OnoffError("no luck")
        assert len(rows_of(tmp_path / "a.csv")) == 1  # the row before is on disk already
        return plan(chain, lag)

    monkeypatch.setattr(module, "plan", broken)
    done = call("costs", chain_file, "--promise", "both", "--lags", "1-2", "--csv", tmp_path / "a.csv",
                "--plot", tmp_path / "a.png", "--jobs", 1)  # fmt: skip
    assert done.returncode == 1
    assert "onoff: chain.json, both, lag 1: no luck" in done.stderr
    assert [row["error"] for row in rows_of(tmp_path / "a.csv")] == ["no luck", ""]
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_ctrl_c_shows_the_means_of_the_streams_that_are_finished(chain_file, monkeypatch):
    made = []

    def stopped_at_the_third(*words):
        made.append(words)
        if len(made) == 3:
            raise KeyboardInterrupt
        return simulate(*words)

    monkeypatch.setattr(module, "simulate", stopped_at_the_third)
    done = call("costs", chain_file, "--lags", "1-3", "--jobs", 1, "--json")
    assert done.returncode == 130
    found = json.loads(done.stdout)["costs"]
    monkeypatch.undo()
    expected = list(costs({"chain.json": Chain.load(chain_file)}, [1, 2, 3], effort=Effort(streams=2)))
    assert [(cost["lag"], cost["messages"]) for cost in found] == [(cost.lag, cost.messages) for cost in expected]
