"""Compare what a day of requests costs, one way of asking beside the other, before anything is asked.

Requests follow the chain. A share p of them is private, in runs of r requests on average: privacy is switched ON with
probability q = p / ((1 - p) r) after an OFF request, and OFF with probability 1 / r after an ON one. So the d-th OFF
request after ON comes with probability q (1 - q)^(d - 1) among all OFF requests, and the mean cost of a request is

    p everything + (1 - p) sum over d of q (1 - q)^(d - 1) cost(d).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onoff.apps.costs import Effort, margin, members, order_lengths, simulate, start_law
from onoff.apps.parallel import compute
from onoff.errors import OnoffError
from onoff.everyday import Everyday
from onoff.model.powers import times
from onoff.plans.plan import plan
from onoff.types import Bar, Floats, quiet

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
    day.
    """

    requests: int = 100
    private: float = 0.2
    run: float = 3.0
    mirrored: int = 24

    def __post_init__(self) -> None:
        if not 0 < self.private < 1 or self.run < max(1.0, self.private / (1 - self.private)):
            raise OnoffError(
                f"a share of {self.private:g} private requests in runs of {self.run:g} is not possible: the share lies "
                "between 0 and 1, and runs have at least 1 and at least share / (1 - share) requests"
            )

    @property
    def on_rate(self) -> float:
        """The probability q of going ON after an OFF request."""
        return self.private / (1 - self.private) / self.run

    def weights(self, steps: int) -> Floats:
        """The shares of requests 1 to `steps` after ON among all OFF requests. The last one stands for all later."""
        left = np.power(1 - self.on_rate, np.arange(steps), dtype=float)
        return np.append(self.on_rate * left[:-1], left[-1])


@dataclass(frozen=True)
class Way:
    """What one way of asking costs a day, on average, in the unit of the day.

    `margin` is that of the mean over simulated streams, 95 %, and 0 where nothing is sampled.
    """

    name: str
    right_for: str
    cost: float
    margin: float


@dataclass(frozen=True)
class Day:
    """The ways of asking for these habits, in messages, or in bytes if lengths are known.

    `recommended` is the name of the way that costs least among those that hide private requests.
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
    """Compute what a day costs by each way of asking.

    `announced` includes the promise `both`, for a reader who knows the next request.
    """
    hidden = Everyday.start(chain, sensitive).sensitive
    sizes = np.ones(chain.n) if lengths is None else order_lengths(lengths, chain)
    steps = _steps(habits)
    lags = [lag for lag in LAGS if announced and lag <= steps]
    everything, requests = float(sizes.sum()), habits.requests

    def mix(off: Floats) -> float:
        """Mean cost of a request, if OFF requests cost so much at each step after ON."""
        return habits.private * everything + (1 - habits.private) * float(times(habits.weights(len(off)), off))

    with bar(effort.streams * (1 + bool(hidden)) + len(lags)) as advance:
        rows = {"openly": [float(times(start_law(chain), sizes))]}
        rows["past"] = [mix(off) for off in _simulate(chain, (), steps, sizes, effort, advance)]
        if hidden:  # never ON after the first two requests: the mean over the late steps of long streams
            late = _simulate(chain, hidden, MOST_STEPS, sizes, effort, advance)
            rows["sensitive"] = [float(off[min(SETTLED, len(off)) - 1 :].mean()) for off in late]
        if announced:
            rows["both"] = [
                mix(_plan_costs(chain, lags, steps, sizes if lengths is not None else None, effort, advance))
            ]
        rows |= {"on": [everything], "mirror": [everything * habits.mirrored / requests]}
    ways = tuple(_way(name, np.array(costs) * requests) for name, costs in rows.items())
    best = min(ways[1:], key=lambda way: way.cost)
    names = tuple(chain.names[x] for x in hidden)
    unit = "messages" if lengths is None else "bytes"
    return Day(chain.n, habits, names, effort.streams, unit, everything, ways, best.name)


def _way(name: str, costs: Floats) -> Way:
    """Take the mean over streams; a single cost is exact."""
    return Way(name, RIGHT_FOR[name], float(costs.mean()), margin(costs) if len(costs) > 1 else 0.0)


def _steps(habits: Habits) -> int:
    """Count the OFF steps after ON that are simulated."""
    left = np.cumprod(np.full(MOST_STEPS, 1 - habits.on_rate))
    return int(np.searchsorted(-left, -REST)) + 1 if left[-1] < REST else MOST_STEPS


def _simulate(
    chain: Chain, hidden: Sequence[int], steps: int, sizes: Floats, effort: Effort, advance: Callable[[], None]
) -> Iterable[Floats]:
    """Yield the cost of each OFF step after ON, stream by stream."""
    seeds = [f"{effort.seed}/{number}" for number in range(effort.streams)]
    for _, stream in compute(simulate, [(chain, hidden, steps, seed, effort.time_limit) for seed in seeds]):
        advance()
        yield times(stream.expected, sizes)


def _plan_costs(
    chain: Chain, lags: Sequence[int], steps: int, sizes: Floats | None, effort: Effort, advance: Callable[[], None]
) -> Floats:
    """Compute what announced requests cost at each step after ON, with the plan of the largest lag up to the step."""
    plans: dict[int, float] = {}
    for index, made in compute(_plan, [(chain, lag, effort.time_limit) for lag in lags]):
        advance()
        plans[lags[index]] = _plan_cost(made, sizes)
    return np.array([plans[max(lag for lag in lags if lag <= step)] for step in range(1, steps + 1)])


def _plan(chain: Chain, lag: int, time_limit: float) -> Plan:
    return plan(chain, lag, time_limit=time_limit)


def _plan_cost(made: Plan, sizes: Floats | None) -> float:
    if sizes is None:
        return made.cost
    if made.kind != "table":
        raise OnoffError("the promise both is served by a race, whose cost in bytes is not known: leave --lengths out")
    return float(times(members(made.law), sizes))
