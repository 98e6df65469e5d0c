"""What a member of a set costs: its length, and the chance that it has changed since it was last asked for.

A file of lengths is {name: number}, or what `onoff measure` writes (`MEASURED`): lengths, and how often each source had
changed from one visit to the next. A `Weighing` turns them into weights for a step: the length, times the chance that
the source has changed after so many steps. It is a function of public things, the file and the queries so far.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onoff.errors import PlanError
from onoff.files import read_json
from onoff.types import is_whole

MEASURED = "onoff-measured"  # the format of a file that `onoff measure` writes
LEAST = 0.01  # the smallest chance that is counted with: what is unchanged costs a request and an answer, too


@dataclass(frozen=True)
class Weighing:
    """The length of each source, and the chance that it changes from one step to the next; None if all count whole."""

    lengths: tuple[float, ...]
    chances: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not all(math.isfinite(length) and length > 0 for length in self.lengths):
            raise PlanError("every length must be a positive number")
        chances = self.chances
        if chances is not None and (len(chances) != len(self.lengths) or not all(0 <= c <= 1 for c in chances)):
            raise PlanError("the chance that a source changes must be a number from 0 to 1, for each of them")

    def after(self, gaps: Sequence[int]) -> tuple[float, ...]:
        """The weights of sources that were asked for so many steps ago. Every machine computes the same bits."""
        if self.chances is None:
            return self.lengths
        each = zip(self.lengths, self.chances, gaps, strict=True)
        return tuple(length * max(LEAST, 1.0 - _power(1.0 - chance, gap)) for length, chance, gap in each)

    @property
    def fixed(self) -> tuple[float, ...]:
        """The weights for plans, which are made before any query: as if everything was asked for one step ago."""
        return self.after([1] * len(self.lengths))

    def as_dict(self) -> dict[str, Any]:
        return {"lengths": list(self.lengths), "chances": None if self.chances is None else list(self.chances)}


def read_lengths(file: Path, names: tuple[str, ...]) -> tuple[float, ...]:
    """The weights for plans in a file, in the order of the names."""
    return read_weighing(file, names).fixed


def read_weighing(file: Path, names: tuple[str, ...]) -> Weighing:
    """What a file of lengths says, in the order of the names."""
    return weighing_of(read_json(file, PlanError), names, f"{file}: ")


def weighing_of(data: Mapping[str, Any], names: tuple[str, ...], where: str = "the lengths: ") -> Weighing:
    """The lengths {name: number}, or what `onoff measure` has written, in the order of the names."""
    if not isinstance(data, Mapping) or data.get("format") != MEASURED:
        return Weighing(lengths_of(data, names, where))
    sources = data.get("sources")
    if not isinstance(sources, Mapping) or not all(isinstance(found, Mapping) for found in sources.values()):
        raise PlanError(f"{where}what `onoff measure` writes is damaged: measure again")
    lengths = lengths_of({name: found.get("length") for name, found in sources.items()}, names, where)
    return Weighing(lengths, tuple(_chance(sources[name], where) for name in names))


def lengths_of(data: Mapping[str, Any], names: tuple[str, ...], where: str = "the lengths: ") -> tuple[float, ...]:
    """The lengths {name: number}, in the order of the names."""
    if not isinstance(data, Mapping) or set(data) != set(names):
        raise PlanError(f"{where}an object with exactly the names of the chain is needed")
    if any(isinstance(data[name], bool) or not isinstance(data[name], int | float) for name in names):
        raise PlanError(f"{where}every length must be a number")
    try:
        return tuple(float(data[name]) for name in names)
    except OverflowError:
        raise PlanError(f"{where}a length is larger than any message") from None


def _chance(found: Mapping[str, Any], where: str) -> float:
    """The chance of a change from one visit to the next, as if one more had been seen: 1 after the first visit."""
    visits, changes = found.get("visits"), found.get("changes")
    if not (is_whole(visits, 1) and is_whole(changes) and changes < visits):
        raise PlanError(f"{where}what `onoff measure` writes is damaged: measure again")
    return (changes + 1) / visits


def _power(base: float, exponent: int) -> float:
    """base^exponent by products, which are rounded alike everywhere; `**` is not."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result
