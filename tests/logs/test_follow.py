"""Do requests follow the chain: no gambler expects to gain, habits that differ are found, and the commands say so."""

from __future__ import annotations

import json
import sys
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clikit import call
from onoff import Chain, OnoffError, follows
from onoff.client.journal import Journal
from onoff.client.protocol import begin_both, finish
from onoff.logs import follow
from onoff.logs.follow import Piece, predictors, read_journal_requests, read_log_requests
from onoff.testing import chains, trees
from sampling import examples

# After a, b always comes a, after b alone whatever: a chain would not see it.
MEMORY = Chain([[0.5, 0.5], [0.5, 0.5], [1, 0]], ("a", "b"), states=[(0,), (1,), (0, 1)])
EVEN = Chain(np.full((4, 4), 0.25), tuple("abcd"))


def nearly_even(n, rng):
    """A chain that barely prefers any successor."""
    return Chain(rng.dirichlet(np.full(n, 20.0), n))


def states_of(chain, path):
    """The state before each request but the first, from all requests before it."""
    return np.array([chain.state_of(path[:t]) for t in range(1, len(path))])


def piece(chain, path):
    return Piece(chain.P, states_of(chain, path), path[:-1], path[1:], np.ones(len(path) - 1, bool))


def paths(chain, steps):
    """Every possible path from source 0, with its probability."""
    for rest in product(range(chain.n), repeat=steps):
        path = np.array([0, *rest])
        chance = float(np.prod(chain.P[states_of(chain, path), path[1:]]))
        if chance:
            yield path, chance


@pytest.mark.long
@settings(max_examples=examples(8), deadline=None)
@given(st.one_of(chains(max_sources=3), trees(2, 3)))
def test_no_predictor_expects_to_gain(chain):
    """The expected capital of each is 1 on all paths, or less: rare requests below 2^-1075 have a float of 0."""
    expected = {}
    for path, chance in paths(chain, 7 if chain.n == 2 else 5):
        for number, (_, _, ratio) in enumerate(predictors(piece(chain, path))):
            expected[number] = expected.get(number, 0.0) + chance * float(np.prod(ratio))
    assert len(expected) > 60
    assert max(expected.values()) < 1 + 1e-9


def test_the_weights_of_the_predictors_sum_to_1_and_do_not_depend_on_the_requests():
    rng = np.random.default_rng(1)
    for n in (2, 3, 5, 40):
        chain = nearly_even(n, rng)
        listed = []
        for size in (2, 7, 500):
            path = chain.simulate(size, rng)
            found = predictors(piece(chain, path))
            listed.append([(what, weight) for what, weight, _ in found])
        assert listed[0] == listed[1] == listed[2]
        assert sum(weight for _, weight in listed[0]) == pytest.approx(1)


def alarms(chain, steps, rate):
    return sum(chance for path, chance in paths(chain, steps) if follows(chain, path, false_alarms=rate).refuted)


@pytest.mark.parametrize("n", [2, 3, "memory"])
def test_alarms_on_all_paths_together_are_as_rare_as_stated_and_a_cheat_would_be_seen(n, monkeypatch):
    """Ville's inequality, by enumeration. The cheat gains whatever comes: its q sums to 1.3."""
    chain = MEMORY if n == "memory" else Chain(np.random.default_rng(n).dirichlet(np.full(n, 0.7), n))
    for rate in (0.8, 0.5, 0.2):
        assert alarms(chain, 4 if n == 3 else 7, rate) <= rate
    monkeypatch.setattr(follow, "predictors", lambda piece: [("everything", 1.0, np.full(len(piece.x), 1.3))])
    assert alarms(chain, 4 if n == 3 else 7, 0.8) > 0.8


@pytest.mark.parametrize("slips", [0.0, 0.1])
def test_a_reader_who_alternates_is_found_within_50_requests(slips):
    """a, b, c, d in turn, some of them slips of the finger. Of 1,000 such readers with other seeds all were found."""
    rng, missed = np.random.default_rng(8), 0
    for _ in range(200):
        n = int(rng.integers(4, 21))
        path = np.tile(rng.permutation(n)[:4], 13)[:50]
        path = np.where(rng.random(50) < slips, rng.integers(n, size=50), path)
        missed += not follows(nearly_even(n, rng), path).refuted
    assert missed <= 2


def test_the_bits_are_those_that_a_better_model_gains():
    rng = np.random.default_rng(11)
    cycle = follows(EVEN, np.tile([0, 1, 2, 3], 500))
    assert cycle.bits == pytest.approx(2.0, abs=0.02)  # of 2 bits a request all are known in advance
    other = Chain(rng.dirichlet(np.ones(4), 4), tuple("abcd"))
    true = float(other.stationary() @ (other.P * np.log2(other.P / EVEN.P)).sum(axis=1))
    assert follows(EVEN, other.simulate(5000, rng)).bits == pytest.approx(true, abs=0.05)
    second = [0, 0]
    for slip in rng.random(3000):  # the last two decide, the last alone does not
        second.append((second[-2] + second[-1] + 1) % 4 if slip < 0.9 else int(rng.integers(4)))
    assert follows(EVEN, second).bits > 1.0
    assert follows(EVEN, EVEN.simulate(2000, rng)).bits == 0


