"""From masses to a plan's law: integers, repair in every context, and what the encoder needs.

Of the D units of a plan, n of the full set are held out by the encoder, `slack` units of the full set help all
contexts alike, and the B = D - n - slack others, the base law, are checked: in every context by a flow, or by a
certificate of `Screen` that the base law together with the slack realises it.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf
from typing import Any

import numpy as np

from onoff.model.powers import counts, times
from onoff.model.rows import Rows
from onoff.schemes.law import DENOMINATOR, Law, Member, quantised
from onoff.schemes.realisation.repair import Repair, in_time
from onoff.schemes.realisation.sinkhorn import Screen
from onoff.schemes.realisation.spreading import in_threads, spread
from onoff.types import Floats, Mask

TOGETHER = 4  # groups of rows that are screened by one call
SCREEN_FROM = 50  # sources; below, every context gets its flow and no slack is bought


def realised(rows: Rows, member: Member, mass: Floats, price: float = 0.0, deadline: float = inf) -> Law:
    """A law for a plan, realisable in every context, from masses that need not be.

    `price` is the expected length, in messages, that may be spent on slack to save flows; 0 checks every context by a
    flow. Contexts are repaired worst first, those that come close to the peaks of all their sources before others.
    Raises `TimeoutError` if the deadline passes before every context was checked.
    """
    n = rows.n
    slack = price / n if n > SCREEN_FROM else 0.0
    slack_units = ceil(slack * DENOMINATOR)
    repair = Repair(quantised(member, mass, DENOMINATOR - n - slack_units))
    hard = hard_contexts(rows)
    queue = [(repair.shortfall(row), k, j) for k, hardest in hard.items() for j, row in enumerate(hardest)]
    for _, k, j in sorted((entry for entry in queue if entry[0]), reverse=True):
        in_time(deadline)
        repair.chase(hard[k][j], rows.group(k))
    used = list(hard)
    blocks = _uncertain(rows, used, repair.law, slack, deadline) if slack else [rows.group(k) for k in used]
    repair.fix_all(blocks, deadline)
    return finished(rows, repair.law, slack_units)


def hard_contexts(rows: Rows, per_group: int = 3) -> dict[int, Floats]:
    """For each group with any, the rows likely to fall short: those closest to the peaks M of the sources they use.

    They have the largest sum_x p(x|u)^2 / M_x, which is at most 1, and 1 iff p is M wherever it is positive.
    """
    peak = rows.peaks
    inverse = np.where(peak > 0, 1 / np.where(peak > 0, peak, 1), 0)
    found = {}
    for k in range(rows.groups):
        group = rows.group(k)
        if len(group):
            found[k] = group[np.argsort(-times(group**2, inverse), kind="stable")[:per_group]]
    return found


@dataclass(frozen=True)
class _Screening:
    """What all groups of rows are screened with: a fifth of the slack goes to the screen.

    The rest covers groups of nearly equal rows by their mean: if p >= (1 - s) mean then p = (1 - s) mean + s r, and r
    goes to the full set.
    """

    rows: Rows
    law: Law
    slack: float

    def __reduce__(self) -> tuple[Any, ...]:
        return _Screening, (self.rows, self.law, self.slack)  # the screen is made again where it is needed

    @cached_property
    def screen(self) -> Screen:
        return Screen(self.law, 0.2 * self.slack)

    def block(self, k: int) -> Floats:
        """The rows of a group, or their mean if that stands for them."""
        group = self.rows.group(k)
        mean = group.mean(axis=0, keepdims=True)
        mean /= mean.sum()
        return mean if (group >= (1 - 0.72 * self.slack) * mean).all() else group


def _uncertain(rows: Rows, groups: list[int], law: Law, slack: float, deadline: float = inf) -> list[Floats]:
    """The rows that still need a flow: those for which neither certificate works."""
    screening = _Screening(rows, law, slack)
    centres = np.array([screening.block(k).mean(axis=0) for k in groups])
    easy, scaling = screening.screen.passes(centres, rounds=400)
    items = [(k, scaling[b] if easy[b] else None) for b, k in enumerate(groups)]
    shares = [items[start : start + TOGETHER] for start in range(0, len(items), TOGETHER)]
    found: list[Floats] = []
    with closing(spread(_left, screening, shares, here=in_threads)) as answers:
        for answer in answers:
            in_time(deadline)
            found += answer
    return found


def _left(screening: _Screening, items: list[tuple[int, Floats | None]]) -> list[Floats]:
    """Of some groups, the rows without a certificate; a group whose centre has none is not looked at."""
    found = []
    for k, scaling in items:
        block = screening.block(k)
        found.append(block if scaling is None else block[~screening.screen.passes(block, scaling)[0]])
    return found


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
