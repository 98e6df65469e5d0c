"""From masses to a plan's law: integers, repair in every context, and what the encoder needs.

Of the D units of a plan, n of the full set are held out by the encoder, and `slack` and `cover` units of the full set
help all contexts alike. The others are the base law. In every context the base law with the slack is checked, by a
flow or by a certificate of `Screen`. The cover pays for looking at groups of nearly equal rows as one
(`looking.block_of`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf

import numpy as np

from onoff.model.powers import contracted, counts
from onoff.model.rows import Rows
from onoff.schemes.law import DENOMINATOR, Law, Member, quantised, with_full_set
from onoff.schemes.realisation.looking import Look, Short, Spread, block_of, on_this_machine, short_rows
from onoff.schemes.realisation.repair import Repair, in_time
from onoff.types import Floats, Mask

SCREEN_FROM = 50  # sources; below, every context gets its flow and no slack is bought
COVER = 3.3  # times the price is what looking at nearly equal rows as one may cost
LEAST = 0.25  # of the price is left for slack, whatever the cover costs
PER_GROUP = 3  # hard contexts of a group
FIRST = 300  # hard contexts that are repaired before all are looked at


@dataclass(frozen=True)
class Survey:
    """What one pass over all rows tells.

    `hard` are the rows likely to fall short, the hardest first. `cover` is the mass by which rows of a group differ, at
    most, in the groups that are looked at as one, and `slack` the mass on the full set that helps the screen.
    """

    hard: Floats
    cover: float
    slack: float


def survey(rows: Rows, price: float = 0.0, deadline: float = inf) -> Survey:
    """Look at all rows once. `price` is the expected length, in messages, that may be spent on the full set.

    A row is hard if it comes close to the peaks M of several sources: by sum_x (p(x|u) / M_x)^4.
    """
    n = rows.n
    whole = price / n if n > SCREEN_FROM else 0.0
    peak = rows.peaks
    inverse = np.where(peak > 0, 1 / np.where(peak > 0, peak, 1), 0)
    hard, hardness, cover = [], [], 0.0
    for k in range(rows.groups):
        in_time(deadline)
        group = rows.group(k)
        if whole and len(group) > 1:
            apart = 1 - float(group.min(axis=0).sum()) + 2.0**-50 * n
            if apart <= COVER * whole:
                cover, group = max(cover, apart), block_of(group, apart)
        near = (group * inverse) ** 2
        scores = contracted("ij,ij->i", near, near)
        first = np.argsort(-scores, kind="stable")[:PER_GROUP]
        hard.append(group[first])
        hardness.append(scores[first])
    order = np.argsort(-np.concatenate(hardness), kind="stable")
    return Survey(np.concatenate(hard)[order], cover, max(LEAST * whole, whole - cover))


def realised(
    rows: Rows,
    member: Member,
    mass: Floats,
    seen: Survey | None = None,
    deadline: float = inf,
    spread: Spread | None = None,
) -> Law:
    """A law for a plan, realisable in every context, from masses that need not be.

    Without a survey every context is checked by a flow, and nothing is spent on the full set. Raises `TimeoutError` if
    the deadline passes before every context was checked.
    """
    under = Realising(rows, member, mass, seen or survey(rows, 0.0, deadline), deadline)
    under.fix(under.seen.hard[:FIRST])
    return under.finished(under.look(spread))


class Realising:
    """A law on its way: look at all contexts, repair those in which it falls short, and finish it."""

    def __init__(self, rows: Rows, member: Member, mass: Floats, seen: Survey, deadline: float) -> None:
        self.seen, self._rows, self._deadline = seen, rows, deadline
        self._slack, self._cover = (ceil(share * DENOMINATOR) for share in (seen.slack, seen.cover))
        base = quantised(member, mass, DENOMINATOR - rows.n - self._slack - self._cover)
        self._repair = Repair(with_full_set(base, self._slack))

    def fix(self, some: Iterable[Floats]) -> None:
        """Repair the law in these contexts."""
        for row in some:
            in_time(self._deadline)
            self._repair.fix(row)

    def look(self, spread: Spread | None) -> list[Short]:
        """The contexts in which the law falls short, the worst first."""
        short: list[Short] = []
        for found in (spread or on_this_machine)(short_rows, self._look().parts()):
            in_time(self._deadline)
            short += found
        return sorted(short, reverse=True)

    def rows_of(self, short: list[Short]) -> Iterator[Floats]:
        """The rows of contexts that a look has found."""
        block = lru_cache(maxsize=8)(self._look().block)
        return (block(each.group)[each.row] for each in short)

    def finished(self, short: list[Short]) -> Law:
        """The law of the plan, once all that a look has found is repaired."""
        self.fix(self.rows_of(short))
        return finished(self._rows, self._repair.law, self._cover)

    def _look(self) -> Look:
        return Look(self._rows, self._repair.law, self._slack, self.seen.cover)


def finished(rows: Rows, law: Law, slack_units: int) -> Law:
    """The plan's law: slack and held-out units added to the full set, which comes last.

    No set may miss all possible requests of a context. Repair leaves at most n units on such sets, which go to the
    full set; it is decided on the support, so that it holds at all larger lags too, whose contexts allow more.
    """
    n = rows.n
    full: Mask = np.asarray(law.member.all(axis=1))
    full[~full] |= misses_a_context(rows, law.member[~full])
    rest = int(law.mass[full].sum()) + slack_units + n
    member = np.concatenate([law.member[~full], np.ones((1, n), dtype=bool)])
    return Law(member, np.append(law.mass[~full], rest))


def misses_a_context(rows: Rows, member: Member) -> Mask:
    """Which sets hold no possible request in some possible context."""
    missed = np.zeros(len(member), dtype=bool)
    seen: set[bytes] = set()
    for block in rows.supports():
        fresh = [support for support in block if support.tobytes() not in seen]
        if fresh:
            seen.update(support.tobytes() for support in fresh)
            missed |= (counts(member, np.array(fresh).T) == 0).any(axis=1)
    return missed