def test_what_the_better_model_looked_at_is_said():
    rng = np.random.default_rng(12)
    chain = nearly_even(12, rng)
    noisy = [int(x) for x in rng.integers(12, size=7)]
    for slip in rng.random(200):
        noisy.append(noisy[-7] if slip < 0.6 else int(rng.integers(12)))
    assert follows(chain, noisy).hint == "how requests repeat at a distance of 7"
    catalogue = follows(chain, np.arange(11))
    assert (catalogue.hint, catalogue.found_at <= 11) == ("the order of the catalogue", True)


def test_one_request_that_the_chain_calls_impossible_is_enough():
    chain = Chain([[0.5, 0.5, 0], [0.5, 0, 0.5], [0.2, 0.4, 0.4]])
    found = follows(chain, [0, 1, 2, 1, 1, 2])
    assert (found.refuted, found.impossible, found.found_at, found.p_value) == (True, 1, 5, 0.0)
    assert "the chain calls 1 of them impossible" in found.words()
    tiny = Chain([[1 - 1e-300, 1e-300], [0.5, 0.5]])
    assert follows(tiny, [0, 1] * 20).refuted  # and nothing overflows


def test_requests_of_habits_with_memory_are_tested_by_the_rows_of_their_states():
    """Planted: rows of the last request alone. They accept what is impossible, and refute a faithful reader."""
    faithful = MEMORY.simulate(400, np.random.default_rng(3))
    assert not follows(MEMORY, faithful).refuted
    assert follows(Chain(MEMORY.P[:2], MEMORY.names), faithful).refuted
    found = follows(MEMORY, [0, 0, 1, 1])
    assert (found.impossible, found.found_at) == (1, 4)
    assert follows(MEMORY, [1, 1, 0, 0]).impossible == 0
    with_break = follows(MEMORY, [0, 0, 1, 1], begins=[2])  # what came before the break is no context
    assert (with_break.tested, with_break.impossible) == (2, 0)


@given(trees(3, 3), st.lists(st.integers(0, 2), min_size=1, max_size=12), st.sets(st.integers(1, 11), max_size=3))
def test_the_states_are_those_of_each_sequence_alone(chain, path, begins):
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            follow, "predictors", lambda piece: seen.append(piece) or [("nothing", 1.0, np.ones(len(piece.x)))]
        )
        follows(chain, path, begins=begins)
    starts = [max(b for b in (0, *begins) if b <= t) for t in range(len(path))]
    expected = [chain.state_of(path[starts[t] : t + 1]) for t in range(len(path) - 1)]
    assert [z for piece in seen for z in piece.state.tolist()] == expected


def test_nothing_is_said_where_another_sequence_begins():
    chain = Chain([[0, 1, 0], [0.5, 0, 0.5], [0, 1, 0]])
    apart = follows(chain, [0, 1, 0, 0, 1], begins=[0, 3, 99])
    assert (apart.tested, apart.impossible) == (3, 0)
    assert follows(chain, [0, 1, 0, 0, 1]).impossible == 1


def test_a_long_stream_is_looked_at_in_pieces_and_the_capital_goes_on(monkeypatch):
    rng = np.random.default_rng(13)
    chain = nearly_even(6, rng)
    cycle = np.tile([0, 3, 1], 40)
    whole = follows(chain, cycle)
    monkeypatch.setattr(follow, "LONG", 8)
    pieces = follows(chain, cycle)
    assert pieces.tested == whole.tested == 119
    assert pieces.refuted
    assert not follows(chain, cycle[:9]).refuted  # one piece alone does not show it, and predictors begin afresh
    impossible = Chain([[0.5, 0.5], [1, 0]])
    late = follows(impossible, [0] * 20 + [1, 1])
    assert late.impossible == 1
    assert late.found_at <= 22


@pytest.mark.parametrize("bad", [[0, 4], [-1, 0], [[0, 1]]])
def test_requests_that_are_no_sources_are_an_error(bad):
    with pytest.raises(OnoffError, match="requests are indices of sources, from 0 to 3"):
        follows(EVEN, bad)
    with pytest.raises(OnoffError, match="rate of false alarms"):
        follows(EVEN, [0, 1], false_alarms=1.0)


