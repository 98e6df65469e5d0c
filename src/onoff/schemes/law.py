"""Laws of the query: sets of sources with integer masses over one denominator."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onoff.errors import PlanError
from onoff.types import Floats, Query, Units

DENOMINATOR = 2**52  # of every plan: masses and their sums are exact in 64-bit integers and in floats
Member = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Law:
    """The query is set i with probability mass[i] / total. It holds the sources x with member[i, x]."""

    member: Member
    mass: Units

    @classmethod
    def of_sets(cls, sets: Sequence[Query], masses: Sequence[int], n: int) -> Law:
        """Make a law of these masses on sets of the sources 0 to n - 1. `PlanError` if that is no law."""
        if not sets or len(sets) != len(masses):
            raise PlanError("there must be one mass for each set")
        for query, mass in zip(sets, masses, strict=True):
            if not query or list(query) != sorted({x for x in query if type(x) is int and 0 <= x < n}):
                raise PlanError(f"{query!r} is not a sorted set of sources 0 to {n - 1}")
            if type(mass) is not int or not 0 < mass <= DENOMINATOR:
                raise PlanError(f"the mass of {query} is {mass!r}: a positive integer is needed, at most 2^52")
        return cls(as_matrix(sets, n), np.array(masses, dtype=np.int64))

    @property
    def n(self) -> int:
        """Number of sources."""
        return int(self.member.shape[1])

    @cached_property
    def sets(self) -> tuple[Query, ...]:
        """Sets, in the order of the masses."""
        return as_sets(self.member)

    @cached_property
    def masses(self) -> tuple[int, ...]:
        """Masses as Python's integers."""
        return tuple(self.mass.tolist())

    @cached_property
    def total(self) -> int:
        """Sum of the masses."""
        return int(self.mass.sum())

    def cost(self) -> Fraction:
        """Expected number of messages, exactly."""
        sizes = np.count_nonzero(self.member, axis=1)
        return Fraction(sum(map(mul, self.masses, sizes.tolist())), self.total)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Law) and (self.sets, self.masses) == (other.sets, other.masses)

    def __hash__(self) -> int:
        return hash((self.sets, self.masses))


class Drawn:
    """Something whose query is drawn from its `law`: sets[i] with probability masses[i] / denominator."""

    law: Law

    @property
    def sets(self) -> tuple[Query, ...]:
        return self.law.sets

    @property
    def masses(self) -> tuple[int, ...]:
        return self.law.masses

    @property
    def denominator(self) -> int:
        return self.law.total


def as_matrix(sets: Collection[Query], n: int) -> Member:
    """Make a row for each set: True where a source is a member."""
    member = np.zeros((len(sets), n), dtype=bool)
    for row, query in zip(member, sets, strict=True):
        row[list(query)] = True
    return member


def as_sets(member: Member) -> tuple[Query, ...]:
    """Make sorted sets of sources from matrix rows."""
    return tuple(tuple(np.flatnonzero(row).tolist()) for row in member)


def everything(n: int) -> Law:
    """Make the law that always asks for all."""
    return Law(np.ones((1, n), dtype=bool), np.array([DENOMINATOR], dtype=np.int64))


def merge_sets(member: Member, mass: NDArray[Any]) -> tuple[Member, NDArray[Any]]:
    """Merge equal sets, drop sets without mass, and keep the order in which they first come.

    The order matters: neighbours along a comb are nearly equal, which makes `sinkhorn_compiled` fast.
    """
    keep = mass > 0
    member, mass = member[keep], mass[keep]
    packed = np.ascontiguousarray(np.packbits(member, axis=1))
    keys = packed.view(f"V{packed.shape[1]}").ravel()
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    total = np.zeros(len(first), dtype=mass.dtype)
    np.add.at(total, which, mass)
    order = np.argsort(first)
    return member[first[order]], total[order]


def quantise(member: Member, mass: Floats, total: int) -> Law:
    """Scale `mass` to integers that sum to `total`; the remainder goes to the largest.

    Without any mass the law is the full set, always safe.
    """
    member, mass = merge_sets(member, mass)
    if not len(mass):
        return Law(np.ones((1, member.shape[1]), dtype=bool), np.array([total]))
    units = np.floor(mass * (total / mass.sum())).astype(np.int64)
    units[units.argmax()] += total - int(units.sum())
    keep = units > 0
    return Law(member[keep], units[keep])


def with_full_set(law: Law, units: int) -> Law:
    """Add units to the full set, or take them off if `units` is negative."""
    if not units:
        return law
    full = np.flatnonzero(law.member.all(axis=1))
    if len(full):
        mass = law.mass.copy()
        mass[full[0]] += units
        return Law(law.member[mass > 0], mass[mass > 0])
    member = np.concatenate([law.member, np.ones((1, law.member.shape[1]), dtype=bool)])
    return Law(member, np.append(law.mass, units))


def end_to_end(lengths: Floats) -> tuple[Member, Floats]:
    """Lay intervals end to end; find the sets, and masses, hit by teeth one apart at a uniform offset.

    The set changes only where an interval ends, modulo one.
    """
    ends = np.concatenate([[0.0], np.cumsum(lengths)])
    cuts = np.unique(np.concatenate([ends % 1.0, [0.0, 1.0]]))
    offsets = (cuts[:-1] + cuts[1:]) / 2
    teeth = np.floor(ends[:, None] - offsets)
    member: Member = (np.diff(teeth, axis=0) > 0).T
    return member, np.diff(cuts)
