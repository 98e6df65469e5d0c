"""Numbers m * 2^e with a float mantissa and an integer exponent: products of probabilities that never underflow."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ZERO_EXPONENT = -(2**60)  # the exponent of an exact zero: below that of any product of positive floats


class Wide(NamedTuple):
    """An array of non-negative numbers `mantissa` * 2^`exponent`, mantissa 0 or in [1/2, 1)."""

    mantissa: NDArray[np.float64]
    exponent: NDArray[np.int64]


def widen(values: NDArray[np.float64]) -> Wide:
    mantissa, exponent = np.frexp(values)
    return Wide(mantissa, np.where(mantissa > 0, exponent.astype(np.int64), ZERO_EXPONENT))


def scaled_products(a: Wide, b: Wide) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The products a * b along the last axis as plain floats, and the power of two each line was divided by.

    The largest product of a line is scaled into [1/4, 1); only products 2^-1022 times smaller flush to zero.
    """
    exponent = a.exponent + b.exponent
    top = exponent.max(axis=-1, keepdims=True)
    shift = np.maximum(exponent - top, -1100).astype(np.int32)
    return np.ldexp(a.mantissa * b.mantissa, shift), top[..., 0]


def matmul(a: Wide, b: Wide) -> Wide:
    """The matrix product, a row at a time: n^2 memory and a relative error of n 2^-52 in every entry."""
    n = len(a.mantissa)
    mantissa, exponent = np.empty((n, n)), np.empty((n, n), dtype=np.int64)
    columns = Wide(b.mantissa.T, b.exponent.T)
    for i in range(n):
        terms, top = scaled_products(Wide(a.mantissa[i], a.exponent[i]), columns)
        total, shift = np.frexp(terms.sum(axis=-1))
        mantissa[i] = total
        exponent[i] = np.where(total > 0, top + shift, ZERO_EXPONENT)
    return Wide(mantissa, exponent)


def power(matrix: NDArray[np.float64], k: int) -> Wide:
    """matrix^k for k >= 1 by repeated squaring."""
    result: Wide | None = None
    square = widen(matrix)
    while True:
        if k & 1:
            result = square if result is None else matmul(result, square)
        k >>= 1
        if not k:
            assert result is not None
            return result
        square = matmul(square, square)


def boolean_power(support: NDArray[np.bool_], k: int) -> NDArray[np.bool_]:
    """Which pairs are joined by a walk of exactly k steps. Counts are clipped to 0/1, so nothing overflows."""
    result: NDArray[Any] = np.eye(len(support), dtype=np.float32)
    square = support.astype(np.float32)
    while k:
        if k & 1:
            result = (result @ square > 0).astype(np.float32)
        square = (square @ square > 0).astype(np.float32)
        k >>= 1
    return result > 0
