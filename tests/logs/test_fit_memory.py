"""Habits with memory from a log: rows, savings and states as by loops, and no more memory than there is."""

from __future__ import annotations

import json
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clikit import call
from onoff import Chain, OnoffError, fit, follows
from onoff.logs import journals, memory
from onoff.logs.count import FOLDS, Level
from onoff.logs.fit import estimate
from onoff.logs.follow import read_log_requests
from onoff.logs.journals import JournalRequests
from onoff.logs.memory import Contexts, choose_depth, choose_states, compare, fit_contexts
from sampling import examples

N = 2
sequences = st.lists(
    st.tuples(st.integers(0, FOLDS - 1), st.lists(st.integers(0, N - 1), min_size=2, max_size=12)), min_size=4
)


def histories(walks):
    """Every transition: its fold, what was requested before in the sequence, and the request."""
    for fold, walk in walks:
        for place in range(1, len(walk)):
            yield fold, tuple(walk[:place]), walk[place]


def counted(walks, n=N, depth=3):
    """The levels of some walks in folds: all contexts of up to `depth` requests."""
    levels = []
    for length in range(1, depth + 1):
        contexts = np.array(list(np.ndindex((n,) * length)))
        counts = np.zeros((FOLDS, *(n,) * (length + 1)), np.int64)
        for fold, walk in walks:
            if len(walk) > length:
                runs = np.lib.stride_tricks.sliding_window_view(np.array(walk), length + 1)
                np.add.at(counts, (fold, *runs.T), 1)
        levels.append(Level(contexts, counts.reshape(FOLDS, len(contexts), n)))
    return levels


def fitted(walks, n=N, depth=3, smoothing=1.0):
    levels = counted(walks, n, depth)
    pairs = levels[0].counts.sum(axis=0)
    return fit_contexts(
        levels, estimate(pairs, pairs.sum(axis=0) + 1, list(map(str, range(n))), smoothing).P, smoothing
    )


def rows_by_loops(transitions, smoothing, strengths):
    """The row of a context, fitted to these transitions: a function of context and request."""
    after = Counter()
    for _, history, x in transitions:
        after.update((history[start:], x) for start in range(max(0, len(history) - 3), len(history)))

    def row(context, x):
        if not context:
            return 1 / N
        strength = N * smoothing if len(context) == 1 else strengths[len(context)]
        size = sum(after[context, y] for y in range(N))
        return (after[context, x] + strength * row(context[1:], x)) / (size + strength)

    return row


def bits_by_loops(walks, states, smoothing, strengths):
    """Each transition is predicted by the longest state before it, with rows of the other folds."""
    total, made = 0.0, list(histories(walks))
    for held in range(FOLDS):
        row = rows_by_loops([one for one in made if one[0] != held], smoothing, strengths)
        for fold, history, x in made:
            if fold == held:
                state = next(history[k:] for k in range(len(history)) if history[k:] in states)
                total -= math.log2(row(state, x))
    return total / len(made)


def closed(seeds):
    return {(x,) for x in range(N)} | {s[i:j] for s in seeds for i in range(len(s)) for j in range(i + 1, len(s) + 1)}


@settings(max_examples=examples(30), deadline=None)
@given(sequences, st.lists(st.lists(st.integers(0, N - 1), min_size=2, max_size=3).map(tuple), max_size=4))
def test_rows_and_held_out_bits_are_as_by_loops_for_all_sets_of_states(walks, seeds):
    """Savings add up to the likelihood of habits, whatever the states are; strengths are those of the likeliest."""
    found, states = fitted(walks), closed(seeds)
    mask = np.array([run in states for run in found.runs])
    sizes = found.counts.sum(axis=1)
    strengths = {length: float((found.weight - sizes)[found.lengths == length][0]) for length in (1, 2, 3)}
    assert strengths[1] == N
    assert found.bits(mask) == pytest.approx(bits_by_loops(walks, states, 1.0, strengths))
    row = rows_by_loops(list(histories(walks)), 1.0, strengths)
    for run, values in zip(found.runs, found.rows, strict=True):
        if sizes[run[-1]]:  # else it is a dead end, which is followed by the first requests of sequences
            assert values == pytest.approx([row(run, x) for x in range(N)])
    for length in (2, 3):
        whole = {run for run in found.runs if len(run) <= length}
        bits = {s: bits_by_loops(walks, whole, 1.0, {**strengths, length: s}) for s in memory.STRENGTHS[[0, 5, 10]]}
        assert bits_by_loops(walks, whole, 1.0, strengths) <= min(bits.values()) + 1e-12


