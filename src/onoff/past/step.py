"""The next OFF step of the promise `past`: a law that dominates the rows of all candidates, and the draw from it.

Which law it is follows from the numbers of sources and of rows:

    no row          no open request is possible, and R is empty
    one row, two    the best coupling of the rows, at the outer bound: sets of one source and of two
    more            a law by combs, peeling and search (`onoff.past.laws`), proved for every row when it is made
    many            beyond `MANY` sources with more than `SEVERAL` rows, or `NUMBERS` numbers in them: a race
                    (`onoff.past.race`), without a table

**Rounding.** Let D be the denominator of a law, and U(x) the units of the request x in an encoder. Given x the client
draws the set R with probability w(R | x) / U(x). So if x has the law r, the law of R is as far from mu as U / D is from
r, at most. Here U(x) is at least D r(x) - n r(x) - 1 (`onoff.schemes.encoder`), less what floats lose: 2 n units in
all. This bound does not depend on the reader's state, so `rounding` tells nothing about it.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from onoff.model.bounds import sum_up, up
from onoff.model.posterior import RowTable
from onoff.model.powers import one_thread
from onoff.past.candidates import Candidates
from onoff.past.laws import law_for
from onoff.past.race import RaceStep
from onoff.schemes.certificate import Certificate, outer_certificate
from onoff.schemes.encoder import Entries, LawEncoder, draw_index
from onoff.schemes.flow import pair_up
from onoff.schemes.law import DENOMINATOR, Drawn, Law
from onoff.types import Floats, Query, RandBelow, Units

MANY, SEVERAL = 100, 40
NUMBERS = 20_000  # in rows: to make an encoder takes about 10 ms, and must take less than the delay of a query


@dataclass(frozen=True, eq=False)
class StepLaw(Drawn):
    """The query is sets[i] with probability masses[i] / denominator, whatever is hidden.

    Every set holds all sensitive sources. `inner` is the law of R over the open sources alone, and `certificate` proves
    what every such law costs at least. In a coupling, `owners[k, i]` is the request that has all units of the set i in
    the row k; other laws have an integer encoder for each row. `rounding` bounds the total variation between the law
    of this query given any past, and the stated one. So its sum over a stream bounds the total variation of the
    whole stream from one that keeps the promise exactly.
    """

    candidates: Candidates
    inner: Law
    certificate: Certificate
    owners: Units | None = None

    @cached_property
    def law(self) -> Law:  # type: ignore[override]
        """The law of the whole query."""
        if not self.candidates.hidden:
            return self.inner
        member = np.ones((len(self.inner.member), self.candidates.chain.n), dtype=bool)
        member[:, self.candidates.open_sources] = self.inner.member
        return Law(member, self.inner.mass)

    @cached_property
    def cost(self) -> float:
        """The expected number of messages, rounded up."""
        return up(self.law.cost())

    @property
    def lower_bound(self) -> float:
        return len(self.candidates.hidden) + self.certificate.bound

    @property
    def rounding(self) -> float:
        return sum_up((2 * self.candidates.chain.n + 2) / DENOMINATOR, 2 * self.candidates.relative_error)

    def draw(self, request: int, state: int, randbelow: RandBelow = secrets.randbelow) -> Query:
        """Draw the query for the request of a reader in this state, the one secret act."""
        self.candidates.check(request, state)
        if request in self.candidates.hidden:
            index = draw_index(self.law.mass, randbelow)
        else:
            requests, sets, units = self.entries(state)
            inside = slice(*np.searchsorted(requests, [request, request + 1]))
            index = int(sets[inside][draw_index(units[inside], randbelow)])
        return tuple(np.flatnonzero(self.law.member[index]).tolist())

    def entries(self, state: int) -> Entries:
        """The encoder of a live state: requests, sets and units, sorted by request and set.

        The units of a set sum to its mass exactly. A sensitive request has no entries: it draws from the masses.
        """
        place = self.candidates.live.index(state)
        if self.owners is None:
            requests, sets, units = self._encode(place)
        else:
            sets = np.argsort(self.owners[place], kind="stable")
            requests, units = self.owners[place][sets], self.inner.mass[sets]
        return np.flatnonzero(self.candidates.open_sources)[requests], sets, units

    def as_dict(self) -> dict[str, Any]:
        """The law, its proof and the encoders of all states, for the record: exactly, and without a secret."""
        return {
            "sets": [list(query) for query in self.sets],
            "masses": list(self.masses),
            "certificate": asdict(self.certificate),
            "encoders": {str(z): [part.tolist() for part in self.entries(z)] for z in self.candidates.live},
        }

    @cached_property
    def _encoder(self) -> LawEncoder:
        return LawEncoder(self.inner)

    def _encode(self, place: int) -> Entries:
        row = self.candidates.rows(self.candidates.live[place : place + 1])[0]
        return self._encoder.encode(row, row > 0).entries

    def prove(self) -> None:
        """Raise `ArithmeticError` unless the law serves every row: all supply of the row flows into its sets."""
        table = self.candidates.rows(self.candidates.live)
        if not all(self._encoder.takes(row) for row in table):
            raise ArithmeticError("the law of a step does not serve all states that may be the reader's")


def prepare(candidates: Candidates, deadline: float = inf) -> StepLaw | RaceStep:
    """Make the next OFF step. Raises `TimeoutError` past the deadline."""
    live = candidates.live
    if is_race(candidates.chain.n, len(live)):
        return RaceStep(candidates)
    rows = candidates.rows(live)
    if len(live) <= 2:
        return couple(candidates, rows)
    table = RowTable(rows, rows > 0, candidates.relative_error)
    with one_thread():
        step = StepLaw(candidates, *law_for(table, deadline))
    step.prove()
    return step


def is_race(n: int, rows: int) -> bool:
    """Whether so many rows of n sources are too many for a table."""
    return n > MANY and rows > max(2, min(SEVERAL, NUMBERS // n))


def couple(candidates: Candidates, rows: Floats) -> StepLaw:
    """The maximal coupling of one row or two: sources that both share alone, and pairs of what is left of each.

    A source has at least one unit in a row that allows it. Without a row, R is empty.
    """
    if not len(rows):
        empty = np.zeros((1, int(candidates.open_sources.sum())), dtype=bool)
        return StepLaw(
            candidates, Law(empty, np.array([DENOMINATOR])), Certificate("outer", 0.0), np.zeros((0, 1), int)
        )
    first, second = _units(rows[0]), _units(rows[-1])
    shared = np.minimum(first, second)
    alone = np.flatnonzero(shared)
    left, right, units = pair_up(first - shared, second - shared)
    member = np.eye(rows.shape[1], dtype=bool)[np.concatenate([alone, left])]
    member[np.arange(len(alone), len(member)), right] = True
    owners = np.array([np.concatenate([alone, left]), np.concatenate([alone, right])])
    proof = outer_certificate(RowTable(rows, rows > 0, candidates.relative_error))
    return StepLaw(candidates, Law(member, np.concatenate([shared[alone], units])), proof, owners)


def _units(row: Floats) -> Units:
    """Share out D units in proportion to a row; what is possible has at least one."""
    units = np.floor(row * DENOMINATOR).astype(np.int64)
    units = np.where(row > 0, np.maximum(units, 1), 0)
    units[units.argmax()] += DENOMINATOR - int(units.sum())
    return units
