"""Arithmetic that rounds in the safe direction: bounds stay bounds."""

from __future__ import annotations

import math
from fractions import Fraction


def sum_up(*terms: float) -> float:
    """A float not below the sum of the terms."""
    return math.nextafter(math.fsum(terms), math.inf)


def down(value: Fraction) -> float:
    """The largest float not above the value."""
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, -math.inf)


def up(value: Fraction) -> float:
    """The smallest float not below the value."""
    return -down(-value)
