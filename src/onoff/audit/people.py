"""Real people are not Markov: what servers that know more than the chain learn from a client's queries.

Clients replay a person's requests, with ON and OFF periods that do not depend on them. A server knows the client's
rules and chain, and the statuses; it sees all queries, and knows neither the requests nor the person. It believes in
habits of its own, of any memory, and computes its beliefs exactly. For every hidden request X with the true value x,

    before      log2 p(x | queries before it) / p(x)
    after       log2 p(x | all queries) / p(x | queries before it)     0 is promised by `past` if the chain is right
    bits        log2 p(x | all queries) / p(x), the sum of both        0 is promised by `both` if the chain is right
    moved       KL(p(X | all queries) || p(X | queries before it))     how far belief moved, right or wrong

and averages over hidden requests. Intervals are 95 % bootstrap intervals over people, since the requests of one person
are not independent. If people followed the server's habits, the mean of bits would be I(X; Q).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from uuid import uuid4

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from onoff.audit.bayes import View, infer
from onoff.audit.clients import Announced, Client, Naive, Past
from onoff.errors import OnoffError
from onoff.model.chain import Chain
from onoff.model.measures import divergence
from onoff.model.powers import times
from onoff.model.requests import Split
from onoff.types import Floats, Progress, Query, silent

Path = NDArray[np.intp]
Score = dict[str, float]  # sums over one person
Case = tuple[str, str]  # the client and the server
Engine = Callable[[Chain, Sequence[int]], Any]  # `onoff.past.PastState.start`, as an exhibit

OWN = "the client's chain"  # a server
RESAMPLES = 1000
BATCH = 20  # people in one task for another process


def private_runs(steps: int, share: float, length: float, rng: np.random.Generator) -> list[bool]:
    """Draw which requests a person makes in private: a `share` of them, in runs of mean `length`."""
    leave, enter = 1 / length, share / (1 - share) / length
    private = [bool(rng.random() < share)]
    for _ in range(steps - 1):
        private.append(bool(rng.random() >= leave if private[-1] else rng.random() < enter))
    return private


# What one server learns of one person


def replay(
    client: Client, chain: Chain, path: Path, private: Sequence[bool], rng: np.random.Generator
) -> tuple[list[View], int]:
    """Ask for a person's requests, the first of them ON: return what the queries say, and how many messages they are.

    The client remembers as much as its `chain` does. For want of a next request the last one announces itself.
    """
    step, context, state, query = client.on(), 0, int(path[0]), Query()
    views, messages = [], 0
    for t, on in enumerate(private):
        if t:
            step = client.on(step, query) if on else client.off(step, query)
            context = step.context(context, state)
            state = int(chain.step[state, path[t]])
        query = step.draw(context, int(path[t]), int(path[min(t + 1, len(path) - 1)]), rng)
        views.append(step.view(query))
        messages += len(query)
    return views, messages


def score(server: Chain, client: Chain, start: Floats, path: Path, views: Sequence[View], hidden: Path) -> Score:
    """Hold a server's beliefs about the `hidden` steps of a path against the truth, and sum up the figures."""
    found = infer(server, len(path), views.__getitem__, client=client, start=start)
    if found.silent:
        raise OnoffError(f"step {found.silent[0]}: the server's habits call the query impossible")
    true = path[hidden]
    rows = [table[hidden] for table in (found.prior, found.before, found.after)]
    chances = [row[np.arange(len(true)), true] for row in rows]
    before, after = np.log2(chances[1] / chances[0]), np.log2(chances[2] / chances[1])
    right = [count_hits(row, true) for row in rows]
    return {
        "before": float(before.sum()), "after": float(after.sum()), "bits": float((before + after).sum()),
        "moved": sum(map(divergence, rows[2], rows[1])),
        "right_prior": right[0], "right_before": right[1], "right": right[2],
    }  # fmt: skip


def count_hits(belief: Floats, true: Path) -> float:
    """Count how often the most likely value is the true one. Of k values that are equally likely, each counts 1/k."""
    best = belief >= belief.max(axis=1, keepdims=True) * (1 - 1e-9)
    return float((best[np.arange(len(true)), true] / best.sum(axis=1)).sum())


# Means over people


