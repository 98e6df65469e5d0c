"""What becomes a chain, checked: a square matrix, names, and rows that sum to 1. Errors say what to mend."""

from __future__ import annotations

import math
from collections.abc import Iterable
from reprlib import repr as short

import numpy as np
from numpy.typing import ArrayLike

from onoff.errors import ChainError
from onoff.types import Floats

ROW_SUM_TOLERANCE = 1e-9


def checked_matrix(values: ArrayLike, what: str) -> Floats:
    """A fresh square float64 matrix of at least 2 finite rows; negative zeros become zeros."""
    if np.ma.isMaskedArray(values):
        raise ChainError(f"{what} is a masked array: fill in what is masked")
    try:
        matrix = np.asarray(values)
        kind = matrix.dtype.kind
        if kind not in "biufO" or (kind == "O" and any(isinstance(v, str | bytes | complex) for v in matrix.flat)):
            raise TypeError("real numbers are needed")
        matrix = matrix.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ChainError(f"{what} is not a rectangle of numbers: {error}") from None
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ChainError(f"{what} has the shape {matrix.shape}: a square one is needed", value=matrix.shape)
    if len(matrix) < 2:
        raise ChainError(f"{what} has {len(matrix)} source: at least 2 are needed", value=len(matrix))
    if not np.isfinite(matrix).all():
        row, column = map(int, np.argwhere(~np.isfinite(matrix))[0])
        raise ChainError(
            f"row {row} of {what} has {float(matrix[row, column])!r} in column {column}: finite numbers are needed",
            row=row,
            value=float(matrix[row, column]),
        )
    return matrix + 0.0


def checked_names(names: Iterable[str] | None, n: int) -> tuple[str, ...]:
    """The names of n sources, all different; without names, their indices."""
    if names is None:
        return tuple(map(str, range(n)))
    if isinstance(names, str):
        raise ChainError(f"names is the string {names!r}: give a list of {n} names", value=names)
    try:
        labels = tuple(names)
    except TypeError:
        raise ChainError(f"names is {names!r}: give a list of {n} names", value=names) from None
    if len(labels) != n:
        raise ChainError(f"{len(labels)} names were given for {n} sources", value=len(labels))
    seen: dict[str, int] = {}
    for row, name in enumerate(labels):
        if not isinstance(name, str) or not name or name != name.strip() or not name.isprintable():
            raise ChainError(
                f"the name of source {row} is {short(name)}: a printable string without spaces at its ends is needed",
                row=row,
                value=name,
            )
        if name in seen:
            raise ChainError(f"sources {seen[name]} and {row} are both called {name!r}: names are unique",
                             row=row, value=name)  # fmt: skip
        seen[name] = row
    return tuple(map(str.__str__, labels))


def normalised(row: Floats, index: int, name: str) -> Floats:
    """A row of probabilities that sums to 1, divided by its sum if that is off by more than rounding."""
    total = math.fsum(row)
    if abs(total - 1) > ROW_SUM_TOLERANCE:
        raise ChainError(
            f"row {index} ({name!r}) sums to {total!r}, not to 1: if its digits were rounded, `onoff fit` "
            "divides each row by its sum; if these are counts, use Chain.from_counts",
            row=index,
            value=total,
        )
    return row if abs(total - 1) <= len(row) * 2.0**-52 else row / total
