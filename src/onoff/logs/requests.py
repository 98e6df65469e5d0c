"""Requests in the order in which they were made, as indices of a chain: from a journal, a list or a log."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from onoff.errors import LogError
from onoff.logs.engines import DuckDB, explained
from onoff.logs.journals import read_journal
from onoff.logs.read import ReadOptions, open_log
from onoff.model.chain import Chain

MERGED = ("other (merged)", "other")  # what `onoff fit` calls the sources that it did not keep
ORDERED = "SELECT user, source FROM log WHERE user IS NOT NULL AND time IS NOT NULL ORDER BY user, time, row"
DEFAULT = ReadOptions()


@dataclass(frozen=True)
class Requests:
    """`indices` in order. At the places in `begins` another sequence begins: another user's, or after a break.

    `unknown` requests are for no source of the chain, and `example` is what one of them asked for.
    """

    indices: tuple[int, ...]
    begins: tuple[int, ...] = ()
    unknown: int = 0
    notes: tuple[str, ...] = ()
    example: str | None = None


def of_journal(file: Path, chain: Chain) -> Requests:
    """Read the requests of all steps of a journal of this chain, or of one that was made while learning."""
    found = read_journal(file)
    if found.chain is not None and found.chain != chain.fingerprint:
        raise LogError(f"{file}: is the journal of another chain")
    names = chain.names if found.chain is not None else found.names or ()
    known = {name: i for i, name in enumerate(chain.names)}
    try:
        return Requests(tuple(known[names[request]] for request in found.requests))
    except LookupError:
        raise LogError(f"{file}: the journal has requests for no source of the chain") from None


def of_log(file: Path, chain: Chain, options: ReadOptions = DEFAULT) -> Requests:
    """Read the requests of a log, as `onoff.fit` does, or of a list: one name in a line, or `on NAME` and `off NAME`.

    Each user is a sequence. Pauses are not taken for ends: to a client they are not.
    """
    if options.kind is None and (listed := _read_list(file, chain)):
        return Requests(tuple(listed))
    with (
        TemporaryDirectory(prefix="onoff-check-") as name,
        closing(DuckDB("1GB", Path(name))) as engine,
        explained(file),
    ):
        log = open_log(engine, [file], options)
        return _find_sequences(file, chain, engine.rows(ORDERED), log.notes)


def _find_sequences(
    file: Path, chain: Chain, events: Iterable[tuple[object, str | None]], notes: tuple[str, ...]
) -> Requests:
    known = {name: i for i, name in enumerate(chain.names)}
    merged = next((known[name] for name in MERGED if name in known), None)
    indices: list[int] = []
    begins: list[int] = []
    before: object = None
    unknown, broken, example = 0, False, None
    for user, source in events:
        index = known.get(source, merged) if source is not None else None
        if index is None:
            unknown, broken, example = unknown + (source is not None), True, example or source
            continue
        if broken or user != before:
            begins.append(len(indices))
        indices.append(index)
        before, broken = user, False
    if not indices:
        raise LogError(f"{file}: none of its requests is for a source of the chain ({', '.join(chain.names[:6])}, ...)")
    return Requests(tuple(indices), tuple(begins), unknown, notes, example)


def _read_list(file: Path, chain: Chain) -> list[int]:
    """Read a list in which every line names a source of the chain. Nothing if the file is not such a list."""
    known = {name: i for i, name in enumerate(chain.names)}
    known |= {
        f"{word} {name}": i for name, i in known.items() for word in ("on", "off") if f"{word} {name}" not in known
    }
    try:
        with file.open(encoding="utf-8-sig") as lines:
            return [known[line.strip()] for line in lines if line.strip() and not line.startswith("#")]
    except (OSError, UnicodeDecodeError, KeyError):
        return []
