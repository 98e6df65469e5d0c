"""Laws of the query: sets of sources with integer masses over one denominator."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

DENOMINATOR = 2**52  # of every plan: masses and their sums are exact in 64-bit integers and in floats
Member = NDArray[np.bool_]


@dataclass(frozen=True)
class Law:
    """Set i holds the sources x with member[i, x] and has the mass mass[i] / total, total = sum of the masses."""

    member: Member
    mass: NDArray[np.int64]

    @property
    def total(self) -> int:
        return int(self.mass.sum())

    def cost(self, lengths: tuple[float, ...] | None = None) -> Fraction:
        """The expected length of a query, exactly."""
        weights = [Fraction(1)] * self.member.shape[1] if lengths is None else [Fraction(c) for c in lengths]
        per_source = self.mass @ self.member  # exact: at most `total` each
        total = sum(weight * int(units) for weight, units in zip(weights, per_source, strict=True))
        return Fraction(total) / self.total


def everything(n: int, total: int = DENOMINATOR) -> Law:
    """The law that always asks for the full set."""
    return Law(np.ones((1, n), dtype=bool), np.array([total], dtype=np.int64))


def merged(member: Member, mass: NDArray[Any]) -> tuple[Member, NDArray[Any]]:
    """Equal sets put together, sets without mass dropped; in a canonical order."""
    keep = mass > 0
    member, mass = member[keep], mass[keep]
    packed = np.ascontiguousarray(np.packbits(member, axis=1))
    keys = packed.view(f"V{packed.shape[1]}").ravel()
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    total = np.zeros(len(first), dtype=mass.dtype)
    np.add.at(total, which, mass)
    return member[first], total


def quantised(member: Member, mass: NDArray[np.float64], total: int) -> Law:
    """Integer masses proportional to `mass` that sum to `total`; the remainder goes to the largest."""
    member, mass = merged(member, mass)
    units = np.floor(mass * (total / mass.sum())).astype(np.int64)
    units[units.argmax()] += total - int(units.sum())
    keep = units > 0
    return Law(member[keep], units[keep])
