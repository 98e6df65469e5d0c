"""What a day of requests costs, one way of asking beside the other, before anything is asked.

Requests follow the chain. A share p of them is private, in runs of r requests on average: privacy is switched ON with
probability q = p / ((1 - p) r) after an OFF request, and OFF with probability 1 / r after an ON one. So the d-th OFF
request after ON comes with probability q (1 - q)^(d - 1) among all OFF requests, and the mean cost of a request is

    p everything + (1 - p) sum over d of q (1 - q)^(d - 1) cost(d).

Streams of OFF requests after ON are simulated with the engine and the plans that a client uses. What a step costs given
the sets before it is exact; only these sets are sampled.

A source that was fetched g requests ago has changed with probability 1 - (1 - c)^g, where c is its chance to change
between two requests. With a cache a client downloads what changed only, in every way of asking.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from onoff.apps.everydayrates import LONG, SETTLED, margin, stream
from onoff.audit.setting import start_law
from onoff.errors import OnoffError
from onoff.everyday import Everyday
from onoff.model.powers import times
from onoff.plans.lengths import Weighing
from onoff.plans.making import plan
from onoff.types import Bar, Floats, quiet

if TYPE_CHECKING:
    from onoff.model.chain import Chain
    from onoff.plans.base import Plan

MOST_STEPS, REST = 60, 0.01  # OFF steps that are simulated after ON, unless fewer leave only this share of all
LAGS = (1, 2, 3, 5, 8, 13, 21, 34, 55)  # with a plan of their own; each serves up to the next
RIGHT_FOR = {
    "openly": "the server may know everything",
    "past": "you go ON at times and do not know what you read next",
    "sensitive": "some sources are always private and you never switch",
    "both": "you know the next request; open ones then predict nothing",
    "on": "all is private, or all messages together are small",
    "mirror": "sources change rarely, or when you read is private, too",
}


@dataclass(frozen=True)
class Habits:
    """How many requests a day, the share of private ones, their runs, and how often a day a mirror fetches all."""

    requests: int = 100
    private: float = 0.2
    run: float = 3.0
    mirrored: int = 24

    def __post_init__(self) -> None:
        if self.requests < 1 or self.mirrored < 1:
            raise OnoffError("a day has at least one request, and a mirror is filled at least once")
        if not 0 < self.private < 1 or self.run < max(1.0, self.private / (1 - self.private)):
            raise OnoffError(
                f"a share of {self.private:g} private requests in runs of {self.run:g} is not possible: the share lies "
                "between 0 and 1, and runs have at least 1 and at least share / (1 - share) requests"
            )

    @property
    def switched_on(self) -> float:
        """The probability of going ON after an OFF request."""
        return self.private / (1 - self.private) / self.run


@dataclass(frozen=True)
class Way:
    """What one way of asking costs a day, on average: messages, bytes, and bytes of what changed.

    A margin is that of the mean over simulated streams, 95 %, and 0 where nothing is sampled. Bytes are None without
    lengths, and `changed` is None without chances to change.
    """

    name: str
    right_for: str
    messages: float
    messages_margin: float
    bytes: float | None
    bytes_margin: float | None
    changed: float | None
    changed_margin: float | None


@dataclass(frozen=True)
class Estimate:
    """The ways of asking, for these habits. `everything` is the bytes of all sources together, None without lengths."""

    sources: int
    habits: Habits
    sensitive: tuple[str, ...]
    streams: int
    everything: float | None
    ways: tuple[Way, ...]


def estimate(
    chain: Chain,
    habits: Habits,
    *,
    lengths: Sequence[float] | None = None,
    changes: Sequence[float] | None = None,
    sensitive: Sequence[int | str] = (),
    streams: int = 12,
    seed: int = 1,
    time_limit: float = 10.0,
    bar: Bar = quiet,
) -> Estimate:
    """What a day costs by each way of asking.

    `lengths` are the bytes of each source. `changes` are the chances that each changes from one request to the next;
    without them every source always does. Plans of the promise "both" may take `time_limit` seconds together.
    """
    if streams < 2:
        raise OnoffError(f"{streams} streams have no spread: simulate at least 2")
    if changes is not None and not all(0 <= chance <= 1 for chance in changes):
        raise OnoffError("the chance to change between two requests lies between 0 and 1")
    hidden = Everyday.start(chain, sensitive).sensitive
    prices = _Prices.of(chain.n, lengths, changes)
    weighing = prices.weighing
    steps = _steps(habits)
    lags = [lag for lag in LAGS if lag <= steps]
    with bar(streams * (2 + bool(hidden)) + len(lags)) as advance:
        plans = []
        fixed = None if weighing is None else weighing.fixed
        for lag in lags:
            plans.append(plan(chain, lag, lengths=fixed, time_limit=time_limit / len(lags)))
            advance()
        day = _Day(chain, habits, prices, streams, seed, steps, advance)
        ways = [day.openly(), day.past()]
        if hidden:
            ways.append(day.with_sensitive(hidden))
        ways += [day.both(plans), day.on(), day.mirror()]
    everything = None if lengths is None else float(prices.lengths.sum())
    return Estimate(chain.n, habits, tuple(chain.names[x] for x in hidden), streams, everything, tuple(ways))


def _steps(habits: Habits) -> int:
    """How many OFF steps after ON are simulated."""
    left = np.cumprod(np.full(MOST_STEPS, 1 - habits.switched_on))
    return int(np.searchsorted(-left, -REST)) + 1 if left[-1] < REST else MOST_STEPS


@dataclass(frozen=True)
class _Prices:
    """What members of a set cost: lengths (1 if there are none), and chances to change (1 if they are not known)."""

    lengths: Floats
    stays: Floats  # the chance of each source not to change between two requests
    has_lengths: bool
    has_changes: bool

    @classmethod
    def of(cls, n: int, lengths: Sequence[float] | None, changes: Sequence[float] | None) -> _Prices:
        whole = np.ones(n) if lengths is None else np.array(lengths, float)
        stays = np.zeros(n) if changes is None else 1 - np.array(changes, float)
        return cls(whole, stays, lengths is not None, changes is not None)

    @property
    def weighing(self) -> Weighing | None:
        """What a client that is given the same weighs its sets by."""
        if not self.has_lengths:
            return None
        chances = tuple((1 - self.stays).tolist()) if self.has_changes else None
        return Weighing(tuple(self.lengths.tolist()), chances)

    def changed(self, gaps: Floats) -> Floats:
        """The expected bytes of every source that was last fetched so many requests ago."""
        return self.lengths * (1 - self.stays**gaps)


@dataclass(frozen=True)
class _Day:
    """Costs of a request by each way of asking, as sums over a day."""

    chain: Chain
    habits: Habits
    prices: _Prices
    streams: int
    seed: int
    steps: int
    advance: Callable[[], None]

    def openly(self) -> Way:
        law = start_law(self.chain)
        lengths = self.prices.lengths
        whole, changed = (float(times(law, sizes)) for sizes in (lengths, lengths * self._changed_again()))
        return self._exactly("openly", 1.0, whole, changed)

    def _changed_again(self) -> Floats:
        """For every source: the chance that it has changed when it is asked for again.

        With s the chance to stay, that is 1 - E s^T for the time T of return, and E s^T = 1 - 1 / G[x, x] with
        G = (1 - s P)^-1.
        """
        n, stays = self.chain.n, self.prices.stays
        chances = np.ones(n)
        for stay in np.unique(stays):
            here = stays == stay
            if stay == 1:
                chances[here] = 0.0
            elif stay > 0:
                again = np.linalg.inv(np.eye(n) - stay * self.chain.P)
                chances[here] = 1 / np.diagonal(again)[here]
        return chances

    def past(self) -> Way:
        start = Everyday.start(self.chain)
        return self._switched("past", lambda rng: _everyday(start, self.steps, rng, self.prices.weighing))

    def both(self, plans: Sequence[Plan]) -> Way:
        return self._switched("both", lambda rng: _announced(self.chain, plans, self.steps, rng))

    def with_sensitive(self, hidden: Sequence[int]) -> Way:
        """Never ON after the first two: the mean over the late steps of long streams."""
        start = Everyday.start(self.chain, hidden)
        rows = []
        for number in range(self.streams):
            expected, member = _everyday(start, LONG, Random(f"{self.seed}/{number}"), self.prices.weighing)
            changed = expected * self.prices.changed(_gaps(member)[:-1])
            late = slice(SETTLED - 1, None)
            rows.append([part[late].sum(axis=1).mean() for part in (expected, expected * self.prices.lengths, changed)])
            self.advance()
        return self._way("sensitive", *np.array(rows).T)

    def on(self) -> Way:
        n, lengths = self.chain.n, self.prices.lengths
        return self._exactly("on", n, lengths.sum(), self.prices.changed(np.ones(n)).sum())

    def mirror(self) -> Way:
        """Everything, on a timetable that has nothing to do with requests."""
        n, turns = self.chain.n, self.habits.mirrored / self.habits.requests
        changed = self.prices.changed(np.full(n, 1 / turns)).sum()
        return self._exactly("mirror", n * turns, self.prices.lengths.sum() * turns, changed * turns)

    def _exactly(self, name: str, messages: float, whole: float, changed: float) -> Way:
        """A way that nothing is sampled for."""
        return self._way(name, *(np.full(2, float(value)) for value in (messages, whole, changed)))

    def _switched(self, name: str, run: Callable[[Random], tuple[Floats, Floats]]) -> Way:
        """The mean over ON and OFF requests; `run` gives one stream of OFF steps after ON."""
        share, q, length = self.habits.private, self.habits.switched_on, self.habits.run
        weights = q * (1 - q) ** np.arange(self.steps)
        weights[-1] = (1 - q) ** (self.steps - 1)  # all later ones
        n, lengths = self.chain.n, self.prices.lengths
        rows = []
        for number in range(self.streams):
            expected, member = run(Random(f"{self.seed}/{name}/{number}"))
            fresh = self.prices.changed(_gaps(member))  # of a whole set at each step, and one step later
            after = fresh.sum(axis=1)  # what an ON request would download there
            on = (1 - 1 / length) * after[0] + times(weights, after[1:]) / length
            off = [times(weights, part.sum(axis=1)) for part in (expected, expected * lengths, expected * fresh[:-1])]
            rows.append([share * x + (1 - share) * y for x, y in zip((n, lengths.sum(), on), off, strict=True)])
            self.advance()
        return self._way(name, *np.array(rows).T)

    def _way(self, name: str, messages: Floats, whole: Floats, changed: Floats) -> Way:
        """Means over streams, with margins, for a whole day."""

        def day(values: Floats) -> tuple[float, float]:
            return float(values.mean()) * self.habits.requests, margin(values) * self.habits.requests

        nothing = None, None
        sized = day(whole) if self.prices.has_lengths else nothing
        fresh = day(changed) if self.prices.has_changes and self.prices.has_lengths else nothing
        return Way(name, RIGHT_FOR[name], *day(messages), *sized, *fresh)


def _everyday(start: Everyday, steps: int, rng: Random, weighing: Weighing | None) -> tuple[Floats, Floats]:
    """For every step of a stream: how likely each source is a member of the set, given the sets before, and the set."""
    n = start.chain.n
    expected, member = np.zeros((steps, n)), np.zeros((steps, n), bool)
    for t, (step, query) in enumerate(stream(start, steps, rng, weighing)):
        for members, mass in zip(step.sets, step.masses, strict=True):
            expected[t, list(members)] += mass / step.denominator
        member[t, list(query)] = True
    return expected, member


def _announced(chain: Chain, plans: Sequence[Plan], steps: int, rng: Random) -> tuple[Floats, Floats]:
    """The same for a stream with announced requests, from plans of increasing lags."""
    n = chain.n
    expected, member = np.zeros((steps, n)), np.zeros((steps, n), bool)
    path = rng.choices(range(n), start_law(chain).tolist())
    for _ in range(steps + 1):
        path += rng.choices(range(n), chain.P[path[-1]].tolist())
    for t, (request, following) in enumerate(pairwise(path[1:])):
        used = max((one for one in plans if one.lag <= t + 1), key=lambda one: one.lag)
        query = used.draw(request, path[0], following, t + 1, rng.randrange)
        member[t, list(query)] = True
        law = used.law
        expected[t] = member[t] if law is None else times(law.mass, law.member) / law.total
    return expected, member


def _gaps(member: Floats) -> Floats:
    """How many requests ago each source was fetched at every step and one step later, if all were fetched at step 0."""
    gaps = np.ones((len(member) + 1, member.shape[1]))
    for t, held in enumerate(member):
        gaps[t + 1] = np.where(held, 1.0, gaps[t] + 1)
    return gaps
