"""From masses to the law of a plan: integers, repair in every context, and what the encoder needs.

Of the D units of a plan, n of the full set are held out by the encoder, and `slack` and `cover` units of the full set
help all contexts alike. The others are the base law. In every context the base law with the slack is checked, by a
flow or by the certificate of a `Screen`. The cover pays for looking at groups of nearly equal rows as one (`block_of`).

Looking at all contexts is the long part of planning. joblib divides it into parts, each of them a few groups, among the
cores of this machine, or of whatever `joblib.parallel_config` names, such as a Dask cluster. The result does not depend
on who computes a part, nor on how groups are divided into parts.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import lru_cache, partial
from math import ceil, inf, isinf
from typing import NamedTuple

import numpy as np

from onoff.model.posterior import Rows
from onoff.model.powers import contract, counts, one_thread
from onoff.schemes.flow import Network, Repair, in_time, supplies
from onoff.schemes.law import DENOMINATOR, Law, Member, quantise, with_full_set
from onoff.schemes.sinkhorn import screen_of, unsure
from onoff.types import Floats, Mask

SCREEN_FROM = 50  # sources; below, every context gets its flow and no slack is bought
COVER = 3.3  # times the price is what looking at nearly equal rows as one may cost
LEAST = 0.25  # of the price is left for slack, whatever the cover costs
PER_GROUP = 3  # hard contexts of a group
FIRST = 300  # hard contexts that are repaired before all are looked at
PARALLEL = 1e8  # contexts times sources times orders (sets / n) from which processes pay for their start
PARTS = 32  # into which a look at all contexts is divided

Short = tuple[int, int, int]  # a context that falls short: by how many units, its group, its place in the group's block


class Survey(NamedTuple):
    """Result of one pass over all rows.

    `hard` are the rows likely to fall short, the hardest first. `cover` is the mass by which rows of a group differ, at
    most, in the groups that are looked at as one, and `slack` the mass on the full set that helps the screen.
    """

    hard: Floats
    cover: float
    slack: float


def survey(rows: Rows, price: float = 0.0, deadline: float = inf) -> Survey:
    """Look at all rows once. `price` is the expected number of messages that may be spent on the full set.

    A row is hard if it comes close to the peaks M of several sources: by sum_x (p(x|u) / M_x)^4.
    """
    n = rows.n
    whole = price / n if n > SCREEN_FROM else 0.0
    peak = rows.peaks
    usual = peak >= np.finfo(peak.dtype).tiny  # the inverse of less is no float
    inverse = np.where(usual, 1 / np.where(usual, peak, 1), 0)
    hard, hardness, cover = [], [], 0.0
    for k in range(rows.groups):
        in_time(deadline)
        group = rows.group(k)
        if whole and len(group) > 1:
            apart = 1 - float(group.min(axis=0).sum()) + 2.0**-50 * n
            if apart <= COVER * whole:
                cover, group = max(cover, apart), block_of(group, apart)
        near = (group * inverse) ** 2
        scores = contract("ij,ij->i", near, near)
        first = np.argsort(-scores, kind="stable")[:PER_GROUP]
        hard.append(group[first])
        hardness.append(scores[first])
    order = np.argsort(-np.concatenate(hardness), kind="stable")
    return Survey(np.concatenate(hard)[order], cover, max(LEAST * whole, whole - cover))


def realise(rows: Rows, member: Member, mass: Floats, seen: Survey | None = None, deadline: float = inf) -> Law:
    """Make a law, realisable in every context, from masses that need not be.

    Without a survey every context is checked by a flow, and nothing is spent on the full set. Raises `TimeoutError` if
    the deadline passes before every context was checked.
    """
    seen = seen or survey(rows, 0.0, deadline)
    repair = start(rows, member, mass, seen, deadline)
    for row in seen.hard[:FIRST]:
        repair.fix(row)
    for row in rows_of(rows, seen, short_rows(rows, repair.law, seen, deadline)):
        repair.fix(row)
    return finish(rows, repair.law, units_of(seen.cover))


def start(rows: Rows, member: Member, mass: Floats, seen: Survey, deadline: float) -> Repair:
    """Make the base law with slack, unrepaired."""
    slack = units_of(seen.slack)
    base = quantise(member, mass, DENOMINATOR - rows.n - slack - units_of(seen.cover))
    return Repair(with_full_set(base, slack), deadline)


def short_rows(rows: Rows, law: Law, seen: Survey, deadline: float) -> list[Short]:
    """Find the contexts where the law falls short, worst first.

    Contexts of a group that share all but `cover` of their mass are treated as one. Without slack every context gets
    a flow; with slack, only those that no scaling certifies.
    """
    groups = range(rows.groups)
    parts = [groups[first::PARTS] for first in range(min(PARTS, len(groups)))]
    work = float(rows.groups) * rows.n**2 * max(1.0, len(law.mass) / rows.n)
    look = partial(_short_in, rows, law, units_of(seen.slack), seen.cover)
    short: list[Short] = []
    with closing(
        _in_parallel(look, parts, deadline) if work >= PARALLEL else (look(part) for part in parts)
    ) as answers:
        for found in answers:
            in_time(deadline)
            short += found
    return sorted(short, reverse=True)


def rows_of(rows: Rows, seen: Survey, short: list[Short]) -> Iterator[Floats]:
    """Yield the rows of contexts found by `short_rows`."""
    block = lru_cache(maxsize=8)(lambda group: block_of(rows.group(group), seen.cover))
    return (block(group)[index] for _, group, index in short)


def finish(rows: Rows, law: Law, units: int) -> Law:
    """Make a plan's law of a repaired one: the full set comes last, with `units` and the n held-out ones more.

    No set may miss all possible requests of a context. Repair leaves at most n units on such sets, which go to the
    full set; the support decides, so this holds at all larger lags too, whose contexts allow more.
    """
    n = rows.n
    full: Mask = np.asarray(law.member.all(axis=1))
    full[~full] |= misses_a_context(rows, law.member[~full])
    rest = int(law.mass[full].sum()) + units + n
    member = np.concatenate([law.member[~full], np.ones((1, n), dtype=bool)])
    return Law(member, np.append(law.mass[~full], rest))


def misses_a_context(rows: Rows, member: Member) -> Mask:
    """True for sets without a possible request in some context. No set misses a context that allows everything."""
    missed = np.zeros(len(member), dtype=bool)
    seen: set[bytes] = set()
    for block in rows.supports():
        fresh = [support for support in block if not support.all() and support.tobytes() not in seen]
        if fresh:
            seen.update(support.tobytes() for support in fresh)
            missed |= (counts(member, np.array(fresh).T) == 0).any(axis=1)
    return missed


def block_of(group: Floats, cover: float) -> Floats:
    """Return the rows of a group, or one for all.

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


