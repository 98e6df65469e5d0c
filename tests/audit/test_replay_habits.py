"""Habits that keep themselves, replayed: the stages, each chain, the fuse; each planted mistake at its first step."""

from __future__ import annotations

from base64 import b64encode
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest

from clikit import call as command
from onoff import Chain
from onoff.audit.habits import Habits as ClaimedHabits
from onoff.audit.habits import Recorded
from onoff.client.disk import connect, newest_chain, write_row
from onoff.client.journal import Journal
from onoff.client.promises import Past
from onoff.past import habits as rules
from onoff.past.habits import Habits, requests_needed
from replaykit import Life, life

FOUR = Chain(np.array([[0.1, 0.7, 0.1, 0.1], [0.1, 0.1, 0.7, 0.1], [0.7, 0.1, 0.1, 0.1], [0.4, 0.2, 0.2, 0.2]]))
OPEN = requests_needed(4) + 1  # steps until the chain is fixed


def stream(directory, seed=1, private=0.05, **options):
    """A client without a chain, that stays OFF while it learns."""
    made = life(directory, "past", chain=FOUR, sensitive=(), seed=seed, private=private, learns=True, **options)
    made.asked = lambda t, request, wanted: wanted and t > OPEN
    return made


@pytest.mark.parametrize("seed", range(4))
def test_an_honest_stream_that_learns_and_fits_again_passes(tmp_path, seed):
    made = stream(tmp_path, seed).live(180)
    for found in (made.audit(), made.audit(record=None, engine=made.engine())):
        assert found.findings == ()
        assert found.unchecked == ()
        assert found.drawn > 100
    assert len(made.chains()) > 1


def test_a_stream_with_a_private_request_too_early_asks_for_everything_to_the_end(tmp_path):
    for early in (7, OPEN):
        (tmp_path / str(early)).mkdir()
        made = stream(tmp_path / str(early))
        made.asked = lambda t, request, wanted, early=early: t == early
        found = made.live(60).audit(record=None)
        assert (found.findings, found.off) == ((), 0)


def test_the_command_needs_no_chain_for_a_journal_that_learned(tmp_path):
    made = stream(tmp_path).live(90)
    call = ("audit", "log", made.log_file, "--journal", made.journal_file)
    done = command(*call)
    assert (done.returncode, "AUDIT PASSED" in done.stdout, done.stderr) == (0, True, "")
    assert "the attack knows one chain, and this client has used several or none" in done.stdout
    assert command(*call, "--attack").stdout == done.stdout
    assert "give --journal" in command("audit", "log", made.log_file, "--statuses", "1").stderr


class Path:
    """A chain whose path is given."""

    def __init__(self, chain, path):
        self.names, self.n, self.P, self._path = chain.names, chain.n, chain.P, path

    def simulate(self, count, rng):  # noqa: ARG002
        return np.array(self._path[:count])


def too_early(honest, habits, state, query):
    """Fits again though there are not enough transitions."""
    after = honest(habits, state, query)
    return after.refit(habits.chain.P, habits.chain.weight) if after.transitions.sum() == 20 else after


def too_late(honest, habits, state, query):
    """Fits again four transitions after it is due."""
    with patch.object(rules, "FEW", 11):
        return honest(habits, state, query)


def without_reason(honest, habits, state, query):
    """Gives up though its requests follow the chain."""
    after = honest(habits, state, query)
    return replace(after, stage="all") if after.transitions.sum() == 17 else after


MISTAKES = [(too_early, "habits", 0), (too_late, "habits", 0), (without_reason, "status", 1)]


@pytest.mark.parametrize(("mistake", "rule", "later"), MISTAKES)
def test_a_planted_mistake_is_found_at_its_first_step(tmp_path, mistake, rule, later):
    """`later`: the stage after a step shows in the next one."""
    made, honest = stream(tmp_path, private=0.0), Habits.after_query

    def planted(self, state, query):
        right, after = honest(self, state, query), mistake(honest, self, state, query)
        made.wrong += [made.t] * ((right.stage, right.chain) != (after.stage, after.chain))
        return after

    found = made.live(180, [patch.object(Habits, "after_query", planted)]).audit()
    assert (found.first.rule, found.first.step) == (rule, made.wrong[0] + later)


def test_a_chain_that_was_replaced_in_the_journal_is_found(tmp_path):
    made = stream(tmp_path).live(100)
    with closing(connect(made.journal_file)) as database:
        row = newest_chain(database)
        other = np.roll(made.chains()[row["step"]].P, 1, axis=1)
        write_row(database, "chains", {**row, "matrix": b64encode(other.tobytes()).decode()})
    first = made.audit(record=None, engine=made.engine()).first
    assert (first.rule, first.step) == ("habits", row["step"] - 1)


