"""The Bayesian server on a whole stream: what it believes about every request before, at and after it.

How a client draws depends on its context and its request alone, and contexts move as recorded. So (context, X_t) is a
Markov chain with the queries as observations, and forward-backward over it is exact:

    M[c, x]  ~ p(context c, X_t = x | Q_0..Q_{t-1})        going forward
    N[c, x]  ~ p(Q_t, Q_{t+1}, .. | context c, X_t = x)    going back

It takes what the client recorded as what the client does, right or wrong; whether it is right is for `checks`. A step
without a law tells nothing, nor does any after it before the full set is asked for again: contexts are not known there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onoff.audit.everyday.record import Law, Seen
from onoff.audit.setting import start_law
from onoff.model.chain import Chain
from onoff.model.powers import times
from onoff.types import Floats, Query

BLOCK = 64  # steps between what is kept of the way forward; the rest is computed again on the way back
Whole = NDArray[np.intp]


@dataclass(frozen=True)
class Beliefs:
    """One row for each step, over the sources.

    `prior` is p(X_t) by the chain alone, `before` is p(X_t | Q_0..Q_{t-1}), `at` is p(X_t | Q_0..Q_t) and `after` is
    p(X_t | all queries). `some_prior`, `some_before` and `some_at` are the same for "a sensitive source was asked for,
    at this step or before". `silent` are the steps that were taken to tell nothing: their law is missing, or no request
    can have caused their query under it.
    """

    sensitive: tuple[int, ...]
    private: tuple[bool, ...]
    prior: Floats
    before: Floats
    at: Floats
    after: Floats
    some_prior: Floats
    some_before: Floats
    some_at: Floats
    silent: tuple[int, ...]

    def hidden(self, rows: Floats, t: int) -> Floats:
        """The law of what is hidden of step t: X_t if it was ON, else Y_t with "none" last."""
        row: Floats = rows[t]
        if self.private[t]:
            return row
        sensitive = list(self.sensitive)
        return np.append(row[sensitive], np.delete(row, sensitive).sum())

    def told(self, t: int) -> tuple[float, float, float]:
        """Bits about what is hidden of step t: before it, by its own query, and by all queries from it on.

        Each is the divergence of the belief from the one before that. The last two are promised to be 0.
        """
        prior, before, at, after = (self.hidden(rows, t) for rows in (self.prior, self.before, self.at, self.after))
        return divergence(before, prior), divergence(at, before), divergence(after, before)


@dataclass(frozen=True, eq=False)
class _Link:
    """A step: `chances[c, x]` of its query, and where a reader of (c, x) is at the next step; -1 is nowhere."""

    chances: Floats
    goes: Whole
    contexts: int


def attack(
    chain: Chain,
    sensitive: Sequence[int],
    seen: Sequence[Seen],
    prior: Floats | None = None,
    advance: Callable[[], None] = lambda: None,
) -> Beliefs:
    """The beliefs of a server that saw these steps, the first of them private; `advance` is called twice a step."""
    pass_over = _Pass(chain, tuple(sorted(sensitive)), seen, advance)
    pass_over.forward(start_law(chain) if prior is None else prior / prior.sum())
    pass_over.back()
    return pass_over.beliefs()


class _Pass:
    """The way forward over a stream, which is kept every `BLOCK` steps, and the way back."""

    def __init__(
        self, chain: Chain, hidden: tuple[int, ...], seen: Sequence[Seen], advance: Callable[[], None]
    ) -> None:
        self._P, self._hidden, self._seen, self._advance = chain.P, hidden, seen, advance
        self._laws = _known(seen)
        self._silent = {t for t, step in enumerate(seen) if self._laws[t] is None and not step.private}
        self._kept: list[Floats] = []
        self._prior, self._before, self._at, self._after = (np.empty((len(seen), chain.n)) for _ in range(4))
        self._some_prior, self._some_before, self._some_at = (np.empty(len(seen)) for _ in range(3))

    def forward(self, marginal: Floats) -> None:
        """Fill all beliefs but those after the stream, from the law of the first request on."""
        closed = np.zeros(len(marginal), dtype=bool)
        closed[list(self._hidden)] = True
        none_yet = marginal
        # ways[0] is M; ways[1] its part in which no sensitive source was asked for before
        ways: Floats = np.stack([marginal[None], marginal[None]])
        for t in range(len(self._seen)):
            self._prior[t], self._before[t] = marginal, ways[0].sum(axis=0)
            marginal, none_yet = times(marginal, self._P), np.where(closed, 0.0, none_yet)
            self._some_prior[t], none_yet = 1 - none_yet.sum(), times(none_yet, self._P)
            self._some_before[t] = 1 - ways[1][:, ~closed].sum()
            link = self._link(t)
            if not (ways[0] * link.chances).sum() > 0:
                gone = _until_full(self._seen, t)
                self._laws = [None if s in gone else law for s, law in enumerate(self._laws)]
                self._silent |= gone
                link = self._link(t)
                ways = ways.sum(axis=1, keepdims=True)  # contexts do not matter here any more
            if t % BLOCK == 0:
                self._kept.append(ways)
            asked = ways * link.chances
            asked /= asked[0].sum()
            self._at[t] = asked[0].sum(axis=0)
            asked[1][:, closed] = 0.0
            self._some_at[t] = 1 - asked[1].sum()
            ways = _forward(asked, link, self._P)
            self._advance()

    def back(self) -> None:
        """Fill the beliefs after the stream. The way forward is computed again, block by block."""
        backward: Floats = np.ones((1, len(self._P)))
        for block in range(len(self._kept) - 1, -1, -1):
            first = block * BLOCK
            ways, links = [self._kept[block][0]], []
            for t in range(first, min(first + BLOCK, len(self._seen))):
                links.append(self._link(t))
                asked = ways[-1] * links[-1].chances
                ways.append(_forward((asked / asked.sum())[None], links[-1], self._P)[0])
            for t in range(first + len(links) - 1, first - 1, -1):
                backward = _backward(backward, links[t - first], self._P)
                both = ways[t - first] * backward
                self._after[t] = both.sum(axis=0) / both.sum()
                self._advance()

    def beliefs(self) -> Beliefs:
        """What was found."""
        private = tuple(step.private for step in self._seen)
        by_step = self._prior, self._before, self._at, self._after
        some = self._some_prior, self._some_before, self._some_at
        return Beliefs(self._hidden, private, *by_step, *some, tuple(sorted(self._silent)))

    def _link(self, t: int) -> _Link:
        return _link(self._seen, self._laws, t, len(self._P), self._hidden)


def divergence(belief: Floats, before: Floats) -> float:
    """sum of b log2(b / a) in bits, without cancellation: the terms a phi(b / a - 1), each of which is not negative."""
    used = before > 0
    a, ratio = before[used], belief[used] / before[used] - 1
    small = np.abs(ratio) < 1e-4
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = np.where(ratio > -1, (1 + ratio) * np.log1p(ratio) - ratio, 1.0)
    series = ratio**2 / 2 - ratio**3 / 6 + ratio**4 / 12
    return float(np.sum(a * np.where(small, series, exact)) / np.log(2))


def _known(seen: Sequence[Seen]) -> list[Law | None]:
    """The laws that can be used: none while ON, and none between a missing one and the next full set."""
    result: list[Law | None] = []
    lost = True
    for step in seen:
        lost = False if step.private else lost or step.law is None or step.query not in step.law.sets
        result.append(None if step.private or lost else step.law)
    return result


def _until_full(seen: Sequence[Seen], t: int) -> set[int]:
    """The steps from t to the next full set."""
    end = next((s for s in range(t, len(seen)) if seen[s].private), len(seen))
    return set(range(t, end))


def _link(seen: Sequence[Seen], laws: Sequence[Law | None], t: int, n: int, hidden: tuple[int, ...]) -> _Link:
    law, following = laws[t], laws[t + 1] if t + 1 < len(seen) else None
    chances = np.ones((1, n)) if law is None else chances_of(law, seen[t].query, n, hidden)
    if following is None:
        return _Link(chances, np.zeros(chances.shape, dtype=np.intp), 1)
    goes = np.full(chances.shape, -1, dtype=np.intp)
    joined = _sized(following.joined, n)
    if law is None:
        goes[:] = joined
    else:
        goes[:] = _sized(following.place, len(chances))[:, None]
        goes[:, list(hidden)] = joined[list(hidden)]
    return _Link(chances, goes, contexts_of(following))


def chances_of(law: Law, query: Query, n: int, hidden: tuple[int, ...]) -> Floats:
    """p(query | context, request) under a law, for all of its contexts and sources."""
    index = law.sets.index(query)
    chances = np.zeros((contexts_of(law), n))
    for context, table in law.tables.items():
        if context < len(chances):
            chances[context] = table.on(index, n) / np.maximum(table.totals(n), 1)
    chances[:, list(hidden)] = law.masses[index] / law.denominator
    return chances


def contexts_of(law: Law) -> int:
    """How many contexts readers may be in at the step of this law."""
    return 1 + max((*law.place, *law.joined), default=0)


def _sized(numbers: tuple[int, ...], size: int) -> Whole:
    """As many as are needed: a record may have too few or too many."""
    return np.array([*numbers[:size], *[-1] * (size - len(numbers))], dtype=np.intp)


def _forward(asked: Floats, link: _Link, P: Floats) -> Floats:
    layers, n = len(asked), len(P)
    gathered = np.zeros((layers, link.contexts + 1, n))  # the last context is nowhere
    every = np.broadcast_to(np.arange(n), link.goes.shape)
    for layer in range(layers):
        np.add.at(gathered[layer], (link.goes, every), asked[layer])
    moved: Floats = times(gathered[:, :-1], P)
    return moved


def _backward(backward: Floats, link: _Link, P: Floats) -> Floats:
    ahead = times(backward, P.T)  # [context at the next step, x] -> sum_y P[x, y] N[context, y]
    ahead = np.concatenate([ahead, np.zeros((1, len(P)))])
    result: Floats = link.chances * ahead[link.goes, np.arange(len(P))]
    top = result.max()
    return result / top if top > 0 else result