def _in_parallel(look: Callable[[range], list[Short]], parts: list[range], deadline: float) -> Generator[list[Short]]:
    """Look at all parts in processes, in their order. Raises `TimeoutError` if a part takes longer than is left."""
    from multiprocessing import TimeoutError as PartTooLong

    from joblib import Parallel, delayed

    # No more parts are given out than there are processes: loky fails in a thread of its own if some wait when it is
    # stopped (KeyError in `add_call_item_to_queue`).
    limit = None if isinf(deadline) else max(0.1, deadline - time.monotonic())
    found = Parallel(n_jobs=-1, pre_dispatch="n_jobs", return_as="generator", timeout=limit)(
        delayed(look)(part) for part in parts
    )
    try:
        for result in found:  # noqa: UP028 (`yield from` would close it with a warning)
            yield result
    except PartTooLong:
        raise TimeoutError("the time limit has passed") from None
    finally:
        with warnings.catch_warnings(action="ignore"):  # stopped early: joblib would tell that work is lost
            found.close()


def _short_in(rows: Rows, law: Law, slack: int, cover: float, groups: Sequence[int]) -> list[Short]:
    """Find the contexts of some groups in which the law falls short, in one process."""
    network, total, found = Network(law), law.total, []
    screened = with_full_set(law, -slack)
    used = screened.member.any(axis=0)  # the factor of a source in no set would be infinite
    screen = screen_of(Law(screened.member[:, used], screened.mass), slack / total) if slack else None
    with one_thread():
        for group in groups:
            block = block_of(rows.group(group), cover)
            left = np.arange(len(block)) if screen is None or len(block) <= 1 else unsure(screen, block[:, used])
            for index in left.tolist():
                supply = supplies(block[index], total)
                missing = int(supply.sum()) - network.ship(supply)
                if missing:
                    found.append((missing, group, index))
    return found


def units_of(share: float) -> int:
    """Round a share of a plan's mass up to units."""
    return ceil(share * DENOMINATOR)
