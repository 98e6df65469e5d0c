"""Laws of the query: sets of sources with integer masses over one denominator."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onoff.model.powers import whole_times
from onoff.types import Floats, Query, Units

DENOMINATOR = 2**52  # of every plan: masses and their sums are exact in 64-bit integers and in floats
Member = NDArray[np.bool_]


@dataclass(frozen=True)
class Law:
    """Set i holds the sources x with member[i, x] and has the mass mass[i] / total, total = sum of the masses."""

    member: Member
    mass: Units

    @classmethod
    def of_sets(cls, sets: Sequence[Query], masses: Sequence[int], n: int) -> Law:
        """The law of sets of the sources 0 to n - 1 and their masses."""
        return cls(as_matrix(sets, n), np.array(masses, dtype=np.int64))

    @property
    def sets(self) -> tuple[Query, ...]:
        """The sets, in the order of the masses."""
        return as_sets(self.member)

    @property
    def total(self) -> int:
        return int(self.mass.sum())

    def cost(self, lengths: tuple[float, ...] | None = None) -> Fraction:
        """The expected length of a query, exactly."""
        weights = [Fraction(1)] * self.member.shape[1] if lengths is None else [Fraction(c) for c in lengths]
        per_source = whole_times(self.mass, self.member)  # exact: at most `total` each
        total = sum(weight * int(units) for weight, units in zip(weights, per_source, strict=True))
        return Fraction(total) / self.total


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


def merged(member: Member, mass: NDArray[Any]) -> tuple[Member, NDArray[Any]]:
    """Equal sets put together, sets without mass dropped; in the order in which they first come.

    The order matters: along a comb neighbours are nearly equal, which `onoff.schemes.realisation.sums` lives on.
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


def quantised(member: Member, mass: Floats, total: int) -> Law:
    """Integer masses proportional to `mass` that sum to `total`; the remainder goes to the largest."""
    member, mass = merged(member, mass)
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
