"""Grids of chains, lags and schemes as one tidy table; every finished cell is kept in a file of its own.

A cell is one plan, (chain, lag, scheme), or the two bounds of Theorem 1 for a chain and a lag. Its file is named after
a hash of all that its result depends on, so that a later sweep finds it, even one over another grid.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onoff import __version__
from onoff.apps.workers import Failed, compute
from onoff.errors import ChainError, PlanError
from onoff.extras import need
from onoff.files import make_directory, write_atomically
from onoff.model.bounds import bounds
from onoff.model.chain import Chain
from onoff.plans.making import plan
from onoff.schemes import AUTO, SCHEMES

BOUNDS = "bounds"  # stands where other cells have their scheme
COLUMNS = {
    "chain": "string",
    "fingerprint": "string",
    "n": "int64",
    "lag": "int64",
    "scheme": "string",
    "made": "string",
    "cost": "float64",
    "lower_bound": "float64",
    "gap": "float64",
    "rounding": "float64",
    "seconds": "float64",
    "sets": "int64",
    "outer": "float64",
    "inner": "float64",
    "error": "string",
}
BOTH = ("outer", "inner")
MEASURED = ("made", "cost", "lower_bound", "gap", "rounding", "seconds", "sets")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """What a result depends on."""

    fingerprint: str
    lag: int
    scheme: str
    gap: float | None
    time_limit: float | None
    version: str = __version__

    @property
    def file(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:32] + ".json"


@dataclass(frozen=True)
class Grid:
    """Chains by name × lags × schemes. `gap` and `time_limit` (seconds for a cell) are those of `onoff.plan`."""

    chains: Mapping[str, Chain]
    lags: Sequence[int]
    schemes: Sequence[str]
    gap: float = 1e-6
    time_limit: float | None = None

    def __post_init__(self) -> None:
        if not self.chains:
            raise PlanError("there is nothing to sweep over: name a chain file, or use --symmetric or --dirichlet")
        for scheme in self.schemes:
            if scheme not in (AUTO, *SCHEMES):
                known = ", ".join((AUTO, *SCHEMES))
                raise PlanError(f"there is no scheme {scheme!r} to sweep over: choose from {known}")
        if not self.gap >= 0 or (self.time_limit is not None and not self.time_limit > 0):
            raise PlanError("a gap of at least 0 and a time limit of more than 0 seconds are needed")

    def bounds_cell(self, chain: Chain, lag: int) -> Cell:
        return Cell(chain.fingerprint, lag, BOUNDS, None, None)

    def plan_cell(self, chain: Chain, lag: int, scheme: str) -> Cell:
        gap = self.gap if scheme == AUTO or SCHEMES[scheme].polishes else None  # the others do not look at it
        return Cell(chain.fingerprint, lag, scheme, gap, self.time_limit)

    def cells(self) -> dict[Cell, Chain]:
        """Every cell once, with its chain. Small lags come first, so that all chains and schemes are seen early."""
        found: dict[Cell, Chain] = {}
        for lag in self.lags:
            for chain in self.chains.values():
                found[self.bounds_cell(chain, lag)] = chain
                found.update({self.plan_cell(chain, lag, scheme): chain for scheme in self.schemes})
        return found


class Sweep:
    """The results of a grid: those kept in `directory`, and those that `run` adds."""

    def __init__(self, grid: Grid, directory: Path) -> None:
        self.grid = grid
        self.directory = directory
        make_directory(directory)
        self.cells = grid.cells()
        self.results: dict[Cell, dict[str, Any] | Failed] = {}
        for cell in self.cells:
            if (kept := self._kept(cell)) is not None:
                self.results[cell] = kept

    def run(self, jobs: int | None = None, dask: str | None = None) -> Generator[Cell, None, None]:
        """Compute the missing cells (`onoff.apps.workers.compute`). Each is on disk before it is yielded.

        A cell that fails is noted, not kept: the next sweep tries it again.
        """
        missing = {
            cell: (chain, cell.lag, cell.scheme, self.grid.gap, self.grid.time_limit)
            for cell, chain in self.cells.items()
            if cell not in self.results
        }
        with closing(compute(measured, missing, jobs, dask)) as found:
            for cell, result in found:
                if not isinstance(result, Failed):
                    body = json.dumps({"cell": asdict(cell), "result": result}).encode() + b"\n"
                    write_atomically(self.directory / cell.file, body)
                self.results[cell] = result
                yield cell

    def rows(self) -> list[Row]:
        """One row for each plan there is or that failed, in the order of the grid."""
        rows = []
        for name, chain in self.grid.chains.items():
            for lag in self.grid.lags:
                both = self.results.get(self.grid.bounds_cell(chain, lag), {})
                for scheme in self.grid.schemes:
                    result = self.results.get(self.grid.plan_cell(chain, lag, scheme))
                    if result is not None:
                        place = {"chain": name, "fingerprint": chain.fingerprint, "n": chain.n, "lag": lag}
                        rows.append(_row({**place, "scheme": scheme}, result, both))
        return rows

    def _kept(self, cell: Cell) -> dict[str, Any] | None:
        try:
            data = json.loads((self.directory / cell.file).read_bytes())
            result = {key: data["result"][key] for key in (BOTH if cell.scheme == BOUNDS else MEASURED)}
            return result if data["cell"] == asdict(cell) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None  # not there, or damaged by someone: computed anew


def _row(place: dict[str, Any], result: dict[str, Any] | Failed, both: dict[str, Any] | Failed) -> Row:
    errors = [result.error] if isinstance(result, Failed) else []
    errors += [f"bounds: {both.error}"] if isinstance(both, Failed) else []
    known = {**(both if isinstance(both, dict) else {}), **(result if isinstance(result, dict) else {})}
    row = {**place, **known, "error": "; ".join(errors) or None}
    return {column: row.get(column) for column in COLUMNS}


def measured(chain: Chain, lag: int, scheme: str, gap: float, time_limit: float | None) -> dict[str, Any]:
    """The numbers of one cell, computed in any process. `sets` is None for a scheme without a table."""
    start = time.perf_counter()
    if scheme == BOUNDS:
        both = bounds(chain.posterior(lag))
        return {"outer": float(both.outer), "inner": float(both.inner)}
    made = plan(chain, lag, scheme, gap=gap, time_limit=time_limit)
    return {
        "made": made.scheme,  # another one than was asked for, where that takes too long
        "cost": made.cost,
        "lower_bound": made.lower_bound,
        "gap": made.gap,
        "rounding": made.rounding,
        "seconds": time.perf_counter() - start,
        "sets": None if made.law is None else len(made.law.mass),
    }


def write_parquet(rows: Sequence[Row], file: Path) -> None:
    """Write the table as Parquet, whole or not at all."""
    need("logs", "a table in Parquet")
    import pyarrow
    from pyarrow import parquet

    schema = pyarrow.schema([(name, getattr(pyarrow, kind)()) for name, kind in COLUMNS.items()])
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(list(rows), schema=schema), buffer)
    write_atomically(file, buffer.getvalue())


def dirichlet(n: int, concentration: float, seed: int) -> Chain:
    """A random dense chain whose rows are Dirichlet(concentration); the same for the same seed."""
    if n < 2 or not 0 < concentration < np.inf or seed < 0:
        raise ChainError(
            f"dirichlet {n}:{concentration}:{seed}: n >= 2, a positive concentration, a seed >= 0 are needed"
        )
    return Chain(np.random.default_rng(seed).dirichlet(np.full(n, concentration), n))
