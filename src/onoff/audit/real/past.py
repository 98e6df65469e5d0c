"""Real people and the everyday promise: what a server with a better model learns before a private request and after.

Requests are private for runs of them, whatever they are for; or some sources are sensitive, and nobody ever switches.
Hidden of a request is then the source, or which of the sensitive ones it was, or none. For each, under the server's own
model and at the truth x,

    before  log2 p(x | queries before it) / p(x)                   habits foretell it: nobody promises anything
    after   log2 p(x | all queries) / p(x | queries before it)     0 if people are as the chain says: the promise
    moved   KL(p(X | all queries) || p(X | queries before it))     how far belief moved, right or wrong
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onoff.audit.real import secondorder
from onoff.audit.real.auditing import clients_of
from onoff.audit.real.people import Split
from onoff.audit.real.replay import Estimate, Rules, estimates, hits
from onoff.audit.real.secondorder import Path, SecondOrder
from onoff.audit.real.views import Client, Everyday, Openly, View, beliefs
from onoff.audit.setting import lags_of
from onoff.errors import OnoffError
from onoff.types import Floats, Progress, silent

if TYPE_CHECKING:
    from onoff.plans.base import Plan

Engine = Callable[[Any, Sequence[int]], Any]  # `onoff.everyday.Everyday.start`, as an exhibit
ANNOUNCED = "announced"


class Score(NamedTuple):
    """Sums over the hidden requests of one person; `sensitive` ones have sums of their own, and `ever` is one number.

    `ever` is log2 of how much more is believed of the truth about "a sensitive source was asked for".
    """

    hidden: int
    before: float
    after: float
    moved: float
    right_prior: float
    right_before: float
    right: float
    sensitive: int
    sensitive_before: float
    sensitive_after: float
    ever: float
    requests: int
    messages: float


@dataclass(frozen=True)
class PastLeak:
    """What one server learned from one client, per hidden request; None where nothing is sensitive."""

    client: str
    server: str
    people: int
    hidden: int
    before: Estimate
    after: Estimate
    moved: Estimate
    right_prior: Estimate
    right_before: Estimate
    right: Estimate
    sensitive: int
    sensitive_before: Estimate | None
    sensitive_after: Estimate | None
    ever: Estimate | None
    messages: Estimate


@dataclass(frozen=True)
class RealPast:
    """`attacked` people of the `wanted` were reached: fewer if somebody stopped it."""

    leaks: tuple[PastLeak, ...]
    sensitive: tuple[int, ...]
    attacked: int
    wanted: int

    @property
    def stopped(self) -> bool:
        return self.attacked < self.wanted


def runs(steps: int, share: float, length: float, rng: np.random.Generator) -> list[bool]:
    """Which requests a person makes in private: a `share` of them, in runs of mean `length`."""
    leave, enter = 1 / length, share / (1 - share) / length
    private = [bool(rng.random() < share)]
    for _ in range(steps - 1):
        private.append(bool(rng.random() >= leave if private[-1] else rng.random() < enter))
    return private


def audit_real_past(
    split: Split,
    engine: Engine,
    *,
    sensitive: Sequence[int] = (),
    plans: Sequence[Plan] = (),
    share: float = 0.2,
    length: float = 3.0,
    seed: int = 1,
    progress: Progress = silent,
) -> RealPast:
    """Replay real sequences by a client of the everyday mode, beside others, and let servers attack.

    Without sensitive sources a `share` of the requests is private, in runs of mean `length`, beside an announced client
    with `plans`; with them nothing is switched. The first request of a person is made ON, as every client does, and
    for the announced one the last is, whose next request is not known. After Ctrl-C the result is that of the people
    reached so far.
    """
    if not 0 < share < 0.9 or length < 1:
        raise OnoffError(f"a share of {share} in runs of {length}: give a share from 0 to 0.9 in runs of at least 1")
    n, hidden = split.chain.n, tuple(sorted(sensitive))
    clients: list[Client] = [Everyday(engine(split.chain, hidden), n, hidden), Openly(n)]
    if hidden:
        clients.append(Openly(n, "naive, ON if sensitive", hidden))
    announced = clients_of(split.chain, plans)[0] if plans and not hidden else None
    table: list[dict[tuple[str, str], Score]] = []
    try:
        with progress("people attacked")(len(split.attacked)) as advance:
            for number, path in enumerate(split.attacked):
                rng = np.random.default_rng([seed, number])
                wished = [False] * len(path) if hidden else runs(len(path), share, length, rng)
                if hidden or any(wished):
                    table.append(_person(path, wished, clients, announced, split.servers, hidden, rng))
                advance()
    except KeyboardInterrupt:
        if not table:
            raise
        return RealPast(_leaks(table, seed), hidden, number, len(split.attacked))
    return RealPast(_leaks(table, seed), hidden, len(split.attacked), len(split.attacked))


def _person(
    path: Path,
    wished: Sequence[bool],
    clients: Sequence[Client],
    announced: Rules | None,
    servers: dict[str, SecondOrder],
    hidden: tuple[int, ...],
    rng: np.random.Generator,
) -> dict[tuple[str, str], Score]:
    """One person, asked for by every client, attacked by every server."""
    private = [True, *wished[1:]]
    scores = {}
    for client in clients:
        views = client.views(path, private, rng)
        for name, server in servers.items():
            scores[client.name, name] = _score(server, path, wished, *beliefs(server, views, hidden), hidden, views)
    if announced is not None:
        made = [*private[:-1], True]
        queries = announced.queries(path, made, rng)
        for name, server in servers.items():
            scores[ANNOUNCED, name] = _announced(server, announced, path, wished, made, queries)
    return scores


def _announced(
    server: SecondOrder,
    rules: Rules,
    path: Path,
    wished: Sequence[bool],
    made: Sequence[bool],
    queries: Sequence[tuple[int, ...]],
) -> Score:
    lags, n = lags_of(made), server.n
    likelihoods = partial(_likelihood, rules, queries, lags)
    before, after = np.full((len(path), n), np.nan), np.full((len(path), n), np.nan)
    before[np.flatnonzero(made)] = secondorder.predictions(server, made, likelihoods)
    after[np.flatnonzero(made)] = secondorder.beliefs(server, made, likelihoods)[0]
    sizes = [View(len(query), np.ones((1, n)), np.zeros((1, n), dtype=np.intp), 1) for query in queries]
    return _score(server, path, wished, before, after, 0.0, (), sizes)


def _likelihood(rules: Rules, queries: Sequence[tuple[int, ...]], lags: Sequence[int], t: int) -> Floats:
    return rules.likelihood(queries[t], lags[t])


def _score(
    server: SecondOrder,
    path: Path,
    wished: Sequence[bool],
    before: Floats,
    after: Floats,
    ever: float,
    hidden: tuple[int, ...],
    views: Sequence[View],
) -> Score:
    steps = np.arange(1, len(path)) if hidden else np.flatnonzero(wished)
    prior, true = server.marginals(len(path)), path
    rows = [prior[steps], before[steps], after[steps]]
    x = true[steps]
    if hidden:
        rows = [_only(row, hidden) for row in rows]
        place = np.full(server.n, len(hidden))
        place[list(hidden)] = np.arange(len(hidden))
        x = place[x]
    each = np.arange(len(x))
    first, second, third = rows
    foretold, learned = np.log2(second[each, x] / first[each, x]), np.log2(third[each, x] / second[each, x])
    ratio = np.log2(np.where(third > 0, third, 1.0) / np.where(third > 0, second, 1.0))
    marked = x < len(hidden) if hidden else np.zeros(len(x), dtype=bool)
    return Score(
        hidden=len(x),
        before=float(foretold.sum()),
        after=float(learned.sum()),
        moved=float((third * ratio).sum()),
        right_prior=hits(first, x),
        right_before=hits(second, x),
        right=hits(third, x),
        sensitive=int(marked.sum()),
        sensitive_before=float(foretold[marked].sum()),
        sensitive_after=float(learned[marked].sum()),
        ever=_ever(server, path, ever, hidden),
        requests=len(path),
        messages=float(sum(view.size for view in views)),
    )


def _ever(server: SecondOrder, path: Path, believed: float, hidden: tuple[int, ...]) -> float:
    """Bits learned about whether a sensitive source was ever asked for."""
    if not hidden:
        return 0.0
    prior = 1 - server.never(hidden, len(path))
    asked = bool(set(path.tolist()) & set(hidden))
    chances = (believed, prior) if asked else (1 - believed, 1 - prior)
    return float(np.log2(max(chances[0], 1e-300) / chances[1]))


def _only(rows: Floats, hidden: tuple[int, ...]) -> Floats:
    """The law of which sensitive source it was, or none (last)."""
    kept = rows[:, list(hidden)]
    return np.column_stack([kept, np.maximum(1 - kept.sum(axis=1), 0.0)])


def _leaks(table: Sequence[dict[tuple[str, str], Score]], seed: int) -> tuple[PastLeak, ...]:
    if not table:
        raise OnoffError("no private request was made by anybody: take more people, or a larger share")
    found = []
    for client, server in table[0]:
        sums = np.array([person[client, server] for person in table])
        before, after, moved, right_prior, right_before, right = estimates(sums[:, :7], seed)
        marked = sums[:, 7].sum() > 0
        of_marked: list[Estimate | None] = [*estimates(sums[:, 7:10], seed)] if marked else [None, None]
        ever = estimates(np.column_stack([np.ones(len(sums)), sums[:, 10]]), seed)[0] if marked else None
        [messages] = estimates(sums[:, 11:], seed)
        found.append(
            PastLeak(
                client,
                server,
                len(sums),
                int(sums[:, 0].sum()),
                before,
                after,
                moved,
                right_prior,
                right_before,
                right,
                int(sums[:, 7].sum()),
                of_marked[0],
                of_marked[1],
                ever,
                messages,
            )
        )
    return tuple(found)
