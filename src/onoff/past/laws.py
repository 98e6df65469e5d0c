"""The law of an OFF query of the promise `past`: one law that dominates the row of every candidate.

The effort depends on the rows alone, and random orders come from a generator of their own: the same rows give the same
law. A few extreme rows are peeled; many are served by combs. Where that is not near the outer bound, a search for the
optimum follows: it may lie above that bound.
"""

from __future__ import annotations

from math import inf

import numpy as np

from onoff.model.posterior import RowTable
from onoff.schemes.certificate import Certificate, outer_certificate
from onoff.schemes.comb import first_orders, mix_combs
from onoff.schemes.flow import Repair, in_time
from onoff.schemes.law import DENOMINATOR, Law, Member, quantise
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
SAME = 1e-9  # a row that adds less to the peaks, or to what all rows share, adds nothing


def law_for(rows: RowTable, deadline: float = inf) -> tuple[Law, Certificate]:
    """A law that is realisable in every row, and the proof of a lower bound on the cost of all such laws.

    The full set is last. Of its units n are not needed to realise any row: an encoder gives them to the requests whose
    flow is less than their probability. A deadline changes no law: past it there is none, but a `TimeoutError`.
    """
    n, outer = rows.n, outer_certificate(rows)
    law = _realise(rows, *_propose(rows, deadline), deadline)
    near = NEAR if n <= FEW else ENOUGH
    if n > MANY or law.cost() <= outer.bound * (1 + near):
        return law, outer
    return _search(rows, law, deadline)


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


def _propose(rows: RowTable, deadline: float) -> tuple[Member, Floats]:
    """Propose a law to be repaired: peeled from a few extreme rows, and combs for what peeling leaves; else combs."""
    extremes = _extremes(rows)
    if extremes.groups > PEELED_ROWS and rows.n <= MANY:
        return _comb(rows, deadline)
    member, mass, rest = peel(extremes, pieces=2 * rows.n * extremes.groups)  # about half of them are needed
    if not len(rest):
        return member, mass
    left = rest.sum(axis=1, keepdims=True)
    combs, masses = _comb(RowTable(rest / left, rest > 0), deadline)
    return np.concatenate([member, combs]), np.concatenate([mass, float(left.max()) * masses])


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


def _comb(rows: RowTable, deadline: float) -> tuple[Member, Floats]:
    """Combs of what the rows do not share, and queries of one source for what all rows share."""
    common = rows.rows.min(axis=0)
    left = 1 - float(common.sum())
    if left <= SAME:
        return np.eye(rows.n, dtype=bool), common
    apart = RowTable((rows.rows - common) / left, rows.possible)
    count = int(np.clip(first_orders(apart), *COMBS))
    member, mass = mix_combs(apart, survey(apart).hard, count, count, deadline=deadline)
    return np.concatenate([np.eye(rows.n, dtype=bool), member]), np.concatenate([common, left * mass])


def _realise(rows: RowTable, member: Member, mass: Floats, deadline: float) -> Law:
    """The repaired law, with the units that are held out."""
    repair = Repair(quantise(member, mass, DENOMINATOR - rows.n), deadline)
    repair.fix_all(rows.rows)
    return finish(rows, repair.law, 0)
