"""One recorded law of an OFF step: sets with their masses, encoders, and where contexts have come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onoff.audit.everyday.weights import Weights, weights_of
from onoff.errors import LogError
from onoff.types import Query, is_whole

FORMAT, VERSION = "onoff-law", 1
MOST_UNITS = 2**53  # whole numbers up to it are exact as floats
Units = NDArray[np.int64]


@dataclass(frozen=True)
class Fault:
    """What is wrong with a law or a step, by its `rule`; `by` is how much, where that can be said."""

    rule: str
    message: str
    by: float = 0.0


@dataclass(frozen=True, eq=False)
class Table:
    """The encoder of one context: `units[e]` of the request `request[e]` on the set `column[e]`."""

    request: NDArray[np.intp]
    column: NDArray[np.intp]
    units: Units
    _totals: dict[int, Units] = field(default_factory=dict, repr=False)

    def same(self, other: Table) -> bool:
        """Whether both have the same units, in whatever order they stand."""
        mine, others = (np.stack([table.request, table.column, table.units]) for table in (self, other))
        return mine.shape == others.shape and bool((mine[:, np.lexsort(mine)] == others[:, np.lexsort(others)]).all())

    def totals(self, n: int) -> Units:
        """The units of every request, of n sources."""
        if n not in self._totals:
            self._totals[n] = _summed(self.request, self.units, n)
        return self._totals[n]

    def columns(self, sets: int) -> Units:
        """The units on every set."""
        return _summed(self.column, self.units, sets)

    def on(self, column: int, n: int) -> Units:
        """The units of every request on one set."""
        here = self.column == column
        return _summed(self.request[here], self.units[here], n)

    def of(self, request: int, sets: int) -> Units:
        """The units of one request on every set."""
        here = self.request == request
        return _summed(self.column[here], self.units[here], sets)

    def dense(self, n: int, sets: int) -> Units:
        """The units of every request (row) on every set (column)."""
        return _summed(self.request * sets + self.column, self.units, n * sets).reshape(n, sets)

    def chances(self, n: int, sets: int) -> NDArray[np.float64]:
        """w(set | request): the probability of every set (column) given the request (row)."""
        return self.dense(n, sets) / np.maximum(self.totals(n), 1)[:, None]


@dataclass(frozen=True, eq=False)
class Law:
    """At this step the query is sets[i] with probability masses[i] / denominator, as the client states.

    A reader who was in context c at the step before, and whose request there is not hidden, is in place[c] now; one
    whose request x there is hidden is in joined[x]. `rounding`, `charge` and `weights` are the client's own statements.
    """

    sets: tuple[Query, ...]
    masses: tuple[int, ...]
    denominator: int
    rounding: float
    lower_bound: float
    tables: Mapping[int, Table]
    place: tuple[int, ...]
    joined: tuple[int, ...]
    charge: float
    weights: Weights | None = None

    def index(self, query: Query) -> int | None:
        """Which of the sets the query is."""
        return self.sets.index(query) if query in self.sets else None

    @property
    def stated(self) -> NDArray[np.float64]:
        """The probabilities of the sets."""
        return np.array(self.masses, dtype=np.float64) / self.denominator

    @property
    def cost(self) -> float:
        """The expected number of messages."""
        return sum(len(query) * mass for query, mass in zip(self.sets, self.masses, strict=True)) / self.denominator


@dataclass(frozen=True)
class Recorded:
    """A line of a client's record: the law that it was ready to draw from at a step of a stream."""

    stream: str
    step: int
    law: Law


@dataclass(frozen=True, eq=False)
class Seen:
    """One step as the server saw it.

    `private` means that the full set was asked for whatever was wanted: ON, or the first steps of a stream. Otherwise
    `law` is what was recorded, None if nothing was.
    """

    private: bool
    query: Query
    law: Law | None = None


def recorded(line: Mapping[str, Any]) -> Recorded:
    """A line of a record. Raises `LogError` if it is not one."""
    if line.get("format") != FORMAT or line.get("version") != VERSION:
        raise LogError(f"not a line of a record of laws: it does not say {FORMAT!r}, version {VERSION}")
    try:
        stream, step = line["stream"], line["step"]
        charge = line["charge"]
        law = law_of(line["law"], line["place"], line["joined"], float.fromhex(charge), weights_of(line.get("weights")))
        if not (isinstance(stream, str) and is_whole(step)):
            raise ValueError("a stream and a step are needed")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LogError(f"a damaged line in a record of laws: {error!r}") from None
    return Recorded(stream, step, law)


def law_of(law: Mapping[str, Any], place: Any, joined: Any, charge: float, weights: Weights | None = None) -> Law:
    """A law from its dictionary as recorded, read without trust in its numbers. Raises `LogError` if it is not one."""
    try:
        sets = tuple(tuple(map(_whole, query)) for query in law["sets"])
        masses = tuple(map(_whole, law["masses"]))
        denominator = _whole(law["denominator"])
        rounding, lower = float(law["rounding"]), float(law["lower_bound"])
        fits = 0 < denominator <= MOST_UNITS and len(masses) == len(sets) and sets
        if not (fits and rounding >= 0 and charge >= 0):
            raise ValueError("its numbers do not fit together")
        encoders = {_whole(int(context)): parts for context, parts in law["encoders"].items()}
        tables = {context: _table(parts, len(sets), denominator) for context, parts in encoders.items()}
        homes = tuple(_whole(c, -1) for c in place), tuple(_whole(c, -1) for c in joined)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LogError(f"a damaged law in a record: {error!r}") from None
    return Law(sets, masses, denominator, rounding, lower, tables, *homes, charge, weights)


def same_law(one: Law, other: Law) -> bool:
    """Whether two laws are the same to the unit: sets, masses, encoders, and where contexts come from."""
    return (
        (one.sets, one.masses, one.place, one.joined) == (other.sets, other.masses, other.place, other.joined)
        and one.tables.keys() == other.tables.keys()
        and all(one.tables[context].same(other.tables[context]) for context in one.tables)
    )


def _table(parts: Any, sets: int, most: int) -> Table:
    request, column, units = (np.array([_whole(entry) for entry in part], dtype=np.int64) for part in parts)
    if not len(request) == len(column) == len(units):
        raise ValueError("an encoder has parts of different lengths")
    if len(request) and (column.max() >= sets or units.astype(float).sum() > 1.5 * most):
        raise ValueError("an encoder has a set that is none, or too many units")
    return Table(request, column, units)


def _whole(value: Any, least: int = 0) -> int:
    if not is_whole(value, least) or value > MOST_UNITS:
        raise ValueError(f"{value!r} is not a whole number from {least} to 2^53")
    return int(value)


def _summed(place: NDArray[np.intp], units: Units, size: int) -> Units:
    """The units at every place below `size`; a record may name others, which is a fault of its own."""
    result = np.zeros(size, dtype=np.int64)
    known = place < size
    np.add.at(result, place[known], units[known])
    return result
