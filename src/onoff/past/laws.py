"""The law of an OFF query of the promise `past`: one law that dominates the row of every candidate.

The effort depends on the rows alone, and random orders come from a generator of their own: the same rows give the same
law. Combs are tried first, then peeling, then the search for the optimum. The first law near the lower bound is taken.
The outer bound may lie below the optimum by more than that; then the search proves a better bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import numpy as np

from onoff.model.posterior import RowTable
from onoff.schemes.certificate import Certificate, outer_certificate
from onoff.schemes.comb import first_orders, mix_combs
from onoff.schemes.flow import Repair, in_time
from onoff.schemes.law import DENOMINATOR, Law, Member, everything, quantise
from onoff.schemes.optimum import Search
from onoff.schemes.peel import peel
from onoff.schemes.realise import finish, survey
from onoff.types import Floats

NEAR = 2e-3  # above the lower bound, as a share of it: no other law is tried
ENOUGH = 1.5e-2  # above the outer bound: for more than a few sources no search is made
GAP = 1e-2  # of a search for many sources
FEW = 12  # sources up to which the search goes on to NEAR
MANY = 100  # sources beyond which no search is made: it would take minutes
ROUNDS = 40  # of the search: it ends far earlier unless the program is very degenerate
PEELED_ROWS = 20  # extreme rows up to which peeling is tried; with many it is loose
COMBS = 4, 8  # orders, at least and at most
COMBS_OF_REST = 14, 14  # for what peeling leaves
SAME = 1e-9  # a row that adds less to the peaks, or to what all rows share, adds nothing


def law_for(rows: RowTable, deadline: float = inf) -> tuple[Law, Certificate]:
    """A law that is realisable in every row, and the proof of a lower bound on the cost of all such laws.

    The full set is last. Of its units n are not needed to realise any row: an encoder gives them to the requests whose
    flow is less than their probability. A deadline changes no law: past it there is none, but a `TimeoutError`.
    """
    n, outer = rows.n, outer_certificate(rows)
    if n == 1:
        return everything(1), outer
    best = everything(n)
    for member, mass in _proposals(rows, outer.bound, deadline):
        best = min(best, _realise(rows, member, mass, deadline), key=Law.cost)
        if best.cost() <= outer.bound * (1 + NEAR):
            return best, outer
    if n > MANY or (n > FEW and best.cost() <= outer.bound * (1 + ENOUGH)):
        return best, outer
    return _search(rows, best, deadline)


def _search(rows: RowTable, start: Law, deadline: float) -> tuple[Law, Certificate]:
    """What a search for the optimum finds from a law, and a bound."""
    search = Search(rows, NEAR if rows.n <= FEW else GAP, start)
    for _ in range(ROUNDS):
        if search.done:
            break
        in_time(deadline)
        search.round(inf)
    found = search.best
    if found is not start:
        found = _realise(rows, found.member, found.mass / found.total, deadline)
    return found, search.certificate


def _proposals(rows: RowTable, bound: float, deadline: float) -> Iterator[tuple[Member, Floats]]:
    """Propose laws to be repaired, the quickest first.

    Peeling follows combs that would need much repair, if there are few extreme rows, or if no search can mend a law.
    Combs take what peeling leaves.
    """
    extremes = _extremes(rows)
    peelable = extremes.groups <= PEELED_ROWS or rows.n > MANY
    if not peelable or 4 * extremes.groups > 3 * rows.n:
        first = _comb(rows, *COMBS, deadline)
        if not peelable or _shortfall(rows, *first, deadline) <= NEAR * bound:
            yield first
    if peelable:
        member, mass, rest = peel(extremes, pieces=2 * rows.n * extremes.groups)  # about half of them are needed
        if len(rest):
            left = rest.sum(axis=1, keepdims=True)
            combs, masses = _comb(RowTable(rest / left, rest > 0), *COMBS_OF_REST, deadline)
            member, mass = np.concatenate([member, combs]), np.concatenate([mass, float(left.max()) * masses])
        yield member, mass


def _extremes(rows: RowTable) -> RowTable:
    """A few rows that have the peaks of all rows: what lies between them usually needs no repair."""
    peaks = np.zeros(rows.n)
    chosen: list[int] = []
    while len(chosen) < rows.groups:
        together = np.maximum(rows.rows, peaks)
        best = int(together.sum(axis=1).argmax())
        if together[best].sum() <= peaks.sum() + SAME:
            break
        chosen.append(best)
        peaks = together[best]
        if len(chosen) > PEELED_ROWS:
            return rows
    return RowTable(rows.rows[chosen], rows.possible[chosen])


def _shortfall(rows: RowTable, member: Member, mass: Floats, deadline: float) -> float:
    """The messages that repair adds at most."""
    repair = Repair(quantise(member, mass, DENOMINATOR), deadline)
    return sum(repair.shortfall(row) for row in rows.rows) / DENOMINATOR


def _comb(rows: RowTable, least: int, most: int, deadline: float) -> tuple[Member, Floats]:
    """Combs of what the rows do not share, and queries of one source for what all rows share."""
    common = rows.rows.min(axis=0)
    left = 1 - float(common.sum())
    if left <= SAME:
        return np.eye(rows.n, dtype=bool), common
    apart = RowTable((rows.rows - common) / left, rows.possible)
    count = min(most, max(least, first_orders(apart)))
    member, mass = mix_combs(apart, survey(apart).hard, count, count, deadline=deadline)
    return np.concatenate([np.eye(rows.n, dtype=bool), member]), np.concatenate([common, left * mass])


def _realise(rows: RowTable, member: Member, mass: Floats, deadline: float) -> Law:
    """The repaired law, with the units that are held out."""
    repair = Repair(quantise(member, mass, DENOMINATOR - rows.n), deadline)
    repair.fix_all(rows.rows)
    return finish(rows, repair.law, 0)
