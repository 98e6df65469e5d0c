"""What a client is told once and its journal then remembers: the chain, the server, the lengths, the cache's size.

Notes are read and written here alone. If a note is not what it must be, an error says what to do.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onoff.client.held import CACHE, cache_size
from onoff.client.journal import Journal
from onoff.client.learning import LEAVE, refuse_learning
from onoff.client.promises import checked_promise
from onoff.client.snapshot import check_promise, snapshot
from onoff.errors import ChainError, OnoffError, PlanError
from onoff.files import path_of
from onoff.foreign import plain
from onoff.model.chain import Chain
from onoff.plans.plan import checked_lengths
from onoff.plans.lengths import Weighing, read_weighing, weighing_of
from onoff.types import is_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

SINCE = "lengths since"  # the note of the step from which on costs are in the unit of the lengths
BEFORE = "lengths before"  # the note of earlier lengths, for auditors: [[first step, SHA-256 of their note], ...]
MOST_CHANGES = 4096  # that a journal remembers: after that it forgets the oldest
MOST = 2**53  # steps: a number beyond is no number of steps


@dataclass(frozen=True)
class Settings:
    """Where the journal is, and what it remembers. `urls` is a file of URLs, or the URLs themselves.

    There is no chain while it is being learned. `weighing` are lengths, with the chances of changes for the promise
    "past"; plans take fixed weights.
    """

    journal: Path
    chain: Chain | None
    server: str | None
    urls: Path | Mapping[str, str] | None
    weighing: Weighing | None
    promise: str = "both"
    sensitive: tuple[int, ...] = ()
    cache: int = CACHE

    @classmethod
    def of(
        cls,
        journal: str | Path | None,
        chain: Chain | str | Path | None = None,
        server: str | None = None,
        urls: Mapping[str, str] | str | Path | None = None,
        lengths: Mapping[str, float] | Sequence[float] | str | Path | None = None,
        promise: str | None = None,
        sensitive: Sequence[int | str] = (),
        cache: int | str | None = None,
        learn: bool = False,
    ) -> Settings:
        """What was given, completed by what the journal remembers. A new one is for the promise "past" by default."""
        given = None if cache is None else cache_size(cache)
        path = default_journal() if journal is None else path_of(journal, "the journal")
        if journal is None:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = snapshot(path) if path.exists() else None
        notes = {} if found is None else found.notes
        limit = cache_size(notes.get("cache", CACHE)) if given is None else given
        if server is not None and urls is not None:
            raise OnoffError("give a server or URLs (--server or --urls), not both")
        if not learn:
            refuse_learning(path, notes)
        elif chain is not None or sensitive or lengths is not None or promise == "both":
            raise OnoffError(LEAVE)
        if server is None and urls is None:
            server, urls = notes.get("server") or None, notes.get("urls") or None
        knows_chain = learn or chain is not None or "chain" in notes
        _check_known(path, knows_chain, server is not None or urls is not None)
        if learn:
            return cls(path, None, server, _absolute(urls), None, "past", (), limit)
        habits = chain_from(notes["chain"]) if chain is None else loaded(chain)
        known = weighing_from(notes) if lengths is None else _weighing(lengths, habits)
        wanted, hidden = checked_promise(habits, promise, sensitive)
        if found is not None:
            check_promise(path, (found.promise, found.sensitive), wanted, hidden)
            wanted, hidden = found.promise, found.sensitive
        if wanted == "both" and known is not None:
            known = Weighing(known.fixed)
        return cls(path, habits, server, _absolute(urls), known, wanted or "past", hidden, limit)

    @property
    def lengths(self) -> tuple[float, ...] | None:
        """The lengths of messages, or the fixed weights of plans."""
        return None if self.weighing is None else self.weighing.lengths

    def note(self, journal: Journal) -> None:
        """Note what has worked, where it is not noted yet. URLs that were given as objects are not remembered."""
        wanted = {
            "server": self.server or "",
            "urls": str(self.urls) if isinstance(self.urls, Path) else "",
            "lengths": _weighing_text(self.weighing),
            "cache": str(self.cache),
        }
        if self.chain is not None:
            wanted["chain"] = chain_text(self.chain)
        known, state = journal.recall("lengths"), journal.state
        if known is not None and known != wanted["lengths"]:
            step = state.step + (state.pending is not None)  # costs before it, that of a pending step too: another unit
            wanted |= {SINCE: str(step), BEFORE: _changed(journal.recall(BEFORE), journal.recall(SINCE), known, step)}
        unknown = {key: value for key, value in wanted.items() if journal.recall(key) != value}
        if unknown:
            journal.note_all(unknown)


def _check_known(path: Path, chain: bool, server: bool) -> None:
    """Raise an error that names all that is missing at once, in words of commands and of Python."""
    if chain and server:
        return
    missing = " and ".join(["no chain"] * (not chain) + ["no server"] * (not server))
    needed = " and ".join(
        ["--chain (chain=...)"] * (not chain) + ["--server or --urls (server=... or urls=...)"] * (not server)
    )
    state = f"this journal knows {missing} yet:" if path.exists() else "there is no such journal yet. To make one,"
    words = f"{path}: {state} give {needed}, then it is remembered"
    if not chain:
        words += ". If you have no chain yet, learn one: `onoff proxy --learn --urls FILE` (learn=True)"
    raise OnoffError(words)


def default_journal() -> Path:
    """Where the journal is unless told otherwise: with the user's state."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "onoff" / "journal"


