"""All streams of a client, walked through in its own state machine, and what a view tells about a secret.

Kept is Pr[queries, hidden, context, request] in integers, units of 2^-512. Every operation rounds down, so what is
missing from the sum 1 is the whole error. A joint law is an array of such integers (`onoff.model.measures`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from onoff.audit.clients import Client, Past, Step, TooLarge
from onoff.audit.rows import NOWHERE
from onoff.model.measures import Joint
from onoff.types import Floats, Query

if TYPE_CHECKING:
    from onoff.model.chain import Chain

BITS = 512
ONE = 1 << BITS
MISSING = 2.0**-300  # of the probability 1, at most: what rounding down to units may lose
CELLS = 2_000_000  # (queries, hidden, context, request) at one step: what is enumerated
LABELS = 10_000  # (hidden, context, request) of one public state
STATES = 4_000  # public states at one step, each of which prepares a law
TOO_MANY = "too many streams: take fewer steps, or a smaller chain"
Hidden = tuple[int | None, ...]
Label = tuple[Hidden, int]  # what is hidden so far, and the context
Keep = Callable[[Hidden, int, bool, int], Hidden | None]
After = Callable[
    [Step, Query, int], Sequence[tuple[Step, Joint | int]]
]  # steps that may follow, with the units of each


@dataclass(frozen=True, eq=False)
class Node:
    """mass[view, label, x] = Pr[queries, label, X_t = x] of the views that lead to one public step, in units."""

    step: Step
    labels: list[Label]
    mass: Joint


@dataclass(frozen=True, eq=False)
class Part:
    """mass[view, label, y] = Pr[queries, label, X_{t+1} = y] of the views of a node that ask this query next."""

    node: Node
    query: Query
    following: Step
    labels: list[Label]
    mass: Joint

    def by(self, names: Sequence[object], name: Callable[[Label], object] = tuple) -> Joint:
        """[view, name, y]: the mass of the labels of each name, in the order of `names`."""
        index = {one: i for i, one in enumerate(names)}
        mass = np.zeros((len(self.mass), len(names), self.mass.shape[2]), dtype=object)
        for i, label in enumerate(self.labels):
            mass[:, index[name(label)]] += self.mass[:, i]
        return mass


def walk(
    chain: Chain, client: Client, start: Floats, steps: int, keep: Keep, after: After
) -> Iterator[tuple[list[Node], list[Part]]]:
    """Let everybody ask, step by step: the nodes of each step, and the parts into which its queries divide them.

    `keep(hidden, request, private, t)` adds a step to what is hidden, or leaves it out; `after(step, query, t)` says
    which steps may follow a query of step t.
    """
    P = in_units(chain.P)
    kernel_of = cache(lambda step, context: kernel(P, step, context))
    nodes = [Node(client.on(), [((), 0)], in_units(start[None])[None])]
    for t in range(steps):
        parts = [part for node in nodes for part in _parts(client, kernel_of, node, t, keep, after)]
        yield nodes, parts
        nodes = _gather(parts) if t + 1 < steps else []


def _parts(
    client: Client, kernel_of: Callable[[Step, int], Joint], node: Node, t: int, keep: Keep, after: After
) -> Iterator[Part]:
    step, n = node.step, node.mass.shape[2]
    if node.mass.size * len(step.sets) > CELLS or len(node.labels) * n > LABELS:
        raise TooLarge(TOO_MANY)
    alive = np.argwhere(node.mass.astype(bool).any(axis=0)).tolist()
    rows = [kernel_of(step, node.labels[label][1])[:, x] for label, x in alive]
    if isinstance(client, Past) and step.lag:
        for label, x in alive:
            client.check_draw(step, node.labels[label][1], x)
    for i, query in enumerate(step.sets):
        asking = [(label, x, row[i]) for (label, x), row in zip(alive, rows, strict=True) if row[i].any()]
        for following, chance in after(step, query, t) if asking else ():
            index: dict[Label, int] = {}
            mass = np.zeros((len(node.mass), len(asking), n), dtype=object)
            for label, x, row in asking:
                hidden, context = node.labels[label]
                kept = keep(hidden, x, step.lag == 0, t)
                moved = 0 if following.comes is None else int(following.comes[context, x])
                if kept is not None and moved != NOWHERE:
                    at = index.setdefault((kept, moved), len(index))
                    mass[:, at] += node.mass[:, label, x, None] * row >> BITS
            units: Joint = mass[:, : len(index)] * chance
            yield Part(node, query, following, list(index), units >> BITS)


def _gather(parts: Sequence[Part]) -> list[Node]:
    """The nodes of the next step: views that lead to the same public step go on together."""
    groups: dict[Step, list[Part]] = {}
    for part in parts:
        groups.setdefault(part.following, []).append(part)
    nodes = []
    for following, group in groups.items():
        labels = list(dict.fromkeys(label for part in group for label in part.labels))
        mass = np.concatenate([part.by(labels) for part in group])
        nodes.append(Node(following, labels, mass[mass.astype(bool).any(axis=(1, 2))]))
    if sum(node.mass.size for node in nodes) > CELLS or len(nodes) > STATES:
        raise TooLarge(TOO_MANY)
    return [node for node in nodes if len(node.mass)]


def in_units(rows: Floats) -> Joint:
    """Rows of floats, each divided by its exact sum, in units, rounded down."""
    exact = [[Fraction(p) for p in row] for row in rows.tolist()]
    return np.array([[int(ONE * p / sum(row)) for p in row] for row in exact], dtype=object)


def kernel(P: Joint, step: Step, context: int) -> Joint:
    """[set, request, next] = P[request, next] p(set | context, request, next), in units, rounded down."""
    n = len(P)
    if len(step.sets) * n**2 > 10 * CELLS:
        raise TooLarge("too many sets: take a smaller chain")
    result = np.zeros((len(step.sets), n, n), dtype=object)
    tables = [step.encoder(context, y) for y in (range(n) if step.announced else [0])]
    for x, y in product(range(n), repeat=2):
        units = tables[y if step.announced else 0]
        if units is not None:
            used = np.flatnonzero(units[x])
            row = units[x, used].astype(object)
            result[used, x, y] = P[x, y] * row // row.sum() if len(used) else 0
    return result


def step_distance(chain: Chain, step: Step) -> Fraction:
    """The most, over `last`, of the total variation between the laws of (next, query) and of (next) x (one fixed law).

    The fixed law is what the encoder of some context sums to: a plan's own law, if the plan is one. All probabilities
    are rounded down, so what is missing from their sums bounds their error; it is added.
    """
    n, P = chain.n, in_units(chain.P)
    some = next(units for y in range(n) if (units := step.encoder(0, y)) is not None)
    sums = (some if step.lag else some[:1]).sum(axis=0).astype(object)
    fixed, worst = sums * ONE // sums.sum(), 0
    for last in range(n):
        now = (np.arange(n) == last).astype(int).astype(object) * ONE
        for _ in range(step.lag):
            now = (now[:, None] * P).sum(axis=0) >> BITS
        joint = (now[:, None] * kernel(P, step, last if step.contexts > 1 else 0)).sum(axis=1) >> BITS
        ideal = fixed[:, None] * ((now[:, None] * P).sum(axis=0) >> BITS) >> BITS
        worst = max(worst, abs(joint - ideal).sum() + 2 * ONE - joint.sum() - ideal.sum())
    return Fraction(int(worst), 2 * ONE)