@settings(max_examples=examples(30), deadline=None)
@given(sequences, st.lists(st.lists(st.integers(0, N - 1), min_size=2, max_size=3).map(tuple), max_size=4))
def test_what_a_server_foresees_otherwise_is_the_mean_over_requests(walks, seeds):
    found, states = fitted(walks), closed(seeds)
    place = {run: k for k, run in enumerate(found.runs)}
    own, made = Counter(), list(histories(walks))
    for order in range(max(map(len, states)), 4):
        total = 0.0
        own.clear()
        for _, history, x in made:
            state = next(history[k:] for k in range(len(history)) if history[k:] in states)
            own[state, x] += 1
            total += np.abs(found.rows[place[history[-order:]]] - found.rows[place[state]]).sum() / 2
        assert found.distance(np.array([run in states for run in found.runs]), order) == pytest.approx(
            total / len(made)
        )
    counts = found.own_counts(np.array([run in states for run in found.runs]))
    assert {(run, x): counts[place[run], x] for run in states for x in range(N)} == {
        (run, x): own[run, x] for run in states for x in range(N)
    }


def walks_of(chain, number, steps, rng):
    return [(int(rng.integers(FOLDS)), chain.simulate(steps, rng).tolist()) for _ in range(number)]


def markov(n, order, rng, concentration=0.4):
    """Habits in which the next request depends on the last `order` ones, all of them."""
    states = [run for length in range(1, order + 1) for run in np.ndindex((n,) * length)]
    return Chain(rng.dirichlet(np.full(n, concentration), len(states)), states=states)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_as_much_memory_is_found_as_there_is_and_the_bits_are_those_of_the_truth(order):
    rng = np.random.default_rng(order)
    true = markov(4, order, rng)
    found = fitted(walks_of(true, 300, 100, rng), 4)
    choices = [choose_states(found, depth) for depth in (1, 2, 3)]
    assert choose_depth(found, choices) == order - 1
    depths = compare(found, choices)
    assert depths[2].distance is None  # what a server with memory 4 foresees was not counted
    law = true.stationary()
    entropy = -float((law[:, None] * true.P * np.log2(np.where(true.P > 0, true.P, 1))).sum())
    assert depths[order - 1].bits == pytest.approx(entropy, abs=0.03)
    assert [one.states for one in depths[: order - 1]] == [4, 20][: order - 1]
    assert [one.distance > 0.1 for one in depths[: order - 1]] == [True] * (order - 1)
    assert found.distance(choices[order - 1], min(order + 1, 3)) < 0.03  # noise of rows
    if order == 1:
        assert [one.states for one in depths] == [4, 4, 4]


def test_a_reader_who_is_held_out_and_counted_all_the_same_makes_memory_of_noise():
    """The planted mistake: everybody is in two folds, so that the other folds know what is held out."""
    rng = np.random.default_rng(3)
    walks = walks_of(markov(6, 1, rng), 80, 10, rng)
    found = fitted(walks, 6)
    wrong = fitted([*walks, *((fold ^ 1, walk) for fold, walk in walks)], 6)
    assert found.saved[found.lengths > 1].sum() < 10
    assert wrong.saved[found.lengths > 1].sum() > 50
    assert choose_states(found, 3).sum() == 6


def with_savings(*saved):
    """Contexts of one source each whose savings in the folds are these."""
    rows = np.ones((len(saved), 1))
    return Contexts([(0,)] * len(saved), rows[:, 0], rows, rows, rows[:, 0], np.array(saved, dtype=float))


def test_memory_is_not_chosen_for_what_may_be_noise():
    even, noisy, steady = [0] * 8, [900, -700, 800, -900, 700, -600, 900, -800], [30, 40, 50, 35, 45, 30, 40, 50]
    one, two, three = np.eye(3, dtype=bool)
    assert choose_depth(with_savings(even, even, steady), [one, two, three]) == 2
    assert choose_depth(with_savings(even, noisy, noisy), [one, two, three]) == 0
    assert choose_depth(with_savings(even, steady, steady), [one, two, three]) == 1


def test_the_best_contexts_come_first_with_all_that_a_tree_needs_for_them(monkeypatch):
    rng = np.random.default_rng(7)
    found = fitted(walks_of(markov(4, 3, rng), 200, 100, rng), 4)
    everything = choose_states(found, 3)
    assert everything.sum() > 40
    monkeypatch.setattr(memory, "MOST_STATES", 20)
    few = choose_states(found, 3)
    assert 4 < few.sum() <= 20
    best = max((c for c, run in enumerate(found.runs) if len(run) > 1), key=lambda c: found.saved[c].sum())
    assert few[best]
    for states in (everything, few):
        Chain(found.rows[states], states=[found.runs[c] for c in np.flatnonzero(states)])  # or it is no tree


def write(walks, file):
    file.write_text("".join(" ".join(f"s{x}" for x in walk) + "\n" for _, walk in walks))
    return file


def test_check_accepts_habits_with_memory_on_their_own_log_and_refutes_the_chain(tmp_path):
    rng = np.random.default_rng(11)
    file = write(walks_of(markov(5, 2, rng), 40, 100, rng), tmp_path / "log.txt")
    found, chain = fit(file, memory="auto"), fit(file)
    assert (found.report.memory, found.chain.depth, chain.chain.depth) == (2, 2, 1)
    assert found.report.bits < chain.report.bits - 0.1
    requests = read_log_requests(file, found.chain)
    assert not follows(found.chain, requests.indices, begins=requests.begins).refuted
    assert follows(chain.chain, requests.indices, begins=requests.begins).refuted
    assert (found.counts == chain.counts).all()


