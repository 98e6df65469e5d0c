"""Laws of the query: sets of sources with integer masses over one denominator."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onoff.errors import PlanError
from onoff.model.powers import whole_times
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
        """The law of sets of the sources 0 to n - 1 and their masses. `PlanError` if these are no such thing."""
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
        """The number of sources."""
        return int(self.member.shape[1])

    @cached_property
    def sets(self) -> tuple[Query, ...]:
        """The sets, in the order of the masses."""
        return as_sets(self.member)

    @cached_property
    def masses(self) -> tuple[int, ...]:
        """The masses as Python's integers."""
        return tuple(self.mass.tolist())

    @cached_property
    def total(self) -> int:
        """The sum of the masses."""
        return int(self.mass.sum())

    def cost(self) -> Fraction:
        """The expected number of messages, exactly."""
        return Fraction(sum(whole_times(self.mass, self.member).tolist()), self.total)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Law) and (self.sets, self.masses) == (other.sets, other.masses)

    def __hash__(self) -> int:
        return hash((self.sets, self.masses))


def as_matrix(sets: Collection[Query], n: int) -> Member:
    """A row for each set of sources: True where the source is a member."""
    member = np.zeros((len(sets), n), dtype=bool)
    for row, query in zip(member, sets, strict=True):
        row[list(query)] = True
    return member


def as_sets(member: Member) -> tuple[Query, ...]:
    """The rows of a matrix as sorted sets of sources."""
    return tuple(tuple(np.flatnonzero(row).tolist()) for row in member)


def everything(n: int) -> Law:
    """The law that always asks for the full set."""
    return Law(np.ones((1, n), dtype=bool), np.array([DENOMINATOR], dtype=np.int64))


def merge_sets(member: Member, mass: NDArray[Any]) -> tuple[Member, NDArray[Any]]:
    """Equal sets put together, sets without mass dropped; in the order in which they first come.

    The order matters: along a comb neighbours are nearly equal, which `sinkhorn_compiled` lives on.
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
    """Integer masses proportional to `mass` that sum to `total`; the remainder goes to the largest.

    Without any mass it is the full set, which is always safe.
    """
    member, mass = merge_sets(member, mass)
    if not len(mass):
        return Law(np.ones((1, member.shape[1]), dtype=bool), np.array([total]))
    units = np.floor(mass * (total / mass.sum())).astype(np.int64)
    units[units.argmax()] += total - int(units.sum())
    keep = units > 0
    return Law(member[keep], units[keep])


def with_full_set(law: Law, units: int) -> Law:
    """The law with some more units on the full set, or with fewer if `units` is negative."""
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
    """The sets that teeth one apart hit at a uniform offset, if intervals lie end to end, and their masses.

    The set changes only where an interval ends, modulo one.
    """
    ends = np.concatenate([[0.0], np.cumsum(lengths)])
    cuts = np.unique(np.concatenate([ends % 1.0, [0.0, 1.0]]))
    offsets = (cuts[:-1] + cuts[1:]) / 2
    teeth = np.floor(ends[:, None] - offsets)
    member: Member = (np.diff(teeth, axis=0) > 0).T
    return member, np.diff(cuts)
