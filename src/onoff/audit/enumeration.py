"""All streams of a client, run through its own state machine, and what a view tells about a secret.

The walk computes Pr[queries, hidden, context, state] in integers, units of 2^-512. The state is the reader's: of a
Markov chain the request. Every operation rounds down, so 1 minus the sum is the whole error. A joint law is an array of
such integers (`onoff.model.measures`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from onoff.audit.clients import Client, ClientStep, TooLarge
from onoff.model.measures import Joint
from onoff.types import Floats, Query

if TYPE_CHECKING:
    from onoff.model.chain import Chain

BITS = 512
ONE = 1 << BITS
MISSING = 2.0**-300  # of the probability 1, at most: what rounding down to units may lose
CELLS = 2_000_000  # (queries, hidden, context, state, set, next request) at one step: what is enumerated
STATES = 4_000  # public steps at one time, each of which prepares a law
TOO_MANY = "too many streams; take fewer steps or a smaller chain"
Hidden = tuple[int | None, ...]
Label = tuple[Hidden, int, int]  # what is hidden so far, the context and the state
Masses = dict[Label, int]
Asked = dict[tuple[Label, int], int]  # by the label before and the state after a step
History = tuple[Query, ...]  # all that the server has seen
Keep = Callable[[Hidden, int, bool], Hidden]
After = Callable[[ClientStep, Query, int], ClientStep]


@dataclass(frozen=True)
class Part:
    """All who showed this view before a step, and at it asked for this set; then comes the step `following`."""

    step: ClientStep
    view: History
    query: Query
    following: ClientStep
    asked: Asked


def joint_law(parts: Sequence[Part], secret: Callable[[Label, int], object]) -> Joint:
    """Pr[part, secret], where a secret is a function of the label before a step and of the state after it."""
    secrets = dict.fromkeys(secret(*case) for part in parts for case in part.asked)
    column = {one: i for i, one in enumerate(secrets)}
    joint = np.zeros((len(parts), len(secrets)), dtype=object)
    for row, part in zip(joint, parts, strict=True):
        for case, mass in part.asked.items():
            row[column[secret(*case)]] += mass
    return joint


def walk(
    chain: Chain, known: Sequence[int], client: Client, start: Floats, steps: int, keep: Keep, after: After
) -> Iterator[list[Part]]:
    """Run all readers step by step, and divide those with one view by their next query.

    `known[z]` is the state of the client's own habits in state z of the chain. `keep(hidden, state, private)` adds a
    step to what is hidden, or leaves it out; `after(step, query, t)` is the step that follows a query of step t.
    """
    moves = [[(z, p) for z, p in enumerate(row) if p] for row in in_units(chain.moves)]
    last, shares = chain.last.tolist(), cache(_shares)
    masses: Masses = {((), 0, z): p for z, p in enumerate(in_units(start[None])[0]) if p}
    nodes: dict[ClientStep, dict[History, Masses]] = {client.on(): {(): masses}}

    def move(part: Part) -> Masses:
        """Go on to the next step, with what is then hidden and the context there."""
        moved: Masses = {}
        for ((hidden, context, state), following), mass in part.asked.items():
            now = part.following.context(context, known[state])
            label = keep(hidden, state, part.step.lag == 0), now, following
            moved[label] = moved.get(label, 0) + mass
        return {label: mass for label, mass in moved.items() if mass}

    for t in range(steps):
        parts = []
        cells = sum(len(step.sets) * sum(map(len, views.values())) for step, views in nodes.items())
        if len(nodes) > STATES or cells * chain.n > CELLS:
            raise TooLarge(TOO_MANY)
        for step, views in nodes.items():
            for view, here in views.items():
                asked: dict[int, Asked] = {}
                for label, mass in here.items():
                    _, context, state = label
                    for following, chance in moves[state]:
                        next = last[following] if step.nexts > 1 else 0
                        for i, share in shares(step, context, last[state], next):
                            asked.setdefault(i, {})[label, following] = mass * chance * share >> 2 * BITS
                for i, found in asked.items():
                    parts.append(Part(step, view, step.sets[i], after(step, step.sets[i], t), found))
        yield parts
        nodes = {}
        for part in parts:
            nodes.setdefault(part.following, {})[*part.view, part.query] = move(part)


def _shares(step: ClientStep, context: int, request: int, next: int) -> list[tuple[int, int]]:
    """The sets that a client may ask for, with the units of their probability."""
    units = step.encoder(context, next)
    row: list[int] = [] if units is None else units[request].tolist()
    return [(i, part * ONE // sum(row)) for i, part in enumerate(row) if part]


def in_units(rows: Floats) -> list[list[int]]:
    """Rows of floats, each divided by its exact sum, in units, rounded down."""
    exact = [[Fraction(p) for p in row] for row in rows.tolist()]
    return [[int(ONE * p / total) for p in row] for row in exact for total in [sum(row)]]
