"""Compare what a day of requests costs, one way of asking beside the other, before anything is asked.

Requests follow the chain. A share p of them is private, in runs of r requests on average: privacy is switched ON with
probability q = p / ((1 - p) r) after an OFF request, and OFF with probability 1 / r after an ON one. So the d-th OFF
request after ON comes with probability q (1 - q)^(d - 1) among all OFF requests, and the mean cost of a request is

    p everything + (1 - p) sum over d of q (1 - q)^(d - 1) cost(d).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onoff.apps.costs import TOO_LONG, Effort, costs, margin, simulate
from onoff.apps.parallel import compute
from onoff.errors import OnoffError
from onoff.model.powers import times
from onoff.model.requests import start_law
from onoff.past import PastState
from onoff.types import Bar, Floats, quiet

if TYPE_CHECKING:
    from onoff.model.chain import Chain

MOST_STEPS, REST = 60, 0.01  # OFF steps that are simulated after ON, unless fewer leave only this share of all
LAGS = (1, 2, 3, 5, 8, 13, 21, 34, 55)  # with a plan of their own; each serves up to the next
SETTLED = 5  # the first step of a stream with sensitive sources that counts as the long run
WAYS = {  # to ask: what each is called, and for whom it is right
    "openly": ("asking openly", "the server may know everything"),
    "past": ("past, switching ON", "you go ON at times and do not know what you read next"),
    "sensitive": ("past, sensitive sources", "some sources are always private and you never switch"),
    "both": ("both", "you know the next request; open ones then predict nothing"),
    "on": ("ON all the time", "all is private, or all messages together are small"),
    "mirror": ("mirroring", "sources change rarely, or when you read is private, too"),
}


@dataclass(frozen=True)
class Usage:
    """How a day's requests are made.

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
        """Probability q of going ON after an OFF request."""
        return self.private / (1 - self.private) / self.run

    def weights(self, steps: int) -> Floats:
        """Compute shares of requests 1 to `steps` after ON among all OFF requests. The last covers all later."""
        left = np.power(1 - self.on_rate, np.arange(steps), dtype=float)
        return np.append(self.on_rate * left[:-1], left[-1])


@dataclass(frozen=True)
class Way:
    """Average cost a day of one way of asking, in the unit of the day.

    The mean over simulated streams is within +- `margin` (95 %), which is 0 where nothing is sampled.
    """

    name: str
    label: str
    right_for: str
    cost: float
    margin: float


@dataclass(frozen=True)
class Day:
    """The ways of asking for this usage, in messages, or in bytes if lengths are known.

    `recommended` is the name of the way that costs least among those that hide private requests.
    """

    sources: int
    usage: Usage
    sensitive: tuple[str, ...]
    streams: int
    unit: str
    everything: float
    ways: tuple[Way, ...]
    recommended: str


def compare_day(
    chain: Chain,
    usage: Usage,
    *,
    both: bool = False,
    sensitive: Sequence[int | str] = (),
    lengths: Mapping[str, float] | None = None,
    effort: Effort = Effort(),  # noqa: B008 (frozen)
    bar: Bar = quiet,
) -> Day:
    """Compute what a day costs by each way of asking, with `both` also by that promise."""
    hidden = PastState.start(chain, sensitive).sensitive
    if both:
        chain.without_memory("the promise both")
    sizes = np.array([1.0 if lengths is None else lengths[name] for name in chain.names])
    everything, requests, steps = float(sizes.sum()), usage.requests, _steps(usage)

    def mix(off: Floats) -> float:
        """Average the cost of a request, given OFF costs at each step after ON."""
        return usage.private * everything + (1 - usage.private) * float(times(usage.weights(len(off)), off))

    rows = {"openly": [float(times(start_law(chain), sizes))]}
    rows["past"] = [mix(off) for off in _simulate(chain, (), steps, sizes, effort, bar)]
    if hidden:  # never ON after the first requests: the mean over the late steps of long streams
        late = _simulate(chain, hidden, MOST_STEPS, sizes, effort, bar)
        rows["sensitive"] = [float(off[min(SETTLED, len(off)) - 1 :].mean()) for off in late]
    if both:
        rows["both"] = [mix(_plan_costs(chain, steps, lengths, effort, bar))]
    rows |= {"on": [everything], "mirror": [everything * usage.mirrored / requests]}
    ways = tuple(
        Way(name, *WAYS[name], float(np.mean(row)) * requests, margin(np.array(row)) * requests)
        for name, row in rows.items()
    )
    best = min(ways[1:], key=lambda way: way.cost)
    names = tuple(chain.names[x] for x in hidden)
    unit = "messages" if lengths is None else "bytes"
    return Day(chain.n, usage, names, effort.streams, unit, everything, ways, best.name)


def _steps(usage: Usage) -> int:
    """Count the OFF steps after ON that are simulated."""
    left = np.cumprod(np.full(MOST_STEPS, 1 - usage.on_rate))
    return int(np.searchsorted(-left, -REST)) + 1 if left[-1] < REST else MOST_STEPS


def _simulate(
    chain: Chain, hidden: Sequence[int], steps: int, sizes: Floats, effort: Effort, bar: Bar
) -> Iterator[Floats]:
    """Yield the cost of each OFF step after ON, stream by stream."""
    calls = [(chain, hidden, steps, f"{effort.seed}/{i}", effort.time_limit) for i in range(effort.streams)]
    with bar(len(calls)) as advance:
        for _, stream in compute(simulate, calls):
            advance()
            if not len(stream.bounds):
                raise OnoffError(TOO_LONG)
            yield times(stream.expected, sizes)


def _plan_costs(chain: Chain, steps: int, lengths: Mapping[str, float] | None, effort: Effort, bar: Bar) -> Floats:
    """Compute what the promise `both` costs at each step after ON, with the plan of the largest lag up to the step."""
    lags = [lag for lag in LAGS if lag <= steps]
    given, plans = None if lengths is None else {"": lengths}, {}
    for cost in costs({"": chain}, lags, ["both"], lengths=given, effort=effort, bar=bar):
        spent = cost.messages if lengths is None else cost.bytes
        if spent is None:
            raise OnoffError(cost.error or "a plan without a table has no cost in bytes: leave --lengths out")
        plans[cost.lag] = spent
    return np.array([plans[max(lag for lag in lags if lag <= step)] for step in range(1, steps + 1)])
