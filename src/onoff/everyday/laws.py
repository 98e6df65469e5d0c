"""The law of an everyday query: by the makers of plans, for a few rows, with an effort that is fixed beforehand.

The effort depends on the rows alone and random orders come from a generator of their own, so the same rows give the
same law. First combs are tried, then peeling, then for few sources the search for the optimum; the first law near the
outer bound is taken, or the cheapest.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onoff.model.bounds import outer_bound
from onoff.model.posterior import RowTable
from onoff.schemes.comb import Orders, mixed_combs
from onoff.schemes.flow import Repair
from onoff.schemes.law import DENOMINATOR, Law, Member, everything, quantised
from onoff.schemes.optimum import Search
from onoff.schemes.peel import peeled
from onoff.schemes.realise import finished
from onoff.types import Floats

NEAR = 2e-3  # above the lower bound, as a share of it: near enough
PEELED_ROWS = 20  # extreme rows up to which peeling is tried; with many it is loose
SEARCHED = 12  # sources up to which the optimum is sought
ROUNDS = 40  # of the search: it ends far earlier unless the program is very degenerate
GUIDED = 40  # sources up to which more combs are tried if the first are not near enough
SAME = 1e-9  # a row that adds less to the peaks adds nothing
SEED = 0


def law_for(rows: RowTable, held: int) -> tuple[Law, float]:
    """A law that is realisable in every row, and a proved lower bound on the cost of all such laws.

    The full set is last. Of its units n + `held` are not needed to realise any row: a client gives them to the requests
    whose flow is less than their probability.
    """
    n = rows.n
    if n == 1:
        return everything(1), 1.0
    bound = outer_bound(rows)
    if rows.groups == 1:
        return _realised(rows, np.eye(n, dtype=bool), rows.rows[0], held), bound
    best: Law | None = None
    for member, mass in _proposals(rows, bound):
        law = _realised(rows, member, mass, held)
        best = law if best is None or law.cost() < best.cost() else best
        if best.cost() <= bound * (1 + NEAR):
            return best, bound
    if best is None:
        raise AssertionError("there is always a proposal")
    if n > SEARCHED:
        return best, bound
    search = Search(rows, NEAR, best)
    for _ in range(ROUNDS):
        if search.done:
            break
        search.round(np.inf)
    if search.best is not best:
        best = _realised(rows, search.best.member, search.best.mass / search.best.total, held)
    return best, search.certificate.bound


def _proposals(rows: RowTable, bound: float) -> Iterator[tuple[Member, Floats]]:
    """Laws to be repaired, the quickest first.

    A comb that would need much repair is left out if there is something better. Combs also take what peeling leaves.
    """
    extremes = _extremes(rows)
    peelable = extremes.groups <= PEELED_ROWS
    if not peelable or 4 * extremes.groups > 3 * rows.n:
        first = _combed(rows, 4, 8)
        if not peelable or _shortfall(rows, *first) <= NEAR * bound:
            yield first
    if peelable:
        member, mass, rest = peeled(extremes, pieces=2 * rows.n * extremes.groups)  # about half of them are needed
        if not len(rest):
            yield member, mass
            return
        left = rest.sum(axis=1, keepdims=True)
        combs, masses = _combed(RowTable(extremes.contexts, rest / left, rest > 0), 14, 14)
        yield np.concatenate([member, combs]), np.concatenate([mass, float(left.max()) * masses])
    if rows.n <= GUIDED:
        yield _combed(rows, 14, 14)


def _extremes(rows: RowTable) -> RowTable:
    """A few rows that have the peaks of all of them: what lies between them usually needs no repair.

    (After a query R every row is a mixture of the rows of R in the chain. Only the corners count.)
    """
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
    return RowTable(tuple(rows.contexts[c] for c in chosen), rows.rows[chosen], rows.possible[chosen])


def _shortfall(rows: RowTable, member: Member, mass: Floats) -> float:
    """What repair may have to add, in messages."""
    repair = Repair(quantised(member, mass, DENOMINATOR))
    return sum(repair.shortfall(row) for row in rows.rows) / DENOMINATOR


def _combed(rows: RowTable, least: int, most: int) -> tuple[Member, Floats]:
    """Combs of what the rows do not share, and queries of one source for what they do."""
    common = rows.rows.min(axis=0)
    left = 1 - float(common.sum())
    apart = RowTable(rows.contexts, (rows.rows - common) / left, rows.possible)
    count = min(most, max(least, Orders.for_rows(apart).first))
    member, mass = mixed_combs(apart, np.random.default_rng(SEED), orders=Orders(count, count))
    return np.concatenate([np.eye(rows.n, dtype=bool), member]), np.concatenate([common, left * mass])


def _realised(rows: RowTable, member: Member, mass: Floats, held: int) -> Law:
    repair = Repair(quantised(member, mass, DENOMINATOR - rows.n - held))
    repair.fix_all(rows.rows)
    return finished(rows, repair.law, held)
