"""Products of non-negative matrices, with a small proved error, their exact support, and stationary laws.

Nothing is subtracted, so errors are relative and entrywise: a product whose sums have t terms adds at most
gamma(t) = t u / (1 - t u) with u = 2^-53, whatever the order of summation and with or without fused operations.

All products of matrices are made here: `times`, `contract`, `counts`, `whole_times`, `sparse_times`. NumPy reads the
processor's floating-point flags after a product, and OpenBLAS sometimes leaves "invalid value" set where no number is
NaN (numpy issue 24067): a spurious warning, or an error where warnings are errors. The flags are therefore ignored.
Whoever must know about infinities or NaN looks at the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from onoff.types import Floats, Mask

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from threadpoolctl import ThreadpoolController

UNIT = 2.0**-53
Factor = TypeVar("Factor")


def times(a: Any, b: Any) -> NDArray[Any]:
    """Compute a @ b, ignoring the processor's flags."""
    with np.errstate(all="ignore"):
        result: NDArray[Any] = np.matmul(a, b)
    return result


def contract(indices: str, *factors: NDArray[Any]) -> NDArray[Any]:
    """Compute sums of products as `np.einsum` does with these indices, ignoring the processor's flags."""
    with np.errstate(all="ignore"):
        result: NDArray[Any] = np.einsum(indices, *factors, optimize=factors[-1].ndim > 3)
    return result


def whole_times(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Multiply whole numbers or fractions, exact as far as their type carries. `TypeError` if one has floats."""
    if a.dtype.kind not in "biuO" or b.dtype.kind not in "biuO":
        raise TypeError(f"a product of {a.dtype} and {b.dtype} is not one of whole numbers: use `times`")
    result: NDArray[Any] = np.matmul(a, b)
    return result


def sparse_times(a: csr_array, b: NDArray[Any]) -> NDArray[Any]:
    """Multiply by a sparse matrix. SciPy's own loops look at no flags."""
    result: NDArray[Any] = a @ b
    return result


def counts(a: Mask, b: Mask) -> NDArray[np.float32]:
    """Count the members each row of `a` shares with each column of `b`; exact below 2^24 members.

    All partial sums are whole numbers below 2^24, which single precision holds exactly in any order of summation.
    """
    return times(a.astype(np.float32), b.astype(np.float32))


def one_thread() -> AbstractContextManager[object]:
    """Use one BLAS thread inside: for small matrices, more only wait for each other."""
    limited: AbstractContextManager[object] = _pools().limit(limits=1, user_api="blas")
    return limited


def blas_pools() -> list[dict[str, Any]]:
    """What threadpoolctl knows of the loaded BLAS libraries."""
    found: list[dict[str, Any]] = _pools().info()
    return found


@cache
def _pools() -> ThreadpoolController:
    """Find the loaded BLAS libraries once: that takes 10 ms."""
    import scipy.linalg  # noqa: F401 (what is loaded now is found)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def product(a: Floats, b: Floats) -> Floats:
    """Compute a @ b in blocks of about sqrt(n): sums of `summands(n)` terms in sequence."""
    width = _block(len(b))
    total: Floats = times(a[:, :width], b[:width])
    for start in range(width, len(b), width):
        total += times(a[:, start : start + width], b[start : start + width])
    return total


def power(matrix: Floats, k: int) -> Floats:
    """Compute matrix^k; without underflow, the relative error is at most gamma(max(k - 1, 0) * summands(n))."""
    return _power(matrix, k, product) if k else np.eye(len(matrix))


def summands(n: int) -> int:
    """Bound the number of roundings in a sum of n products in blocks."""
    width = _block(n)
    return width + -(-n // width)


def gamma(terms: float) -> float:
    """Bound the relative error of `terms` roundings in sequence."""
    return terms * UNIT / (1 - 2 * terms * UNIT)


def _block(n: int) -> int:
    return math.isqrt(n - 1) + 1


def _power(base: Factor, k: int, multiply: Callable[[Factor, Factor], Factor]) -> Factor:
    """Compute base^k for k >= 1 by squaring."""
    result: Factor | None = None
    while True:
        if k & 1:
            result = base if result is None else multiply(result, base)
        k >>= 1
        if not k:
            assert result is not None
            return result
        base = multiply(base, base)


def boolean_power(support: Mask, k: int) -> Mask:
    """Find the pairs joined by a walk of exactly k steps; exact for n below 2^24."""

    def multiply(a: Mask, b: Mask) -> Mask:
        return counts(a, b) > 0

    if k and support.all():
        return support  # every pair is joined by walks of any length
    return _power(support, k, multiply) if k else np.eye(len(support), dtype=bool)


def stationary(P: Floats) -> Floats:
    """Compute the stationary law of an irreducible chain by Grassmann-Taksar-Heyman elimination: no subtraction."""
    A, size = P.copy(), len(P)
    for k in range(size - 1, 0, -1):
        A[:k, k] /= A[k, :k].sum()
        A[:k, :k] += np.outer(A[:k, k], A[k, :k])
    weights = np.ones_like(A[0])
    for k in range(1, size):
        weights[k] = (weights[:k] * A[:k, k]).sum()
    distribution: Floats = weights / weights.sum()
    return distribution
