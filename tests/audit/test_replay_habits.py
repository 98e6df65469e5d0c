"""Habits that keep themselves, replayed: the stages, each chain, the fuse; each planted mistake at its first step."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from onoff import Chain
from onoff.past import habits as rules
from onoff.past.habits import Habits, requests_needed
from replaykit import life

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


class Path:
    """A chain whose path is given."""

    def __init__(self, chain, path):
        self.names, self.n, self.P, self._path = chain.names, chain.n, chain.P, path

    def simulate(self, count, rng):  # noqa: ARG002
        return np.array(self._path[:count])


def from_sets(self, query, private, honest=Habits.asked):
    """Planted: counts a transition also where the query before had two sources."""
    if self.before is None and len(query) == 1 and not private and self.stage == "known":
        return honest(replace(self, before=query[0]), query, private)
    return honest(self, query, private)


def never_blown(self, query, private, honest=Habits.asked):
    """Planted: goes on though its requests do not follow the chain."""
    after = honest(self, query, private)
    return replace(after, stage="known") if after.stage == "all" else after


def swaps_anywhere(self, query, private, honest=Habits.asked):
    """Planted: fits again as soon as there are enough transitions, inside larger sets, too; or early."""
    after = honest(self, query, private)
    if after.chain is self.chain and after.transitions.sum() == 20:
        return after.refitted(self.chain.P, self.chain.weight, after.transitions)
    return after


def into_private(self, request, _, honest=Habits.learned):
    """Planted: goes on learning after a private request."""
    return honest(self, request, False)


@pytest.mark.parametrize(
    ("name", "mistake", "rule"),
    [
        ("asked", from_sets, "habits"), ("asked", swaps_anywhere, "habits"), ("asked", never_blown, "status"),
        ("learned", into_private, "habits"),
    ],
)  # fmt: skip
def test_a_planted_mistake_is_found_at_its_first_step(tmp_path, name, mistake, rule):
    made = stream(tmp_path)
    steps = 180
    if mistake is never_blown:
        honest = made.chain.simulate(OPEN, np.random.default_rng(1)).tolist()
        made.chain, steps = Path(FOUR, [*honest, *[t % 4 for t in range(81)]]), OPEN + 80
    if mistake is into_private:
        made.asked = lambda t, request, wanted: t == 9
    made.live(steps, [patch.object(Habits, name, mistake)])
    found = made.audit()
    assert found.first.rule == rule
    assert found.first.step == first_difference(made)


def first_difference(made):
    """The step at which the client's chain or stage first is another one than that of the rules."""
    state, chains = Habits(made.stated, "learn"), made.chains()
    for step in made.steps():
        everything = step.asked_private or state.stage in ("learn", "all")
        if everything != (step.lag == 0):
            return step.step
        moved = (
            state.learned
            if (everything and state.stage == "learn") or (state.stage == "fixed" and step.asked_private)
            else None
        )
        before = state
        state = moved(step.request, step.asked_private) if moved else state.asked(step.query, step.lag == 0)
        noted = chains.get(step.step + 1)
        due = state.chain if state.chain is not before.chain else None
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
        assert np.isclose(_factor(mu, nu, eps, y), rules.clipped(mu, nu, eps)[y], rtol=1e-7)
