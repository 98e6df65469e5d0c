"""Habits that keep themselves, replayed: the stages, each chain, the fuse; each planted mistake at its first step."""

from __future__ import annotations

from base64 import b64encode
from contextlib import closing
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from clikit import call as command
from onoff import Chain
from onoff.client.disk import connect, newest_chain, write_row
from onoff.client.journal import Journal
from onoff.client.promises import Past
from onoff.past import PublicState
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


def test_a_blown_fuse_asks_for_everything_to_the_end(tmp_path):
    made = stream(tmp_path)
    honest = made.chain.simulate(OPEN, np.random.default_rng(1)).tolist()
    made.chain = Path(FOUR, [*honest, *[t % 4 for t in range(61)]])
    found = made.live(OPEN + 60).audit()
    assert found.findings == ()
    assert next(step.step for step in made.steps() if step.step > OPEN and step.lag == 0) > OPEN


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


def from_sets(self, query):
    """Planted: counts a transition also where there were more candidates."""
    return self._with_query(self.habits.after_query(self.state.candidates.states[0], query), query)


def never_blown(self, state, query, honest=Habits.after_query):
    """Planted: goes on though its requests do not follow the chain."""
    after = honest(self, state, query)
    return replace(after, stage="known") if after.stage == "all" else after


def swaps_anywhere(self, state, query, honest=Habits.after_query):
    """Planted: fits again as soon as there are enough transitions, inside larger sets, too; or early."""
    after = honest(self, state, query)
    if after.chain is self.chain and after.transitions.sum() == 20:
        return after.refit(self.chain.P, self.chain.weight)
    return after


def into_private(self, state, request, _, honest=Habits.after_learning):
    """Planted: goes on learning after a private request."""
    return honest(self, state, request, False)


def counts_into_private(self, reader, request, private, honest=PublicState.after_everything):
    """Planted: counts the transition from a known state into a request that is made ON."""
    seen = self.habits
    if private and seen.stage == "known" and len(self.state.candidates.states) == 1:
        seen = seen.after_query(self.state.candidates.states[0], (request,))
    return honest(replace(self, habits=seen), reader, request, private)


def swaps_late(self, state, query, honest=Habits.after_query):
    """Planted: fits again four transitions after it is due."""
    with patch.object(rules, "FEW", 11):
        return honest(self, state, query)


def blows_without_reason(self, state, query, honest=Habits.after_query):
    """Planted: gives up though its requests follow the chain."""
    after = honest(self, state, query)
    return replace(after, stage="all") if after.transitions.sum() == 17 else after


@pytest.mark.parametrize(
    ("owner", "name", "mistake", "rule"),
    [
        (PublicState, "after", from_sets, "habits"), (Habits, "after_query", swaps_anywhere, "habits"),
        (Habits, "after_query", swaps_late, "habits"), (Habits, "after_query", never_blown, "status"),
        (Habits, "after_query", blows_without_reason, "status"), (Habits, "after_learning", into_private, "habits"),
        (PublicState, "after_everything", counts_into_private, "habits"),
    ],
)  # fmt: skip
def test_a_planted_mistake_is_found_at_its_first_step(tmp_path, owner, name, mistake, rule):
    made = stream(tmp_path)
    steps = 180
    if mistake is never_blown:
        honest = made.chain.simulate(OPEN, np.random.default_rng(1)).tolist()
        made.chain, steps = Path(FOUR, [*honest, *[t % 4 for t in range(81)]]), OPEN + 80
    if mistake is into_private:
        made.asked = lambda t, request, wanted: t == 9
    made.live(steps, [patch.object(owner, name, mistake)])
    found = made.audit()
    assert found.first.rule == rule
    assert found.first.step == first_difference(made)


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


def test_a_chain_that_rests_on_next_to_nothing_is_followed(tmp_path):
    little = Chain(np.full((2, 2), 0.5), weight=[1e-4, 1e-4])
    made = life(tmp_path, "past", chain=little, sensitive=(), private=0.0)
    with patch.object(Life, "stated", little):
        assert made.live(15).audit(record=None, engine=made.engine()).findings == ()


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


def first_difference(made):
    """The step at which the client's chain or stage first is another one than that of the rules."""
    public, chains, reader = PublicState(Habits(made.stated, "learning")), made.chains(), None
    for step in made.steps():
        if public.asks_for_all(step.asked_private) != (step.lag == 0):
            return step.step
        before = public.habits.chain
        if step.lag == 0:
            public = public.after_everything(reader, step.request, step.asked_private)
        else:
            public = public.after(step.query)
        reader, noted = step.request, chains.get(step.step + 1)
        due = public.habits.chain if public.habits.chain is not before else None
        if (noted is None) != (due is None) or (due is not None and not np.allclose(noted.P, due.P)):
            return step.step
    raise AssertionError("no difference")


def test_the_bets_of_player_and_referee_are_the_same():
    from onoff.audit.habits import _factor

    rng = np.random.default_rng(5)
    for _ in range(300):
        mu, nu = rng.dirichlet(np.full(6, 0.5), 2)
        mu = np.maximum(mu, 1e-9) / np.maximum(mu, 1e-9).sum()
        eps, y = rng.choice([0, 0.01, 0.1, 0.5]), rng.integers(6)
        assert np.isclose(_factor(mu, nu, eps, y), rules.clip_factors(mu, nu, eps)[y], rtol=1e-7)
