"""Types that every floor speaks of, and the few questions that are asked of values everywhere.

Types of arrays are for type checkers alone: `onoff --help` must not wait for NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from numbers import Integral, Real
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias, TypeGuard

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Mask: TypeAlias = NDArray[np.bool_]
    Units: TypeAlias = NDArray[np.int64]  # masses, supplies and flows: whole numbers
else:
    Floats = Mask = Units = object

Query: TypeAlias = tuple[int, ...]  # the sources that are asked for, sorted
RandBelow: TypeAlias = Callable[[int], int]  # a whole number below this one, all alike: `secrets.randbelow`

Advance: TypeAlias = Callable[[], None]  # called when one more part of some work is done
Bar: TypeAlias = Callable[[int | None], AbstractContextManager[Advance]]  # shows work of so many parts, if known
Progress: TypeAlias = Callable[[str], Bar]  # shows work with this title


def silent(_: str) -> Bar:
    """Show nothing of any work: the `Progress` of whoever does not want to see it."""
    return quiet


def quiet(_: int | None) -> AbstractContextManager[Advance]:
    """Show nothing of the parts of some work."""
    return nullcontext(lambda: None)


def is_whole(value: object, least: int = 0) -> TypeGuard[int]:
    """Whether the value is a whole number of at least `least`, Python's or NumPy's; True and False are not numbers."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def is_number(value: object) -> TypeGuard[float]:
    """Whether the value is a real number, Python's or NumPy's; True and False are not numbers."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_flag(value: object) -> TypeGuard[bool]:
    """Whether the value is True or False, Python's or NumPy's. NumPy is not imported to find out."""
    return isinstance(value, bool) or (type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"))


class PlanName(NamedTuple):
    """Which plan: its scheme, its lag and, if it has a table, the beginning of a hash of that.

    Journals keep it as text, `str`: "SCHEME, lag LAG" or "SCHEME, lag LAG, DIGEST".
    """

    scheme: str
    lag: int
    digest: str = ""

    def __str__(self) -> str:
        return ", ".join([self.scheme, f"lag {self.lag}", *filter(None, [self.digest])])

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The name in a journal; None if it is not that of a plan, such as "everything" while ON."""
        scheme, *rest = text.split(", ")
        number = rest[0].removeprefix("lag ") if rest else ""
        if len(rest) > 2 or not (number.isascii() and number.isdecimal() and len(number) <= 9):
            return None
        found = cls(scheme, int(number), *rest[1:])
        return found if scheme and str(found) == text else None
