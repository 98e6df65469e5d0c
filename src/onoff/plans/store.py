"""Plans on disk: one directory for each chain and lengths, one file for each lag, shared safely by processes.

    DIR/<hash of chain and lengths>/<fingerprint>.chain, lengths.json, lag-<lag>.plan.json, grid.json, lock, log

Every file is written whole and renamed into place, so a reader sees the old plan or the new one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from onoff.errors import ChainError, PlanError, Unverified
from onoff.files import cache_directory, read_json, reason, write_atomically
from onoff.model.chain import Chain, checked_chain
from onoff.model.chainfile import keep, kept
from onoff.plans import file as planfile
from onoff.plans import verified
from onoff.plans.base import Plan, checked_lengths
from onoff.types import Lengths, is_whole

WRITTEN = ("lengths.json", "grid.json", "lock", "log")  # beside the plans and their chain


def default_directory() -> Path:
    """Where plans are kept unless told otherwise: the user's cache."""
    return cache_directory("plans")


class PlanStore:
    """The plans of one chain with one choice of lengths."""

    def __init__(
        self,
        chain: Chain,
        directory: Path | None = None,
        lengths: Lengths = None,
        *,
        make: bool = True,
    ) -> None:
        """The directory is made if it is not there; with `make=False` nothing is, and plans can only be read."""
        self.chain = checked_chain(chain)
        self.lengths = checked_lengths(lengths, chain.n)
        parent = Path(directory or default_directory()).absolute()
        self.directory = parent / _name(chain.fingerprint, self.lengths)
        if make:
            self.make()

    def make(self) -> None:
        """Make the directory and what describes it, where it is not there or damaged; `PlanError` if it cannot be."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            for name in WRITTEN:
                _clear(self.directory / name)
            described = json.dumps(self.lengths).encode()
            if self._described() != described:
                write_atomically(self.directory / "lengths.json", described)
            keep(self.directory, self.chain)
        except (OSError, ChainError) as error:
            why = reason(error) if isinstance(error, OSError) else error
            raise PlanError(f"{self.directory}: plans cannot be kept here ({why})") from error

    def _described(self) -> bytes:
        """What the directory says of the lengths: a process in the background knows no more."""
        with suppress(OSError):
            return (self.directory / "lengths.json").read_bytes()
        return b""

    @classmethod
    def open(cls, directory: Path) -> PlanStore:
        """The store that lives in exactly this directory."""
        lengths = read_json(directory / "lengths.json", PlanError)
        if not (lengths is None or isinstance(lengths, list)):
            raise PlanError(f"{directory / 'lengths.json'}: is not a list of lengths; delete the directory")
        lengths = None if lengths is None else tuple(lengths)
        for file in directory.glob("*.chain"):
            if _name(file.stem, lengths) == directory.name:
                return cls(kept(directory, file.stem), directory.parent, lengths)
        raise PlanError(f"{directory}: its name does not fit the chain in it; was it renamed?")

    def path(self, lag: int) -> Path:
        return self.directory / f"lag-{lag}.plan.json"

    def lags(self) -> dict[int, int]:
        """The lags that have a plan, each with the time its file was written (in nanoseconds)."""
        found = {}
        for file in self.directory.glob("lag-*.plan.json"):
            number = file.name.removeprefix("lag-").removesuffix(".plan.json")
            if number.isdecimal():
                with suppress(OSError):  # gone meanwhile
                    status = file.stat()
                    if stat.S_ISREG(status.st_mode):  # a pipe would keep us waiting for its writer
                        found[int(number)] = status.st_mtime_ns
        return found

    def load(self, lag: int) -> Plan:
        """The plan for this lag; `PlanError` if it is damaged or belongs to another chain."""
        return self._read(lag)[0]

    def usable(self, lag: int) -> Plan:
        """The plan for this lag, if a client may use it: `Unverified` if nobody has verified its file here yet.

        A table states what it costs and rounds. Whether it can be drawn from in every context is known only once all of
        them were looked at, by `verify` or by the maker of the plan on this machine.
        """
        plan, digest = self._read(lag)
        if not (plan.known_realisable or verified.known(digest)):
            raise Unverified(f"{self.path(lag)}: this plan has not been verified on this machine yet", digest=digest)
        return plan

    def verify(self) -> None:
        """Verify every plan that nobody has verified here; one that fails stays unusable and is made anew."""
        for lag in sorted(self.lags()):
            with suppress(PlanError):
                plan, digest = self._read(lag)
                if not (plan.known_realisable or verified.known(digest)):
                    plan.verify()
                    verified.remember(digest)

    def save(self, plan: Plan) -> bool:
        """Keep the plan, unless a usable one for its lag that costs no more is there. Return whether it was kept."""
        if plan.chain != self.chain or plan.lengths != self.lengths:
            raise PlanError("this plan is for another chain or other lengths than the store")
        try:
            if self.usable(plan.lag).at_most <= plan.at_most:
                return False
        except PlanError:
            pass  # none yet, a damaged one or one that nobody verified: replace it
        unfinished = self.directory / f".{secrets.token_hex(8)}.unfinished"
        try:
            plan.save(unfinished)
            if plan.known_realisable:
                # Read again: whoever else can write here may have put another file in its place.
                written, digest = planfile.read_with_digest(unfinished, self.chain)
                if written == plan:
                    verified.remember(digest)
            unfinished.replace(self.path(plan.lag))
        finally:
            unfinished.unlink(missing_ok=True)
        return True

    def note(self, lags: Sequence[int], reach: int) -> None:
        """Note that plans of these lags are all that are worth making up to the lag `reach`."""
        write_atomically(self.directory / "grid.json", json.dumps({"lags": lags, "reach": reach}).encode())

    def noted(self) -> tuple[list[int], int]:
        """What was noted last; no lag, and reach 0, if nothing was."""
        with suppress(PlanError, TypeError, KeyError):
            data = read_json(self.directory / "grid.json", PlanError)
            lags, reach = data["lags"], data["reach"]
            if all(map(is_whole, [*lags, reach])):
                return list(lags), reach
        return [], 0

    def _read(self, lag: int) -> tuple[Plan, str]:
        """The plan for this lag with the digest of its file."""
        plan, digest = planfile.read_with_digest(self.path(lag), self.chain)
        if plan.chain != self.chain or plan.lag != lag or plan.lengths != self.lengths:
            raise PlanError(f"{self.path(lag)}: is a plan for another chain, lag or lengths; delete it")
        return plan, digest

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Whether this process may compute now; released when it ends, however it ends."""
        with (self.directory / "lock").open("a") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True


def _name(fingerprint: str, lengths: Lengths) -> str:
    """The name of the directory for a chain and lengths."""
    return hashlib.sha256(f"{fingerprint} {json.dumps(lengths)}".encode()).hexdigest()[:32]


def _clear(file: Path) -> None:
    """Remove what a stranger may have put where we write: through a link we would hit another file, a pipe waits."""
    with suppress(FileNotFoundError):
        mode = file.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            file.unlink()