def test_what_is_said_of_first_order_habits_is_the_same_whatever_was_counted(tmp_path):
    rng = np.random.default_rng(12)
    file = write(walks_of(markov(4, 1, rng), 60, 30, rng), tmp_path / "log.txt")
    one, auto = fit(file, memory=1), fit(file, memory="auto")
    assert one.chain == auto.chain
    assert one.chain.weight.tolist() == auto.chain.weight.tolist()
    assert (len(one.report.depths), len(auto.report.depths)) == (2, 3)


def test_weights_of_states_are_counts_but_those_of_a_journal_tell_nothing(tmp_path, monkeypatch):
    rng = np.random.default_rng(13)
    path = markov(3, 2, rng, 0.2).simulate(900, rng)
    write([(0, path)], tmp_path / "log.txt")
    found = fit(tmp_path / "log.txt", memory=2, one_user=True).chain
    times = {
        state: sum(tuple(path[t : t + len(state)]) == state for t in range(900 - len(state))) for state in found.states
    }
    pulled = found.weight - [times[state] for state in found.states]
    assert found.depth == 2
    assert (
        len({round(float(more), 6) for more in pulled[:3]}) == len({round(float(more), 6) for more in pulled[3:]}) == 1
    )
    made = JournalRequests(("s0", "s1", "s2"), None, "past", tuple(path.tolist()), (False,) * 900)
    monkeypatch.setattr(journals, "read_journal", lambda _: made)
    (tmp_path / "journal").write_bytes(journals.HEAD)
    of_journal = fit(tmp_path / "journal", memory=2).chain
    assert of_journal == found
    assert set(of_journal.weight) == {of_journal.weight[0]}


def test_the_command_shows_what_memory_costs_and_writes_it(tmp_path):
    rng = np.random.default_rng(14)
    write(walks_of(markov(4, 2, rng), 100, 60, rng), tmp_path / "log.txt")
    shown = call("fit", "log.txt", "--memory", "auto", cwd=tmp_path, check=True).stdout
    found = Chain.load(tmp_path / "habits.json")
    assert "(this chain: --memory 2)" in shown
    report = json.loads(call("fit", "log.txt", "-o", "a.json", "--memory", "3", "--json", cwd=tmp_path).stdout)
    assert [one["memory"] for one in report["depths"]] == [1, 2, 3]
    for one in report["depths"]:
        assert f"{one['bits']:.3f}" in shown
        assert f"{one['first_cost']:.2f}" in shown
        assert (f"{one['distance']:.1%} │" if one["memory"] < 3 else "not counted") in shown
    assert shown.count("not counted") == 1
    less = call("fit", "log.txt", "-o", "b.json", cwd=tmp_path).stdout
    assert f"{report['depths'][0]['distance']:.1%} │" in less
    assert less.count("not counted") == 1
    [second] = [one for one in report["depths"] if one["memory"] == 2]
    assert second["first_cost"] == pytest.approx(found.P.max(axis=0).sum())
    assert second["states"] == len(found.states) > 4
    call("fit", "habits.json", "-o", "again.json", cwd=tmp_path, check=True)
    assert np.abs(Chain.load(tmp_path / "again.json").P - found.P).max() < 1e-15
    call("fit", "habits.json", "-o", "less.json", "--without", "s0", cwd=tmp_path, check=True)
    less = Chain.load(tmp_path / "less.json")
    assert less.names == ("s1", "s2", "s3")
    for state, row in zip(less.states, less.P, strict=True):
        kept = found.P[found.states.index(tuple(x + 1 for x in state)), 1:]
        assert row == pytest.approx(kept / kept.sum())


def test_a_log_too_short_for_contexts_gives_a_chain(tmp_path):
    for words in ("a b\n", "a b a\n", "a b\nb a\n"):
        (tmp_path / "log.txt").write_text(words)
        found = fit(tmp_path / "log.txt", memory="auto")
        assert (found.chain.depth, found.report.memory) == (1, 1)
        assert fit(tmp_path / "log.txt", memory=3).chain == found.chain


def test_memory_that_cannot_be_had_is_refused_before_the_work(tmp_path):
    (tmp_path / "log.txt").write_text("".join(f"s{x} s{x + 1} s{x}\n" for x in range(120)))
    with pytest.raises(
        OnoffError, match=r"habits of 121 sources have no memory: keep 100 \(--top\), or use --memory 1"
    ):
        fit(tmp_path / "log.txt", memory="auto", top=1000)
    assert len(fit(tmp_path / "log.txt", top=1000).report.depths) == 1
    for wrong in (0, 4, True, "2", "many"):
        with pytest.raises(OnoffError, match=r"memory is .*: auto, 1, 2 or 3 is needed"):
            fit(tmp_path / "log.txt", memory=wrong)
    done = call("fit", "log.txt", "--memory", "2", "-o", "a.csv", cwd=tmp_path)
    assert (done.returncode, "a CSV holds no habits with memory" in done.stderr) == (2, True)