@dataclass(frozen=True)
class Estimate:
    """A mean with a 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Leak:
    """What one server learned from one client about `hidden` requests of `people`: the means of `figures`, by name.

    Beside the figures of the module's first lines there are the shares of best guesses that are right by habits alone
    (`right_prior`), from the queries before the request (`right_before`) and from all (`right`); `messages` per request
    of a person, hidden or not.
    """

    client: str
    server: str
    people: int
    hidden: int
    figures: dict[str, Estimate]


def estimate_leak(case: Case, scores: Sequence[Score], seed: int) -> Leak:
    """Average the scores of people: sums over sums, with intervals from people who are drawn with replacement."""
    sums = {name: np.array([one[name] for one in scores], dtype=np.float64) for name in scores[0]}
    rng, count = np.random.default_rng(seed), len(scores)
    drawn = np.array([np.bincount(rng.integers(count, size=count), minlength=count) for _ in range(RESAMPLES)])
    figures = {}
    for name in [name for name in sums if name not in ("hidden", "requests")]:
        per = sums["requests" if name == "messages" else "hidden"]
        low, high = np.quantile(times(drawn, sums[name]) / times(drawn, per), [0.025, 0.975])
        figures[name] = Estimate(float(sums[name].sum() / per.sum()), float(low), float(high))
    return Leak(*case, count, int(sums["hidden"].sum()), figures)


@dataclass(frozen=True)
class PeopleAudit:
    """What each server learned from each client.

    Servers learned from `training` people, and `attacked` people of the `wanted` were reached: fewer if somebody
    stopped it. `cut` is that of `Split`.
    """

    leaks: tuple[Leak, ...]
    training: int
    attacked: int
    wanted: int
    cut: int

    @property
    def stopped(self) -> bool:
        return self.attacked < self.wanted


@dataclass(frozen=True)
class _Setting:
    """All that another process needs to attack people. Settings with the same key are the same."""

    key: str
    split: Split = field(compare=False)
    plans: tuple[Any, ...] = field(compare=False)
    engine: Engine | None = field(compare=False)
    statuses: tuple[float, float] = field(compare=False)  # share and mean length of private runs
    seed: int = field(compare=False)


def audit_people(
    split: Split,
    plans: Sequence[Any] = (),
    engine: Engine | None = None,
    *,
    share: float = 0.2,
    run: float = 3.0,
    seed: int = 1,
    progress: Progress = silent,
) -> PeopleAudit:
    """Replay real sequences by our clients and by a naive one, and let servers attack that know more than the chain.

    Without an `engine` the promise is `both`: our client draws from `plans`, at every lag the cheapest that fits. With
    the engine (`onoff.past.PastState.start`) it is `past`. A `share` of the requests is private, in runs of mean length
    `run`; besides, clients make as many first requests ON as they remember, and the last one if they must announce.
    joblib's configuration decides how many processes attack. After Ctrl-C the result is that of the people reached.
    """
    if not 0 < share < 0.9 or run < 1:
        raise OnoffError(f"a share of {share} in runs of {run}: give a share from 0 to 0.9 in runs of at least 1")
    if any(plan.kind != "table" for plan in plans):
        raise OnoffError("a plan has no table to attack: give plans with tables")
    if engine is None and not plans:
        raise OnoffError("our client has no plans: give one for lag 1, and for others where they pay")
    people = split.attacked
    setting = _Setting(uuid4().hex, replace(split, attacked=[]), tuple(plans), engine, (share, run), seed)
    tasks = (delayed(_attack)(setting, i, people[i : i + BATCH]) for i in range(0, len(people), BATCH))
    parallel = Parallel(return_as="generator", batch_size=1, pre_dispatch="n_jobs")
    found, results = list[dict[Case, Score]](), parallel(tasks)
    try:
        with progress("people attacked")(len(people)) as advance:
            for one in (one for scores in results for one in scores):
                found.append(one)
                advance()
    except KeyboardInterrupt:
        if not any(found):
            raise
    finally:
        with warnings.catch_warnings(action="ignore"):  # stopped early: joblib would tell that work is lost
            results.close()
        _clients.cache_clear()
    scored = [one for one in found if one]
    if not scored:
        raise OnoffError("no private request was made by anybody: take more people, or a larger share")
    leaks = tuple(estimate_leak(case, [one[case] for one in scored], seed) for case in scored[0])
    return PeopleAudit(leaks, split.training, len(found), len(people), split.cut)


@lru_cache(maxsize=1)
def _clients(setting: _Setting) -> list[tuple[str, Client, Chain]]:
    """Make the clients of a setting, ours first, with their chains: once in a process, since they keep encoders."""
    chains, engine = setting.split.clients, setting.engine
    first = next(iter(chains.values()))
    if engine is None:
        return [("both", Announced(first.n, setting.plans), first), ("naive", Naive(first.n), first)]
    ours = [(f"past, memory {k}", Past(engine(one, ()), one.n), one) for k, one in chains.items()]
    return [*ours, ("naive", Naive(first.n), first)]


def _attack(setting: _Setting, first: int, paths: Sequence[Path]) -> list[dict[Case, Score]]:
    """Attack some people, numbered from `first`; the scores of somebody who made no private request are empty."""
    return [_attack_one(setting, path, np.random.default_rng([setting.seed, i])) for i, path in enumerate(paths, first)]


def _attack_one(setting: _Setting, path: Path, rng: np.random.Generator) -> dict[Case, Score]:
    wished = private_runs(len(path), *setting.statuses, rng)
    hidden = np.flatnonzero(wished)
    scores: dict[Case, Score] = {}
    for name, client, chain in _clients(setting) if len(hidden) else []:
        private = [True] * min(chain.depth, len(path)) + wished[chain.depth :]
        private[-1] |= isinstance(client, Announced)
        views, messages = replay(client, chain, path, private, rng)
        counts: Score = {"requests": len(path), "hidden": len(hidden), "messages": messages}
        for server, habits in {OWN: chain, **setting.split.servers}.items():
            scores[name, server] = counts | score(habits, chain, setting.split.start, path, views, hidden)
    return scores
