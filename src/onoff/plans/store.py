"""Plans on disk: one directory for each chain, one file for each lag, shared safely by processes.

    DIR/<hash of the chain>/<fingerprint>.chain, lag-<lag>.plan.json, grid.json, lock, log

Every file is written whole and renamed into place, so a reader sees the old plan or the new one.

A table states what it costs and rounds. Whether it can be drawn from in every context is known only once all contexts
were checked. The user's seal in a file says that its maker did so. A table without it, from another user or machine, is
verified whenever it is opened.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from onoff.errors import ChainError, PlanError
from onoff.files import cache_directory, read_json, reason, write_atomically
from onoff.model.chain import Chain, check_chain
from onoff.model.chainfile import keep, load_kept
from onoff.plans import file as planfile
from onoff.plans.plan import Plan
from onoff.types import is_whole


class PlanStore:
    """The plans of one chain."""

    def __init__(self, chain: Chain, directory: Path | None = None, *, make: bool = True) -> None:
        """Make the directory (the user's cache by default); with `make=False` make nothing: plans can only be read."""
        self.chain = check_chain(chain).without_memory()
        self.directory = Path(directory or cache_directory("plans")).absolute() / _name(chain.fingerprint)
        if make:
            self.make()

    def make(self) -> None:
        """Make the directory and its description, where missing or damaged; `PlanError` if that fails."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            keep(self.directory, self.chain)
        except (OSError, ChainError) as error:
            why = reason(error) if isinstance(error, OSError) else error
            raise PlanError(f"{self.directory}: plans cannot be kept here ({why})") from error

    @classmethod
    def open(cls, directory: Path) -> PlanStore:
        """Open the store in exactly this directory."""
        for file in directory.glob("*.chain"):
            if _name(file.stem) == directory.name:
                return cls(load_kept(directory, file.stem), directory.parent)
        raise PlanError(f"{directory}: its name does not fit the chain in it; was it renamed?")

    def path(self, lag: int) -> Path:
        return self.directory / f"lag-{lag}.plan.json"

    def lags(self) -> dict[int, int]:
        """List the lags that have a plan, with the time of each file (in nanoseconds)."""
        found = {}
        for file in self.directory.glob("lag-*.plan.json"):
            number = file.name.removeprefix("lag-").removesuffix(".plan.json")
            if number.isdecimal():
                with suppress(OSError):  # gone meanwhile
                    found[int(number)] = file.stat().st_mtime_ns
        return found

    def load(self, lag: int) -> Plan:
        """Load the plan for this lag. Raises `PlanError` if there is none, or a context cannot be drawn from."""
        plan = planfile.read(self.path(lag), self.chain)
        if plan.chain != self.chain or plan.lag != lag:
            raise PlanError(f"{self.path(lag)}: is a plan for another chain or lag; delete it")
        plan.verify()
        return plan

    def save(self, plan: Plan) -> bool:
        """Keep the plan, unless one for its lag costs no more. Return True if it was kept."""
        if plan.chain != self.chain:
            raise PlanError("this plan is for another chain than the store")
        with suppress(PlanError):  # none yet, or one that cannot be used: replace it
            if self.load(plan.lag).at_most <= plan.at_most:
                return False
        plan.save(self.path(plan.lag))
        return True

    def note(self, lags: Sequence[int], reach: int) -> None:
        """Note that up to the lag `reach` only plans of these lags are worth making."""
        write_atomically(self.directory / "grid.json", json.dumps({"lags": lags, "reach": reach}).encode())

    def read_note(self) -> tuple[list[int], int]:
        """Read the last note: no lags and reach 0 if none."""
        with suppress(PlanError, TypeError, KeyError):
            data = read_json(self.directory / "grid.json", PlanError)
            lags, reach = data["lags"], data["reach"]
            if all(map(is_whole, [*lags, reach])):
                return list(lags), reach
        return [], 0

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Yield True if this process may compute; released when it ends, in any way."""
        with (self.directory / "lock").open("a") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True


def _name(fingerprint: str) -> str:
    """Name the directory for a chain."""
    return hashlib.sha256(fingerprint.encode()).hexdigest()[:32]