def test_requests_are_read_from_logs(tmp_path):
    (tmp_path / "list.txt").write_text("% a comment, with words\na\nb\n\na\n")
    found = read_log_requests(tmp_path / "list.txt", EVEN)
    assert (found.indices, found.begins) == ((0, 1, 0), (0,))
    (tmp_path / "seq.txt").write_text("a b c\nb c d a\n" * 3)
    found = read_log_requests(tmp_path / "seq.txt", EVEN)
    assert found.indices == (0, 1, 2, 1, 2, 3, 0) * 3
    assert found.begins == (0, 3, 7, 10, 14, 17)
    rows = ["u,3,a", "v,1,d", "u,1,b", "u,2,zz", "v,2,c", "u,4,b"]
    (tmp_path / "log.csv").write_text("user,time,source\n" + "\n".join(rows) + "\n")
    found = read_log_requests(tmp_path / "log.csv", EVEN)
    assert (found.indices, found.begins, found.unknown) == ((1, 0, 1, 3, 2), (0, 1, 3), ("zz",))
    merged = Chain(EVEN.P, ("a", "b", "c", "other"))
    found = read_log_requests(tmp_path / "log.csv", merged)
    assert (found.indices, found.begins, found.unknown) == ((1, 3, 0, 1, 3, 2), (0, 4), ())
    with pytest.raises(OnoffError, match="no request read from it has a source of the chain"):
        read_log_requests(tmp_path / "log.csv", Chain(np.full((2, 2), 0.5), ("q", "r")))


def test_of_a_long_log_the_first_requests_are_read_and_a_note_says_so(tmp_path, monkeypatch):
    (tmp_path / "seq.txt").write_text("a b c\nb c d a\n")
    monkeypatch.setattr(follow, "MOST_REQUESTS", 8)
    assert read_log_requests(tmp_path / "seq.txt", EVEN).notes == ()
    monkeypatch.setattr(follow, "MOST_REQUESTS", 5)
    found = read_log_requests(tmp_path / "seq.txt", EVEN)
    assert (found.indices, found.begins) == ((0, 1, 2, 1, 2), (0, 3))
    assert found.notes == ("of a log the first 5 requests are tested",)


def write_journal(file, chain, path):
    """Write the journal of a client that made these requests ON."""
    journal = Journal(file, chain.fingerprint, "catalogue")
    for wanted in path:
        begun = begin_both(journal.state, chain, int(wanted), None, True, None)
        journal.begin(begun, float(chain.n))
        journal.state = finish(begun.state)
    journal.close()


def test_status_and_check_say_whether_the_requests_of_a_journal_follow_its_chain(tmp_path):
    rng = np.random.default_rng(14)
    chain = Chain(nearly_even(4, rng).P, tuple("abcd"))
    chain.save(tmp_path / "chain.json")
    write_journal(tmp_path / "faithful", chain, chain.simulate(100, rng))
    write_journal(tmp_path / "alternating", chain, np.tile([0, 1, 2, 3], 25))
    for name, words, code in (("faithful", "nothing speaks against", 0), ("alternating", "DO NOT FOLLOW", 1)):
        told = call("status", "--journal", name, "--chain", "chain.json", cwd=tmp_path, check=True).stdout
        assert words in told.splitlines()[-1]
        assert told.startswith("WARNING: the requests of this journal DO NOT FOLLOW its chain") == bool(code)
        done = call("check", name, "--chain", "chain.json", cwd=tmp_path)
        assert (done.returncode, words in done.stdout) == (code, True)
        assert ("this chain: `onoff fit --memory auto` on open requests" in done.stdout) == bool(code)
        assert len(read_journal_requests(tmp_path / name, chain).indices) == 100
    done = call("check", "faithful", cwd=tmp_path)
    assert (done.returncode, "no command has noted its chain here: give --chain" in done.stderr) == (2, True)
    with pytest.raises(OnoffError, match="is the journal of another chain"):
        read_journal_requests(tmp_path / "faithful", EVEN)


def test_the_command_reads_logs_and_says_what_it_left_out(tmp_path):
    Chain(EVEN.P, EVEN.names, [100] * 4).save(tmp_path / "chain.json")
    rows = "".join(f"{t},{'abcd'[t % 4] if t != 9 else 'x'}\n" for t in range(60))
    (tmp_path / "log.csv").write_text("time,page\n" + rows)
    done = call("check", "log.csv", "--chain", "chain.json", "--json", cwd=tmp_path)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert (found["tested"], found["unknown"], found["refuted"]) == (57, 1, True)
    assert "requests for no source of the chain, such as x, which were not tested: 1" in done.stderr
    assert "one user's" in done.stderr
    shown = call("check", "log.csv", "--chain", "chain.json", cwd=tmp_path).stdout
    assert "This chain rests on about 400 requests, and lasts for about 400 at best." in shown  # 4 N / n
    done = call("check", "log.csv", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "is not a journal, so the chain is needed" in done.stderr


def test_a_log_without_the_extra_to_read_it_is_not_called_a_failed_check(tmp_path, monkeypatch):
    EVEN.save(tmp_path / "chain.json")
    (tmp_path / "seq.txt").write_text("a b c\n")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    done = call("check", "seq.txt", "--chain", "chain.json", cwd=tmp_path)
    said = "onoff: error: reading a log needs duckdb: pip install 'onoff-privacy[logs]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
