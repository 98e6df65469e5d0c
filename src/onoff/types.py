"""Types that every floor speaks of, and the one question that is asked of numbers everywhere.

The names of arrays are strings at run time: `onoff --help` must not wait for NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from numbers import Integral
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Floats: TypeAlias = "NDArray[np.float64]"
Mask: TypeAlias = "NDArray[np.bool_]"
Units: TypeAlias = "NDArray[np.int64]"  # masses, supplies and flows: whole numbers
Query: TypeAlias = tuple[int, ...]  # the sources that are asked for, sorted
Lengths: TypeAlias = tuple[float, ...] | None  # of messages, in the order of the sources; None if all are alike
RandBelow: TypeAlias = Callable[[int], int]  # a whole number below this one, all alike: `secrets.randbelow`

Advance: TypeAlias = Callable[[], None]  # called when one more part of some work is done
Bar: TypeAlias = Callable[[int | None], AbstractContextManager[Advance]]  # shows work of so many parts, if known


def unseen(_: int | None) -> AbstractContextManager[Advance]:
    """The `Bar` that shows nothing."""
    return nullcontext(lambda: None)


def is_whole(value: object, least: int = 0) -> TypeGuard[int]:
    """Whether the value is a whole number of at least `least`, Python's or NumPy's; True and False are not numbers."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least
