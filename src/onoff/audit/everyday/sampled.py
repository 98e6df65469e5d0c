"""Streams that are too many to enumerate: some are sampled, and after each sampled past the step is exact.

For the exhibit the filter of `pasts` has the law of the next query given every hidden past. So what a query tells,
given the queries before, is computed and not estimated; only the pasts are sampled. Clients that leak keep nothing in
mind, and there log2 p(Q_t | G_t, Q_0..Q_{t-1}) / p(Q_t | Q_0..Q_{t-1}) is averaged. Both estimates have no bias.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from onoff.audit.everyday.beliefs import divergence
from onoff.audit.everyday.checks import check
from onoff.audit.everyday.clients import Exhibit, Naive
from onoff.audit.everyday.pasts import Pasts
from onoff.audit.everyday.streams import Streams, Told
from onoff.model.powers import times
from onoff.types import Floats

if TYPE_CHECKING:
    from onoff.model.chain import Chain


def sampled_exhibit(
    chain: Chain,
    statuses: Sequence[bool],
    client: Exhibit,
    sensitive: tuple[int, ...],
    start: Floats,
    streams: int,
    seed: int,
    advance: Callable[[], None] = lambda: None,
) -> Streams:
    """Sampled pasts, each step after them exact up to floats."""
    rng = Random(seed)
    steps = len(statuses)
    numbers, priors = _Numbers(streams, steps), _priors(chain, start, steps)
    distance, average, stated = (np.zeros((streams, steps)) for _ in range(3))
    faults: list[str] = []
    for number in range(streams):
        pasts = Pasts.begin(chain, sensitive, start)
        request, public, memory, charged, so_far = -1, None, None, 0.0, 0.0
        for t, private in enumerate(statuses):
            here = number, t
            request = rng.choices(range(chain.n), (start if request < 0 else chain.P[request]).tolist())[0]
            numbers.before[here] = _gained(pasts.believed, priors[t], private, sensitive)
            if private:
                pasts, public, charged, so_far = pasts.on(), client.started(), 0.0, 0.0
                numbers.sizes[here] = chain.n
                memory = client.remembered(public, request, None, True)
                continue
            ready = client.ready(public)
            law = ready.law
            found = check(pasts, law, charged)
            faults += [text for fault in found.faults if (text := f"{fault.rule}: {fault.message}") not in faults]
            so_far, charged = so_far + law.rounding, max(charged, law.charge)
            numbers.bits[here], numbers.sizes[here] = found.bits, law.cost
            distance[here], average[here], stated[here] = found.distance, found.average, so_far
            weights = client.off(ready, request, memory)
            if not weights:
                faults.append("query: a request that happens is given no query")
                break
            query = rng.choices(list(weights), list(weights.values()))[0]
            pasts, public = pasts.off(query, law), client.after(public, ready, query)
            memory = client.remembered(public, request, memory, False)
        advance()
    own = [f"{fault.rule}: {fault.message}" for fault in client.faults]
    faults = [*own, *(fault for fault in faults if fault not in own)]
    told = [numbers.told(t, private, sensitive) for t, private in enumerate(statuses)]
    for t, private in enumerate(statuses):
        if not private:
            told[t] = replace(
                told[t],
                distance=float(distance[:, t].max()),
                average=float(average[:, t].mean()),
                stated=float(stated[:, t].mean()),
                stated_most=float(stated[:, t].max()),
            )
    return Streams(client.name, f"exact after {streams} sampled pasts", tuple(told), not faults, tuple(faults))


def sampled_leaky(
    chain: Chain,
    statuses: Sequence[bool],
    client: Naive,
    sensitive: tuple[int, ...],
    start: Floats,
    streams: int,
    seed: int,
    advance: Callable[[], None] = lambda: None,
) -> Streams:
    """An estimate for a client that keeps nothing in mind."""
    rng = np.random.default_rng(seed)
    steps, n = len(statuses), chain.n
    numbers, priors = _Numbers(streams, steps), _priors(chain, start, steps)
    closed = np.isin(np.arange(n), sensitive)
    for number in range(streams):
        believed = start / start.sum()  # p(X_t | queries before)
        given = believed  # the same given also what is hidden of this stream so far
        request = int(rng.choice(n, p=believed))
        for t, private in enumerate(statuses):
            numbers.before[number, t] = _gained(believed, priors[t], private, sensitive)
            query = client.draw(request, private, rng)
            chances = client.chances(query, private)
            if private or request in sensitive:
                given = np.eye(n)[request]
            else:
                given = np.where(closed, 0.0, given)
                given = given / given.sum()
            here, overall = float((given * chances).sum()), float((believed * chances).sum())
            numbers.bits[number, t], numbers.sizes[number, t] = np.log2(here / overall), len(query)
            believed, given = (
                times(law * chances / mass, chain.P) for law, mass in ((believed, overall), (given, here))
            )
            request = int(rng.choice(n, p=chain.P[request] / chain.P[request].sum()))
        advance()
    told = (numbers.told(t, private, sensitive) for t, private in enumerate(statuses))
    not_negative = tuple(replace(step, bits=max(0.0, step.bits)) for step in told)
    return Streams(client.name, f"estimate from {streams} sampled streams", not_negative, None)


class _Numbers:
    """What every stream (row) tells at every step (column), before it and by its query, and the size of the query."""

    def __init__(self, streams: int, steps: int) -> None:
        self.bits, self.before, self.sizes = (np.zeros((streams, steps)) for _ in range(3))

    def told(self, t: int, private: bool, sensitive: tuple[int, ...]) -> Told:
        """Step t, on average over the streams. Where nothing is hidden, nothing can be told before it."""
        bits, before, sizes = self.bits[:, t], self.before[:, t], self.sizes[:, t]
        margins = _margin(bits), _margin(before), _margin(sizes)
        gained = float(before.mean()) if private or sensitive else None
        return Told(t + 1, private, float(bits.mean()), gained, float(sizes.mean()), margins=margins)


def _priors(chain: Chain, start: Floats, steps: int) -> list[Floats]:
    laws = [start / start.sum()]
    for _ in range(steps - 1):
        laws.append(times(laws[-1], chain.P))
    return laws


def _gained(believed: Floats, prior: Floats, private: bool, sensitive: tuple[int, ...]) -> float:
    """Bits by which a belief about a request differs from its prior, in what is hidden of the step."""
    return divergence(_hidden(believed, private, sensitive), _hidden(prior, private, sensitive))


def _hidden(law: Floats, private: bool, sensitive: tuple[int, ...]) -> Floats:
    """The law of what is hidden of a step, from that of its request: of the source itself if it is ON.

    If it is OFF: of which sensitive source was asked for, or (the last entry) of none.
    """
    if private:
        return law
    return np.append(law[list(sensitive)], np.delete(law, list(sensitive)).sum())


def _margin(values: Floats) -> float:
    return float(1.96 * values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