def remembered_chain(notes: Mapping[str, str], path: Path) -> Chain:
    """The chain of a journal's notes."""
    refuse_learning(path, notes)
    if "chain" not in notes:
        raise OnoffError(
            f"{path}: no command has noted its chain here: give --chain (chain=...), which `onoff get` or `play` notes"
        )
    return chain_from(notes["chain"])


def chain_text(chain: Chain) -> str:
    """A chain as a note, exact to the bit."""
    return json.dumps(chain.as_dict())


def chain_from(text: str) -> Chain:
    """The chain that `chain_text` wrote."""
    data = parsed(text)
    try:
        return Chain.from_dict(data)
    except (KeyError, TypeError, ValueError) as error:
        raise OnoffError(
            "the chain that the journal remembers cannot be read: give --chain (chain=...) again"
        ) from error


def weighing_from(notes: Mapping[str, str]) -> Weighing | None:
    """The lengths of a journal's notes, with chances if it has some; None if there are none."""
    found = parsed(notes.get("lengths", "null"))
    if found is None:
        return None
    parts = found if isinstance(found, dict) else {"lengths": found, "chances": None}
    try:
        if set(parts) != {"lengths", "chances"}:
            raise ValueError("it has other parts")
        chances = parts["chances"]
        return Weighing(_numbers(parts["lengths"]), None if chances is None else _numbers(chances))
    except (PlanError, ValueError):
        raise OnoffError(
            "the lengths that the journal remembers cannot be read: give --lengths (lengths=...) again"
        ) from None


def _numbers(found: Any) -> tuple[float, ...]:
    if not isinstance(found, list) or not all(type(number) in (int, float) for number in found):
        raise ValueError("a list of numbers is needed")
    return tuple(map(float, found))


def _weighing_text(weighing: Weighing | None) -> str:
    """Lengths as a note: a list, or with chances an object. A journal without chances is as it always was."""
    if weighing is None:
        return "null"
    return json.dumps(weighing.lengths if weighing.chances is None else weighing.as_dict())


def since_from(text: str | None) -> int:
    """The step from which on all costs have one unit. If it cannot be read, all steps count: only sums depend on it."""
    found = parsed(text or "0")
    return int(found) if is_whole(found) and found < MOST else 0


def _changed(before: str | None, since: str | None, lengths: str, step: int) -> str:
    """The note of earlier lengths, if these are replaced at a step. Lengths with which no step was made are left out.

    If it cannot be read, it begins anew: then an audit knows less, and nothing else depends on it.
    """
    found, first = parsed(before or "[]"), since_from(since)
    eras = found if isinstance(found, list) and all(map(_is_era, found)) else []
    if not all(one[0] < other[0] for one, other in pairwise([*eras, [first]])):
        eras = []
    now = [[first, hashlib.sha256(lengths.encode()).hexdigest()]] if first < step else []
    return json.dumps([*eras, *now][-MOST_CHANGES:])


def _is_era(found: Any) -> bool:
    """Whether this is a step and a digest."""
    return isinstance(found, list) and len(found) == 2 and is_whole(found[0]) and isinstance(found[1], str)


def parsed(text: str) -> Any:
    """The JSON in a note, or something that no note is."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return {"not JSON": True}


def loaded(chain: Chain | str | Path) -> Chain:
    """The chain, read if it is a file."""
    if isinstance(chain, Chain):
        return chain
    return Chain.load(path_of(chain, "the chain", ChainError))


def _weighing(given: Mapping[str, Any] | Sequence[float] | str | Path, chain: Chain) -> Weighing:
    if isinstance(given, str | Path):
        return read_weighing(path_of(given, "the file of lengths", PlanError), chain.names)
    if isinstance(given, Mapping):
        return weighing_of(given, chain.names)
    checked_lengths(given, chain.n)
    return weighing_of(dict(zip(chain.names, given, strict=True)), chain.names)


def _absolute(urls: Mapping[str, str] | str | Path | None) -> Path | Mapping[str, str] | None:
    """A file by its whole name, since it is noted in the journal and the directory may change."""
    if urls is None or isinstance(urls, Mapping):
        return urls
    file = path_of(urls, "the file of URLs")
    try:
        str(urls).encode()
    except UnicodeEncodeError:
        raise OnoffError(f"the name of the file {plain(str(urls))} is not UTF-8: rename it") from None
    return file.absolute()
