"""The errors of onoff. Every message says what is wrong, where, and what to do.

    OnoffError
    ├── ChainError         a matrix, its names or its file is not a Markov chain
    │   └── NotUnique      the chain has no unique stationary distribution
    ├── ContextError       a context or request that the chain calls impossible
    └── PlanError          a plan cannot be made as asked, or fails its own checks

An error carries the offending data as attributes, so that a program need not read the message.
"""

from __future__ import annotations

from numbers import Integral
from typing import TypeGuard


def is_whole(value: object, least: int = 0) -> TypeGuard[int]:
    """Whether the value is a whole number of at least `least`, Python's or NumPy's; True and False are not numbers."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


class OnoffError(Exception):
    """Base of all errors raised on purpose by onoff."""


class ChainError(OnoffError, ValueError):
    """The input is not a Markov chain. `row` and `value` name the offender where there is one."""

    def __init__(self, message: str, *, row: int | None = None, value: object = None) -> None:
        super().__init__(message)
        self.row = row
        self.value = value


class NotUnique(ChainError):
    """The stationary distribution is not unique. `classes` holds one source of each closed class."""

    def __init__(self, message: str, *, classes: tuple[int, ...]) -> None:
        super().__init__(message)
        self.classes = classes


class ContextError(OnoffError, ValueError):
    """The context (last, next), or a request in it, has probability zero under the chain."""

    def __init__(self, message: str, *, last: int, next: int, request: int | None = None) -> None:
        super().__init__(message)
        self.last = last
        self.next = next
        self.request = request


class PlanError(OnoffError, ValueError):
    """A plan cannot be made as asked, does not fit, or its file fails its own checks."""