def test_a_chain_that_is_fitted_again_to_the_same_rows_is_noted_with_its_new_weight(tmp_path):
    even = Chain(np.full((2, 2), 0.5), weight=[10, 10])
    made = life(tmp_path, "past", chain=even, sensitive=(), private=0.0)
    made.chain = Path(even, [0, 0, 1, 1] * 15)
    made.chain.weight = even.weight
    with patch.object(Life, "stated", even):
        assert made.live(50).audit(record=None, engine=made.engine()).findings == ()
        weights = {step: chain.weight.tolist() for step, chain in made.chains().items()}
    assert weights == {0: [10, 10], 22: [20, 20], 42: [30, 30]}


def test_a_stated_chain_that_counts_replace_is_followed_to_the_end(tmp_path):
    """Requests in order blow the fuse of the stated chain, and later that of the chain that was counted."""
    made = life(tmp_path, "past", chain=FOUR, sensitive=(), private=0.0)
    honest = FOUR.simulate(70, np.random.default_rng(1)).tolist()
    made.chain = Path(FOUR, [*honest, *[t % 4 for t in range(41)], *[-t % 4 for t in range(91)]])
    with patch.object(Life, "stated", FOUR):
        assert made.live(200).audit().findings == ()
        made.chain = FOUR
        assert len(made.chains()) > 1
    assert made.steps()[-1].lag == 0


def test_a_chain_with_memory_is_fitted_again_state_by_state(tmp_path):
    """The states stay; transitions are counted where queries of one source have made the state known."""
    rows = [[0.8, 0.2], [0.3, 0.7], [0.9, 0.1], [0.2, 0.8], [0.8, 0.2], [0.3, 0.7]]
    states = [(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)]
    known = Chain(rows, states=states, weight=np.full(6, 20.0))
    made = life(tmp_path, "past", chain=known, sensitive=(), private=0.02, seed=3).live(400)
    for found in (made.audit(), made.audit(record=None, engine=made.engine())):
        assert (found.findings, found.unchecked) == ((), ())
    assert [len(chain.P) for chain in made.chains().values()] == [6] * len(made.chains())
    assert len(made.chains()) > 1


SINGLE = 2  # of streams with this seed the first OFF query has one source


@pytest.mark.parametrize(("steps", "keep"), [(30, 10), (50, 30), (120, 100), (120, 60)])
def test_a_stream_whose_first_requests_were_erased_is_never_called_wrong(tmp_path, steps, keep):
    """Erased are 20 requests of the learning, or all of it and more. The first query with the chain has one source."""
    made = stream(tmp_path, seed=SINGLE, private=0.0).live(steps)
    journal = Journal(made.journal_file, made.stated.fingerprint, None)
    journal.remember(keep=str(keep))
    journal.unwritten = None
    journal.erase()
    journal.close()
    assert made.steps()[0].request is None
    found = made.audit(record=None, engine=made.engine())
    assert found.findings == ()
    assert found.word == "NO VERDICT"


@pytest.mark.parametrize("begin", [0, 30])
def test_a_client_that_was_told_to_learn_anew_is_followed(tmp_path, begin):
    """At the first step of a journal with a chain, too."""
    made = life(tmp_path, "past", chain=FOUR, sensitive=())
    made.asked = lambda t, request, wanted: wanted and not begin <= t < begin + OPEN + 1

    told = []

    def opened(self, client=None, honest=Life._open):
        found = honest(self, client)
        if self.t == begin and not told:
            told.append(True)
            self.close(found)
            self.journal = Journal(self.journal_file, self.stated.fingerprint, "catalogue")
            self.journal.relearn(self.stated)
            return Past(self.stated, self.journal, self.randbelow, ahead=False, record=self.record_file)
        return found

    made.restarts = 1.0
    with patch.object(Life, "_open", opened):
        made.live(120)
    assert [step for step, chain in made.chains().items() if chain is None] == [begin + (begin > 0)]
    found = made.audit()
    assert found.findings == ()
    assert found.drawn > 20


def test_the_bets_of_player_and_referee_are_the_same():
    rng = np.random.default_rng(5)
    for weight in (None, 1e-4, 5, 500):
        for _ in range(50):
            P, counts = np.maximum(rng.dirichlet(np.full(4, 0.5), 4), 1e-9), rng.integers(0, 9, (4, 4))
            chain = Chain(P / P.sum(axis=1, keepdims=True), weight=None if weight is None else [weight] * 4)
            journal = SimpleNamespace(chains={}, sensitive=())
            referee = ClaimedHabits(Recorded(chain.P, chain.step, 1, chain.weight), "known", journal)
            referee._counts = counts
            state, y = rng.integers(4, size=2)
            factors = Habits(chain, "known", counts).factors(state)[:, y]
            assert np.allclose(referee._factors(state, y), factors, rtol=1e-7)
