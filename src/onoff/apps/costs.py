"""Compute what an OFF request costs, for chains, lags, promises and schemes.

The promise `both` is served by plans, whose cost is exact; that of a race, which has no table, is the mean of draws.
Under the promise `past` the law of an OFF request depends on the last queries. Before the first OFF request after ON
these are full sets, so its cost is exact, too, unless it is a race. For later ones streams are simulated with the
engine that a client uses. A stream begins with as many requests made ON as the habits remember, the first drawn from
the stationary law, and goes on OFF. The cost of a step given its past is exact, and only pasts are sampled.

Lengths of messages turn costs into bytes afterwards. No law depends on them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.apps.parallel import compute
from onoff.errors import ClusterError, OnoffError, PlanError
from onoff.model.powers import times
from onoff.model.requests import start_law
from onoff.past import PastState
from onoff.plans.plan import plan
from onoff.plans.race import RacePlan
from onoff.schemes import AUTO, SCHEMES, list_names
from onoff.types import Bar, Floats, Query, is_number, quiet

if TYPE_CHECKING:
    from onoff.model.chain import Chain
    from onoff.past import RaceStep, StepLaw
    from onoff.schemes.law import Law

PROMISES = ("past", "both")
RACES = 100  # behind the cost of a first step that is a race
TOO_LONG = "the time is up before the law of the first OFF request is known: give more with --time-limit"


@dataclass(frozen=True)
class Cost:
    """The expected cost of one OFF request, `lag` steps after privacy was last ON.

    `messages` is the mean over streams, or over draws of a race, within +- `margin` (95 %); 0 if it is exact. No scheme
    that keeps the promise costs less than `lower_bound` messages (the mean over the same streams). `scheme` is the
    scheme of the plan, None for the promise `past`. `bytes` is None without lengths, and for a race, which has no
    table. `error` says why there is no cost. The full set costs `n` messages and `everything` bytes.
    """

    chain: str
    n: int
    promise: str
    scheme: str | None
    lag: int
    messages: float | None = None
    margin: float = 0.0
    lower_bound: float | None = None
    bytes: float | None = None
    everything: float | None = None
    error: str | None = None


@dataclass(frozen=True)
class Costs:
    """All costs that were computed. Costs of the promise `past` are means over at most `streams` streams."""

    sensitive: tuple[str, ...]
    streams: int
    costs: tuple[Cost, ...]


@dataclass(frozen=True)
class Effort:
    """Effort to spend: streams to simulate, seconds for each, for a plan and for a first OFF step.

    An optimum within `gap` is near enough. The same seed gives the same streams.
    """

    streams: int = 12
    time_limit: float = 60.0
    gap: float = 1e-6
    seed: int = 1


@dataclass(frozen=True)
class Stream:
    """The OFF steps of one simulated stream, as many as its time allowed.

    Given the sets before step t, source x is in the set with probability `expected[t, x]`, and no law that keeps the
    promise costs less than `bounds[t]` messages.
    """

    expected: Floats
    bounds: Floats


# A call that any process may make, and the cost that it is for. The call gives this cost or a `Stream`.
Task = tuple[Cost, Callable[..., Cost | Stream], tuple[Any, ...]]


def costs(
    chains: Mapping[str, Chain],
    lags: Sequence[int],
    promises: Sequence[str] = ("past",),
    schemes: Sequence[str] = (AUTO,),
    *,
    sensitive: Sequence[int | str] = (),
    lengths: Mapping[str, Mapping[str, float]] | None = None,
    effort: Effort = Effort(),  # noqa: B008 (frozen)
    bar: Bar = quiet,
) -> Iterator[Cost]:
    """Yield each cost once it is known. `lengths` are each chain's message lengths, by names.

    If the work is stopped, finished streams still give their costs.
    """
    _check(chains, lags, promises, schemes, sensitive)
    sizes: dict[str, Floats | None] = dict.fromkeys(chains)
    if lengths is not None:
        sizes = {name: np.array([lengths[name][x] for x in chain.names], float) for name, chain in chains.items()}
    tasks = _tasks(chains, lags, promises, schemes, tuple(sensitive), sizes, effort)
    left = Counter(asked.chain for asked, work, _ in tasks if work is simulate)
    finished: dict[str, list[Stream]] = {name: [] for name in left}
    with bar(len(tasks)) as advance:
        try:
            for index, found in compute(_do, tasks):
                advance()
                asked, work, _ = tasks[index]
                name = asked.chain
                if isinstance(found, Cost):
                    yield found
                else:
                    finished[name].append(found)
                if work is simulate:
                    left[name] -= 1
                    if not left[name]:
                        yield from _means(asked, lags, finished.pop(name), sizes[name])
        except (KeyboardInterrupt, ClusterError):
            for name, streams in finished.items():
                if streams:
                    yield from _means(Cost(name, chains[name].n, "past", None, 1), lags, streams, sizes[name])
            raise


def _check(
    chains: Mapping[str, Chain],
    lags: Sequence[int],
    promises: Sequence[str],
    schemes: Sequence[str],
    sensitive: Sequence[int | str],
) -> None:
    """Raise before any work if the question makes no sense."""
    if not chains:
        raise OnoffError("name a chain")
    if not lags or min(lags) < 1:
        raise OnoffError("the first OFF request is one step after ON: give lags from 1 on")
    for promise in promises:
        if promise not in PROMISES:
            raise OnoffError(f"the promise is {promise!r}: choose {list_names(*PROMISES)}")
    for scheme in schemes:
        if scheme not in (AUTO, *SCHEMES):
            raise PlanError(f"there is no scheme {scheme!r}: choose {list_names(AUTO, *SCHEMES)}")
    for chain in chains.values():
        PastState.start(chain, sensitive)  # knows them all
        if "both" in promises:
            chain.without_memory("the promise both")


def _tasks(
    chains: Mapping[str, Chain],
    lags: Sequence[int],
    promises: Sequence[str],
    schemes: Sequence[str],
    sensitive: tuple[int | str, ...],
    sizes: Mapping[str, Floats | None],
    effort: Effort,
) -> list[Task]:
    """List all calls: exact costs first, small lags first, so that all chains and schemes are seen early."""
    tasks: list[Task] = []
    for lag in lags:
        for name, chain in chains.items():
            if "past" in promises and lag == 1:
                asked = Cost(name, chain.n, "past", None, 1)
                first = asked, chain, sensitive, sizes[name], effort.time_limit, effort.seed
                tasks.append((asked, _first_cost, first))
            for scheme in schemes if "both" in promises else ():
                asked = Cost(name, chain.n, "both", scheme, lag)
                tasks.append((asked, _plan_cost, (asked, chain, sizes[name], effort)))
    if "past" in promises and max(lags) > 1:
        for name, chain in chains.items():
            asked = Cost(name, chain.n, "past", None, max(lags))
            for number in range(effort.streams):
                arguments = chain, sensitive, max(lags), f"{effort.seed}/{number}", effort.time_limit
                tasks.append((asked, simulate, arguments))
    return tasks


def _do(asked: Cost, work: Callable[..., Cost | Stream], arguments: tuple[Any, ...]) -> Cost | Stream:
    """Make the call of a task. An error of one cost does not end the others."""
    try:
        return work(*arguments)
    except ClusterError:
        raise
    except (OnoffError, ArithmeticError, MemoryError) as error:
        return replace(asked, error=str(error) or type(error).__name__)


def _plan_cost(asked: Cost, chain: Chain, sizes: Floats | None, effort: Effort) -> Cost:
    """Read the cost from a plan."""
    made = plan(chain, asked.lag, asked.scheme or AUTO, gap=effort.gap, time_limit=effort.time_limit)
    expected = members(made.law) if made.kind == "table" else None
    around = made.interval[1] - made.cost if isinstance(made, RacePlan) else 0.0
    found = replace(asked, scheme=made.scheme, messages=made.cost, margin=around, lower_bound=made.lower_bound)
    return _with_bytes(found, expected, sizes)


def _first_cost(
    asked: Cost, chain: Chain, sensitive: tuple[int | str, ...], sizes: Floats | None, time_limit: float, seed: int
) -> Cost:
    """Compute the cost of the first OFF step after ON: exactly, or from races where it is one."""
    step = _first_step(chain, sensitive, time_limit)
    if step is None:
        return replace(asked, error=TOO_LONG)
    if step.law is not None:
        exact = replace(asked, messages=step.cost, lower_bound=step.lower_bound)
        return _with_bytes(exact, members(step.law), sizes)
    rng = Random(seed)
    races = np.array([step.race(rng.randrange) for _ in range(RACES)], dtype=np.float64)
    return _with_bytes(_sampled(asked, races.sum(axis=1), step.lower_bound), races.mean(axis=0), sizes)


def _sampled(asked: Cost, messages: Floats, bound: float) -> Cost:
    """A mean of sampled costs with its margin, never stated below the bound."""
    return replace(asked, messages=max(float(messages.mean()), bound), margin=margin(messages), lower_bound=bound)


@lru_cache(maxsize=2)
def _first_step(chain: Chain, sensitive: tuple[int | str, ...], time_limit: float) -> StepLaw | RaceStep | None:
    """Prepare the first OFF step after ON, once in each process; None if time runs out."""
    with suppress(TimeoutError):
        return PastState.start(chain, sensitive).prepare(time.monotonic() + time_limit)
    return None


def as_law(query: Query, n: int) -> Law:
    """One draw of a race as a law: a sample of its cost."""
    from onoff.schemes.law import DENOMINATOR, Law

    return Law.of_sets([query], [DENOMINATOR], n)


def members(law: Law) -> Floats:
    """Compute how likely each source is a member of the set."""
    found: Floats = times(law.mass, law.member) / law.total
    return found


def simulate(chain: Chain, sensitive: Sequence[int | str], steps: int, seed: str, time_limit: float = np.inf) -> Stream:
    """Simulate a stream of OFF requests after ON. It ends early when its time is up."""
    deadline = time.monotonic() + time_limit
    rng, step = Random(seed), _first_step(chain, tuple(sensitive), time_limit)
    if step is None:
        return Stream(np.zeros((0, chain.n)), np.zeros(0))
    state = PastState.start(chain, sensitive)
    now = rng.choices(range(chain.n), start_law(chain).tolist())[0]  # a state below n is one request alone
    for _ in range(chain.depth - 1):
        now = int(chain.step[now, _next(chain, now, rng)])
    expected, bounds = [], []
    while True:
        request = _next(chain, now, rng)
        query = step.draw(request, now, rng.randrange)
        expected.append(members(as_law(query, chain.n) if step.law is None else step.law))
        bounds.append(step.lower_bound)
        if len(bounds) == steps:
            return Stream(np.array(expected), np.array(bounds))
        state = state.after(query)
        now = int(chain.step[now, request])
        try:
            step = state.prepare(deadline)
        except TimeoutError:
            return Stream(np.array(expected), np.array(bounds))


def _next(chain: Chain, state: int, rng: Random) -> int:
    """Draw the next request."""
    return rng.choices(range(chain.n), chain.P[state].tolist())[0]


def _means(asked: Cost, lags: Sequence[int], streams: Sequence[Stream], sizes: Floats | None) -> Iterator[Cost]:
    """Yield the costs of later OFF steps: means over streams that got so far, two at least."""
    began = any(len(stream.bounds) for stream in streams)
    for lag in lags:
        if lag == 1:
            continue  # exact
        reached = [stream for stream in streams if len(stream.bounds) >= lag]
        if len(reached) < 2:
            few = f"{len(reached)} streams got so far in their time; two are needed"
            yield replace(asked, lag=lag, error=few if began else TOO_LONG)
            continue
        expected = np.array([stream.expected[lag - 1] for stream in reached])
        messages = expected.sum(axis=1)
        bound = float(np.mean([stream.bounds[lag - 1] for stream in reached]))
        found = _sampled(replace(asked, lag=lag), messages, bound)
        yield _with_bytes(found, expected.mean(axis=0), sizes)


def margin(values: Floats) -> float:
    """Compute the 95 % margin of the mean, by Student's t: streams are independent. A single value is exact."""
    from scipy.stats import t

    if len(values) == 1:
        return 0.0
    return float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def _with_bytes(found: Cost, expected: Floats | None, sizes: Floats | None) -> Cost:
    """Add the cost in bytes, if lengths are known."""
    if sizes is None:
        return found
    spent = None if expected is None else float(times(expected, sizes))
    return replace(found, bytes=spent, everything=float(sizes.sum()))


def read_lengths(file: Path, chain: Chain) -> dict[str, float]:
    """Read the bytes of each source from a JSON file {name: bytes}, or from a journal that has received messages.

    Of a journal, the newest message of each source counts.
    """
    from onoff.client.status import message_lengths, snapshot
    from onoff.files import read_json
    from onoff.logs.journals import is_journal

    if is_journal(file):
        if snapshot(file).chain != chain.fingerprint:
            raise OnoffError(f"{file}: is a journal of another chain; use its chain, or a file of lengths")
        found: Any = {chain.names[source]: length for source, length in message_lengths(file).items()}
    else:
        found = read_json(file)
    if not isinstance(found, dict):
        raise OnoffError(f"{file}: JSON {{name: bytes}} is needed, or a journal")
    for name in chain.names:
        if not is_number(found.get(name)) or not 0 <= found[name] < 1e15:
            raise OnoffError(f"{file}: has no length of {name!r}, in bytes, at least 0")
    return {name: float(found[name]) for name in chain.names}
