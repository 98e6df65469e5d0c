"""Which contexts a law falls short in: the long part of planning, in parts that other processes can do.

A part is a few groups of contexts. It needs nothing but what it is given and its answer is a short list. So parts may
go to the cores of this machine (`on_this_machine`) or to those of a cluster (`Task.spread`). The answer does not depend
on who gives it, nor on how groups are divided into parts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import cpu_count
from typing import NamedTuple

import numpy as np

from onoff.model.powers import one_thread
from onoff.model.rows import Rows
from onoff.schemes.law import Law, with_full_set
from onoff.schemes.realisation.network import Network, supplies
from onoff.schemes.realisation.screening import screen_of, unsure
from onoff.types import Floats

PARALLEL = 1e8  # contexts times sources times orders (sets / n) from which processes pay for their start
PARTS = 32  # into which a look at all contexts is divided


class Short(NamedTuple):
    """A context that falls short: by how many units, and which row of which group's block it is."""

    units: int
    group: int
    row: int


@dataclass(frozen=True)
class Look:
    """A law to be looked at in all contexts of `rows`; `slack` of its units on the full set may be left to the screen.

    Contexts of a group that share all but `cover` of their mass are looked at as one (`block_of`). Without slack every
    context gets a flow, with it only those that no scaling certifies.
    """

    rows: Rows
    law: Law
    slack: int
    cover: float

    def parts(self) -> list[Part]:
        """All groups, in parts of about equal work: each takes every so-manieth."""
        groups = range(self.rows.groups)
        return [(self, tuple(groups[first::PARTS])) for first in range(min(PARTS, len(groups)))]

    def block(self, group: int) -> Floats:
        """The rows to be looked at in a group."""
        return block_of(self.rows.group(group), self.cover)

    @property
    def work(self) -> float:
        """About how much there is to do."""
        return float(self.rows.groups) * self.rows.n**2 * max(1.0, len(self.law.mass) / self.rows.n)


Part = tuple[Look, tuple[int, ...]]
Spread = Callable[[Callable[[Part], list[Short]], Sequence[Part]], Iterable[list[Short]]]


def short_rows(part: Part) -> list[Short]:
    """The contexts of some groups in which the law falls short. The work of one process."""
    look, groups = part
    law, total, found = look.law, look.law.total, []
    network = Network(law.member, law.mass)
    screened = with_full_set(law, -look.slack)
    used = screened.member.any(axis=0)  # the factor of a source in no set would be infinite
    screen = screen_of(Law(screened.member[:, used], screened.mass), look.slack / total) if look.slack else None
    with one_thread():
        for group in groups:
            block = look.block(group)
            left = np.arange(len(block)) if screen is None or len(block) <= 1 else unsure(screen, block[:, used])
            for index in left.tolist():
                supply = supplies(block[index], total)
                missing = int(supply.sum()) - network.ship(supply)
                if missing:
                    found.append(Short(missing, group, index))
    return found


def block_of(group: Floats, cover: float) -> Floats:
    """The rows of a group, or one that stands for all of them.

    Let m(x) be the smallest p(x | u) over the group, and sum_x m(x) >= 1 - e. With r = m / sum m every row is
    (1 - e) r + e v, and a client may send e v to the full set: a law that realises r realises them all with a share e
    of the full set besides.
    """
    if len(group) > 1 and cover > 0:
        common = group.min(axis=0)
        if common.sum() >= 1 - cover:
            shared: Floats = (common / common.sum())[None]
            return shared
    return group


def on_this_machine(work: Callable[[Part], list[Short]], parts: Sequence[Part]) -> Iterator[list[Short]]:
    """Do all parts here: one after the other, or on all cores if that takes long."""
    if not parts or parts[0][0].work < PARALLEL or (cpu_count() or 1) == 1:
        yield from map(work, parts)
        return
    from joblib import Parallel, delayed

    # No more parts are given out than there are processes: loky fails in a thread of its own if some wait when it is
    # stopped (KeyError in `add_call_item_to_queue`).
    parallel = Parallel(n_jobs=-1, pre_dispatch="n_jobs", return_as="generator")
    found = parallel(delayed(work)(part) for part in parts)
    try:
        for result in found:  # noqa: UP028 (`yield from` would close it with a warning)
            yield result
    finally:
        with warnings.catch_warnings(action="ignore"):  # stopped early: joblib would tell that work is lost
            found.close()
