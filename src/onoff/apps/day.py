"""Compare what a day of requests costs, one way of asking beside the other, before anything is asked.

Requests follow the chain. A share p of them is private, in runs of r requests on average: privacy is switched ON with
probability q = p / ((1 - p) r) after an OFF request, and OFF with probability 1 / r after an ON one. So the d-th OFF
request after ON comes with probability q (1 - q)^(d - 1) among all OFF requests, and the mean cost of a request is

    p everything + (1 - p) sum over d of q (1 - q)^(d - 1) cost(d).

A source that was fetched g requests ago has changed with probability 1 - (1 - c)^g, where c is the chance to change
between two requests. A client downloads what changed only, in every way of asking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from onoff.apps.costs import Effort, Stream, margin, members, simulate, start_law
from onoff.apps.parallel import compute
from onoff.errors import OnoffError
from onoff.everyday import Everyday
from onoff.model.powers import times
from onoff.plans.plan import plan
from onoff.types import Bar, Floats, Mask, quiet

if TYPE_CHECKING:
    from onoff.model.chain import Chain
    from onoff.plans.plan import Plan

MOST_STEPS, REST = 60, 0.01  # OFF steps that are simulated after ON, unless fewer leave only this share of all
LAGS = (1, 2, 3, 5, 8, 13, 21, 34, 55)  # with a plan of their own; each serves up to the next
SETTLED = 5  # the first step of a stream with sensitive sources that counts as the long run
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
    """What a day is like.

    `requests` a day, of which the share `private` is private, in runs of `run`; a mirror fetches all `mirrored` times a
    day; each source changes between two requests with the chance `changes`.
    """

    requests: int = 100
    private: float = 0.2
    run: float = 3.0
    mirrored: int = 24
    changes: float = 1.0

    def __post_init__(self) -> None:
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
    """What one way of asking costs a day, on average, in the unit of the day.

    `asked` counts all that is asked for, `downloaded` what has changed. Margins are those of the mean over simulated
    streams, 95 %, and 0 where nothing is sampled.
    """

    name: str
    right_for: str
    asked: float
    asked_margin: float
    downloaded: float
    downloaded_margin: float


@dataclass(frozen=True)
class Day:
    """The ways of asking for these habits, in messages, or in bytes if lengths are known.

    `recommended` is the name of the way that downloads least among those that hide private requests.
    """

    sources: int
    habits: Habits
    sensitive: tuple[str, ...]
    streams: int
    unit: str
    everything: float
    ways: tuple[Way, ...]
    recommended: str


def compare_day(
    chain: Chain,
    habits: Habits,
    *,
    announced: bool = False,
    sensitive: Sequence[int | str] = (),
    lengths: Mapping[str, float] | None = None,
    effort: Effort = Effort(),  # noqa: B008 (frozen)
    bar: Bar = quiet,
) -> Day:
    """Say what a day costs by each way of asking.

    `announced` includes the promise `both`, for a reader who knows the next request.
    """
    hidden = Everyday.start(chain, sensitive).sensitive
    sizes = np.ones(chain.n) if lengths is None else np.array([lengths[name] for name in chain.names], float)
    steps = _steps(habits)
    lags = [lag for lag in LAGS if announced and lag <= steps]
    with bar(effort.streams * (1 + bool(hidden)) + len(lags)) as advance:
        day = _Day(chain, habits, sizes, effort, steps, advance)
        ways = [day.openly(), day.past()]
        if hidden:
            ways.append(day.with_sensitive(hidden))
        if announced:
            ways.append(day.both(lags))
        ways += [day.on(), day.mirror()]
    best = min(ways[1:], key=lambda way: way.downloaded)
    unit = "messages" if lengths is None else "bytes"
    names = tuple(chain.names[x] for x in hidden)
    return Day(chain.n, habits, names, effort.streams, unit, float(sizes.sum()), tuple(ways), best.name)


def _steps(habits: Habits) -> int:
    """How many OFF steps after ON are simulated."""
    left = np.cumprod(np.full(MOST_STEPS, 1 - habits.switched_on))
    return int(np.searchsorted(-left, -REST)) + 1 if left[-1] < REST else MOST_STEPS


@dataclass(frozen=True)
class _Day:
    """Costs of a request by each way of asking, as sums over a day. `sizes` are 1 where messages are counted."""

    chain: Chain
    habits: Habits
    sizes: Floats
    effort: Effort
    steps: int
    advance: Callable[[], None]

    def openly(self) -> Way:
        law = start_law(self.chain)
        whole, changed = (float(times(law, sizes)) for sizes in (self.sizes, self.sizes * self._changed_again()))
        return self._exactly("openly", whole, changed)

    def _changed_again(self) -> Floats:
        """For every source: the chance that it has changed when it is asked for again.

        With s the chance to stay, that is 1 - E s^T for the time T of return, and E s^T = 1 - 1 / G[x, x] with
        G = (1 - s P)^-1.
        """
        stay = 1 - self.habits.changes
        if stay == 1:
            return np.zeros(self.chain.n)
        chances: Floats = 1 / np.diagonal(np.linalg.inv(np.eye(self.chain.n) - stay * self.chain.P))
        return chances

    def past(self) -> Way:
        return self._switched("past", self._streams("past", (), self.steps))

    def both(self, lags: Sequence[int]) -> Way:
        """Announced requests, from a plan of each lag, which serves up to the next."""
        calls = [(self.chain, lag, self.effort.time_limit) for lag in lags]
        plans = []
        for _, made in compute(_plan, calls):
            plans.append(made)
            self.advance()
        seeds = (Random(f"{self.effort.seed}/both/{number}") for number in range(self.effort.streams))
        return self._switched("both", [_announced(self.chain, plans, self.steps, rng) for rng in seeds])

    def with_sensitive(self, hidden: Sequence[int]) -> Way:
        """Never ON after the first two: the mean over the late steps of long streams."""
        rows = []
        for stream in self._streams("sensitive", hidden, MOST_STEPS):
            fresh = self._changed(_gaps(stream.member)[:-1])
            late = slice(min(SETTLED, len(stream.bounds)) - 1, None)
            each = stream.expected * self.sizes, stream.expected * fresh
            rows.append([part[late].sum(axis=1).mean() for part in each])
        return self._way("sensitive", *np.array(rows).T)

    def on(self) -> Way:
        return self._exactly("on", self.sizes.sum(), self._changed(np.ones(self.chain.n)).sum())

    def mirror(self) -> Way:
        """Everything, on a timetable that has nothing to do with requests."""
        turns = self.habits.mirrored / self.habits.requests
        changed = self._changed(np.full(self.chain.n, 1 / turns)).sum()
        return self._exactly("mirror", self.sizes.sum() * turns, changed * turns)

    def _streams(self, name: str, hidden: Sequence[int], steps: int) -> Iterator[Stream]:
        """Simulated streams of the promise `past`."""
        seeds = [f"{self.effort.seed}/{name}/{number}" for number in range(self.effort.streams)]
        calls = [(self.chain, tuple(hidden), steps, seed, self.effort.time_limit) for seed in seeds]
        for _, stream in compute(simulate, calls):
            self.advance()
            yield stream

    def _changed(self, gaps: Floats) -> Floats:
        """The expected size of the change of every source that was last fetched so many requests ago."""
        changed: Floats = self.sizes * (1 - (1 - self.habits.changes) ** gaps)
        return changed

    def _exactly(self, name: str, asked: float, downloaded: float) -> Way:
        """A way that nothing is sampled for."""
        return self._way(name, np.full(2, float(asked)), np.full(2, float(downloaded)))

    def _switched(self, name: str, streams: Iterator[Stream] | list[Stream]) -> Way:
        """The mean over ON and OFF requests, from streams of OFF steps after ON.

        A stream whose time was up stands for later steps with its last one.
        """
        share, q, length = self.habits.private, self.habits.switched_on, self.habits.run
        rows = []
        for stream in streams:
            steps = len(stream.bounds)
            weights = q * (1 - q) ** np.arange(steps)
            weights[-1] = (1 - q) ** (steps - 1)  # all later ones
            fresh = self._changed(_gaps(stream.member))  # of a whole set at each step, and one step later
            after = fresh.sum(axis=1)  # what an ON request would download there
            on = (1 - 1 / length) * after[0] + times(weights, after[1:]) / length
            each = stream.expected * self.sizes, stream.expected * fresh[:-1]
            off = [times(weights, part.sum(axis=1)) for part in each]
            rows.append([share * x + (1 - share) * y for x, y in zip((self.sizes.sum(), on), off, strict=True)])
        return self._way(name, *np.array(rows).T)

    def _way(self, name: str, asked: Floats, downloaded: Floats) -> Way:
        """Means over streams, with margins, for a whole day."""
        numbers = []
        for values in (asked, downloaded):
            numbers += [float(values.mean()) * self.habits.requests, margin(values) * self.habits.requests]
        return Way(name, RIGHT_FOR[name], *numbers)


def _plan(chain: Chain, lag: int, time_limit: float) -> Plan:
    return plan(chain, lag, time_limit=time_limit)


def _announced(chain: Chain, plans: Sequence[Plan], steps: int, rng: Random) -> Stream:
    """A stream with announced requests. The cost of a race, which has no table, is that of the sets that it draws."""
    n = chain.n
    expected, member = np.zeros((steps, n)), np.zeros((steps, n), bool)
    path = rng.choices(range(n), start_law(chain).tolist())
    for _ in range(steps + 1):
        path += rng.choices(range(n), chain.P[path[-1]].tolist())
    for t, (request, following) in enumerate(pairwise(path[1:])):
        used = max((one for one in plans if one.lag <= t + 1), key=lambda one: one.lag)
        query = used.draw(request, path[0], following, t + 1, rng.randrange)
        member[t, list(query)] = True
        expected[t] = members(used.law) if used.kind == "table" else member[t]
    return Stream(expected, member, np.ones(steps))


def _gaps(member: Mask) -> Floats:
    """How many requests ago each source was fetched at every step and one step later, if all were fetched at step 0."""
    gaps = np.ones((len(member) + 1, member.shape[1]))
    for t, held in enumerate(member):
        gaps[t + 1] = np.where(held, 1.0, gaps[t] + 1)
    return gaps
